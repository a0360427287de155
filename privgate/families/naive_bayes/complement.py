"""Complement naive Bayes: every class is scored by what the others hold, so leaving one out changes all others."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.engine import Cost
from privgate.families.naive_bayes import counts
from privgate.families.naive_bayes.counts import Prior
from privgate.families.naive_bayes.tokens import TokenEngine, Tokens
from privgate.families.over_all_queries import applies, linear, rounding
from privgate.families.over_all_queries.rounding import LOG, U
from privgate.families.removal import BLOCK, Float, Removal, rows_of, vanishing
from privgate.families.retrained import Index, Seeds
from privgate.subject.subject import Subject


@dataclass(frozen=True, eq=False)
class _Model(counts.ClassModel):
    """Token counts of everything but each class, smoothed."""

    X: Tokens  # pool, (P, d)
    complement: Float  # (K, d), alpha included
    norm: bool
    floor: Float  # (d,) the smoothing: what is left of a count of 0
    exact: NDArray[np.bool_]  # (d,) sums of a feature are, in any order

    @property
    def width(self) -> int:
        return int(self.X.X.shape[1])

    def doubt(self, queries: Index, pair: Index, removal: Removal) -> Float | None:
        """Return how far logarithms of what is left are off, of any class but the own, times the query's words."""
        x, found = rows_of(self.X.X, queries), np.zeros(len(queries))
        for c, complement in enumerate(self.complement):
            table = np.broadcast_to(complement - self.floor, self.complement.shape), self.floor, self.exact
            if (off := counts.taken_off(x, pair, removal, self.X.X, table)) is None:
                return None
            found = np.maximum(found, np.where(removal.label[pair] == c, 0.0, off))
        return found

    def scores(self, queries: Index, unit: Index, prepared: Removal) -> tuple[Float, Float]:
        """Return scores; records of one class belong to the complement of every other class."""
        removal, N = prepared, len(prepared.first) - 1
        x = rows_of(self.X.X, queries)
        full = x @ _weights(self.complement, norm=self.norm).T
        if removal.records and np.array_equal(queries, removal.rows[unit]):
            return full, self._without_itself(queries, full, removal.label[unit])
        own = removal.sums(self.X.X)
        gone = own if removal.single else np.add.reduceat(own, removal.first[:-1], axis=0)
        lost_by = np.full((N, len(self.complement)), -1)
        lost_by[np.repeat(np.arange(N), np.diff(removal.first)), removal.label] = np.arange(len(removal.label))
        rest = np.empty_like(full)
        for c, complement in enumerate(self.complement):
            pair = lost_by[unit, c]
            taken = gone[unit] - np.where(pair[:, None] >= 0, own[np.maximum(pair, 0)], 0.0)
            rest[:, c] = _score(x, np.maximum(complement - taken, self.floor), norm=self.norm)
        return full, rest

    def _without_itself(self, record: Index, full: Float, label: Index) -> Float:
        """Return scores without the record that is also the query; a record is no part of its class's complement."""
        length, total = rows_of(self.X.X, record).sum(axis=1), self.complement.sum(axis=1)
        log_total = np.log(np.maximum(total - length[:, None], self.floor.sum()))
        score = length[:, None] * log_total - self.X.logs(record, self.complement, weighted=True)
        if self.norm:
            logged = np.log(self.complement).sum(axis=1) + self.X.logs(record, self.complement, weighted=False)
            score /= len(self.floor) * log_total - logged
        at = np.arange(len(record)), label
        score[at] = full[at]
        return np.asarray(score)


def _weights(complement: Float, *, norm: bool) -> Float:
    logged = np.log(complement / complement.sum(axis=-1, keepdims=True))
    return np.asarray(logged / logged.sum(axis=-1, keepdims=True) if norm else -logged)


