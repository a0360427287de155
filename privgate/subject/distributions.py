"""Which installed distributions provide a module, found without asking the disk about every file of each."""

import re
from collections.abc import Iterable
from importlib import metadata


def providing(modules: Iterable[str]) -> list[str]:
    """Return the names of the distributions that install these top-level modules.

    ``metadata.packages_distributions`` says the same after looking for every file of every distribution, which takes
    seconds.
    """
    names = sorted({name for name in modules if name.isidentifier() and name != "__pycache__"})
    tops = re.compile(rf"^(?:{'|'.join(names) or '(?!)'})(?:[/.,]|$)", re.MULTILINE)
    found = []
    for dist in metadata.distributions():
        declared = "\n".join((dist.read_text("top_level.txt") or "").split())
        listed = declared or dist.read_text("RECORD") or dist.read_text("SOURCES.txt") or ""
        if tops.search(listed):
            found.append(dist.metadata["Name"])
    return found
