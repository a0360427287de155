"""How far released log-probabilities differ, whose scores are known with and without a person.

Claim.  Scores of a model are within ``off`` of the given ones, and log-probabilities are released as scores less the
logarithm of the sum of their exponentials. Then some label's differs between two models by ``low`` or more, and none by
more than ``high``: at given questions (``at``), or at all of them (``over``).

Why it is enough.  A log-probability moves by at most twice what its scores move by. Both vectors of probabilities sum
to 1, so no label changes by more than the largest change of a log-odds, and by less where little mass can move
(``_moved``). For two classes ``softmax_release.tightened``
bounds a label's change by maxima over the questions of sums of log-odds and change.

Axioms.  Rounding is as ``rounding.of_softmax`` says. From ``rounding.DEEPEST`` on nothing is limited: a probability may
be released as 0.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from privgate.kernel.assertion import Case, Float, Index, every
from privgate.kernel.rounding import of_softmax, up
from privgate.kernel.softmax_release import tightened

#: entries of the largest temporary array
BLOCK = 1 << 21


def log_shares(z: Float) -> Float:
    """Return log-probabilities of scores, (…, K)."""
    top = z.max(axis=-1, keepdims=True)
    return np.asarray(z - top - np.log(np.exp(z - top).sum(axis=-1, keepdims=True)))


def at(z0: Float, z1: Float, off: Float | float) -> tuple[Float, Float]:
    """Return (low, high), (m,), at questions with these scores (m, K), each off by ``off``, there and here."""
    K, change = z0.shape[1], np.abs(log_shares(z0) - log_shares(z1)).max(axis=1)
    lost = sum(2 * of_softmax(np.asarray(off), np.ptp(z, axis=1) + 2 * off, K) for z in (z0, z1))
    return np.maximum(change - lost, 0.0), change + lost


class Scope(NamedTuple):
    """All questions."""

    #: shape (K, K): largest difference of the scores of a first class and a second, with everybody
    top: Float
    #: nats. For two classes, limits between it and its double are tightened; it decides nothing else
    limit: float
    #: (some, k, n) -> the largest ``k w(x) + n m(x)``, w the second score less the first, m what their absence adds to
    #: it; of shape (len(some),), for the people ``some``
    reach: Callable[..., Float]


def over(odds: Float, off: Float | float, scope: Scope) -> Float:
    """Return ``high``, (U,), over all questions.

    ``odds`` (U, K, K) is how far, at most, the scores of a first class less those of a second fall without a person;
    ``off`` how far a score is off, here and in the library, together.
    """
    K, off = len(scope.top), np.broadcast_to(np.asarray(off), odds.shape[:1])
    D, top = np.maximum(odds + 4 * off[:, None, None], 0.0), scope.top + 2 * off[:, None, None]
    most = D.max(axis=(1, 2))
    high = np.minimum(most, np.maximum(_moved(top + D.transpose(0, 2, 1), D), _moved(top, D.transpose(0, 2, 1))))
    some = np.flatnonzero((high > scope.limit) & (high <= 2 * scope.limit))
    if K == 2 and len(some):
        high[some] = tightened(lambda k, n: scope.reach(some, k, n), 8 * off[some], high[some])
    lost = sum(2 * of_softmax(off, top.max(axis=(1, 2)) + s, K) for s in (0.0, most))
    return np.asarray(high + lost)


def _moved(top: Float, D: Float) -> Float:
    """Return how far the logarithm of a probability q_y falls short of p_y's, (U,), at most.

    ``top`` (U, K, K) are the largest log-odds of q, ``D`` those of p_y / p_b less those of q_y / q_b, not negative.
    ln p_y - ln q_y = -ln sum_b q_b exp(-D_yb) <= -ln(1 - m (1 - exp(-D))), D the largest, m the mass that moves: of
    the other labels, and no more than each of those has that move.
    """
    K, against = D.shape[1], np.exp(top) * (1 - np.eye(D.shape[1]))  # [b, y]
    others = against.sum(axis=1)
    rest = np.where(np.isfinite(others), others / (1 + others), 1.0)
    each = 1 / (1 + (np.exp(-top) * (1 - np.eye(K))).sum(axis=2))
    mass = np.minimum(rest, ((D > 0) * each[:, None, :]).sum(axis=2))
    share = np.minimum(up(mass * -np.expm1(-D.max(axis=2)), K + 64), 1.0)
    return np.asarray(up(-np.log1p(-share)).max(axis=1))


def largest(person: Index, people: int, values: Float) -> Float:
    """Return the largest of what belongs to each person's records, (people,); NaN wins."""
    most = np.zeros(people)
    np.maximum.at(most, person, values)
    return most


def sums(person: Index, people: int, values: Float) -> Float:
    """Return the sums of what belongs to each person's records, (people, …); each has one at least."""
    if people == len(person):
        total = np.empty_like(values)
        total[person] = values
        return total
    order = np.argsort(person, kind="stable")
    return np.asarray(np.add.reduceat(values[order], np.searchsorted(person[order], np.arange(people)), axis=0))


class Block(NamedTuple):
    """Some people: which, their rows, whose each of the rows is, from 0, and how many people they are."""

    people: slice
    rows: Index
    who: Index
    U: int


def blocks(person: Index, people: int, width: int) -> Iterator[Block]:
    """Yield everybody, in blocks that fit the memory where each takes ``width`` numbers."""
    order = np.argsort(person, kind="stable")
    first = np.searchsorted(person[order], np.arange(people + 1))
    step = max(1, BLOCK // width)
    for p in range(0, people, step):
        U = min(step, people - p)
        rows = order[first[p] : first[p + U]]
        yield Block(slice(p, p + U), rows, person[rows] - p, U)


def settled(block: Block, below: Float, shown: Float, high: Float, rest: Float) -> tuple[Float, Float]:
    """Return (low, high), (U,): ``below`` at records, ``shown`` at questions; infinite where a class goes.

    ``rest`` (U, K) is how many records each class has without them.
    """
    low = np.maximum(largest(block.who, block.U, np.nan_to_num(below)), np.nan_to_num(shown))
    vanishing = (rest <= 0).any(axis=1)
    return np.where(vanishing, np.inf, low), np.where(vanishing, np.inf, high)


def labels(case: Case, records: tuple[int, ...], *, declared: bool = False) -> tuple[Index, Float]:
    """Return (label of each record, records of each class) of a case; a class that is ``declared`` may have none."""
    label, K = case.array("label", 1, "i"), case.setting("classes", int)
    every(
        (min(records) > 0 and label.shape == records[:1], "records and labels differ"),
        (K >= 2 and bool(((label >= 0) & (label < K)).all()), f"labels are not from 0 to {K - 1}"),
    )
    N = np.bincount(label, minlength=K).astype(np.float64)
    every((declared or bool((N > 0).all()), "a class has no record"))
    return label, N


def fixed_prior(case: Case, K: int, **default: bool) -> Float | None:
    """Return the logarithms of the classes' fixed priors, up to a constant; None where they follow the records."""
    log_prior = case.array("log_prior", 1) if "log_prior" in case.arrays else np.zeros(K)
    every((log_prior.shape == (K,) and bool(np.isfinite(log_prior).all()), f"'log_prior' is not of {K} numbers"))
    learnt = case.setting("fit_prior", bool, **default)
    every((not learnt or "log_prior" not in case.arrays, "the prior is fixed, and is not"))
    return None if learnt else log_prior
