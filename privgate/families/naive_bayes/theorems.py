"""Naive Bayes, tables of counts and random trees: the cases that the kernel is asked about, and who applies.

The kernel limits everybody from counts and moments alone. Where most is told, or a policy's limit lies between, a
question is looked for that shows it; the kernel puts it to both models.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.engines.count_questions import Tables, best, in_box
from privgate.families import certificate, designs
from privgate.families.certificate import (
    Certificate,
    Certified,
    Units,
    accepted_arrays,
    accepted_settings,
    attained,
    people_of,
)
from privgate.families.over_all_queries import applies
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject

#: numbers that a search for questions may look at, about ten seconds, and those of one of its blocks
_WORK, _BLOCK = 5e8, 5e7
#: so many different people, who tell most, are looked at although they decide nothing
_TOLD = 100


@dataclass(frozen=True, eq=False)
class Posed:
    """What the kernel is asked.

    Parameters
    ----------
    family : str
    settings, arrays : dict
        Without the people, the policy's limit and questions.
    words : tuple of str
        Hypotheses that were checked.
    propose : callable, optional
        Records of some people -> (a question for each (U, d), how much it may tell (U,)).
    size : int
        Numbers that it looks at for one person.
    shown : callable
        Questions as the recipe is asked them, NaN where there are none.
    narrower : bool
        Whether the endpoint refuses questions that the case accepts: limits hold, and questions show nothing.
    """

    family: str
    settings: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    words: tuple[str, ...]
    propose: Callable[[list[Index]], tuple[NDArray[Any], Float]] | None = None
    size: int = 1
    shown: Callable[[Float], Float] = lambda found: found
    narrower: bool = False

    def case(self, asked: Literal["own", "any"], limit: float, **arrays: NDArray[Any]) -> kernel.Case:
        """Return the case; the kernel may refuse it."""
        settings = {**self.settings, "limit": float(limit)}
        return kernel.Case(self.family, asked, settings, {**self.arrays, **arrays})


class ByCounts(Certificate):
    """A theorem of ``privgate.kernel`` about counts or moments of classes."""

    #: what to do where rounding leaves nothing of anybody's limit
    lost = ""

    @abstractmethod
    def posed(self, subject: Subject) -> Posed:
        """Return what the kernel is asked; it applies."""

    @abstractmethod
    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis of recipe, records or domain fails; empty if none does."""

    def canonical(self, subject: Subject, units: Index, case: kernel.Case) -> kernel.Case:
        """Return the whole case, questions apart."""
        del case
        return self.posed(subject).case("any", 1.0, person=people_of(subject, units))

    def probe(self, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return what to replace where only rounding is looked at: sums of many terms may underflow besides."""
        del arrays
        return {}

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        return _unfit(self, subject)

    def certify(self, about: Units) -> Certified:
        """Return the kernel's limits of each of the units."""
        posed, U = self.posed(about.subject), len(about.units)
        try:
            return _judged(posed, about)
        except kernel.Refused as why:
            nothing = np.full(U, np.inf), np.zeros(U), np.zeros(U, dtype=bool)
            return Certified(*nothing, posed.words, {"refused": str(why)})


@lru_cache(maxsize=8)
def _unfit(theorem: ByCounts, subject: Subject) -> str:
    if problem := theorem.misfit(subject):
        return problem
    if not theorem.lost:
        return ""
    try:  # at their own records: a domain may be too wide for one policy, rounding is too large for all
        posed = theorem.posed(subject)
        high = kernel.limits(posed.case("own", 1.0, **theorem.probe(posed.arrays))).high
    except kernel.Refused:
        return theorem.lost
    alone = (np.bincount(subject.label_codes) <= 1)[subject.label_codes]
    return theorem.lost if np.isinf(high[~alone]).all() and not alone.all() else ""


def _judged(posed: Posed, about: Units) -> Certified:
    """Return the kernel's limits, and once more with questions where that may help."""
    subject, U = about.subject, len(about.units)
    person = people_of(subject, about.units)
    limit = 1.0 if about.limit is None else about.limit
    cases = [Kept.of(posed.case("any", limit, person=person), about.units)]
    low, high, questions = cases[0].low, cases[0].high, None
    if posed.narrower:
        return Certified(high, np.zeros(U), np.zeros(U, dtype=bool), posed.words, cases=tuple(cases))
    some, alike = _open(low, high, about.limit, int(_WORK / posed.size))
    if posed.propose is not None and len(some):
        step, members, parts = max(1, int(_BLOCK / posed.size)), about.members, []
        parts = [posed.propose([members[k] for k in some[i : i + step]]) for i in range(0, len(some), step)]
        asked, value = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
        nobody: Any = -1 if asked.dtype.kind == "i" else np.nan
        question = np.full((int(person.max()) + 1, asked.shape[1]), nobody, dtype=asked.dtype)
        question[:U][alike >= 0] = asked[alike[alike >= 0]]
        top = max(float(value.max()), float(low[np.isfinite(low)].max(initial=0.0)), 1e-9)
        again = Kept.of(posed.case("any", top * (1 - 1e-9), person=person, question=question), about.units)
        low, high, cases = np.maximum(low, again.low), np.minimum(high, again.high), [*cases, again]
        told = question[:U].astype(np.float64)
        questions = posed.shown(np.where(told == -1, np.nan, told) if asked.dtype.kind == "i" else told)
    return Certified(high, low, attained(low, high), posed.words, {}, questions, tuple(cases))


def _open(low: Float, high: Float, limit: float | None, most: int) -> tuple[Index, Index]:
    """Return one of each kind of people whom a question may help, and who is like which of them, -1 for nobody."""
    kinds, first, kind = np.unique(np.column_stack([low, high]), axis=0, return_index=True, return_inverse=True)
    urgent = np.isinf(kinds[:, 1]) & np.isfinite(kinds[:, 0])
    if limit is not None:
        urgent |= (kinds[:, 0] <= limit) & (limit < kinds[:, 1])
    order = np.lexsort((-np.where(np.isinf(kinds[:, 1]), 0.0, kinds[:, 1]), ~urgent))
    order = order[np.isfinite(kinds[order, 0])][: min(max(_TOLD, int(urgent.sum())), most)]
    place = np.full(len(kinds), -1)
    place[order] = np.arange(len(order))
    return first[order], place[kind.ravel()]


def _prior(prior: tuple[bool, Float | None]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    return {"fit_prior": prior[0]}, {} if prior[1] is None else {"log_prior": prior[1]}


def _basis(subject: Subject) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    return {"classes": len(subject.classes)}, {"label": subject.label_codes.astype(np.int64)}


class CategoricalCertificate(ByCounts):
    """Removing a person changes a few counts; the change is a sum over features."""

    name = "categorical_nb"
    source = "privgate/kernel/counts.py; docs/mathematics.md, section 3.1"

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; empty if none does."""
        if problem := applies.refusal(subject, "CategoricalNB"):
            return problem
        estimator, domain = designs.estimator_of(subject, "CategoricalNB"), subject.accepted
        codes, alpha = applies.codes(subject.data.X), applies.smoothing(estimator)
        if codes is None:
            return "the features are not whole numbers from 0"
        if alpha is None:
            return "the smoothing alpha is not one number"
        if not alpha > 0:
            return "without smoothing a category that one record holds alone makes DTP infinite"
        if domain is None:
            return ""
        if domain.categories is None:
            return "the declared domain names no categories; pass Domain(categories=…)"
        return _beyond(codes, _sizes(estimator, codes)[0], np.array(domain.categories))

    def posed(self, subject: Subject) -> Posed:
        """Return the case of categories."""
        estimator, domain = designs.estimator_of(subject, "CategoricalNB"), subject.accepted
        codes = np.asarray(applies.codes(subject.data.X))
        sizes, floor = _sizes(estimator, codes)
        named = None if domain is None or domain.categories is None else np.array(domain.categories, dtype=np.int64)
        accepted = sizes if named is None else named
        where = (
            "the domain is inferred: every category code that the fitted classifier accepts"
            if named is None
            else f"the endpoint refuses codes outside the declared {named.tolist()} categories"
        )
        words = (where, "the recipe is scikit-learn's CategoricalNB, which counts and nothing else")
        allowed = np.concatenate([np.arange(v) < r for v, r in zip(sizes, accepted, strict=True)])
        return _counted(subject, codes, (sizes, floor, accepted), allowed, words)


class BernoulliCertificate(ByCounts):
    """As if categorical with two values a feature, of which the library takes the second one's probability off 1."""

    name = "bernoulli_nb"
    source = "privgate/kernel/counts.py; docs/mathematics.md, section 3.1 (V_j = 2)"
    lost = (
        "the library computes 1 - p from the logarithm of p, and with so little smoothing rounding is as large as "
        "1 - p itself; raise alpha"
    )

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; empty if none does."""
        if problem := applies.refusal(subject, "BernoulliNB"):
            return problem
        estimator, X = designs.estimator_of(subject, "BernoulliNB"), applies.dense(subject.data.X)
        alpha, domain = applies.smoothing(estimator), subject.accepted
        if X is None:
            return "the features are not finite numbers"
        if alpha is None:
            return "the smoothing alpha is not one number"
        if not alpha > 0:
            return "without smoothing a value that one record holds alone makes DTP infinite"
        if estimator.binarize is None:
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

    def posed(self, subject: Subject) -> Posed:
        """Return the case of two categories a feature."""
        estimator, domain = designs.estimator_of(subject, "BernoulliNB"), subject.accepted
        X, d = np.asarray(applies.dense(subject.data.X)), subject.data.X.shape[1]
        threshold = 0.5 if estimator.binarize is None else float(estimator.binarize)
        below = 0.0 if estimator.binarize is None else np.floor(threshold)
        ends = None if domain is None else _ends(domain, d)
        low, high = (np.full(d, below), np.full(d, below + 1.0)) if ends is None else ends
        allowed = np.column_stack([low <= threshold, high > threshold]) | (ends is None)
        if domain is not None:
            where = "the endpoint refuses queries outside the declared domain"
        else:
            where = "the domain is inferred: every feature on either side of the threshold, which is all there is"
        words = (where, "the recipe is scikit-learn's BernoulliNB, which counts and nothing else")
        two = np.full(d, 2, dtype=np.int64)
        accepted = np.where(allowed[:, 1], 2, 1).astype(np.int64)

        def shown(found: Float) -> Float:
            return np.where(np.isnan(found), np.nan, np.where(found > 0, high, low))

        bits = (threshold < X).astype(np.int64)
        return _counted(subject, bits, (two, two, accepted), allowed.ravel(), words, bernoulli=True, shown=shown)

    def probe(self, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the one feature that somebody's class has most often."""
        share = [arrays["codes"][arrays["label"] == k].mean(axis=0) for k in np.unique(arrays["label"])]
        j = int(np.max(share, axis=0).argmax())
        kept = {name: arrays[name][j : j + 1] for name in ("sizes", "floor", "accepted")}
        return {"codes": arrays["codes"][:, j : j + 1], **kept}


def _sizes(estimator: Any, codes: Index) -> tuple[Index, Index]:
    """Return the fitted numbers of categories, and those that hold whatever the data are."""
    declared = estimator.min_categories
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


def _narrower(domain: Domain | None) -> bool:
    """Return whether a domain refuses more than each feature's values say by themselves."""
    more = domain is not None and (domain.max_length, domain.norm, domain.queries) != (None, None, None)
    return more or (domain is not None and bool(domain.blocks))


def _counted(
    subject: Subject,
    codes: Index,
    categories: tuple[Index, Index, Index],
    allowed: NDArray[np.bool_],
    words: tuple[str, ...],
    *,
    bernoulli: bool = False,
    shown: Callable[[Float], Float] = lambda found: found,
) -> Posed:
    """Return the case of categories ``(sizes, floor, accepted)``, of which questions are sought among ``allowed``."""
    estimator, (settings, arrays) = subject.recipe.library_estimator, _basis(subject)
    (sizes, floor, accepted), label, K = categories, arrays["label"], settings["classes"]
    alpha, (fitted, fixed) = float(applies.smoothings(estimator)), _prior(applies.prior(estimator))
    narrower = _narrower(subject.accepted)
    every = not narrower and int(allowed.sum()) == int(accepted.sum())
    settings = settings | fitted | {"alpha": alpha, "bernoulli": bernoulli, "every": every}
    arrays = arrays | fixed | {"codes": codes, "sizes": sizes, "floor": floor, "accepted": accepted}
    start, cells = np.cumsum(sizes) - sizes, int(sizes.sum())
    flat = (label[:, None] * cells + codes + start).ravel()
    T, N = np.bincount(flat, minlength=K * cells).reshape(1, K, cells), np.bincount(label, minlength=K)[None]
    feature, kept = np.repeat(np.arange(len(sizes)), sizes), np.flatnonzero(allowed)
    first = np.searchsorted(feature[kept], np.arange(len(sizes)))

    def scores(T: NDArray[Any], N: NDArray[Any]) -> tuple[Float, Float]:
        bias = np.log(N) if settings["fit_prior"] else np.broadcast_to(fixed.get("log_prior", np.zeros(K)), N.shape)
        shares = np.log(T + alpha) - np.log(N[:, :, None] + alpha * sizes)[:, :, feature]
        return bias, np.asarray(shares[:, :, kept])

    def propose(members: list[Index]) -> tuple[Index, Float]:
        U = len(members)
        rows, who = np.concatenate(members), np.repeat(np.arange(U), [len(m) for m in members])
        lost = np.zeros((U, K))
        np.add.at(lost, (who, label[rows]), 1.0)
        gone = np.bincount((np.repeat(who * K + label[rows], len(sizes)) * cells) + (codes[rows] + start).ravel())
        gone = np.pad(gone, (0, U * K * cells - len(gone))).reshape(U, K, cells)
        (bias, with_), (left, without) = scores(T, N), scores(T - gone, N - lost)
        chosen, value = best(Tables(bias, left, with_, without, first))
        return kept[chosen] - start, value

    size = K * (len(kept) * K * 30 + 2 * len(kept) * len(sizes))
    return Posed("categorical", settings, arrays, words, propose, size, shown, narrower)


class GaussianNB(ByCounts):
    """The change of a log-odds is a sum of parabolas, each largest at an end of its side or at its vertex."""

    name = "gaussian_nb"
    source = "privgate/kernel/gaussian.py; docs/mathematics.md, section 3.5"
    lost = (
        "a feature lies so far from 0 for how little it varies that the library's rounding of its mean is not small "
        "against its standard deviation; subtract a constant from it"
    )

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; empty if none does."""
        if problem := applies.refusal(subject, "GaussianNB"):
            return problem
        if (X := applies.dense(subject.data.X)) is None:
            return "the features are not finite numbers"
        if problem := applies.single_precision(subject.data.X):
            return problem
        otherwise = (
            "far from the data DTP is infinite; declare the range of every feature, Domain(box=…), and let the "
            "endpoint refuse anything else"
        )
        made = applies.declared(subject, X, otherwise)
        if isinstance(made, str):
            return made
        return "" if made.low is not None else "the declared domain names no range of each feature; pass Domain(box=…)"

    def posed(self, subject: Subject) -> Posed:
        """Return the case of moments."""
        estimator, X = designs.estimator_of(subject, "GaussianNB"), np.asarray(applies.dense(subject.data.X))
        reach, (settings, arrays), (n, d) = applies.reach(subject), _basis(subject), X.shape
        settings |= {"var_smoothing": float(estimator.var_smoothing), **accepted_settings(reach)}
        arrays |= {"X": X, **accepted_arrays(reach, d)}
        if estimator.priors is not None:
            arrays["log_prior"] = np.log(np.asarray(estimator.priors, dtype=np.float64))
        label, K, centre = arrays["label"], settings["classes"], X.mean(axis=0)

        def model(rows: Index) -> tuple[Float, Float, Float]:
            """Return priors (K,), means and variances (K, d) without some records."""
            kept = np.ones(n, dtype=bool)
            kept[rows] = False
            own = [X[kept & (label == k)] - centre for k in range(K)]
            floor = settings["var_smoothing"] * X[kept].var(axis=0).max()
            fixed = arrays.get("log_prior", np.log([len(v) for v in own]))
            return fixed, np.array([v.mean(axis=0) for v in own]), np.array([v.var(axis=0) + floor for v in own])

        def propose(members: list[Index]) -> tuple[Float, Float]:
            everybody = model(np.zeros(0, dtype=np.int64))
            left = [np.array(v) for v in zip(*(model(m) for m in members), strict=True)]

            def cells(x: Float, mean: Float, variance: Float) -> Float:
                away = (x - centre[:, None])[:, None] - mean[..., None]
                terms = -0.5 * (away**2 / variance[..., None] + np.log(variance)[..., None])
                return np.asarray(terms.reshape(len(terms), K, -1))

            def scored(x: Float) -> Tables:
                both = cells(x, *(v[None] for v in everybody[1:])), cells(x, *left[1:])
                return Tables(everybody[0][None], left[0], *both, x.shape[2] * np.arange(d))

            return in_box(scored, np.asarray(reach.low), np.asarray(reach.high), whole=reach.whole)

        words = (reach.words(), "the recipe is scikit-learn's GaussianNB, variance smoothing refitted")
        return Posed("gaussian", settings, arrays, words, propose, 300 * K * K * d + n * d)


class SharesCertificate(ByCounts):
    """Shares of cells that no data moved: only the counts of a person's own cells change."""

    def __init__(self, library: str, name: str, section: str) -> None:
        self.library, self.name = library, name
        self.source = f"privgate/kernel/counts.py; docs/mathematics.md, {section}"

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; empty if none does."""
        if problem := applies.own_refusal(subject, self.library):
            return problem
        if self.library == "RandomTrees" and not applies.own_estimator(subject, self.library).alpha > 0:
            return "without smoothing a label that one record holds alone makes DTP infinite"
        return ""

    def every_data_set(self, subject: Subject) -> float:
        """Return ``ln(1 + 1/alpha)`` for declared labels and one record a person."""
        alpha = float(applies.own_estimator(subject, self.library).alpha)
        cells = subject.data.n if self.library == "RandomTrees" else 1
        error = applies.own_error(subject, alpha, cells) if alpha > 0 else 0.0
        return certificate.smoothed(subject, alpha) + error

    def posed(self, subject: Subject) -> Posed:
        """Return the case of partitions."""
        estimator, (settings, arrays) = applies.own_estimator(subject, self.library), _basis(subject)
        settings |= {"alpha": float(estimator.alpha), "average": "arithmetic"}
        settings["declared"] = subject.declared_classes is not None
        if self.library == "ContingencyTable":
            leaf = np.unique(np.asarray(subject.data.X), axis=0, return_inverse=True)[1].reshape(-1, 1)
            sizes = np.array([int(leaf.max()) + 1])
            where = "cells without a record answer the same whatever the data are; any query is allowed"
        else:
            X = applies.dense(subject.data.X)
            model = estimator.fit(X, subject.data.y)
            leaf, sizes = model.leaves(X), np.full(model.counts_.shape[0], model.counts_.shape[1])
            settings["average"] = estimator.average
            where = "splits are drawn from declared ranges before the data are seen; any query is allowed"
        arrays |= {"leaf": leaf.astype(np.int64), "sizes": sizes.astype(np.int64)}
        return Posed("partitions", settings, arrays, (where,))


ALL: tuple[ByCounts, ...] = (
    CategoricalCertificate(),
    BernoulliCertificate(),
    GaussianNB(),
    SharesCertificate("ContingencyTable", "contingency_table", "section 1, Theorem 1"),
    SharesCertificate("RandomTrees", "random_trees", "sections 4.2 and 4.3"),
)
