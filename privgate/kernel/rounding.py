"""What float64 adds: how far a computed number may be from the exact one, always outward.

Axioms; tests hold every certificate that rests on them against models of the real libraries:

- one operation of numpy errs by at most the share ``EPS`` of its result;
- sums and products of k terms err by at most ``gamma(k)`` times the sum of the terms' sizes, in any order;
- ``exp``, ``log``, ``log1p``, ``expm1`` and ``logaddexp`` err by at most four units in the last place of what they add
  up (``ELEMENTARY``);
- scikit-learn, XGBoost and LightGBM release probabilities by the formulas named at each function.

Higham, Accuracy and Stability of Numerical Algorithms, section 3.1; docs/mathematics.md, section 16.
"""

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

#: unit roundoff of float64
EPS = 2.0**-53
#: share by which an elementary function may err
ELEMENTARY = 8 * EPS
#: largest relative error of a number for which its logarithm still has a limit
SHARE = 0.25
#: sizes of numbers beyond which products may underflow or overflow
LARGE = 1e50
#: log-odds from which on a released probability has lost digits, or is 0
DEEPEST = 700.0


def gamma(terms: float) -> float:
    """Return the largest error of a sum of this many terms, as a share of the sum of the terms' sizes."""
    return terms * EPS / (1 - terms * EPS)


def up(x: Float | float, terms: float = 64) -> Float:
    """Return upper limits of non-negative numbers that this many operations computed."""
    return np.asarray(x * (1 + 2 * gamma(terms)) + 1e-300)


def of_logarithm(share: Float | float) -> Float:
    """Return the error of ln x, nats, where x errs by the share ``share`` of itself; infinite from ``SHARE`` on."""
    share = np.asarray(share, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(share < SHARE, -np.log1p(-np.minimum(share, SHARE)), np.inf)


def of_softmax(scores_off: Float, span: Float, classes: int) -> Float:
    """Return the largest error of log-probabilities that a float64 softmax of this many classes releases, nats.

    Each score is off by ``scores_off``, no two differ by more than ``span``; from ``DEEPEST`` on 0 may be released.
    """
    lost = 2 * scores_off + ELEMENTARY * (span + 2 * classes + 8)
    return np.where(span < DEEPEST, lost, np.inf)


def of_complement(logit: Float) -> Float:
    """Return the largest error of ``ln(1 - p)``, nats, where ``p`` is computed and ``1 - p`` released.

    ``logit`` bounds the log-odds. 1 - p errs by half a unit of 1, and by p's error; docs/mathematics.md, section 16.
    """
    return of_logarithm(2 * EPS * (2 + np.exp(np.minimum(logit, DEEPEST))))
