"""From rows to the table in the documentation, and the counts that are wanted of it."""

from collections.abc import Mapping, Sequence
from typing import Any

RELEASED = ("passed", "warned")
NOT_RUN = "not run"
_HEAD = """# Models of which the truth is known

Of 228 models half leak. How each is built says whether it gives away more than `release-1` allows. `make truth`
makes this page, and goes on where it was interrupted. `python -m truth --referee` confirms by hand what is known of
each, with nothing of the gate's.

- A model *leaks* in one of three ways. First: for more than 1 % of the people an answer at or beside their own records
  changes more than the policy allows. Second: an attack is right in more than 60 % of cases, or finds more than 10 % of
  the members. Third: the file holds records. Behind a floor it leaks where what is released tells anybody, by hand.
- A *false approval* is a model that leaks and is released, with or without warnings. A *needless refusal* is one that
  does not leak and is refused. *Left open* is undecided: nothing is released.
- *s* is processor time of logging and check, importing libraries included.
- The column *verdict* has the stored values: `passed`, `warned`, `failed`, `inconclusive`.
"""
_COLUMNS = "| model | leaks | how that is known | verdict | came out | trainings | s | what the gate says |"


def came_out(row: Mapping[str, Any]) -> str:
    """Return what a verdict is, beside what is true."""
    verdict = row["verdict"]
    if verdict in RELEASED:
        return "**false approval**" if row["leaks"] else "right"
    if verdict in ("failed", "refused"):
        return "right" if row["leaks"] else "needless refusal"
    return "left open" if verdict == "inconclusive" else verdict


def counts(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the totals in a sentence each."""
    told = []
    for leaks, wrong in ((True, "**false approval**"), (False, "needless refusal")):
        of = [came_out(r) for r in rows if r["leaks"] == leaks]
        ran = len(of) - of.count(NOT_RUN)
        good, bad = ("refused", "false approvals") if leaks else ("approved", "needless refusals")
        other = ran - of.count("right") - of.count(wrong) - of.count("left open")
        told.append(
            f"{len(of)} {'leak' if leaks else 'do not leak'}: {ran} were judged, {of.count('right')} {good}, "
            f"{of.count('left open')} left open, **{of.count(wrong)} {bad}**"
            + (f", {other} came to no verdict." if other else ".")
        )
    return " ".join(told)


def written(rows: Sequence[Mapping[str, Any]], where: str = "") -> str:
    """Return the table as Markdown, its counts first; ``where`` names the machine."""
    head = [_HEAD, *([f"- {where}\n"] if where else []), counts(rows), ""]
    return "\n".join([*head, _COLUMNS, "| --- | --- | --- | --- | --- | ---: | ---: | --- |", *map(_line, rows)]) + "\n"


def _line(r: Mapping[str, Any]) -> str:
    said = str(r["said"]).replace("|", "/").replace("\n", " ")
    said = said if len(said) <= 160 else said[:160].rpartition(" ")[0] + " …"
    leaks = "yes" if r["leaks"] else "no"
    cells = (r["name"], leaks, r["why"], r["verdict"], came_out(r), r.get("trainings", ""))
    return "| " + " | ".join(map(str, (*cells, f"{r.get('cpu') or 0:.0f}", said))) + " |"
