"""Likelihood ratios, of Carlini et al. (2022): at the record, beside it, what lies between them, and all labels."""

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.membership.attacks.attack_base import Asks, Attack, Scorer, Signals
from privgate.membership.attacks.observed import Moments, moments, own_logit, resolution, shrunk, usable_shadows

#: rows of (shadow model, record) that weights are learned from, about; more of them move no weight
MOST_ROWS = 2**16
#: a weight's prior variance is one over it; every figure has variance 1
RIDGE = 1.0
#: labels that are read; of more, so many evenly from the least to the most likely
MOST_LABELS = 24
#: steps of Newton's method, which ends where weights move less
STEPS, STILL = 30, 1e-11


def log_ratio(figure: Float, m: Moments) -> Float:
    """Return ln N(figure; in) - ln N(figure; out), shape of ``figure``: positive speaks for "member"."""
    inside = np.log(m.var_in) + (figure - m.mean_in) ** 2 / m.var_in
    outside = np.log(m.var_out) + (figure - m.mean_out) ** 2 / m.var_out
    return np.asarray(0.5 * (outside - inside), dtype=np.float64)


def ratios_in_turn(figures: Float, inside: Bool) -> Float:
    """Return log-ratios of every model by all others but its complement, shape (N, F, P) as ``figures``."""
    x = figures - figures.mean(axis=0)  # sums of squares lose digits far from zero
    side = inside[:, None].astype(np.float64), (~inside)[:, None].astype(np.float64)
    sums = [(w.sum(axis=0), (w * x).sum(axis=0), (w * x * x).sum(axis=0)) for w in side]
    twin = {mask.tobytes(): k for k, mask in enumerate(inside)}
    out, waiting = np.empty_like(x), set(range(len(x)))
    for k in range(len(x)):
        if k not in waiting:
            continue  # done with its complement
        own = sorted({k, twin.get((~inside[k]).tobytes(), k)} & waiting)
        waiting -= {*own}
        means, spreads = [], []
        for w, (count, total, squares) in zip(side, sums, strict=True):
            rest = np.maximum(count - w[own].sum(axis=0), 1.0)
            mean = (total - (w[own] * x[own]).sum(axis=0)) / rest
            var = np.maximum((squares - (w[own] * x[own] ** 2).sum(axis=0)) / rest - mean * mean, 0.0)
            means.append(mean)
            spreads.append(shrunk(var, rest, var.mean(axis=1, keepdims=True)))
        out[own] = log_ratio(x[own], Moments(*means, *spreads))
    return np.asarray(out)


class LiraOffline(Attack):
    """How far a record's confidence lies above what models without it give, in standard deviations.

    The adversary trained before choosing whom to attack. The paper's ``1 - P(Z > confidence)`` (equation 4) has the
    same order.

    Left out: queries on augmented copies (their section VI.D), and shadow sets drawn anew for every record. Because
    answers of 0 and 1 make logits infinite, a step that shadow models' answers show is added to both sides, and a
    record's variance is mixed with that of all records (their section VI.C switches between them).
    """

    name, title = "lira_offline", "Likelihood ratio, offline"
    source = "Carlini et al. (2022), section V.B"
    threat_model = "probabilities for the record; trains shadow models that never hold it"
    min_shadows, per_record = 2, True

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        answers, inside = usable_shadows(signals, least=self.min_shadows)
        figure = self.choose_figure(answers, inside, signals.labels)
        learned = moments(figure(answers), inside)
        return lambda target: self.compare(figure(target), learned)

    def choose_figure(self, answers: Float, inside: Bool, labels: Index) -> Scorer:
        """Return what makes one number of an answer, (..., P) from (..., P, K), on a scale that the answers show."""
        step = resolution(answers, labels)
        return lambda given: own_logit(given, labels, step=step)

    def compare(self, figure: Float, learned: Moments) -> Float:
        """Return scores of the records' confidences, shape (P,)."""
        return np.asarray((figure - learned.mean_out) / np.sqrt(learned.var_out))


class LiraOnline(LiraOffline):
    """The likelihood ratio of a record's confidence under "trained with it" and "trained without it".

    In nats, of logit-scaled confidences under two normal distributions. Left out: what ``lira_offline`` leaves out.
    """

    name, title = "lira_online", "Likelihood ratio, online"
    source = "Carlini et al. (2022), Algorithm 1"
    threat_model = "probabilities for the record; trains shadow models with and without it"
    cut = 0.0

    def compare(self, figure: Float, learned: Moments) -> Float:
        return log_ratio(figure, learned)


