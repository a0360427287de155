"""What adversaries compute from log-probabilities before they attack: own-label figures, and the two sides' moments."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.attacks.base import Signals
from privgate.errors import MeasurementError

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

#: probabilities are taken to be at least this: a rounding of float64, not a claim about the model
FLOOR = 1e-30


def own_log(log_p: Float, labels: NDArray[np.int64]) -> Float:
    """Return ln p(own label), floored at ln 1e-30, shape (..., P) from (..., P, K)."""
    own = np.take_along_axis(log_p, np.broadcast_to(labels[:, None], (*log_p.shape[:-1], 1)), axis=-1)[..., 0]
    return np.asarray(np.maximum(own, np.log(FLOOR)), dtype=np.float64)


def own_logit(log_p: Float, labels: NDArray[np.int64]) -> Float:
    """Return ln p_y - ln(1 - p_y), the logit-scaled confidence, clipped to +-ln 1e30, shape (..., P).

    ``1 - p_y`` is summed from the other labels, so that a confidence of 1 - 1e-20 is told from one of 1 - 1e-25.

    References
    ----------
    Carlini et al. (2022), section V.A and equation (5).
    """
    own = log_p[..., np.arange(len(labels)), labels]
    p = np.exp(log_p)
    others = p @ np.ones(p.shape[-1]) - np.exp(own)  # a product is faster than a sum along a short axis
    # cancellation where the own label holds almost everything: there, add the others up one by one
    close = others < 1e-6
    if close.any():
        mask = np.broadcast_to(np.arange(log_p.shape[-1]) == labels[:, None], log_p.shape)[close]
        others[close] = np.where(mask, 0.0, p[close]).sum(axis=-1)
    limit = -np.log(FLOOR)
    with np.errstate(divide="ignore"):
        logit = own - np.log(np.maximum(others, 0.0))
    return np.asarray(np.clip(logit, -limit, limit), dtype=np.float64)


def usable_shadows(signals: Signals, *, least: int) -> tuple[Float, Bool]:
    """Return (shadow log-probabilities, who was in) of the shadow models that were trained.

    Raises
    ------
    MeasurementError
        No shadow models, only one class, or a record with fewer than ``least`` models on either side.
    """
    if signals.shadow.ndim != 3 or len(signals.shadow) == 0:
        raise MeasurementError("no shadow models: give candidates, so that they can be trained")
    if signals.shadow.shape[-1] < 2:
        raise MeasurementError("the model knows one class only; its answers tell nobody apart")
    trained = np.asarray(~np.isnan(signals.shadow).any(axis=(1, 2)))
    log_p, inside = signals.shadow[trained], signals.shadow_members[trained]
    count = inside.sum(axis=0)
    fewest = int(min(count.min(), (len(inside) - count).min()))
    if len(log_p) == 0 or fewest < least:
        lost = int((~trained).sum())
        raise MeasurementError(
            f"{lost} of {len(trained)} shadow models failed, and some record has {fewest} models on one side; "
            f"at least {least} are needed, so train more shadow models"
        )
    return log_p, inside


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance of a figure over the shadow models with and without each record.

    Parameters
    ----------
    mean_in, mean_out, var_in, var_out : float64 arrays of shape (P,)
        Population moments (divided by the count), variances at least 1e-8.
    """

    mean_in: Float
    mean_out: Float
    var_in: Float
    var_out: Float


#: models on either side from which a variance a record is better than one for all (Carlini et al., section VI.C)
ENOUGH_FOR_VARIANCE = 16
LEAST_VARIANCE = 1e-8


def moments(figure: Float, inside: Bool) -> Moments:
    """Return moments of ``figure`` (shape (N, P)) over shadow models; variances pooled over records for few models."""
    w = inside.astype(np.float64)
    n_in, n_out = w.sum(axis=0), (1 - w).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_in = np.einsum("np,np->p", figure, w) / n_in
        mean_out = np.einsum("np,np->p", figure, 1 - w) / n_out
        var_in = np.einsum("np,np->p", (figure - mean_in) ** 2, w) / n_in
        var_out = np.einsum("np,np->p", (figure - mean_out) ** 2, 1 - w) / n_out
    if min(n_in.min(), n_out.min()) < ENOUGH_FOR_VARIANCE:
        var_in = np.full_like(var_in, np.average(np.nan_to_num(var_in), weights=n_in))
        var_out = np.full_like(var_out, np.average(np.nan_to_num(var_out), weights=n_out))
    return Moments(mean_in, mean_out, np.maximum(var_in, LEAST_VARIANCE), np.maximum(var_out, LEAST_VARIANCE))
