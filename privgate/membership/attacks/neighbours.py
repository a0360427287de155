"""Likelihood ratios of several answers: at the record, beside it, and what lies between them."""

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
from privgate.membership.attacks.attack_base import Asks, Attack, Scorer, Signals
from privgate.membership.attacks.lira import log_ratio
from privgate.membership.attacks.observed import Moments, moments, own_logit, resolution, shrunk, usable_shadows

#: rows of (shadow model, record) that weights are learned from, about; more of them move no weight
MOST_ROWS = 2**16
#: a weight's prior variance is one over it; every figure has variance 1
RIDGE = 1.0
#: steps of Newton's method, which ends where weights move less
STEPS, STILL = 30, 1e-11


class LiraNeighbours(Attack):
    """Likelihood ratios of answers at a record and beside it, and of their differences, added with learned weights.

    Threat model: black box with probabilities; several queries, the record's own features and questions beside them.
    The adversary knows the record and its label, the training algorithm, and data of the same population, and trains
    shadow models with and without the record. Each figure (the logit of the own label at each question, the difference
    to the first, how far all labels' probabilities move, the likeliest other label) gives a log-likelihood ratio under
    two normal distributions. The score is the log-odds of a logistic regression on them, learned from shadow models
    that take turns as the target; above 0 says "member".

    Source: Carlini et al. (2022), Algorithm 1 and section VI.D (several queries), with weights instead of one joint
    normal distribution, whose covariance few shadow models cannot tell.

    Left out: questions that are chosen by what the model answered, and what models say beside other people's records.
    """

    name = "lira_neighbours"
    title = "Likelihood ratio, at the record and beside it"
    source = "Carlini et al. (2022), Algorithm 1 and section VI.D"
    threat_model = "probabilities for the record and beside it; trains shadow models with and without it"
    min_shadows = 2
    per_record = True
    cut = 0.0
    asks: Asks = "both"

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Take both sides' moments of every figure over the shadow models, and learn how much each says."""
        del rng
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        around, labels = signals.shadow_beside, signals.labels
        if around is not None and len(log_p) < len(around):
            around = around[~np.isnan(signals.shadow).any(axis=(1, 2))]
        # views: all answers of all shadow models are large, so that nothing of their size is made
        asked = [log_p] if around is None or self.asks == "both" else []
        asked += [] if around is None else [around[:, :, q] for q in range(around.shape[2])]
        step = resolution(asked[0], labels)
        rivals = np.exp(asked[0]).mean(axis=0)
        rivals[np.arange(len(labels)), labels] = -1.0

        def figures(questions: list[Float]) -> Iterator[tuple[int, Float]]:
            return _figures(questions, labels, rivals.argmax(axis=1), step)

        score = learned(figures(asked), inside)

        def scorer(target: Float) -> Float:
            questions = [target] if target.ndim == 2 else [target[:, q] for q in range(target.shape[1])]
            return score(np.stack([figure for _, figure in sorted(figures(questions), key=itemgetter(0))]))

        return scorer


def _figures(
    questions: list[Float], labels: NDArray[np.int64], rivals: NDArray[np.int64], step: float
) -> Iterator[tuple[int, Float]]:
    """Yield what is compared with shadow models and its place, each (..., P), of answers of shape (..., P, K)."""
    count, first = len(questions), own_logit(questions[0], labels, step=step)
    yield 0, first
    for q, answers in enumerate(questions[1:], start=1):
        logit = own_logit(answers, labels, step=step)
        yield q, logit
        yield count + q - 1, logit - first
    if questions[0].shape[-1] > 2:  # of two labels the own one says everything
        yield 2 * count - 1, own_logit(questions[0], rivals, step=step)
        p = np.exp(questions[0])
        for q, answers in enumerate(questions[1:], start=1):
            yield 2 * count - 1 + q, np.log(np.abs(np.exp(answers) - p).sum(axis=-1) / 2 + step)


# Several figures of a record, each compared with the shadow models, and how much each of them says.


