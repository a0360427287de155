"""Gaussian naive Bayes: scores are quadratics of each feature, bounded over the declared box."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.over_all_queries import applies, rounding
from privgate.families.over_all_queries.reach import Reach
from privgate.families.over_all_queries.rounding import U
from privgate.families.over_all_queries.separable import bound_nodes, changes
from privgate.families.retrained import Index
from privgate.subject.subject import Subject

Float = NDArray[np.float64]

#: entries of the largest temporary array
_CHUNK = 2_000_000
#: share of a sum of squares below which what is left of it has lost digits
_CANCELS = 1e-3
#: operations on a sum of squares, the library's and ours, for each that adds a record
_OWN = 4
#: how much larger than the exponent the terms are of which ours is the difference
_EXPANDED = 16


class GaussianNB(Certificate):
    """The change of a pairwise log-odds is a sum of parabolas, each largest at an end of its side or at its vertex."""

    name = "gaussian_nb"
    source = "docs/mathematics.md, section 3.5"
    divisible = True

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := applies.refusal(subject, "GaussianNB"):
            return problem
        X = applies.dense(subject.data.X)
        if X is None:
            return "the features are not finite numbers"
        if problem := applies.single_precision(subject.data.X):
            return problem
        made = applies.declared(
            subject,
            X,
            "far from the data DTP is infinite; declare the range of every feature, Domain(box=…), and let the "
            "endpoint refuse anything else",
        )
        if isinstance(made, str):
            return made
        if made.low is None:
            return "the declared domain names no range of each feature; pass Domain(box=…)"
        model, side = self._model(subject, X, made)
        everybody = model.left([np.zeros(0, dtype=np.int64)])
        if (
            all(np.isfinite(v).all() for v in model.scores_of(everybody))
            and np.isinf(model.error(everybody, side)).all()
        ):
            return (
                "a feature lies so far from 0 for how little it varies that the library's "
                "rounding of its mean is not small against its standard deviation; subtract a constant from it"
            )
        return ""

    def _model(self, subject: Subject, X: Float, reach: Reach) -> tuple["_Moments", Float]:
        """Return the model's moments and the declared box, both centred."""
        # far from 0 the squares would cancel; shifting everything changes no probability
        centre = X.mean(axis=0)
        estimator = design.estimator_of(subject, "GaussianNB")
        model = _Moments(X, centre, subject.label_codes, len(subject.classes), estimator)
        return model, np.array([reach.low, reach.high]) - centre

    def prepared(self, subject: Subject) -> tuple["_Moments", Float]:
        """Return the model's moments and the declared box; it applies."""
        return self._model(subject, np.asarray(applies.dense(subject.data.X)), applies.reach(subject))

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of ``units``."""
        subject, units = about.subject, about.units
        X, K = applies.dense(subject.data.X), len(subject.classes)
        if X is None:
            raise ValueError("bound() without applies(): the features are not numbers")
        reach = applies.reach(subject)
        model, side = self._model(subject, X, reach) if about.common is None else about.common
        members = about.members
        lower, upper = np.full(len(units), np.inf), np.full(len(units), np.inf)
        questions = np.full((len(units), X.shape[1]), np.nan)
        fine = np.flatnonzero(model.keeps_classes(members))
        step = max(1, _CHUNK // max(1, K * K * X.shape[1]))
        everybody = model.left([np.zeros(0, dtype=np.int64)])
        with_, error = model.scores_of(everybody), model.error(everybody, side)
        for part in np.split(fine, np.arange(step, len(fine), step)):
            if not len(part):
                continue
            left = model.left([members[u] for u in part])
            without = model.scores_of(left)
            live = np.all([np.isfinite(v).reshape(len(part), -1).all(axis=1) for v in without], axis=0)
            if not live.all():  # a class without variance
                part, left = part[live], _Left(*(v[live] for v in left))  # noqa: PLW2901  the units that are left
                without = model.scores_of(left)
            if len(part):
                least, most, where = _bounds(with_, without, side, whole=reach.whole)
                lower[part], most = rounding.widened(least, most, error + model.error(left, side))
                upper[part] = rounding.held(most, float(_ranges(with_, side)[1].max()))
                questions[part] = np.clip(where + X.mean(axis=0), reach.low, reach.high)
        assumptions = (reach.words(), "the recipe is scikit-learn's GaussianNB, variance smoothing refitted")
        return Certified(upper, lower, attained(lower, upper), assumptions, questions=questions)


class _Left(NamedTuple):
    """Records (N, K), means (N, K, d) and variances (N, K, d) of each class, variances of everything (N, d)."""

    n: Float
    mean: Float
    variance: Float
    overall: Float


class _Moments:
    """Means and variances of each class, and of everything, with any records left out."""

    def __init__(self, raw: Float, centre: Float, labels: Index, n_classes: int, estimator: object) -> None:
        X = raw - centre
        self.X, self.labels, self.K = X, labels, n_classes
        self.size = np.abs(raw).max(axis=0)
        self.exact, self.constant = rounding.exact_sums(raw), (raw == raw[:1]).all(axis=0)
        self.smoothing = float(estimator.var_smoothing)  # type: ignore[attr-defined]  # checked to be GaussianNB
        priors = estimator.priors  # type: ignore[attr-defined]  # ditto
        self.priors = None if priors is None else np.log(np.asarray(priors, dtype=np.float64))
        self.n = np.bincount(labels, minlength=n_classes).astype(np.float64)
        self.rows = [np.flatnonzero(labels == c) for c in range(n_classes)]
        self.moments = [_mean_variance(X[r]) for r in self.rows]
        self.whole = _mean_variance(X)

    def keeps_classes(self, members: list[Index]) -> NDArray[np.bool_]:
        """Return without which units every class keeps a record, shape (U,)."""
        sizes = np.array([len(rows) for rows in members], dtype=np.int64)
        labels = self.labels[np.concatenate(members)] if members else self.labels[:0]
        lost = np.zeros((len(members), self.K))
        np.add.at(lost, (np.repeat(np.arange(len(members)), sizes), labels), 1)
        return np.asarray((self.n - lost > 0).all(axis=1))

    def scores_of(self, left: "_Left") -> tuple[Float, Float, Float]:
        """Return (constant (N, K), linear (N, K, d), quadratic (N, K, d)) of the log joint of N models."""
        variance = left.variance + self.smoothing * left.overall.max(axis=1)[:, None, None]
        prior = np.log(left.n) if self.priors is None else self.priors
        with np.errstate(divide="ignore", invalid="ignore"):  # no variance at all: ``defined`` sees to it
            constant = prior - 0.5 * (np.log(variance) + left.mean**2 / variance).sum(axis=2)
            return constant, left.mean / variance, -0.5 / variance

    def left(self, members: list[Index]) -> "_Left":
        """Return what N models are made of, each without some records; units of one record all at once."""
        sizes = np.array([len(rows) for rows in members])
        if (sizes == 1).all() and len(members):
            return self._without_records(np.concatenate(members))
        each = [self._left(rows) for rows in members]
        return _Left(*(np.array([e[k] for e in each]) for k in range(4)))

    def _without_records(self, rows: Index) -> "_Left":
        """Return what ``_left`` gives for each of N records, by the same operations on each number."""
        N, label = np.arange(len(rows)), self.labels[rows]
        n = np.tile(self.n, (len(rows), 1))
        n[N, label] -= 1
        mean, variance = (np.tile(np.array([m[k] for m in self.moments]), (len(rows), 1, 1)) for k in range(2))
        own = tuple(np.array([m[k] for m in self.moments])[label] for k in range(2))
        mean[N, label], variance[N, label], lost = self._without_one(own, self.n[label], rows)
        _, overall, lost_overall = self._without_one(self.whole, np.full(len(rows), float(len(self.X))), rows)
        for i in np.flatnonzero(lost | lost_overall):
            n[i], mean[i], variance[i], overall[i] = self._left(rows[i : i + 1])
        return _Left(n, mean, variance, overall)

    def _without_one(self, moments: tuple[Float, ...], held: Float, rows: Index) -> tuple[Float, Float, Any]:
        """Return (means, variances) of N sets of ``held`` records without one each, and where digits cancel."""
        left = (held - 1)[:, None]
        z = self.X[rows] - moments[0]
        before = held[:, None] * moments[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            after = before - z**2 - z**2 / left
            return moments[0] - z / left, after / left, (after < _CANCELS * before).any(axis=1)

    def _left(self, rows: Index) -> tuple[Float, Float, Float, Float]:
        mean, variance = (np.array([m[k] for m in self.moments]) for k in range(2))
        for c in set(self.labels[rows].tolist()):
            mean[c], variance[c] = self._without(self.moments[c], self.rows[c], rows[self.labels[rows] == c])
        everything = self.whole if not len(rows) else self._without(self.whole, np.arange(len(self.X)), rows)
        return self.n - np.bincount(self.labels[rows], minlength=self.K), mean, variance, everything[1]

    def error(self, left: "_Left", side: Float) -> Float:
        """Return the error of every log-probability of N models, shape (N,), nats.

        A mean of n numbers is off by up to n units in the last place of the largest, and so is the deviation of the
        query from it; the variance by its square. What matters is their size in standard deviations.
        """
        deviation = np.maximum(np.abs(side[0] - left.mean), np.abs(side[1] - left.mean))
        count, n, centred = left.n[:, :, None] + 8, len(self.X), np.abs(self.X).max(axis=0)
        # the library's mean of the records as they are, and ours of the centred ones
        off = np.where(self.exact, np.where(self.constant, 0.0, U * self.size), count * U * self.size)
        off = off + count * U * centred
        overall = np.where(self.exact, U * self.size, (n + 8) * U * self.size) + (n + 8) * U * centred
        floor = overall**2 + _OWN * (n + 8) * U * (np.maximum(self.whole[1], left.overall) + overall**2)
        highest = left.overall.max(axis=1)
        floor = self.smoothing * (floor.max(axis=1) + 4 * U * highest)
        total = left.variance + self.smoothing * highest[:, None, None]
        spread = np.maximum(self.moments_variance, left.variance)
        doubt = off**2 + _OWN * count * U * (spread + off**2) + floor[:, None, None] + 8 * U * total
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(total > 0, doubt / total, np.inf)
            safe = np.where(share < rounding.SHARE, 1 - share, np.nan)
            square = deviation**2 / total
            term = (2 * deviation * off + off**2) / (total * safe) + square * share / safe
            size = 0.5 * (square + np.abs(np.log(total)) + 2).sum(axis=2)
            prior = np.abs(np.log(left.n) if self.priors is None else self.priors) + np.log(n)
            error = 0.5 * (term + rounding.of_logarithm(share)).sum(axis=2)
            error = error + _EXPANDED * (len(self.size) + 12) * U * size + 8 * U * prior
            return np.nan_to_num(rounding.of_answers(error, size + prior), nan=np.inf, posinf=np.inf)

    @cached_property
    def moments_variance(self) -> Float:
        """Variances of each class with every record, shape (K, d)."""
        return np.array([m[1] for m in self.moments])

    def _without(self, moments: tuple[Float, Float], held: Index, gone: Index) -> tuple[Float, Float]:
        """Return (mean, variance) of the rows ``held`` without those ``gone``, from a new fit where digits cancel."""
        left = len(held) - len(gone)
        z = self.X[gone] - moments[0]
        before = len(held) * moments[1]
        after = before - (z**2).sum(axis=0) - z.sum(axis=0) ** 2 / left
        if (after < _CANCELS * before).any():
            return _mean_variance(self.X[np.setdiff1d(held, gone, assume_unique=True)])
        return moments[0] - z.sum(axis=0) / left, after / left


def _mean_variance(X: Float) -> tuple[Float, Float]:
    return X.mean(axis=0), X.var(axis=0)


def _largest(linear: Float, quadratic: Float, side: Float) -> tuple[Float, Float]:
    """Return (maximum, where) of ``l x + q x^2`` on each side, shape of the inputs; ``side`` is (2, d)."""
    low, high = side
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = np.where(quadratic < 0, -linear / (2 * quadratic), low)
    vertex = np.clip(np.nan_to_num(vertex, nan=0.0), low, high)
    places = np.array([np.broadcast_to(low, vertex.shape), np.broadcast_to(high, vertex.shape), vertex])
    values = linear * places + quadratic * places**2
    top = values.argmax(axis=0)[None]
    return np.take_along_axis(values, top, 0)[0], np.take_along_axis(places, top, 0)[0]


def _ranges(scores: tuple[Float, ...], side: Float) -> tuple[Float, Float]:
    """Return the (least, largest) difference of two classes' scores over the box, each of shape (N, K, K)."""
    pairs = [v[:, :, None] - v[:, None, :] for v in scores]
    high = pairs[0] + _largest(pairs[1], pairs[2], side)[0].sum(axis=-1)
    return -np.swapaxes(high, 1, 2), high


