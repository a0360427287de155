"""What adversaries compute of answers: own-label figures, the two sides' moments, and what one query returns."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.errors import MeasurementError
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.subject.release import Release, released

#: probabilities are taken to be at least this: a rounding of float64, not a claim about the model
FLOOR = 1e-30
#: share of the answers nearest to 0 or 1 that lies below ``resolution``
EDGE = 0.02
#: answers that are looked at to find the resolution
MOST_ANSWERS = 1 << 18
#: how many models' worth of the pooled variance each record's own is mixed with
POOLED_WEIGHT = 8.0
LEAST_VARIANCE = 1e-8  # of a logit; below, a normal fit is a point


def own_log(log_p: Float, labels: Index) -> Float:
    """Return ln p(own label), floored at ln 1e-30, shape (..., P) from (..., P, K)."""
    return np.asarray(np.maximum(log_p[..., np.arange(len(labels)), labels], np.log(FLOOR)), dtype=np.float64)


def confidences(log_p: Float, labels: Index) -> tuple[Float, Float]:
    """Return (p_y, 1 - p_y) of the own label, each of shape (..., P).

    ``1 - p_y`` is summed from the other labels, so that a confidence of 1 - 1e-20 is told from one of 1 - 1e-25.
    """
    p = np.exp(log_p)
    own = p[..., np.arange(len(labels)), labels]
    others = p @ np.ones(p.shape[-1]) - own  # a product is faster than a sum along a short axis
    # cancellation where the own label holds almost everything: there, add the others up one by one
    close = others < 1e-6
    if close.any():
        mask = np.broadcast_to(np.arange(log_p.shape[-1]) == labels[:, None], log_p.shape)[close]
        others[close] = np.where(mask, 0.0, p[close]).sum(axis=-1)
    return own, np.maximum(others, 0.0)


def own_logit(log_p: Float, labels: Index, *, step: float = FLOOR) -> Float:
    """Return ln(p_y + step) - ln(1 - p_y + step), the logit-scaled confidence, shape (..., P) from (..., P, K).

    ``step`` says how finely answers can be told apart near 0 and 1, see ``resolution``: a forest of 100 trees that says
    1.00 has not said "e^69 to 1". Increasing in p_y for every step: no answer is merged with another. Carlini et al.
    (2022), equation (5), is step = 0; a constant added to both is the empirical logit of Haldane and Anscombe (1956).
    """
    own, others = confidences(log_p, labels)
    return np.asarray(np.log((own + step) / (others + step)), dtype=np.float64)


def resolution(log_p: Float, labels: Index) -> float:
    """Return the step below which confidences near 0 and 1 are no longer told apart, a probability above 0.

    It is the 2 % quantile of ``min(p_y, 1 - p_y)`` over shadow models' answers (N, P, K). One smallest value that more
    than 2 % of the answers share (0 for a forest, a recipe's own floor) is the model's own zero and does not count.
    """
    thin = max(1, -(-log_p.shape[0] * log_p.shape[1] // MOST_ANSWERS))
    nearest = np.sort(np.minimum(*confidences(log_p[:, ::thin], labels[::thin])), axis=None)
    least = nearest[0]
    own_zero = int(np.searchsorted(nearest, least * (1 + 1e-9), side="right"))
    above = nearest[own_zero:] if own_zero > EDGE * len(nearest) else nearest[nearest > 0]
    if len(above) == 0:  # one value only, as where labels are released: any step keeps the two answers apart
        return float(max(least, 0.01))
    return float(max(above[int(EDGE * len(above))], FLOOR))


def usable_shadows(signals: Signals, *, least: int) -> tuple[Float, Bool]:
    """Return (answers (N, P, K), who was in) of trained shadow models; ``least`` of them a record on either side."""
    trained = np.asarray(~np.isnan(signals.shadow).any(axis=(1, 2)))
    log_p, inside = signals.shadow, signals.shadow_members
    if not trained.all():
        log_p, inside = log_p[trained], inside[trained]
    count = inside.sum(axis=0)
    fewest = int(min(count.min(), (len(inside) - count).min()))
    if len(log_p) == 0 or fewest < least:
        raise MeasurementError(
            f"{int((~trained).sum())} of {len(trained)} shadow models failed, and some record has {fewest} models on "
            f"one side; at least {least} are needed, so train more shadow models"
        )
    return log_p, inside


def mean_over(figure: Float, models: Bool) -> Float:
    """Return means of ``figure`` over the chosen ``models`` of each record, both (N, P); NaN where there is none."""
    w = models.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.einsum("np,np->p", figure, w) / w.sum(axis=0), dtype=np.float64)


class Moments(NamedTuple):
    """Mean and variance (at least 1e-8) of a figure over shadow models with and without each record, (P,) each."""

    mean_in: Float
    mean_out: Float
    var_in: Float
    var_out: Float


def shrunk(var: Float, count: Float | float, pooled: Float | float) -> Float:
    """Return variances mixed with the pooled one: ``(count var + 8 pooled) / (count + 8)``, at least 1e-8.

    Between few models (one variance for all: Carlini et al., VI.C) and many (each record's own) there is no jump.
    """
    mixed = (count * var + POOLED_WEIGHT * pooled) / (count + POOLED_WEIGHT)
    return np.asarray(np.maximum(mixed, LEAST_VARIANCE), dtype=np.float64)


def moments(figure: Float, inside: Bool) -> Moments:
    """Return moments of ``figure`` (N, P) over shadow models; variances shrunk towards those of all records."""
    means, spreads = [], []
    for side in (inside, ~inside):
        count, mean = side.sum(axis=0, dtype=np.float64), mean_over(figure, side)
        var = np.nan_to_num(mean_over((figure - mean) ** 2, side))
        means.append(mean)
        spreads.append(shrunk(var, count, np.average(var, weights=count)))
    return Moments(*means, *spreads)


class OnRelease(Attack):
    """An attack of the catalogue whose adversary sees the declared release only, of target and shadow models alike.

    Run beside the same attack on exact probabilities: a threshold of its own may do better on coarser answers.
    """

    def __init__(self, base: Attack, release: Release) -> None:
        self.base, self.release = base, release
        self.name = f"{base.name} on the release"
        self.title = f"{base.title}, on what is released"
        self.source, self.min_shadows, self.cut = base.source, base.min_shadows, base.cut
        self.per_record, self.asks = base.per_record, base.asks
        self.threat_model = f"as the declared release shows it: {base.threat_model}"

    def shown(self, log_p: Float) -> Float:
        """Return the logarithm of what is released, shape of ``log_p``; models that were not trained stay NaN."""
        failed = np.isnan(log_p).any(axis=-1, keepdims=True)
        return np.where(failed, np.nan, released(log_p, self.release))

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        names = ("target", "shadow", "near", "shadow_near")
        exact: dict[str, Any] = {name: getattr(signals, name) for name in names if getattr(signals, name) is not None}
        shown: dict[str, Any] = {name: self.shown(log_p) for name, log_p in exact.items()}
        scorer = self.base.fit(replace(signals, **shown), rng)
        return lambda target: scorer(self.shown(target))
