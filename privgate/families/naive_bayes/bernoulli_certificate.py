"""Bernoulli naive Bayes: categorical naive Bayes with two values a feature."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privgate.families.certificate import Certificate, Certified
from privgate.families.naive_bayes.counts_certificate import Counts
from privgate.families.over_all_queries import applies, count_rounding
from privgate.families.over_all_queries.discrete import certify
from privgate.families.retrained import Index, Retrained
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject


class BernoulliNB(Certificate):
    """The library's smoothing (alpha, 2 alpha) is the categorical formula with V_j = 2."""

    name = "bernoulli_nb"
    source = "docs/mathematics.md, section 3.1 (V_j = 2)"

    def applies(self, subject: Subject) -> str:
        """Return "does not apply, because …" or an empty text."""
        if problem := applies.refusal(subject, "BernoulliNB"):
            return problem
        estimator = applies.estimator_of(subject, "BernoulliNB")
        X = applies.dense(subject.data.X)
        if X is None:
            return "does not apply, because the features are not finite numbers"
        if applies.smoothing(estimator) is None:
            return "does not apply, because the smoothing alpha is not one number"
        domain = subject.data.domain
        if estimator.binarize is None:
            if not np.isin(X, (0.0, 1.0)).all():
                return "does not apply, because binarize is None and the training data hold values other than 0 and 1"
            if domain is not None and (domain.categories is None or max(domain.categories) > 2):
                return "does not apply, because binarize is None and the domain allows values other than 0 and 1"
        if problem := _outside(domain, X):
            return problem
        if not np.isfinite(count_rounding.of_model(self.counts(subject))):
            return (
                "does not apply, because the library computes 1 - p from the logarithm of p, and with so little "
                "smoothing rounding is as large as 1 - p itself; raise alpha"
            )
        return ""

    def bound(
        self, subject: Subject, units: Index, retrained: Retrained | None, *, limit: float | None = None
    ) -> Certified:
        """Return the bound for each of ``units``; see ``discrete.certify``."""
        del retrained
        members = applies.members(subject, units)
        estimator, domain = applies.estimator_of(subject, "BernoulliNB"), subject.data.domain
        if domain is not None:
            where = "the endpoint refuses queries outside the declared domain"
        elif estimator.binarize is None:
            where = "the domain is inferred: every feature is 0 or 1, and the endpoint refuses anything else"
        else:
            where = "the domain is inferred: every feature on either side of the threshold, which is all there is"
        assumptions = (where, "the recipe is scikit-learn's BernoulliNB, which counts and nothing else")
        found = certify(self.counts(subject), members, limit=limit, assumptions=assumptions)
        if found.questions is None:
            return found
        low, high = self._ends(subject)
        sides = np.where(found.questions > 0, high, low)
        return replace(found, questions=np.where(np.isnan(found.questions), np.nan, sides))

    def _ends(self, subject: Subject) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return values of each feature that the classifier takes for 0 and for 1, where queries reach both."""
        binarize, d = applies.estimator_of(subject, "BernoulliNB").binarize, subject.data.X.shape[1]
        sides = None if subject.data.domain is None else _sides(subject.data.domain, d)
        if sides is not None:
            return sides
        low = 0.0 if binarize is None else np.floor(float(binarize))
        return np.full(d, low), np.full(d, low + 1.0)

    def counts(self, subject: Subject) -> Counts:
        """Return the count tables of the model that the recipe trains."""
        estimator = applies.estimator_of(subject, "BernoulliNB")
        X, alpha = applies.dense(subject.data.X), applies.smoothing(estimator)
        if X is None or alpha is None:
            raise ValueError("bound() without applies(): the features are not numbers")
        threshold = 0.5 if estimator.binarize is None else float(estimator.binarize)
        bits = (threshold < X).astype(np.int64)
        two = np.full(bits.shape[1], 2, dtype=np.int64)
        learnt, log_prior = applies.prior(estimator)
        allowed = _reachable(subject.data.domain, threshold, bits.shape[1]).ravel()
        K = len(subject.classes)
        return Counts(bits, subject.label_codes, K, two, two, allowed, alpha, learnt, log_prior, negated=True)


def _outside(domain: Domain | None, X: NDArray[np.float64]) -> str:
    """Return why the declared domain cannot be this data's; empty if it can."""
    if domain is None:
        return ""
    sides = _sides(domain, X.shape[1])
    if sides is None:
        return "does not apply, because the domain declares neither categories nor a box for these features"
    low, high = sides
    if (low > X).any() or (high < X).any():
        return "does not apply, because training records lie outside the declared domain"
    return ""


def _sides(domain: Domain, n_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    if domain.categories is not None and len(domain.categories) == n_features:
        return np.zeros(n_features), np.array(domain.categories, dtype=np.float64) - 1
    if domain.box is not None and len(domain.box) == n_features:
        low, high = np.array(domain.box, dtype=np.float64).T
        return low, high
    return None


def _reachable(domain: Domain | None, threshold: float, n_features: int) -> NDArray[np.bool_]:
    """Return whether queries reach 0 and 1 in each feature, shape (d, 2)."""
    sides = None if domain is None else _sides(domain, n_features)
    if sides is None:
        return np.ones((n_features, 2), dtype=bool)
    low, high = sides
    return np.column_stack([low <= threshold, high > threshold])
