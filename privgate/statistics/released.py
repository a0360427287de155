"""What a release hands out, and how far two releases can be told apart: arrays in, nats out.

A release is judged beside exact probabilities, never instead of them: DTP is not monotone under post-processing, so a
coarser answer can tell more (two probabilities on both sides of a bin's edge) or hide what an exact one tells.
"""

import numpy as np
from numpy.typing import NDArray

from privgate.release import Release
from privgate.statistics import leakage

Float = NDArray[np.float64]


def released(log_p: Float, release: Release) -> Float:
    """Return the natural logarithm of what the endpoint hands out for each label.

    Parameters
    ----------
    log_p : float64 array of shape (..., K)
        Exact natural log-probabilities.
    release : Release

    Returns
    -------
    float64 array of the same shape
        ``-inf`` where a label gets 0 or is not listed. Rounded and binned values need not sum to 1: nothing is
        normalised again. Bins are ``[0, h), [h, 2h), …`` with their centres handed out. A listed label of "top_k" has
        its exact value, the one label of "label" the value 1; ties go to the earlier class.

    References
    ----------
    Mathematical reference, section 11.5 and the correction on released outputs.
    """
    log_p = heated(log_p, release.temperature)
    if release.form == "probabilities":
        return log_p
    if release.form in ("rounded", "binned"):
        p, h = np.exp(log_p), release.step
        # a hair of tolerance keeps 0.29 / 0.01 in its own bin
        value = h * np.floor(p / h + 0.5 + 1e-12) if release.form == "rounded" else _centres(p, h)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(value))
    k = 1 if release.form == "label" else min(release.k, log_p.shape[-1])
    order = np.argsort(-log_p, axis=-1, kind="stable")[..., :k]
    listed = np.full(log_p.shape, -np.inf)
    shown = np.zeros(order.shape) if release.form == "label" else np.take_along_axis(log_p, order, axis=-1)
    np.put_along_axis(listed, order, shown, axis=-1)
    return listed


def heated(log_p: Float, temperature: float) -> Float:
    """Return log-probabilities after the logits were divided by ``temperature``; a probability of 0 stays 0."""
    if temperature == 1.0:
        return np.asarray(log_p, dtype=np.float64)
    scaled = np.asarray(log_p, dtype=np.float64) / temperature
    return np.asarray(scaled - np.logaddexp.reduce(scaled, axis=-1, keepdims=True))


def _centres(p: Float, h: float) -> Float:
    bins = np.minimum(np.floor(p / h + 1e-12), np.ceil(1.0 / h - 1e-12) - 1)
    return np.asarray((bins + 0.5) * h)


def changes(log_with: Float, log_without: Float, release: Release) -> Float:
    """Return the largest label change of what is released, shape (...,), nats.

    Infinite where one model alone hands out 0 or leaves a label out: who asks sees the difference with certainty.

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


def largest_finite(release: Release) -> float:
    """Return the largest finite change that a release can show at all, nats; infinite for exact probabilities.

    Bins of width h hide everything beyond ``ln((1 - h/2) / (h/2))``, which is no promise about exact probabilities.
    """
    if release.form == "binned":
        return float(np.log((1 - release.step / 2) / (release.step / 2)))
    if release.form == "rounded":
        return float(np.log(1 / release.step))
    return 0.0 if release.form == "label" else float("inf")


def rounding_bound(exact: float, *, floor: float, step: float) -> float:
    """Return an upper bound of released DTP when probabilities are raised to a floor before rounding, nats.

    Parameters
    ----------
    exact : float
        DTP of exact probabilities, nats.
    floor : float
        Smallest value handed to the rounding; above ``step / 2``.
    step : float
        Rounding step.

    Raises
    ------
    ValueError
        The floor does not keep rounded values away from 0.

    References
    ----------
    Mathematical reference, correction (11): ``exact + ln((1 + h / 2 tau) / (1 - h / 2 tau))``.
    """
    ratio = step / (2 * floor)
    if not ratio < 1:
        raise ValueError(f"a floor of {floor!r} does not keep values rounded to {step!r} away from 0; raise it")
    return exact + float(np.log1p(ratio) - np.log1p(-ratio))


def flips(log_with: Float, log_without: Float) -> NDArray[np.bool_]:
    """Return whether the label handed out differs, shape (...,): all that a label-only release can show."""
    return np.asarray(log_with.argmax(axis=-1) != log_without.argmax(axis=-1))
