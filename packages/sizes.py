"""Print what each distribution of an environment takes, in Markdown: ``python packages/sizes.py SITE_PACKAGES``.

A file that several distributions ship (MLflow's three share theirs) is counted once, for the first of them by name.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

#: what `python -m venv` puts there
TOOLS = ("pip", "setuptools")


def sizes(site: str) -> dict[str, int]:
    """Return bytes by distribution, largest first."""
    seen: set[Path] = set()
    found: dict[str, int] = {}
    held = {
        re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d for d in importlib.metadata.distributions(path=[site])
    }
    for name, distribution in sorted(held.items()):
        own = {Path(str(distribution.locate_file(f))).resolve() for f in distribution.files or ()} - seen
        seen |= own
        found[name] = sum(p.stat().st_size for p in own if p.is_file())
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def table(site: str, least: float = 5e6) -> str:
    """Return the table; what takes less than ``least`` bytes is one row."""
    found = {name: size for name, size in sizes(site).items() if name not in TOOLS}
    rows = [(name, size) for name, size in found.items() if size >= least]
    rest = [size for size in found.values() if size < least]
    rows += [(f"{len(rest)} more", sum(rest)), (f"**{len(found)} in all**", sum(found.values()))]
    lines = [f"| {name} | {size / 1e6:.1f} |" for name, size in rows]
    return "\n".join(["| distribution | MB |", "| --- | --- |", *lines])


if __name__ == "__main__":
    print(table(sys.argv[1]))  # noqa: T201  its purpose