def _score(x: Float, complement: Float, *, norm: bool) -> Float:
    """Return w . x row by row, for one table of complement counts a row."""
    total = np.log(complement.sum(axis=1))
    logged = np.log(complement)
    score = np.einsum("ij,ij->i", x, logged) - x.sum(axis=1) * total
    return np.asarray(score / (logged.sum(axis=1) - x.shape[1] * total) if norm else -score)


class ComplementNb(TokenEngine):
    """Leave-one-out for ``sklearn.naive_bayes.ComplementNB``, normalised or not; exact, O(n d K) logarithms.

    Identity: the weights of class c come from the counts of all other classes; removing t takes x_t off the
    complement of every class but its own (docs/mathematics.md, section 3.4). Priors play no part (Rennie et al.
    2003).
    """

    name = "complement_nb"
    library = "ComplementNB"

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := super().unfit(estimator, subject):
            return why
        if design.matrix(subject).shape[1] == 1:
            return "with one feature every weight is ln 1 = 0"
        return "there is one class only" if len(subject.classes) < 2 else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of n d K logarithms."""
        n, d, K = subject.data.n, design.matrix(subject).shape[1], len(subject.classes)
        return Cost(0, 8e-9 * n * d * K, 16 * n * d + 48 * len(units) * K + BLOCK * 32)

    def model(self, subject: Subject) -> tuple[_Model, Prior]:
        """Return the token counts of complements, and the prior, which counts only where a class is missing."""
        estimator, (X, hot, tokens) = subject.recipe.library_estimator, self.tokens(subject)
        alpha, K = self.alpha(estimator, X.shape[1]), len(tokens)
        prior = Prior(hot.sum(axis=0), np.zeros(K), listed=estimator.class_prior is not None)
        exact = rounding.exact_sums(X[: subject.data.n])
        return _Model(Tokens(X), tokens.sum(axis=0) - tokens + alpha, bool(estimator.norm), alpha, exact), prior

    def on_subsets(self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float) -> counts.OnSubsets:
        """Return models on subsets of the pool: one product of masks and records a class."""
        estimator = subject.recipe.library_estimator
        X, K = design.matrix(subject).astype(np.float64, copy=False), totals.shape[1]
        tokens = counts.sums_on_subsets(X, masks, label, K)
        complement = tokens.sum(axis=1, keepdims=True) - tokens + self.alpha(estimator, X.shape[1])
        prior = Prior(totals.sum(axis=0), np.zeros(K), listed=estimator.class_prior is not None)
        weight = _weights(complement, norm=bool(estimator.norm))
        return counts.OnSubsets(counts.linear_on_subsets(X, weight, prior.log(totals)), prior)


#: entries of the largest temporary array
_CHUNK = 4_000_000
#: so many units are told their own worst question
_ASKED = 100


class ComplementCertificate(Certificate):
    """Scores are linear in the document; the pairwise change is maximised over the declared domain."""

    name = "complement_nb"
    source = "docs/mathematics.md, section 3.4"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := applies.refusal(subject, "ComplementNB"):
            return problem
        if problem := applies.linear_domain(subject, "documents"):
            return problem
        estimator, X = design.estimator_of(subject, "ComplementNB"), applies.dense(subject.data.X)
        if X is None:
            return "the features are not numbers"
        table = np.array([X[subject.label_codes == c].sum(axis=0) for c in range(len(subject.classes))])
        alpha = applies.smoothings(estimator)
        error, _ = _errors(table[None], alpha, rounding.of_sums(X, table.sum(axis=0)), norm=False)
        if np.isinf(error).any():
            return (
                "the library adds the smoothing to all counts of a word before it takes a "
                "class's own off, and so little smoothing is lost in rounding there; raise alpha"
            )
        return ""

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of ``units``."""
        subject, units = about.subject, about.units
        estimator, X = design.estimator_of(subject, "ComplementNB"), applies.dense(subject.data.X)
        if X is None:
            raise ValueError("bound() without applies(): the features are not numbers")
        labels, K = subject.label_codes, len(subject.classes)
        table = np.array([X[labels == c].sum(axis=0) for c in range(K)])
        members = about.members
        fine = np.flatnonzero(~vanishing(subject, units))
        lower, upper = np.full(len(units), np.inf), np.full(len(units), np.inf)
        reach, alpha, norm = applies.reach(subject), applies.smoothings(estimator), bool(estimator.norm)
        questions = np.full((len(units), X.shape[1]), np.nan) if len(units) <= _ASKED else None
        off, zero = rounding.of_sums(X, table.sum(axis=0)), np.zeros((1, K))

        def rounded(tables: Float) -> Float:
            return rounding.of_linear(*_errors(tables, alpha, off, norm=norm), reach, 0.0)

        with_ = zero, _per_token(table[None], alpha, norm=norm)
        step = max(1, _CHUNK // max(1, K * table.size))
        for part in np.split(fine, np.arange(step, len(fine), step)):
            left = np.repeat(table[None], len(part), axis=0)
            for k, u in enumerate(part):
                np.subtract.at(left[k], labels[members[u]], X[members[u]])
            weights = _per_token(np.maximum(left, 0.0), alpha, norm=norm)
            good = np.isfinite(weights).all(axis=(1, 2)) & np.isfinite(with_[1]).all()  # one token and norm: 0/0
            part, weights = part[good], weights[good]  # noqa: PLW2901  narrowed for this turn
            if len(part):
                without = np.broadcast_to(zero, (len(part), K)), weights
                found = linear.any_classes(with_, without, reach)
                if questions is not None:
                    questions[part] = linear.most_telling(with_, without, reach)
                error = rounded(table[None]) + rounded(left[good])
                lower[part], most = rounding.widened(*found, error)
                upper[part] = rounding.held(most, float(linear.pair_ranges(*with_, reach)[1].max()))
        assumptions = (reach.words(), "the recipe is scikit-learn's ComplementNB, which counts and nothing else")
        return Certified(upper, lower, attained(lower, upper), assumptions, questions=questions)


def _per_token(table: Float, alpha: Float, *, norm: bool) -> Float:
    """Return the library's class scores per token, shape of ``table``, (N, K, d)."""
    complement = table.sum(axis=1, keepdims=True) - table + alpha
    logged = np.log(complement) - np.log(complement.sum(axis=2, keepdims=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(logged / logged.sum(axis=2, keepdims=True) if norm else -logged)


def _errors(table: Float, alpha: Float, off: Float, *, norm: bool) -> tuple[Float, Float]:
    """Return (error, weights) of the library's scores per token, shapes (N, K, d); ``off`` (d,) is that of the sums.

    It adds the smoothing to the sum over all classes before it takes the own class off: where nobody else holds the
    token, what is left is the smoothing, in units in the last place of the sum.
    """
    everything = table.sum(axis=1, keepdims=True)
    complement = np.maximum(everything - table, 0.0) + alpha
    total = complement.sum(axis=2, keepdims=True)
    K, d = table.shape[1:]
    lost = 2 * off + np.where(off > 0, (K + 4) * U * everything, 0.0) + 2 * U * (everything + alpha)
    share = lost / complement + 4 * U
    logged = np.log(complement) - np.log(total)
    error = rounding.of_logarithm(share) + rounding.of_logarithm(lost.sum(axis=2, keepdims=True) / total + (d + 4) * U)
    error = error + 2 * LOG * (np.abs(np.log(complement)) + np.abs(np.log(total)))
    if not norm:
        return error, -logged
    with np.errstate(invalid="ignore", divide="ignore"):
        summed = logged.sum(axis=2, keepdims=True)
        weights = logged / summed
        doubt = error.sum(axis=2, keepdims=True) + (d + 4) * U * np.abs(summed)
        safe = np.maximum(np.abs(summed) - doubt, 0.0)
        return (error + np.abs(weights) * doubt) / safe + 4 * U * np.abs(weights), weights


ENGINE = ComplementNb()