def learned(figures: Iterable[tuple[int, Float]], inside: Bool) -> Callable[[Float], Float]:
    """Return what gives the log-odds of "member", shape (P,), of a target's figures (F, P).

    Parameters
    ----------
    figures : iterable of F pairs (place, float64 array of shape (N, P))
        Of the shadow models, one at a time.
    inside : bool array of shape (N, P)
    """
    thin = max(1, -(-inside.size // MOST_ROWS))
    seen = {place: (moments(figure, inside), figure[:, ::thin].copy()) for place, figure in figures}
    found, some = zip(*(seen[place] for place in sorted(seen)), strict=True)
    m = Moments(*(np.stack([getattr(v, n) for v in found]) for n in ("mean_in", "mean_out", "var_in", "var_out")))
    rows = _even(in_turn(np.stack(some, axis=1), inside[:, ::thin]))
    weights = _weights(np.moveaxis(rows, 1, 2).reshape(-1, rows.shape[1]), inside[:, ::thin].ravel())
    return lambda target: np.asarray(weights[0] + weights[1:] @ _even(log_ratio(target, m)), dtype=np.float64)


def in_turn(figures: Float, inside: Bool) -> Float:
    """Return log-ratios of every model by all others but its complement, shape (N, F, P) as ``figures``."""
    x = figures - figures.mean(axis=0)  # sums of squares lose digits far from zero
    side = inside[:, None].astype(np.float64), (~inside)[:, None].astype(np.float64)
    sums = [(w.sum(axis=0), (w * x).sum(axis=0), (w * x * x).sum(axis=0)) for w in side]
    twin = {mask.tobytes(): k for k, mask in enumerate(inside)}
    out, left_over = np.empty_like(x), set(range(len(x)))
    for k in range(len(x)):
        if k not in left_over:
            continue  # done with its complement
        own = sorted({k, twin.get((~inside[k]).tobytes(), k)} & left_over)
        left_over -= {*own}
        means, spreads = [], []
        for w, (count, total, squares) in zip(side, sums, strict=True):
            left = np.maximum(count - w[own].sum(axis=0), 1.0)
            mean = (total - (w[own] * x[own]).sum(axis=0)) / left
            var = np.maximum((squares - (w[own] * x[own] ** 2).sum(axis=0)) / left - mean * mean, 0.0)
            means.append(mean)
            spreads.append(shrunk(var, left, var.mean(axis=1, keepdims=True)))
        out[own] = log_ratio(x[own], Moments(means[0], means[1], spreads[0], spreads[1]))
    return np.asarray(out)


def _even(ratio: Float) -> Float:
    """Return log-ratios in their order, large ones nearer: beyond the normal distribution's middle they are guesses."""
    return np.asarray(np.sign(ratio) * np.log1p(np.abs(ratio)), dtype=np.float64)


def _weights(rows: Float, inside: Bool) -> Float:
    """Return intercept and weights of the logistic regression of ``inside`` on ``rows`` (R, F), by Newton's method."""
    scale = np.maximum(rows.std(axis=0), 1e-9)
    Z, t = np.column_stack([np.ones(len(rows)), rows / scale]), inside.astype(np.float64)
    prior = np.diag([1e-6, *[RIDGE] * rows.shape[1]])
    w = np.zeros(Z.shape[1])
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(Z @ w, -30.0, 30.0)))
        curve = Z.T @ (Z * (p * (1 - p))[:, None]) + prior
        move = np.linalg.solve(curve, Z.T @ (t - p) - prior @ w)
        w += move * min(1.0, 10.0 / max(float(np.abs(move).max()), 1e-300))
        if np.abs(move).max() < STILL:
            break
    return np.asarray(np.concatenate([w[:1], w[1:] / scale]))


class LiraBeside(LiraNeighbours):
    """Likelihood ratios of answers beside a record and of their differences; nobody asks about the record itself.

    Threat model: black box with probabilities; several queries beside the record's own features, which are never asked.
    The adversary knows the record and its label, the training algorithm, and data of the same population, and trains
    shadow models with and without the record. Score and cut are those of ``lira_neighbours``.

    Source: Carlini et al. (2022), Algorithm 1 and section VI.D (several queries).

    Left out: the record's own answer, so that an endpoint gains nothing by refusing or answering it otherwise.
    """

    name = "lira_beside"
    title = "Likelihood ratio, beside the record only"
    threat_model = "probabilities beside the record, never for it; trains shadow models with and without it"
    asks = "beside"
