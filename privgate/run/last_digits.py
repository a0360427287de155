"""What is left between two models that should be one: within the tolerance it may still be a mark of members.

Attacks compare a model with its shadow models and read no mark that only its author knows; one ten-thousandth of a
probability holds a mark easily. What machines and orders of additions leave behind follows the answer itself, so it
tells members from others no better than confidence does. A mark whose digits only a key explains looks like rounding,
and is not seen here.
"""

import numpy as np
from numpy.typing import NDArray

from privgate.statistics import roc

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

#: standard errors by which a difference must tell members better than confidence does: not by chance in any run
_SURE = 5.0
#: fewer people than this on either side tell nothing
_FEW = 10


def tells(one: Float, other: Float, members: Bool) -> float:
    """Return the AUC by which the difference of two answers tells members from others; 0 if it tells nothing.

    Parameters
    ----------
    one, other : float64 arrays of shape (n, K)
        Log-probabilities of the same records.
    members : bool array of shape (n,)
    """
    inside, outside = int(members.sum()), int((~members).sum())
    if min(inside, outside) < _FEW or np.array_equal(one, other):
        return 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        odds = [np.nan_to_num(_odds(a)) for a in (one, other)]
    gap = odds[1] - odds[0]
    error = float(np.sqrt((inside + outside + 1) / (12 * inside * outside)))
    sure = max(abs(roc.auc(v, members) - 0.5) for v in (*odds[0].T, np.abs(odds[0]).max(axis=1)))
    found = max(
        (max(a, 1 - a) for a in (roc.auc(v, members) for v in (*gap.T, *np.abs(gap).T, np.abs(gap).max(axis=1)))),
        default=0.5,
    )
    return found if found - 0.5 > sure + _SURE * error else 0.0


def _odds(log_p: Float) -> Float:
    return np.asarray(log_p - np.log(-np.expm1(np.minimum(log_p, -1e-300))))


def sentence(what: str, auc: float) -> str:
    """Return what such a difference means."""
    return (
        f"what lies between {what} tells people who were trained on from others (AUC {auc:.2f}), which rounding does "
        "not: its last digits may be a mark that no attack here reads"
    )
