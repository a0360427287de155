"""Types of arrays, said once: numbers, positions, yes or no. The kernel has its own, for it imports nothing."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bool", "Float", "Index"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Bool = NDArray[np.bool_]
