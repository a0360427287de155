"""Import skops without the array libraries that scikit-learn's catalogue of estimators would bring along."""

import sys
from typing import Any

#: packages of scikit-learn's own that import a whole library each; they hold no estimator
_ADAPTERS = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask", "cupy"))


def skops_io() -> Any:
    """Return ``skops.io``: it lists every estimator of scikit-learn, and imports torch and dask on the way.

    Raises
    ------
    ImportError
        It is not installed.
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
