"""From rows to the table in the documentation, and the counts that are wanted of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DECIDED = ("passed", "warned", "failed")
_HEAD = """# Kinds of models

What becomes of yours: every common kind of model as its owner would write it, logged, and checked by the policy that
fits it. `make kinds` makes this page, and goes on where it was interrupted.

- *People* are those in the training data. A kind is wanted at 20,000 people where it trains quickly. Others are
  wanted at 2,000, or at what their data have. Brackets name the number wanted where there is only a run with fewer.
- *s* is processor time of the check and of all its workers. It includes logging, importing libraries and the refits by
  hand. Ten minutes of two cores are 1,200. Nothing searches here for a change that is approved (`privgate advise`).
- *By hand*: plain trainings, without any engine of the gate, leave out the people whom the report calls the riskiest,
  and a dozen at random. They agree with the verdict, and with what the report says of each.
  They ask at the records alone: where the rule asks beside them too, the report may say more.
- Where training depends on its seed, they leave out the riskiest people of a refusal, on a dozen seeds that the gate
  did not use. They do not look at approvals of such models, at regressors, or where attacks alone decide.
- The column *verdict* has the stored values: `passed`, `warned`, `failed`, `inconclusive`.
"""


def right(row: Mapping[str, Any]) -> bool:
    """Whether the kind ended as its owner could act on: decided, uncontradicted; or refused where that is right."""
    if row["expects"] == "refusal":
        return row["verdict"] in ("refused", "inconclusive", "failed") and "Traceback" not in row["said"]
    return row["verdict"] in DECIDED and not row.get("contradicted")


def best(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return of each kind and environment the run with most people that ended right, or the last one."""
    chosen: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        key = row["name"], str(row.get("pandas", "3"))
        before = chosen.get(key)
        if before is None or (right(row), row["n"]) >= (right(before), before["n"]):
            chosen[key] = row
    return list(chosen.values())


def written(rows: Sequence[Mapping[str, Any]], where: str = "") -> str:
    """Return the table as Markdown, its counts first; ``where`` names the machine and what else ran on it."""
    head = [_HEAD, *([f"- {where}\n"] if where else []), _counts(rows), ""]
    columns = "| # | kind | people | policy | verdict | engine | trainings | s | by hand | what it says |"
    lines = [columns, "| ---: | --- | ---: | --- | --- | --- | ---: | ---: | --- | --- |", *map(_line, rows)]
    return "\n".join([*head, *lines]) + "\n"


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    decided = [r for r in rows if r["verdict"] in DECIDED and not r.get("contradicted")]
    hand = [r for r in decided if r.get("contradicted") == ""]
    approved = [r for r in decided if r["verdict"] != "failed"]
    blocked = [r for r in decided if r["verdict"] == "failed"]
    refused = [r for r in rows if r["expects"] == "refusal" and right(r)]
    full = [r for r in decided if r["n"] >= r.get("asked", r["n"])]
    undecided = [r for r in rows if r["expects"] == "decision" and not right(r) and r["verdict"] != "not run"]
    return (
        f"**{len(rows)} rows: {len(decided)} decided.** {len(approved)} are approved, of which "
        f"{sum(r in approved for r in hand)} are confirmed by hand. {len(blocked)} are refused, of which "
        f"{sum(r in blocked for r in hand)} are confirmed. {len(refused)} are turned away as they should be, "
        f"{sum(bool(r.get('contradicted')) for r in rows)} contradicted, {len(undecided)} not decided, "
        f"{sum(r['verdict'] == 'not run' for r in rows)} not run. "
        f"{len(full)} of the decided ran with as many people as were wanted."
    )


def _line(r: Mapping[str, Any]) -> str:
    engines = ", ".join(f"{name} {count}" for name, count in r.get("engines", {}).items() if count)
    hand = {None: "", "": "agrees"}.get(r.get("contradicted"), r.get("contradicted"))
    said = str(r["said"]).replace("|", "/").replace("\n", " ")
    said = said if len(said) <= 220 else said[:220].rpartition(" ")[0] + " …"
    name = r["name"] + (", pandas 2" if r.get("pandas") == "2" else "")
    wanted = r.get("asked", r["n"])
    people = f"{r.get('people', r['n']):,}" + (
        f" ({wanted:,})" if r["n"] < wanted and r["expects"] == "decision" else ""
    )
    cells = (r["row"], name, people, r["policy"], r["verdict"], engines, r.get("trainings", ""))
    return "| " + " | ".join(map(str, (*cells, f"{r.get('cpu') or 0:.0f}", hand, said))) + " |"
