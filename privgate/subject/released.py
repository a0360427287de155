"""What a release hands out, and how far two releases can be told apart: arrays in, nats out.

A release is judged beside exact probabilities, never instead of them: DTP is not monotone under post-processing, so a
coarser answer can tell more (two probabilities on both sides of a bin's edge) or hide what an exact one tells. For the
same reason an error of a log-probability is not an error of what is released: next to an edge a hair is a whole step.
"""

import numpy as np

from privgate.arrays import Bool, Float
from privgate.statistics import leakage
from privgate.subject import release as releases
from privgate.subject.release import Release

#: relative; what a probability loses on its way to a rounding: one logarithm and back, or single precision
HAIR = 2.0**-22
#: nats; labels that are no further apart than rounding may change places when they are heated, or lost a last digit
TIED = 1e-12
#: nats; below exp(-708) float64 loses digits, and below exp(-746) nothing but 0 is left
SUBNORMAL, NOTHING = -708.0, -746.0
#: -ln of the least number above 0
_UNIT = 1074 * np.log(2.0)


def released(log_p: Float, release: Release) -> Float:
    """Return the natural logarithm of what the endpoint hands out for each label, shape (..., K).

    It is that of ``Release.shown`` for the exact natural log-probabilities ``log_p``, but without its underflow:
    ``-inf`` where a label gets 0 or is not listed (docs/mathematics.md, section 11).
    """
    log_q = heated(log_p, release.temperature)
    if release.floor:
        return np.log(releases.floored(np.exp(log_q), np.array(release.floor)))
    if release.form == "probabilities":
        return log_q
    if release.form in ("rounded", "binned"):
        value = (releases.rounded if release.form == "rounded" else releases.binned)(np.exp(log_q), release.step)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(value))
    order = np.argsort(-log_q, axis=-1, kind="stable")[..., : _listed_labels(release, log_q)]
    listed = np.full(log_q.shape, -np.inf)
    shown = np.zeros(order.shape) if release.form == "label" else np.take_along_axis(log_q, order, axis=-1)
    np.put_along_axis(listed, order, shown, axis=-1)
    return listed


def heated(log_p: Float, temperature: float) -> Float:
    """Return log-probabilities after the logits were divided by ``temperature``; a probability of 0 stays 0."""
    if temperature == 1.0:
        return np.asarray(log_p, dtype=np.float64)
    scaled = np.asarray(log_p, dtype=np.float64) / temperature
    total = np.logaddexp.reduce(scaled, axis=-1, keepdims=True)
    return np.asarray(scaled - np.where(np.isneginf(total), 0.0, total))


def changes(log_with: Float, log_without: Float, release: Release) -> Float:
    """Return the largest label change of what is released, shape (...,), nats.

    Infinite where one model alone hands out 0 or leaves a label out: who asks sees the difference with certainty.
    Halves and ties go one way; ``bounds`` has the worst of both.

    Examples
    --------
    Two probabilities a hair apart, on both sides of a bin's edge: the bins tell more than the probabilities did.

    >>> with_, without = np.log([0.00999, 0.99001]), np.log([0.01001, 0.98999])
    >>> float(changes(with_, without, Release("binned"))).__round__(4)
    1.0986
    >>> float(changes(with_, without, Release())).__round__(4)
    0.002
    """
    return leakage.largest_change(released(log_with, release), released(log_without, release))


def without_digits(log_with: Float, log_without: Float) -> Float:
    """Return the largest change, shape (...,), nats, of probabilities that float64 does not hold in full; 0 of others.

    A closed form knows the logarithm of a probability of ``exp(-745)``, and an endpoint releases 5e-324 or 0.

    Examples
    --------
    >>> without_digits(np.log([[0.5, 0.5]]), np.log([[0.4, 0.6]])).tolist()
    [0.0]
    >>> without_digits(np.array([[0.0, -744.9]]), np.array([[0.0, -745.2]])).tolist()
    [inf]
    """
    small = np.minimum(log_with, log_without) < SUBNORMAL
    apart = _apart(_held(log_with), _held(log_without))[1]
    return np.asarray(np.where(small & (log_with != log_without), apart, 0.0).max(axis=-1))


