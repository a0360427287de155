"""Training that depends on a seed: the effect of one unit on the mean, and the noise it stands out from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SeedEffect:
    """Largest mean change of each unit over its labels, with limits.

    Parameters
    ----------
    value : float64 array of shape (U,)
        Largest |mean change| over labels; nats.
    low, high : float64 arrays of shape (U,)
        ``low`` holds for all units and labels together, ``high`` for each alone (an intersection-union test needs no
        correction). A unit with an infinite change has infinite limits; with one seed they are 0 and infinite.
    noise : float64 array of shape (U,)
        Standard deviation over seeds of the label that ``value`` belongs to; nats. NaN for one seed.
    """

    value: Float
    low: Float
    high: Float
    noise: Float


def mean_effect(changes: Float, *, alpha: float, searched: int | None = None) -> SeedEffect:
    """Return limits of the largest mean change of log-probability over paired seeds.

    Parameters
    ----------
    changes : float64 array of shape (S, U, K)
        Change of every label's log-probability, with minus without the unit, under the same seed; nats.
    alpha : float
        Error probability of each limit.
    searched : int, optional
        Units times labels that the verdict ranges over, if more than those given here.

    Returns
    -------
    SeedEffect
        Student limits: approving with them supposes roughly normal changes (5 % chance of a large jump gave .35 false
        approvals at 20 seeds), which the caller must state.

    Raises
    ------
    FloatingPointError
        A change is NaN.

    References
    ----------
    Mathematical reference, section 9.4 and its correction: every label is tested, not the own label alone.
    """
    from scipy.special import stdtrit

    changes = np.asarray(changes, dtype=np.float64)
    if np.isnan(changes).any():
        raise FloatingPointError("NaN change of log-probability: an engine failure, not a zero")
    seeds, units, labels = changes.shape
    endless = np.isinf(changes).any(axis=(0, 2))
    finite = np.where(np.isinf(changes), 0.0, changes)
    mean = np.abs(finite.mean(axis=0))  # (U, K)
    worst = mean.argmax(axis=1)
    rows = np.arange(units)
    value = np.where(endless, np.inf, mean[rows, worst])
    if seeds < 2:
        return SeedEffect(value, np.where(endless, np.inf, 0.0), np.full(units, np.inf), np.full(units, np.nan))
    spread = finite.std(axis=0, ddof=1)
    step = spread / np.sqrt(seeds)
    count = searched or units * labels
    # two-sided: |mean| may exceed on either side
    low = np.maximum(mean - stdtrit(seeds - 1, 1 - alpha / (2 * count)) * step, 0.0).max(axis=1)
    high = (mean + stdtrit(seeds - 1, 1 - alpha) * step).max(axis=1)
    return SeedEffect(
        value,
        np.where(endless, np.inf, low),
        np.where(endless, np.inf, high),
        np.where(endless, np.inf, spread[rows, worst]),
    )


def noise_floor(log_p: Float) -> Float:
    """Return the standard deviation between seeds with nobody removed, largest over labels, shape (...,); nats.

    Parameters
    ----------
    log_p : float64 array of shape (S, ..., K)
        Log-probabilities of the same training set under S seeds, S at least 2; finite.
    """
    if len(log_p) < 2:
        raise ValueError("a noise floor needs at least 2 seeds")
    return np.asarray(log_p.std(axis=0, ddof=1).max(axis=-1), dtype=np.float64)


def sign_flip(changes: Float) -> Float:
    """Return two-sided p-values of "no effect" from flipping the sign of paired changes.

    Parameters
    ----------
    changes : float64 array of shape (S, N)
        Paired changes of N hypotheses; exact if both arms are exchangeable when there is no effect.

    Returns
    -------
    float64 array of shape (N,)
        At least ``2 ** (1 - S)``: N hypotheses need ``S >= 1 + log2(N / alpha)`` seeds. All sign patterns are
        enumerated up to 16 seeds; more are refused, since then a Student limit does.
    """
    seeds = len(changes)
    if not 1 <= seeds <= 16:
        raise ValueError(f"sign flips are enumerated for 1 to 16 seeds, not {seeds}")
    signs = 1.0 - 2.0 * ((np.arange(2**seeds)[:, None] >> np.arange(seeds)) & 1)
    means = np.abs(signs @ changes)
    seen = np.abs(changes.sum(axis=0))
    return np.asarray((means >= seen * (1 - 1e-12)).mean(axis=0), dtype=np.float64)


def spread_differs(one: Float, other: Float) -> Float:
    """Return p-values of "both seed distributions have one spread", shape (N,): Brown and Forsythe's test.

    A unit can be betrayed by a changed variance while the means agree (sd .3 against .9: mean change 0, advantage
    .48), which no limit of a mean shows.

    Parameters
    ----------
    one, other : float64 arrays of shape (S, N)
        Log-probabilities with and without the unit, over at least 3 seeds each.
    """
    from scipy.stats import levene

    return np.array([levene(a, b, center="median").pvalue for a, b in zip(one.T, other.T, strict=True)])


def single_query_advantage(mean: Float, spread: Float) -> Float:
    """Return 2 Phi(|mean| / (2 spread)) - 1: the best single query's advantage when both are normal; descriptive."""
    from scipy.special import ndtr

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(spread > 0, np.abs(mean) / spread, np.where(np.abs(mean) > 0, np.inf, 0.0))
    return np.asarray(2 * ndtr(ratio / 2) - 1, dtype=np.float64)
