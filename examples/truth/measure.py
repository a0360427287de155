"""One subject through the whole gate, and what its row rests on."""

from functools import cache, partial
from pathlib import Path
from typing import Any

import kept
from kinds.catalogue import Kind
from kinds.measure import measured
from privgate import Release
from truth.catalogue import TRUTH, Known

POLICY = "release-1"
LIBRARIES = ("numpy", "scipy", "sklearn", "pandas", "mlflow", "skops")


def by_name(name: str, out: Path) -> dict[str, Any]:
    """Return what the gate says of one subject, a row; ``out`` holds an empty registry to copy."""
    known = next(k for k in TRUTH if k.name == name)
    kind = Kind(0, name, lambda _: (known.recipe(), known.data()), data_size(known), POLICY)
    # no ledger of an earlier run: a row costs what it costs
    release = None if known.floor is None else Release(floor=known.floor)
    return measured(kind, n=kind.n, ledger=None, refereed=False, home=out / "registry", release=release)


def data_size(known: Known) -> int:
    """Return how many people are trained on."""
    return len(known.data().units)


def rests_on(known: Known) -> dict[str, str]:
    """Return digests and versions of all that the row of a subject rests on."""
    table = known.data if isinstance(known.data, partial) else partial(known.data)
    said = f"{table.func.__qualname__} {table.args} {sorted(table.keywords.items())} {known.leaks}"
    own = kept.of(known.recipe().digest, said if known.floor is None else f"{said} {known.floor}")
    return {"privgate": kept.product(), "how it is measured": _shared(), "the subject": own} | kept.versions(*LIBRARIES)


@cache
def _shared() -> str:
    here, kinds = Path(__file__).parent, Path(__file__).parents[1] / "kinds"
    return kept.digest(here / "data.py", here / "measure.py", kinds / "measure.py", kinds / "apart.py")
