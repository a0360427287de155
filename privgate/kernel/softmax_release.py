"""How far released probabilities of two softmax models differ, whose parameters are known up to some error.

Claim.  Scores of model 0 are z0, of model 1 z1, every difference of two scores within e0 and e1 of these. Then the
logarithms of the probabilities that scikit-learn releases differ, for some label, by at least ``low``, and for none by
more than ``high``: at given questions (``at_questions``), or at every accepted question (``over_questions``).

Why it is enough.  ln p_y = -ln sum_b exp(z_b - z_y) falls in every difference, so its interval has the ends that the
differences have. Both vectors sum to 1, so no label changes by more than the largest change of a log-odds. For two
classes, with log-odds W before and V after, ln s(V) - ln s(W) >= t says -W >= ln((e^t - 1) + e^(t - V)), and by Gibbs'
inequality that is at least c ln(e^t - 1) + (1 - c)(t - V) + h(c) for every c in [0, 1], h the entropy. So where

    max over questions of (1 - c) V - W   <   t + c ln(1 - e^-t) + h(c)

for some c, no label rises by t: linear functions of the question bound the change (docs/mathematics.md, section 3.2:
over a convex set the best c makes the bound exact). The other label and the other direction swap signs and models.

Axioms.  Rounding of the released formulas is bounded by ``rounding.of_softmax`` and ``rounding.of_complement``.
"""

from collections.abc import Callable

import numpy as np

from privgate.kernel.accepted import Accepted
from privgate.kernel.assertion import Float
from privgate.kernel.rounding import EPS, of_complement, of_softmax, up

#: the c that are tried, fractions of 1024, so that 1 - c is exact; steps at which h loses at most .005 nats
_SHARES = np.round(np.sin(np.linspace(0, np.pi / 2, 17)) ** 2 * 1024) / 1024
#: halvings of the interval in which a limit is looked for
_HALVINGS = 12


def lost(span: Float, second: Float, scores_off: Float, classes: int) -> Float:
    """Return how far a released log-probability is off, nats.

    No difference of two scores exceeds ``span``. Of two classes the probability of the second is computed, and that of
    the first released as 1 - p; the second's score exceeds the first's by at most ``second``.
    """
    off = of_softmax(scores_off, span, classes)
    return off + of_complement(second) if classes == 2 else off


def at_questions(z0: Float, e0: Float, z1: Float, e1: Float) -> tuple[Float, Float]:
    """Return (low, high), each of shape (m,), nats, for scores of shape (m, K) and errors of shape (m,)."""
    (low0, high0), (low1, high1) = _log_probabilities(z0, e0), _log_probabilities(z1, e1)
    low = np.maximum(low0 - high1, low1 - high0).max(axis=1)
    return np.maximum(low, 0.0), np.maximum(high0 - low1, high1 - low0).max(axis=1)


def _log_probabilities(z: Float, e: Float) -> tuple[Float, Float]:
    """Return the ends of every released log-probability, (m, K), the rounding of this function included."""
    K = z.shape[1]
    others = z[:, None, :] - z[:, :, None]  # [., y, b]: z_b - z_y
    moved = e[:, None, None] * (1 - np.eye(K))
    moved[:, np.arange(K), np.arange(K)] = 0.0  # also where e is infinite
    span = np.abs(others).max(axis=(1, 2)) + e
    off = (lost(span, others[:, 0, 1] + e, np.zeros(1), K) + of_softmax(np.zeros(1), span, K))[:, None]
    low, high = (-np.logaddexp.reduce(others + sign * moved, axis=2) for sign in (1, -1))
    return low - off, high + off


