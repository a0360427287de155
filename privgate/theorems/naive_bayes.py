"""Naive Bayes, tables of counts and random trees: the cases that the kernel is asked about.

The kernel limits everybody from counts or moments alone.
"""

from abc import abstractmethod
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.kernel import Case
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses
from privgate.theorems.certificate import (
    Certificate,
    Certified,
    Units,
    accepted_arrays,
    accepted_settings,
    people_of,
    smoothed,
)
from privgate.theorems.hypotheses import estimator_of

#: settings and arrays of a case without its people and the policy's limit; hypotheses that were checked, in words
Posed = tuple[dict[str, Any], dict[str, NDArray[Any]], tuple[str, ...]]


class ByCounts(Certificate):
    """A theorem of ``privgate.kernel`` about counts or moments of classes.

    Attributes
    ----------
    family : str
        The kernel's.
    lost : str
        What to do where rounding leaves nothing of anybody's limit.
    """

    family: str
    lost: str = ""

    @abstractmethod
    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis of recipe, records or domain fails; empty if none does."""

    @abstractmethod
    def pose(self, subject: Subject) -> Posed:
        """Return what the kernel is asked; ``misfit`` was empty."""

    def case(self, posed: Posed, asked: Literal["own", "any"], limit: float, **arrays: NDArray[Any]) -> Case:
        """Return the case; the kernel may refuse it."""
        return Case(self.family, asked, {**posed[0], "limit": float(limit)}, {**posed[1], **arrays})

    def canonical(self, subject: Subject, units: Index, case: Case) -> Case:
        """Return the whole case."""
        del case
        return self.case(self.pose(subject), "any", 1.0, person=people_of(subject, units))

    def probe(self, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return what to replace where only rounding is looked at: sums of many terms may underflow besides."""
        del arrays
        return {}

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        return _unfit(self, subject)

    def certify(self, about: Units) -> Certified:
        """Return the kernel's limits of each of the units; a second case is tight at the largest of them."""
        subject = about.subject
        posed, person = self.pose(subject), people_of(subject, about.units)
        limit = 1.0 if about.limit is None else about.limit
        try:
            cases = [Kept.of(self.case(posed, "any", limit, person=person), about.units)]
            top = float(cases[0].high[np.isfinite(cases[0].high)].max(initial=0.0))
            if not limit < top <= 2 * limit:  # between these the first is tight
                cases.append(Kept.of(self.case(posed, "any", top / 2, person=person), about.units))
        except kernel.Refused as why:
            return Certified.nothing(about.units, posed[2], refused=str(why))
        high = np.min([k.high for k in cases], axis=0)
        low = np.zeros(len(about.units)) if _refuses_more(subject.accepted) else cases[0].low
        return Certified(high, low, posed[2], cases=tuple(cases))


@lru_cache(maxsize=8)
def _unfit(theorem: ByCounts, subject: Subject) -> str:
    if problem := theorem.misfit(subject):
        return problem
    if not theorem.lost:
        return ""
    try:  # at their own records: a domain may be too wide for one policy, rounding is too large for all
        posed = theorem.pose(subject)
        high = kernel.limits(theorem.case(posed, "own", 1.0, **theorem.probe(posed[1]))).high
    except kernel.Refused:
        return theorem.lost
    alone = (np.bincount(subject.label_codes) <= 1)[subject.label_codes]
    return theorem.lost if np.isinf(high[~alone]).all() and not alone.all() else ""


def _labelled(subject: Subject) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    return {"classes": len(subject.classes)}, {"label": subject.label_codes.astype(np.int64)}


def _refuses_more(domain: Domain | None) -> bool:
    """Return whether a domain refuses more than each feature's values say: limits hold, questions may show nothing."""
    if domain is None:
        return False
    return (domain.max_length, domain.norm, domain.queries) != (None, None, None) or bool(domain.blocks)


