"""How far released log-probabilities differ, whose scores are known with and without a person.

Claim.  Scores of a model are within ``off`` of the given ones, and log-probabilities are released as scores less the
logarithm of the sum of their exponentials. Then some label's differs between two models by ``low`` or more, and none by
more than ``high``: at given questions (``at``), or at all of them (``over``).

Why it is enough.  A log-probability moves by at most twice what its scores move by. Both vectors of probabilities sum
to 1, so no label changes by more than the largest change of a log-odds. For two classes ``softmax_release.tightened``
bounds a label's change by maxima over the questions of sums of log-odds and change.

Axioms.  Rounding is as ``rounding.of_softmax`` says. From ``rounding.DEEPEST`` on nothing is limited: a probability may
be released as 0.
"""

from collections.abc import Callable

import numpy as np

from privgate.kernel.assertion import Float, Index
from privgate.kernel.rounding import of_softmax
from privgate.kernel.softmax_release import tightened

#: entries of the largest temporary array
BLOCK = 1 << 21


def log_shares(z: Float) -> Float:
    """Return log-probabilities of scores, (…, K)."""
    top = z.max(axis=-1, keepdims=True)
    return np.asarray(z - top - np.log(np.exp(z - top).sum(axis=-1, keepdims=True)))


def at(z0: Float, z1: Float, off: Float | float) -> tuple[Float, Float]:
    """Return (low, high), (m,), at questions with these scores (m, K), each off by at most ``off``.

    ``off`` holds what the library loses and what was lost here.
    """
    K, change = z0.shape[1], np.abs(log_shares(z0) - log_shares(z1)).max(axis=1)
    lost = sum(2 * of_softmax(np.asarray(off), np.ptp(z, axis=1) + 2 * off, K) for z in (z0, z1))
    return np.maximum(change - lost, 0.0), change + lost


def over(
    odds: Float, span: Float | float, off: Float | float, K: int, limit: float, reach: Callable[..., Float] | None
) -> Float:
    """Return ``high``, (U,), over all questions.

    Parameters
    ----------
    odds : float64 array of shape (U,)
        Largest change of a difference of two scores.
    span : float
        Largest difference of two scores with everybody.
    off : float or float64 array of shape (U,)
        How far a score is off, here and in the library.
    limit : float
        For two classes, limits between it and its double are tightened; it decides nothing else.
    reach : callable
        (some, k, n) -> the largest ``k w(x) + n m(x)``, w the second score less the first, m what their absence adds
        to it; of shape (len(some),), for the people ``some``.
    """
    high = odds + 4 * off
    some = np.flatnonzero((high > limit) & (high <= 2 * limit))
    if K == 2 and reach is not None and len(some):
        slack = np.broadcast_to(8 * np.asarray(off), odds.shape)[some]
        high[some] = tightened(lambda k, n: reach(some, k, n), slack, high[some])
    spans = span + 2 * off, span + odds + 4 * off
    lost = sum(2 * of_softmax(np.asarray(off), np.asarray(s), K) for s in spans)
    return np.asarray(high + lost)


def largest(person: Index, people: int, values: Float) -> Float:
    """Return the largest of what belongs to each person's records, (people,); NaN wins."""
    found = np.zeros(people)
    np.maximum.at(found, person, values)
    return found
