"""Categorical naive Bayes: exact or nearly exact DTP of every unit, from counts alone."""

import numpy as np

from privgate.families.certificate import Certificate, Certified
from privgate.families.naive_bayes.counts_certificate import Counts
from privgate.families.over_all_queries import applies
from privgate.families.over_all_queries.discrete import certify
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject


class CategoricalNB(Certificate):
    """Removing a unit changes a few counts; the posterior's change is a sum over features and can be maximised."""

    name = "categorical_nb"
    source = "docs/mathematics.md, section 3.1, bounds (A) to (D); section 3.2 for two classes"

    def applies(self, subject: Subject) -> str:
        """Return "does not apply, because …" or an empty text."""
        if problem := applies.refusal(subject, "CategoricalNB"):
            return problem
        estimator = applies.estimator_of(subject, "CategoricalNB")
        codes = applies.codes(subject.data.X)
        if codes is None:
            return "does not apply, because the features are not whole numbers from 0"
        if applies.smoothing(estimator) is None:
            return "does not apply, because the smoothing alpha is not one number"
        domain = subject.data.domain
        if domain is not None and domain.categories is None:
            return "does not apply, because the declared domain names no categories; pass Domain(categories=…)"
        sizes, _ = self._sizes(subject)
        if domain is not None and domain.categories is not None:
            if len(domain.categories) != codes.shape[1]:
                return (
                    f"does not apply, because the domain declares {len(domain.categories)} features "
                    f"and the data have {codes.shape[1]}"
                )
            declared = np.array(domain.categories)
            if (codes.max(axis=0) >= declared).any():
                j = int(np.argmax(codes.max(axis=0) >= declared))
                return (
                    f"does not apply, because feature {j} takes the value {codes[:, j].max()} in the training data "
                    f"and the domain declares {declared[j]} categories"
                )
            if (declared > sizes).any():
                j = int(np.argmax(declared > sizes))
                return (
                    f"does not apply, because the domain declares {declared[j]} categories of feature {j} and the "
                    f"classifier knows {sizes[j]}; fit it with min_categories={declared.tolist()}"
                )
        return ""

    def bound(
        self, subject: Subject, units: Index, retrained: Retrained | None, *, limit: float | None = None
    ) -> Certified:
        """Return the bound for each of ``units``; see ``discrete.certify``."""
        del retrained
        members = applies.members(subject, units)
        return certify(self.counts(subject), members, limit=limit, assumptions=self._assumptions(subject))

    def counts(self, subject: Subject) -> Counts:
        """Return the count tables of the model that the recipe trains."""
        estimator = applies.estimator_of(subject, "CategoricalNB")
        codes, alpha = applies.codes(subject.data.X), applies.smoothing(estimator)
        if codes is None or alpha is None:
            raise ValueError("bound() without applies(): the features are not category codes")
        sizes, floor = self._sizes(subject)
        domain = subject.data.domain
        reach = sizes if domain is None or domain.categories is None else np.array(domain.categories)
        allowed = np.concatenate([np.arange(v) < r for v, r in zip(sizes, reach, strict=True)])
        learnt, log_prior = applies.prior(estimator)
        return Counts(codes, subject.label_codes, len(subject.classes), sizes, floor, allowed, alpha, learnt, log_prior)

    def _sizes(self, subject: Subject) -> tuple[Index, Index]:
        """Return the fitted numbers of categories, and those that hold whatever the data are."""
        codes = applies.codes(subject.data.X)
        estimator = applies.estimator_of(subject, "CategoricalNB")
        if codes is None:
            raise ValueError("bound() without applies(): the features are not category codes")
        declared = estimator.min_categories
        floor = np.broadcast_to(np.asarray(0 if declared is None else declared, dtype=np.int64), codes.shape[1:])
        return np.maximum(codes.max(axis=0) + 1, floor), floor

    def _assumptions(self, subject: Subject) -> tuple[str, ...]:
        domain = subject.data.domain
        where = (
            "the domain is inferred: every category code that the fitted classifier accepts"
            if domain is None
            else f"the endpoint refuses codes outside the declared {list(domain.categories or ())} categories"
        )
        return (where, "the recipe is scikit-learn's CategoricalNB, which counts and nothing else")