class CategoricalCertificate(ByCounts):
    """Removing a person changes a few counts; the change is a sum over features."""

    name, family = "categorical_nb", "categorical"
    source = "privgate/kernel/counts.py; docs/mathematics.md, section 3.1"

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; empty if none does."""
        if problem := hypotheses.refusal(subject, "CategoricalNB") or _unsmoothed(subject):
            return problem
        codes, domain = hypotheses.codes(subject.data.X), subject.accepted
        if codes is None:
            return "the features are not whole numbers from 0"
        if domain is None:
            return ""
        if domain.categories is None:
            return "the declared domain names no categories; pass Domain(categories=…)"
        return _beyond(codes, _sizes(subject, codes)[0], np.array(domain.categories))

    def pose(self, subject: Subject) -> Posed:
        """Return the case of categories."""
        domain, codes = subject.accepted, np.asarray(hypotheses.codes(subject.data.X))
        sizes, floor = _sizes(subject, codes)
        where, accepted = "the domain is inferred: every category code that the fitted classifier accepts", sizes
        if domain is not None and domain.categories is not None:
            accepted = np.array(domain.categories, dtype=np.int64)
            where = f"the endpoint refuses codes outside the declared {accepted.tolist()} categories"
        words = (where, "the recipe is scikit-learn's CategoricalNB, which counts and nothing else")
        return _count(subject, codes, (sizes, floor, accepted), words, every=True)


class BernoulliCertificate(ByCounts):
    """As if categorical with two values a feature, of which the library takes the second one's probability off 1."""

    name, family = "bernoulli_nb", "categorical"
    source = "privgate/kernel/counts.py; docs/mathematics.md, section 3.1 (V_j = 2)"
    lost = (
        "the library computes 1 - p from the logarithm of p, and with so little smoothing rounding is as large as "
        "1 - p itself; raise alpha"
    )

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; empty if none does."""
        if problem := hypotheses.refusal(subject, "BernoulliNB") or _unsmoothed(subject):
            return problem
        X, domain = hypotheses.dense(subject.data.X), subject.accepted
        if X is None:
            return "the features are not finite numbers"
        if estimator_of(subject, "BernoulliNB").binarize is None:
            if not np.isin(X, (0.0, 1.0)).all():
                return "binarize is None and the training data hold values other than 0 and 1"
            if domain is None:
                return "no domain is declared: with binarize=None it answers any numbers; Domain(categories=(2, …))"
            if domain.categories is None or max(domain.categories) > 2:
                return "binarize is None and the domain allows values other than 0 and 1"
        if domain is None:
            return ""
        if (ends := _ends(domain, X.shape[1])) is None:
            return "the domain declares neither categories nor a box for these features"
        inside = (ends[0] <= X).all() and (ends[1] >= X).all()
        return "" if inside else "training records lie outside the declared domain"

    def pose(self, subject: Subject) -> Posed:
        """Return the case of two categories a feature."""
        estimator, domain = estimator_of(subject, "BernoulliNB"), subject.accepted
        X, d = np.asarray(hypotheses.dense(subject.data.X)), subject.data.X.shape[1]
        threshold = 0.5 if estimator.binarize is None else float(estimator.binarize)
        zero, one = np.ones((2, d), dtype=bool)
        where = "the domain is inferred: every feature on either side of the threshold, which is all there is"
        if domain is not None and (ends := _ends(domain, d)) is not None:
            zero, one = ends[0] <= threshold, ends[1] > threshold
            where = "the endpoint refuses queries outside the declared domain"
        words = (where, "the recipe is scikit-learn's BernoulliNB, which counts and nothing else")
        two, accepted = np.full(d, 2, dtype=np.int64), np.where(one, 2, 1).astype(np.int64)
        bits = (threshold < X).astype(np.int64)
        return _count(subject, bits, (two, two, accepted), words, bernoulli=True, every=bool(zero.all()))

    def probe(self, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the one feature that somebody's class has most often."""
        share = [arrays["codes"][arrays["label"] == k].mean(axis=0) for k in np.unique(arrays["label"])]
        j = int(np.max(share, axis=0).argmax())
        kept = {name: arrays[name][j : j + 1] for name in ("sizes", "floor", "accepted")}
        return {"codes": arrays["codes"][:, j : j + 1], **kept}


