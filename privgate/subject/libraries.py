"""What is known of installed libraries before they are imported, and how skops is imported."""

import re
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import numpy as np


def is_class_of(homes: tuple[str, ...], thing: Any) -> bool:
    """Whether this is a class of estimators, kernels or splitters defined there, which keep what they are made with.

    A name below ``sklearn.`` is not enough: ``sklearn.datasets._base:os.system`` is one.
    """
    home = str(getattr(thing, "__module__", ""))
    keeps = hasattr(thing, "get_params") or hasattr(thing, "get_n_splits")
    return isinstance(thing, type) and keeps and home.startswith(tuple(h.partition(":")[0] for h in homes))


def is_number_type(ref: str) -> bool:
    """Whether a reference names a number type or an elementwise function of numpy, which parameters of steps are."""
    home, _, name = ref.partition(":")
    thing = getattr(np, name, None) if home == "numpy" else None
    return isinstance(thing, np.ufunc) or (isinstance(thing, type) and issubclass(thing, np.number | np.bool_))


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


#: what imports a whole library each and holds no estimator: packages of scikit-learn's own, and what its tests are of
_ADAPTERS = (*(f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask", "cupy")), "pytest")


def skops_io() -> Any:
    """Return ``skops.io``: it lists every estimator of scikit-learn, and imports torch and dask on the way.

    ``ImportError``: it is not installed.
    """
    absent = [name for name in _ADAPTERS if name not in sys.modules and "skops.io" not in sys.modules]
    loaded: dict[str, Any] = sys.modules
    loaded |= dict.fromkeys(absent)  # None: what the list then passes over
    try:
        import skops.io
    finally:
        for name in absent:
            sys.modules.pop(name, None)
    return skops.io
