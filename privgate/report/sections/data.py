"""Data and preconditions: what must hold before any number counts."""

from collections.abc import Mapping
from typing import Any

from privgate.report import words
from privgate.report.blocks import Section, Table


def section(doc: Mapping[str, Any]) -> Section | None:
    """Return the preconditions in the order in which they were checked."""
    held = (doc.get("evidence") or {}).get("preconditions") or ()
    if not held:
        return None
    rows = [
        (str(p["name"]).replace("_", " "), words.RESULT.get(p["outcome"], "Not decided"), p["message"]) for p in held
    ]
    return Section(
        "data", "Data and preconditions", [Table("Preconditions", ("Condition", "Result", "What was found"), rows)]
    )
