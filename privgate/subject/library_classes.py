"""Which classes and functions an estimator may name where it is made outside any box."""

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