class LiraNeighbours(LiraOffline):
    """Likelihood ratios of answers at a record and beside it, and of their differences, added with learned weights.

    Each figure (the logit of the own label at each question, the difference to the first, how far all labels'
    probabilities move, the likeliest other label) gives a log-likelihood ratio under two normal distributions. The
    score is the log-odds of a logistic regression on them, learned from shadow models that take turns as the target.

    Left out: one joint normal distribution of all figures, whose covariance few shadow models cannot tell; questions
    that are chosen by what the model answered, and what models say beside other people's records.
    """

    name, title = "lira_neighbours", "Likelihood ratio, at the record and beside it"
    source = "Carlini et al. (2022), Algorithm 1 and section VI.D"
    threat_model = "probabilities for the record and beside it; trains shadow models with and without it"
    cut: float | None = 0.0
    asks: Asks = "both"

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        own, inside = usable_shadows(signals, least=self.min_shadows)
        around, labels = signals.shadow_near, signals.labels
        if around is not None and len(own) < len(around):
            around = around[~np.isnan(signals.shadow).any(axis=(1, 2))]
        # views: all answers of all shadow models are large, so that nothing of their size is made
        answers = [own] if around is None or self.asks == "both" else []
        answers += [] if around is None else [around[:, :, q] for q in range(around.shape[2])]
        figure, step, rivals = self.choose_figure(answers[0], inside, labels), 0.0, labels
        if own.shape[-1] > 2:  # of two labels the own one says everything
            step, means = resolution(answers[0], labels), np.exp(answers[0]).mean(axis=0)
            means[np.arange(len(labels)), labels] = -1.0
            rivals = means.argmax(axis=1)

        def list_figures(questions: list[Float]) -> Iterator[tuple[int, Float]]:
            """Yield what is compared with shadow models and its place, each (..., P), of answers (..., P, K)."""
            count, first = len(questions), figure(questions[0])
            p = np.exp(questions[0]) if step else first
            yield 0, first
            for q, others in enumerate(questions[1:], start=1):
                yield q, (near := figure(others))
                yield count + q - 1, near - first
                if step:
                    yield 2 * count - 1 + q, np.log(np.abs(np.exp(others) - p).sum(axis=-1) / 2 + step)
            if step:
                yield 2 * count - 1, own_logit(questions[0], rivals, step=step)

        score = learn_weights(list_figures(answers), inside)

        def scorer(target: Float) -> Float:
            questions = [target] if target.ndim == 2 else [target[:, q] for q in range(target.shape[1])]
            return score(np.stack([each for _, each in sorted(list_figures(questions), key=itemgetter(0))]))

        return scorer


def learn_weights(figures: Iterable[tuple[int, Float]], inside: Bool) -> Callable[[Float], Float]:
    """Return what gives the log-odds of "member", (P,), of F figures (F, P); shadow models' are (place, (N, P))."""
    thin = max(1, -(-inside.size // MOST_ROWS))
    seen = {place: (moments(figure, inside), figure[:, ::thin].copy()) for place, figure in figures}
    sides, some = zip(*(seen[place] for place in sorted(seen)), strict=True)
    m = Moments(*(np.stack([getattr(v, n) for v in sides]) for n in ("mean_in", "mean_out", "var_in", "var_out")))
    rows = np.moveaxis(_even_out(ratios_in_turn(np.stack(some, axis=1), inside[:, ::thin])), 1, 2)
    weights = _fit_logistic(rows.reshape(-1, rows.shape[2]), inside[:, ::thin].ravel())
    return lambda target: np.asarray(weights[0] + weights[1:] @ _even_out(log_ratio(target, m)), dtype=np.float64)


def _even_out(ratio: Float) -> Float:
    """Return log-ratios in their order, large ones nearer: beyond the normal distribution's middle they are guesses."""
    return np.asarray(np.sign(ratio) * np.log1p(np.abs(ratio)), dtype=np.float64)


def _fit_logistic(rows: Float, inside: Bool) -> Float:
    """Return intercept and weights of the logistic regression of ``inside`` on ``rows`` (R, F), by Newton's method."""
    scale = np.maximum(rows.std(axis=0), 1e-9)
    Z, t = np.column_stack([np.ones(len(rows)), rows / scale]), inside.astype(np.float64)
    prior, w = np.diag([1e-6, *[RIDGE] * rows.shape[1]]), np.zeros(Z.shape[1])
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

    Left out: the record's own answer, so that an endpoint gains nothing by refusing or answering it otherwise.
    """

    name, title = "lira_beside", "Likelihood ratio, beside the record only"
    threat_model = "probabilities beside the record, never for it; trains shadow models with and without it"
    asks = "near"


class LiraLabels(LiraOffline):
    """Likelihood ratios of all labels' probabilities, added with learned weights, as for ``lira_neighbours``.

    Labels are in order of their mean over the shadow models, so that one weight stands for a place in this order.

    Left out: what labels tell together, such as which of them are at a release's floor.
    """

    name, title = "lira_labels", "Likelihood ratio, all labels"
    source = "Carlini et al. (2022), Algorithm 1, of each label"
    threat_model = "probabilities of all labels for the record; trains shadow models with and without it"
    cut: float | None = 0.0

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        answers, inside = usable_shadows(signals, least=self.min_shadows)
        own, count = self.choose_figure(answers, inside, signals.labels), answers.shape[-1]
        order, step = np.exp(answers).mean(axis=0).argsort(axis=1, kind="stable"), resolution(answers, signals.labels)
        places = np.unique(np.linspace(0, count - 1, min(count, MOST_LABELS)).astype(np.int64))

        def list_figures(given: Float) -> Iterator[tuple[int, Float]]:
            """Yield the logits of the own label and of the label at each place, (..., P) of answers (..., P, K)."""
            yield 0, own(given)
            for k, place in enumerate(places if count > 2 else (), start=1):  # of two, the own one says all
                yield k, own_logit(given, order[:, place], step=step)

        score = learn_weights(list_figures(answers), inside)
        return lambda target: score(np.stack([figure for _, figure in list_figures(target)]))