def _held(log_p: Float) -> tuple[Float, Float]:
    """Return the lowest and highest logarithm of what float64 may make of a probability that it holds in part."""
    units = np.exp(np.minimum(log_p, SUBNORMAL) + _UNIT)  # how many times the least number above 0
    with np.errstate(divide="ignore"):
        low, high = (np.log(np.where(log_p < NOTHING, 0.0, np.maximum(units + k, 0.0))) - _UNIT for k in (-1.0, 1.0))
    return np.where(log_p < SUBNORMAL, low, log_p), np.where(log_p < SUBNORMAL, high, log_p)


def bounds(log_with: Float, log_without: Float, release: Release) -> tuple[Float, Float]:
    """Return the smallest and the largest change of what real models release, shape (...,), nats.

    Halves (0.125 in hundredths), values on an edge of a bin, and ties for the last place of a list are resolved one way
    by one endpoint and another way by the next; the worst of both counts. Two models that give exactly the same
    log-probability release the same, though two probabilities a few bits apart may share their logarithm.
    ``FloatingPointError``: a log-probability is NaN.
    """
    if np.isnan(log_with).any() or np.isnan(log_without).any():
        raise FloatingPointError("NaN log-probabilities: an engine failure, not a zero")
    models = (np.asarray(log_with, dtype=np.float64), np.asarray(log_without, dtype=np.float64))
    exact = np.zeros(models[0].shape[:-1])
    one, other = (_values(m, release, exact) for m in models)
    small, large = _apart(one, other)
    same = models[0] == models[1]
    if release.temperature != 1.0:
        same = same.all(axis=-1, keepdims=True)
    small, large = np.where(same, 0.0, small), np.where(same, 0.0, large)
    if release.form in ("top_k", "label"):
        small, large = _with_lists((small, large), models, (one, other), release)
    return small.max(axis=-1), large.max(axis=-1)


def _values(log_p: Float, release: Release, error: Float) -> tuple[Float, Float]:
    """Return the lowest and highest logarithm of the value of each label, were every label listed."""
    log_q = heated(log_p, release.temperature)
    if release.form == "label":
        return np.zeros(log_q.shape), np.zeros(log_q.shape)
    # heated, ln q_y = -ln sum_c exp((l_c - l_y) / T), and each difference moves by at most 2 e
    margin = (error if release.temperature == 1.0 else 2 * error / release.temperature)[..., None]
    if release.floor:  # where each label moves by a factor at most, so does what makes the sum 1
        low, answers = np.log(np.array(release.floor)), released(log_p, release)
        return np.maximum(answers - 2 * margin, low), np.minimum(answers + 2 * margin, 0.0)
    nothing = np.isneginf(log_p)  # an infinite error leaves nothing known but that
    log_q = np.where(nothing, NOTHING, log_q)
    low, high = log_q - margin, np.minimum(log_q + margin, 0.0)
    high = np.where(high < SUBNORMAL, high + np.log(2.0), high)  # the last bit may be half of what is left
    low = np.where(nothing | (log_p - error[..., None] < SUBNORMAL) | (low < SUBNORMAL), -np.inf, low)
    high = np.where(nothing | (high < NOTHING), -np.inf, high)
    if release.form in ("rounded", "binned"):
        lowest, highest = np.exp(low) * (1 - HAIR) / release.step, np.exp(high) * (1 + HAIR) / release.step
        if release.form == "rounded":
            low, high, shift = np.ceil(lowest - 0.5), np.floor(highest + 0.5), 0.0
        else:
            last, shift = releases.last_bin(release.step), 0.5
            low, high = np.minimum(np.floor(lowest), last), np.minimum(np.floor(highest), last)
        with np.errstate(divide="ignore"):
            low, high = np.log(np.maximum(low, 0.0) + shift), np.log(high + shift)
    return low, high


