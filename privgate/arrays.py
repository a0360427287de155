"""Types of arrays, said once: numbers, positions, yes or no. The kernel has its own, for it imports nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bool", "Compute", "Float", "Index", "compute_here"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Bool = NDArray[np.bool_]
#: calls a function of ours with arrays, here or in a worker that has its libraries
Compute = Callable[..., Any]


def compute_here(function: Callable[..., Any], *given: Any) -> Any:
    """Return what a function makes, in this process."""
    return function(*given)