def _bounds(
    with_: tuple[Float, ...], without: tuple[Float, ...], side: Float, *, whole: bool
) -> tuple[Float, Float, Float]:
    """Return (lower, upper) of the largest label change for N units, each (N,), and where the lower is, (N, d)."""
    change = [a - b for a, b in zip(with_, without, strict=True)]
    D = _ranges(tuple(change), side)
    everything = [np.broadcast_to(v, w.shape) for v, w in zip(with_, without, strict=True)]
    nodes = bound_nodes(_ranges(with_, side), _ranges(without, side), D)
    upper = np.minimum(D[1].max(axis=(1, 2)), nodes)
    row = np.arange(len(upper))
    k, other = np.unravel_index(D[1].reshape(len(upper), -1).argmax(axis=1), D[1].shape[1:])
    lower, where = np.zeros(len(upper)), np.zeros((len(upper), side.shape[1]))
    for sign in (1, -1):
        line, curve = (sign * (v[row, k] - v[row, other]) for v in change[1:])
        x = _largest(line, curve, side)[1]
        s, r = (
            v[0] + np.einsum("nkd,nd->nk", v[1], x) + np.einsum("nkd,nd->nk", v[2], x**2) for v in (everything, without)
        )
        value = changes(s, r)
        where = np.where((value >= lower)[:, None], x, where)
        lower = np.maximum(lower, value)
    # between whole numbers nobody asks; the bound covers them all the same
    return np.zeros(len(upper)) if whole else lower, np.maximum(lower, upper), where