def over_questions(
    accepted: Accepted,
    with_: Float,
    moves: Float,
    *,
    errors: tuple[float, Float],
    rounded: tuple[Float, Float],
    limit: float,
) -> Float:
    """Return ``high`` over every accepted question, shape (U,), nats.

    ``with_`` (K, d + 1) are scores with everybody, constant last; ``moves`` (U, K, d + 1) what each person's absence
    adds. A difference of two scores of either model is within ``errors``, scalar and (U,), of these at any accepted
    question, and rounding moves a score by at most ``rounded``, alike. For two classes, bounds between ``limit``, nats,
    and its double are tightened, at 0 all; it decides nothing else.
    """
    K, (e0, e1) = len(with_), errors

    def most(w: Float) -> Float:
        top = accepted.bound_dot(w[..., :-1])
        return top + w[..., -1] + 4 * EPS * (np.abs(top) + np.abs(w[..., -1]))

    tops = [np.zeros((K, K)), np.zeros((len(moves), K, K)), np.zeros((len(moves), K, K))]  # of score a less score b
    for a in range(K):
        for b in set(range(K)) - {a}:
            w, m = with_[a] - with_[b], moves[:, a] - moves[:, b]
            tops[0][a, b] = most(w) + e0
            tops[1][:, a, b], tops[2][:, a, b] = most(w + m) + e1, most(m) + e0 + e1
    high = tops[2].max(axis=(1, 2))
    falls = np.maximum(_by_ranges(tops[0], tops[2]), _by_ranges(tops[1], tops[2].swapaxes(1, 2)))
    high = np.where(falls < high, falls, high)
    lost0, lost1 = (
        lost(top.max(axis=(-2, -1)), top[..., 1, 0], np.asarray(off), K)
        for top, off in zip(tops, rounded, strict=False)
    )
    off = lost0 + lost1
    some = np.flatnonzero((high > limit) & ((high + off <= 2 * limit) | (limit == 0)))
    if K == 2 and len(some):
        slack = e0 + e1[some] + 2 * (rounded[0] + rounded[1][some])  # what is lost where two linear functions cancel
        w, m = with_[1] - with_[0], moves[some, 1] - moves[some, 0]
        high[some] = tightened(lambda k, n: most(k * w + n * m), slack, high[some])
    return np.asarray(high + off)


def _by_ranges(top: Float, moved: Float) -> Float:
    """Return how far any label falls, at most, (U,), nats.

    ``top[., a, b]`` is the largest score of a less that of b in the model that it falls from, ``moved[., a, b]`` the
    largest change of that difference to the other model. ln p_y falls by ln sum_k p_k exp(change of k less y).
    """
    K, off = top.shape[-1], 1 - np.eye(top.shape[-1])
    most = 1 / np.exp(-top).sum(axis=-1)  # a probability is at most this
    others = (np.exp(np.minimum(top, 700.0)) * off).sum(axis=-2)
    grows = np.expm1(np.maximum(moved, 0.0)) * off
    by_label = np.einsum("...k,uky->uy", most, grows) if most.ndim == 1 else np.einsum("uk,uky->uy", most, grows)
    by_rest = others / (1 + others) * grows.max(axis=1)
    return np.asarray(up(np.log1p(np.minimum(by_label, by_rest)), 8 * K + 64).max(axis=1))


def tightened(most: Callable[[float, float], Float], slack: Float, high: Float) -> Float:
    """Return smaller limits of any label's change than ``high``, (U,), those of the change of the log-odds.

    ``most(k, n)``, less ``slack``, is the largest ``k w + n m``: w the second's log-odds, m what absence adds.
    """
    reach = np.empty((4, len(_SHARES), len(high)))  # of each direction and label, for each c, what stands on the left
    for j, c in enumerate(_SHARES):
        for i, (k, n) in enumerate(((-c, 1 - c), (c, 1.0), (-c, -1.0), (c, c - 1))):
            reach[i, j] = most(float(k), float(n)) + slack
    c = _SHARES[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nan_to_num(c * np.log(c)) - np.nan_to_num((1 - c) * np.log1p(-c))
    low = high / 2
    for _ in range(_HALVINGS):
        t = low / 2 + high / 2
        drop = np.where(c > 0, c * np.log(-np.expm1(-t)), 0.0)
        shown = ((t + drop + entropy - 64 * EPS * (4 + t - drop)) > reach).any(axis=1).all(axis=0)
        low, high = np.where(shown, low, t), np.where(shown, t, high)
    return high
