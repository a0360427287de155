"""What members answer, cut and combined, and how far one person can move what comes of it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def log_pool_bound(clip: float, share: float, n_classes: int) -> float:
    """Return the largest change of any label's log-probability, nats, when a share of the members changes at will.

    Parameters
    ----------
    clip : float
        R: a member's log-probabilities lie within R of their largest, nats.
    share : float
        Members that hold the person, of all; at most 1.
    n_classes : int
        Declared labels.

    Notes
    -----
    ``docs/mathematics.md``, section 12, Theorem 12.1; attained.
    """
    if n_classes < 2:
        return 0.0
    others = np.log(n_classes - 1)
    moved = clip * (1 - 2 * min(share, 1.0))
    return float(np.logaddexp(0.0, others + clip) - np.logaddexp(0.0, others + moved))


def votes_bound(alpha: float, memberships: int) -> float:
    """Return the same for smoothed votes or averaged probabilities: ``ln(1 + r / alpha)`` (Theorem 12.2)."""
    return float(np.log1p(memberships / alpha)) if alpha > 0 else float("inf")


def clipped(z: Float, clip: float) -> Float:
    """Return log-probabilities less their largest, none below ``-clip``; rows without a finite largest become 0."""
    top = z.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        out = np.maximum(z - top, -clip)
    return np.where(np.isfinite(top) & ~np.isnan(z).any(axis=1, keepdims=True), out, 0.0)


def normalised(z: Float) -> Float:
    """Return probabilities that sum to 1; the same for all where there is no answer."""
    q = np.exp(clipped(z, np.inf))
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def voted(z: Float) -> Float:
    """Return one vote for the likeliest label; a member without an answer gives every label the same share."""
    q = normalised(z)
    vote = np.eye(z.shape[1])[q.argmax(axis=1)]
    return np.where((q == q[:, :1]).all(axis=1, keepdims=True), q, vote)


def answers(member: Any, X: Any, n: int, classes: NDArray[Any]) -> Float:
    """Return a member's log-probabilities of the declared labels, shape (n, K); NaN where it does not answer."""
    nothing = np.full((n, len(classes)), np.nan)
    if member is None:
        return nothing
    try:
        p = np.asarray(member.predict_proba(X), dtype=np.float64)
        place = np.searchsorted(classes, np.asarray(member.classes_))
        out = np.full((n, len(classes)), -np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            out[:, place] = np.log(p)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  whatever a member does, it is one member's answer
        return nothing
    return np.where(np.isposinf(out).any(axis=1, keepdims=True), np.nan, out)
