"""From rows to the table in the documentation, and the counts that are wanted of it."""

from collections.abc import Mapping, Sequence
from typing import Any

DECIDED = ("passed", "warned", "failed")


def right(row: Mapping[str, Any]) -> bool:
    """Whether the kind ended as its owner could act on: decided, uncontradicted; or refused where that is right."""
    if row["expects"] == "refusal":
        return row["verdict"] in ("refused", "inconclusive", "failed") and "Traceback" not in row["said"]
    return row["verdict"] in DECIDED and not row.get("contradicted")


def written(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as Markdown, its counts first."""
    lines = [
        "# Kinds of models",
        "",
        "Made by `make kinds`. Every kind as its owner would write it, logged, checked by the policy that fits it, in",
        "at most ten minutes of two cores. *Refitted by hand*: the people whom the report calls the riskiest, and some",
        "at random, left out without the gate's engines; a verdict that they contradict is wrong. Not done where",
        "training depends on its seed.",
        "",
        _counts(rows),
        "",
        "| # | kind | people | policy | verdict | engine | trainings | s | refitted by hand | what it says |",
        "| ---: | --- | ---: | --- | --- | --- | ---: | ---: | --- | --- |",
    ]
    return "\n".join([*lines, *map(_line, rows)]) + "\n"


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    approved = sum(r["verdict"] in ("passed", "warned") for r in rows)
    blocked = sum(r["verdict"] == "failed" for r in rows)
    confirmed = sum(r.get("contradicted") == "" for r in rows)
    contradicted = sum(bool(r.get("contradicted")) for r in rows)
    return (
        f"{len(rows)} kinds: {sum(map(right, rows))} ended right, {approved} approved, {blocked} blocked; "
        f"{confirmed} verdicts confirmed by refits, {contradicted} contradicted."
    )


def _line(r: Mapping[str, Any]) -> str:
    engines = ", ".join(f"{name} {count}" for name, count in r.get("engines", {}).items() if count)
    hand = {None: "", "": "agrees"}.get(r.get("contradicted"), r.get("contradicted"))
    said = str(r["said"]).replace("|", "/").replace("\n", " ")[:220]
    cells = (r["row"], r["name"], r.get("people", r["n"]), r["policy"], r["verdict"], engines, r.get("trainings", ""))
    return "| " + " | ".join(map(str, (*cells, r["seconds"], hand, said))) + " |"