def _unsmoothed(subject: Subject) -> str:
    """Return why a category may be impossible; empty if none may."""
    if np.ndim(subject.recipe.library_estimator.alpha) != 0:
        return "the smoothing alpha is not one number"
    if not _smoothing(subject) > 0:
        return "without smoothing a category that one record holds alone makes DTP infinite"
    return ""


def _smoothing(subject: Subject) -> float:
    """Return the additive smoothing that the library uses: it raises small values unless force_alpha is set."""
    estimator = subject.recipe.library_estimator
    return float(estimator.alpha) if estimator.force_alpha else max(float(estimator.alpha), 1e-10)


def _sizes(subject: Subject, codes: Index) -> tuple[Index, Index]:
    """Return the fitted numbers of categories, and those that hold whatever the data are."""
    declared = subject.recipe.library_estimator.min_categories
    floor = np.broadcast_to(np.asarray(0 if declared is None else declared, dtype=np.int64), codes.shape[1:])
    return np.maximum(codes.max(axis=0) + 1, floor), np.ascontiguousarray(floor)


def _beyond(codes: Index, sizes: Index, declared: Index) -> str:
    """Return why the declared numbers of categories cannot be this data's and classifier's; empty if they can."""
    if len(declared) != codes.shape[1]:
        return f"the domain declares {len(declared)} features and the data have {codes.shape[1]}"
    for j in np.flatnonzero(codes.max(axis=0) >= declared)[:1]:
        return (
            f"feature {j} takes the value {codes[:, j].max()} in the training data and the domain declares "
            f"{declared[j]} categories"
        )
    for j in np.flatnonzero(declared > sizes)[:1]:
        return (
            f"the domain declares {declared[j]} categories of feature {j} and the classifier knows {sizes[j]}; fit it "
            f"with min_categories={declared.tolist()}"
        )
    return ""


def _ends(domain: Domain, d: int) -> tuple[Float, Float] | None:
    """Return the sides of a domain of d features, if it states them."""
    if domain.categories is not None and len(domain.categories) == d:
        return np.zeros(d), np.array(domain.categories, dtype=np.float64) - 1
    if domain.box is not None and len(domain.box) == d:
        low, high = np.array(domain.box, dtype=np.float64).T
        return low, high
    return None


def _count(
    subject: Subject,
    codes: Index,
    categories: tuple[Index, Index, Index],
    words: tuple[str, ...],
    *,
    every: bool,
    bernoulli: bool = False,
) -> Posed:
    """Return the case of categories ``(sizes, floor, accepted)``; ``every`` choice of accepted ones may be asked."""
    estimator, (settings, arrays) = subject.recipe.library_estimator, _labelled(subject)
    settings |= {"alpha": _smoothing(subject), "bernoulli": bernoulli}
    settings |= {"fit_prior": bool(estimator.fit_prior), "every": every and not _refuses_more(subject.accepted)}
    if estimator.class_prior is not None:
        settings["fit_prior"] = False
        arrays["log_prior"] = np.log(np.asarray(estimator.class_prior, dtype=np.float64))
    arrays |= {"codes": codes, **dict(zip(("sizes", "floor", "accepted"), categories, strict=True))}
    return settings, arrays, words