def _apart(one: tuple[Float, Float], other: tuple[Float, Float]) -> tuple[Float, Float]:
    """Return the smallest and the largest distance of two values from two ranges; that of 0 from 0 is 0."""
    with np.errstate(invalid="ignore"):
        farthest = np.fmax(one[1] - other[0], other[1] - one[0])
        nearest = np.fmax(one[0] - other[1], other[0] - one[1])
    return np.fmax(nearest, 0.0), np.fmax(farthest, 0.0)


def _with_lists(
    apart: tuple[Float, Float],
    models: tuple[Float, Float],
    values: tuple[tuple[Float, Float], tuple[Float, Float]],
    release: Release,
) -> tuple[Float, Float]:
    """Return changes of listed labels, infinite where one model alone lists a label that has a probability."""
    small, large = apart
    told = ~(np.isneginf(values[0][1]) & np.isneginf(values[1][1])) & ~(np.isneginf(models[0]) & np.isneginf(models[1]))
    told &= ~(models[0] == models[1]).all(axis=-1)[..., None]
    exact = np.zeros(small.shape[:-1])
    smallest, largest = np.full(small.shape, np.inf), np.zeros(large.shape)
    for later in (False, True):  # either of equal labels may be listed first, by one endpoint always the same
        (may, must), (may_too, must_too) = (_listed(m, release, exact, later=later) for m in models)
        alone = ((may & ~must_too) | (may_too & ~must)) & told
        surely = ((must & ~may_too) | (must_too & ~may)) & told
        largest = np.maximum(largest, np.where(alone, np.inf, np.where(may & may_too, large, 0.0)))
        smallest = np.minimum(smallest, np.where(surely, np.inf, np.where(must & must_too, small, 0.0)))
    return smallest, largest


def _listed(log_p: Float, release: Release, error: Float, *, later: bool) -> tuple[Bool, Bool]:
    """Return which labels may be listed, and which certainly are; of equal ones the later or the earlier first."""
    k = _listed_labels(release, log_p)
    ranked = log_p[..., ::-1] if later else log_p
    order = np.argsort(-ranked, axis=-1, kind="stable")[..., :k]
    first = np.zeros(log_p.shape, dtype=bool)
    np.put_along_axis(first, order, values=True, axis=-1)
    first = first[..., ::-1] if later else first
    if k == log_p.shape[-1]:
        return first, first
    with np.errstate(invalid="ignore"):
        gap = np.abs(log_p - np.sort(log_p, axis=-1)[..., [-k]])
    near = ((gap > 0) & (gap < TIED)).any(axis=-1)  # not equal, but rounding may make them so
    error = np.where(near, np.maximum(error, TIED), error)
    unsure, e = (error > 0)[..., None], error[..., None]
    with np.errstate(invalid="ignore"):
        low = np.where(np.isneginf(log_p), -np.inf, log_p - e)
        high = np.where(np.isneginf(log_p), -np.inf, log_p + e)
    may = high >= np.sort(low, axis=-1)[..., [-k]]
    must = low > np.sort(high, axis=-1)[..., [-k - 1]]
    return np.where(unsure, may, first), np.where(unsure, must, first)


def _listed_labels(release: Release, log_p: Float) -> int:
    return 1 if release.form == "label" else min(release.k, log_p.shape[-1])


def admissible(values: Float, log_p: Float, release: Release, error: float) -> Bool:
    """Return for which answers each value may be what a release hands out, shape (...,).

    ``values`` of shape (..., K) were handed out, 0 for a label that is not listed; ``log_p`` are exact natural
    log-probabilities. ``error`` bounds the error of each of these and the relative error of each value; above 0.
    """
    off = np.full(log_p.shape[:-1], error)
    low, high = _values(log_p, release, off)
    if release.form in ("rounded", "binned"):
        low, high = low + np.log(release.step), high + np.log(release.step)
    with np.errstate(divide="ignore", invalid="ignore"):
        told = np.log(values)
    fits = (told >= low - error) & (told <= high + error)
    if release.form in ("top_k", "label"):
        may, must = _listed(log_p, release, off, later=False)
        return np.asarray(np.where(values == 0, ~must | np.isneginf(low), may & fits).all(axis=-1))
    return np.asarray(fits.all(axis=-1))
