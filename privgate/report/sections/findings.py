"""All findings, with the measurement behind each."""

from collections.abc import Mapping
from typing import Any

from privgate.report import words
from privgate.report.blocks import Section, Table


def section(doc: Mapping[str, Any]) -> Section:
    """Return every finding of the verdict, worst first, in full words."""
    found = [*words.preconditions(doc), *words.rules(doc)]
    rows = [
        (
            str(f.get("title") or f.get("rule")),
            words.RESULT.get(str(f.get("outcome")), "Not decided"),
            str(f.get("message", "")),
            str(f.get("rule", "")),
            str(f.get("mode", "")),
        )
        for f in found
    ]
    table = Table("Preconditions and rules", ("Finding", "Result", "Message", "Id in the policy", "Mode"), rows)
    return Section("findings", "All findings", [table])
