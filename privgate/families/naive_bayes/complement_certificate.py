"""Complement naive Bayes: every class is scored by what the others hold, so leaving one out changes all others."""

import numpy as np
from numpy.typing import NDArray

from privgate.families.certificate import Certificate, Certified
from privgate.families.over_all_queries import applies, linear, rounding
from privgate.families.over_all_queries.discrete import attained
from privgate.families.over_all_queries.rounding import LOG, U
from privgate.families.removal import vanishing
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject

Float = NDArray[np.float64]

#: entries of the largest temporary array
_CHUNK = 4_000_000
#: so many units are told their own worst question
_ASKED = 100


class ComplementNB(Certificate):
    """Scores are linear in the document; the pairwise change is maximised over the declared domain."""

    name = "complement_nb"
    source = "docs/mathematics.md, section 3.4"

    def applies(self, subject: Subject) -> str:
        """Return "does not apply, because …" or an empty text."""
        if problem := applies.refusal(subject, "ComplementNB"):
            return problem
        if problem := applies.linear_domain(subject, "documents"):
            return problem
        estimator, X = applies.estimator_of(subject, "ComplementNB"), applies.dense(subject.data.X)
        if X is None:
            return "does not apply, because the features are not numbers"
        table = np.array([X[subject.label_codes == c].sum(axis=0) for c in range(len(subject.classes))])
        alpha = applies.smoothings(estimator)
        error, _ = _errors(table[None], alpha, rounding.of_sums(X, table.sum(axis=0)), norm=False)
        if np.isinf(error).any():
            return (
                "does not apply, because the library adds the smoothing to all counts of a word before it takes a "
                "class's own off, and so little smoothing is lost in rounding there; raise alpha"
            )
        return ""

    def bound(
        self, subject: Subject, units: Index, retrained: Retrained | None, *, limit: float | None = None
    ) -> Certified:
        """Return the bound for each of ``units``."""
        del retrained, limit
        estimator, X = applies.estimator_of(subject, "ComplementNB"), applies.dense(subject.data.X)
        if X is None:
            raise ValueError("bound() without applies(): the features are not numbers")
        labels, K = subject.label_codes, len(subject.classes)
        table = np.array([X[labels == c].sum(axis=0) for c in range(K)])
        members = [subject.data.units[int(u)] for u in units]
        fine = np.flatnonzero(~vanishing(subject, units))
        lower, upper = np.full(len(units), np.inf), np.full(len(units), np.inf)
        reach, alpha, norm = applies.reach(subject), applies.smoothings(estimator), bool(estimator.norm)
        questions = np.full((len(units), X.shape[1]), np.nan) if len(units) <= _ASKED else None
        off, zero = rounding.of_sums(X, table.sum(axis=0)), np.zeros((1, K))

        def rounded(tables: Float) -> Float:
            return rounding.of_linear(*_errors(tables, alpha, off, norm=norm), reach, 0.0)

        with_ = zero, _weights(table[None], alpha, norm=norm)
        step = max(1, _CHUNK // max(1, K * table.size))
        for part in np.split(fine, np.arange(step, len(fine), step)):
            left = np.repeat(table[None], len(part), axis=0)
            for k, u in enumerate(part):
                np.subtract.at(left[k], labels[members[u]], X[members[u]])
            weights = _weights(np.maximum(left, 0.0), alpha, norm=norm)
            good = np.isfinite(weights).all(axis=(1, 2)) & np.isfinite(with_[1]).all()  # one token and norm: 0/0
            part, weights = part[good], weights[good]  # noqa: PLW2901  narrowed for this turn
            if len(part):
                without = np.broadcast_to(zero, (len(part), K)), weights
                found = linear.any_classes(with_, without, reach)
                if questions is not None:
                    questions[part] = linear.most_telling(with_, without, reach)
                error = rounded(table[None]) + rounded(left[good])
                lower[part], upper[part] = rounding.widened(*found, error)
        assumptions = (reach.words(), "the recipe is scikit-learn's ComplementNB, which counts and nothing else")
        return Certified(upper, lower, attained(lower, upper), assumptions, questions=questions)


def _weights(table: Float, alpha: Float, *, norm: bool) -> Float:
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
