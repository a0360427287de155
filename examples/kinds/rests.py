"""What the row of a kind rests on: a change of one kind makes no other row stale."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kept
from kinds import data
from kinds.catalogue import Kind

#: what every kind is measured with
LIBRARIES = ("numpy", "scipy", "sklearn", "pandas", "mlflow", "skops")
#: compared also with rows of another environment
SOURCES = ("privgate", "how it is measured", "the kind", "the data")


def rests_on(kind: Kind) -> dict[str, str]:
    """Return digests and versions of all that a row of this kind rests on."""
    own, shared = _catalogue()
    sources = (kept.product(), shared, own[kind.name], _data())
    return dict(zip(SOURCES, sources, strict=True)) | kept.versions(*LIBRARIES, *kind.needs)


def missing(kind: Kind) -> str:
    """Return which of the kind's libraries are not there."""
    return ", ".join(name for name, version in kept.versions(*kind.needs).items() if version == kept.ABSENT)


def stale(row: Mapping[str, Any] | None, kind: Kind, pandas: str) -> str:
    """Return why a kind has to be measured again; of a row of another pandas the sources alone can be compared."""
    rests = rests_on(kind)
    if row is None or row["pandas"] == pandas:
        return kept.stale(row, rests)
    there = {name: row.get("rests", {}).get(name) for name in SOURCES}
    return kept.stale({"rests": there}, {name: rests[name] for name in SOURCES})


@cache
def _data() -> str:
    return kept.digest(data.source())


@cache
def _catalogue() -> tuple[dict[str, str], str]:
    """Return the expression of each kind, and a digest of what all kinds share."""
    here = Path(__file__).parent
    tree = ast.parse((here / "catalogue.py").read_text(encoding="utf-8"))
    own: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Kind":
            own[ast.literal_eval(node.args[1])] = ast.unparse(node)
    rest = [
        ast.unparse(n) for n in tree.body if not (isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "KINDS")
    ]
    files = (here / f"{name}.py" for name in ("apart", "data", "measure", "referee", "training"))
    return own, kept.of(*rest, kept.digest(*files))
