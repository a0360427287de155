"""What a library's own arithmetic adds to a change between two ensembles; docs/mathematics.md, sections 13 and 16.

Outward and first order with room to spare, as everywhere; where a probability may lose its digits, infinite.
"""

import numpy as np

from privgate.families.trees.ensemble import Ensemble

#: unit roundoff of double and of single precision
U64, U32 = 2.0**-53, 2.0**-24
#: scores from which on a logistic function's small side is no longer held in full
DEEPEST = {False: 700.0, True: 80.0}


def unit(ensemble: Ensemble) -> float:
    """Return the unit roundoff of the library's sums."""
    return U32 if ensemble.single else U64


def of_scores(ensemble: Ensemble) -> float:
    """Return how far each computed score may be from the exact sum of its leaves; any order of adding."""
    edges = ensemble.start[:-1]
    size = np.maximum.reduceat(np.where(ensemble.feature < 0, np.abs(ensemble.value[:, 0]), 0.0), edges)
    whole = max(float(np.abs(ensemble.base[g]) + size[ensemble.group == g].sum()) for g in range(len(ensemble.base)))
    return 2 * (ensemble.trees + 4) * unit(ensemble) * whole + ensemble.base_error


def of_logistic(ensemble: Ensemble, lowest: float, highest: float) -> float:
    """Return how far released log-probabilities may be from those of exact scores, nats.

    Parameters
    ----------
    lowest, highest : float
        Between which every scaled score lies.

    Notes
    -----
    The second probability errs by a few roundings of itself; the first is released as 1 - p, whose relative error is
    that of p times ``e^score``: exactly 0 above a score of 16.6 in single and 36.7 in double precision.
    """
    if -lowest > DEEPEST[ensemble.single] or highest > DEEPEST[ensemble.single]:
        return np.inf
    share = 8 * unit(ensemble) * (1 + np.exp(highest)) + 8 * unit(ensemble) * (1 + abs(lowest))
    return _nats(share) + ensemble.scale * of_scores(ensemble)


def of_softmax(ensemble: Ensemble, spread: float) -> float:
    """Return the same for a softmax whose scores lie within ``spread`` of each other."""
    if spread > DEEPEST[ensemble.single]:
        return np.inf
    return _nats(8 * unit(ensemble) * (len(ensemble.base) + 8 + spread)) + 2 * of_scores(ensemble)


def of_mean(ensemble: Ensemble) -> float:
    """Return the same for means of leaves with a floor: sums of numbers that are not negative keep their digits."""
    return _nats(8 * U64 * (ensemble.trees + ensemble.value.shape[1] + 8))


def _nats(share: float) -> float:
    return float(-np.log1p(-share)) if share < 0.5 else np.inf