class GaussianCertificate(ByCounts):
    """The change of a log-odds is a sum of parabolas, each largest at an end of its side or at its vertex."""

    name, family = "gaussian_nb", "gaussian"
    source = "privgate/kernel/gaussian.py; docs/mathematics.md, section 3.5"
    lost = (
        "a feature lies so far from 0 for how little it varies that the library's rounding of its mean is not small "
        "against its standard deviation; subtract a constant from it"
    )

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; empty if none does."""
        if problem := hypotheses.refusal(subject, "GaussianNB"):
            return problem
        if (X := hypotheses.dense(subject.data.X)) is None:
            return "the features are not finite numbers"
        if problem := hypotheses.single_precision(subject.data.X):
            return problem
        otherwise = (
            "far from the data DTP is infinite; declare the range of every feature, Domain(box=…), and let the "
            "endpoint refuse anything else"
        )
        if isinstance(made := hypotheses.declared(subject, X, otherwise), str):
            return made
        return "" if made.low is not None else "the declared domain names no range of each feature; pass Domain(box=…)"

    def pose(self, subject: Subject) -> Posed:
        """Return the case of moments."""
        estimator, X = estimator_of(subject, "GaussianNB"), np.asarray(hypotheses.dense(subject.data.X))
        reach, (settings, arrays) = hypotheses.reach(subject), _labelled(subject)
        settings |= {"var_smoothing": float(estimator.var_smoothing), **accepted_settings(reach)}
        arrays |= {"X": X, **accepted_arrays(reach, X.shape[1])}
        if estimator.priors is not None:
            arrays["log_prior"] = np.log(np.asarray(estimator.priors, dtype=np.float64))
        words = (reach.words(), "the recipe is scikit-learn's GaussianNB, variance smoothing refitted")
        return settings, arrays, words


class SharesCertificate(ByCounts):
    """Shares of cells that no data moved: only the counts of a person's own cells change."""

    family = "partitions"

    def __init__(self, library: str, name: str, section: str) -> None:
        self.library, self.name = library, name
        self.source = f"privgate/kernel/counts.py; docs/mathematics.md, {section}"

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; empty if none does."""
        if problem := hypotheses.own_refusal(subject, self.library):
            return problem
        if self.library == "RandomTrees" and not hypotheses.own_estimator(subject, self.library).alpha > 0:
            return "without smoothing a label that one record holds alone makes DTP infinite"
        return ""

    def every_data_set(self, subject: Subject) -> float:
        """Return ``ln(1 + 1/alpha)`` for declared labels and one record a person."""
        alpha = float(hypotheses.own_estimator(subject, self.library).alpha)
        cells = subject.data.n if self.library == "RandomTrees" else 1
        return smoothed(subject, alpha) + (hypotheses.own_error(subject, alpha, cells) if alpha > 0 else 0.0)

    def pose(self, subject: Subject) -> Posed:
        """Return the case of partitions."""
        estimator, (settings, arrays) = hypotheses.own_estimator(subject, self.library), _labelled(subject)
        settings |= {"alpha": float(estimator.alpha), "average": "arithmetic"}
        settings["declared"] = subject.declared_classes is not None
        if self.library == "ContingencyTable":
            leaf = np.unique(np.asarray(subject.data.X), axis=0, return_inverse=True)[1].reshape(-1, 1)
            sizes = np.array([int(leaf.max()) + 1])
            where = "cells without a record answer the same whatever the data are; any query is allowed"
        else:
            X = hypotheses.dense(subject.data.X)
            model = estimator.fit(X, subject.data.y)
            leaf, sizes = model.leaves(X), np.full(model.counts_.shape[0], model.counts_.shape[1])
            settings["average"] = estimator.average
            where = "splits are drawn from declared ranges before the data are seen; any query is allowed"
        return settings, {**arrays, "leaf": leaf.astype(np.int64), "sizes": sizes.astype(np.int64)}, (where,)


ALL: tuple[Certificate, ...] = (
    CategoricalCertificate(),
    BernoulliCertificate(),
    GaussianCertificate(),
    SharesCertificate("ContingencyTable", "contingency_table", "section 1, Theorem 1"),
    SharesCertificate("RandomTrees", "random_trees", "sections 4.2 and 4.3"),
)
