"""Naive Bayes and tables of counts: the cases of counts or moments that the kernel is asked about."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.kernel import Case
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses
from privgate.theorems.hypotheses import estimator_of, refusal
from privgate.theorems.theorem import DataTheorem, people_of, refuses_more

#: a case, and what was checked, in words
Posed = tuple[Case, tuple[str, ...]]
#: why rounding leaves nothing of anybody's limit, and what to do
_NEGATED = (
    "the library computes 1 - p from the logarithm of p, and with so little smoothing, or so many features, rounding "
    "leaves nothing of it; raise alpha"
)
_FAR = (
    "a feature lies so far from 0 for how little it varies that the library's rounding of its mean is not small "
    "against its standard deviation; subtract a constant from it"
)


def _make_case(subject: Subject, units: Index, family: str, settings: dict[str, Any], **arrays: NDArray[Any]) -> Case:
    label = {"label": subject.label_codes.astype(np.int64), "person": people_of(subject, units)}
    return Case(family, "any", {**settings, "limit": 1.0, "classes": len(subject.classes)}, arrays | label)


def _log_prior(prior: Any) -> dict[str, NDArray[Any]]:
    return {} if prior is None else {"log_prior": np.log(np.asarray(prior, dtype=np.float64))}


def _refuse_categorical(subject: Subject) -> str:
    if problem := refusal(subject, "CategoricalNB") or _refuse_smoothing(subject):
        return problem
    codes, domain = hypotheses.codes(subject.data.X), subject.accepted
    if codes is None:
        return "the features are not whole numbers from 0"
    if domain is None:
        return ""
    if domain.categories is None:
        return "the declared domain names no categories; pass Domain(categories=…)"
    largest, sizes, declared = codes.max(axis=0), _count_categories(subject, codes)[0], np.array(domain.categories)
    if len(declared) != codes.shape[1]:
        return f"the domain declares {len(declared)} features and the data have {codes.shape[1]}"
    if (largest >= declared).any():
        j = int((largest >= declared).argmax())
        taken = f"feature {j} takes the value {largest[j]} in the training data"
        return f"{taken} and the domain declares {declared[j]} categories"
    if (declared > sizes).any():
        j = int((declared > sizes).argmax())
        known = f"the domain declares {declared[j]} categories of feature {j} and the classifier knows {sizes[j]}"
        return f"{known}; fit it with min_categories={declared.tolist()}"
    return ""


def _refuse_smoothing(subject: Subject) -> str:
    if np.ndim(subject.recipe.library_estimator.alpha) != 0:
        return "the smoothing alpha is not one number"
    lone = "without smoothing a category that one record holds alone makes DTP infinite"
    return "" if _read_smoothing(subject) > 0 else lone


def _read_smoothing(subject: Subject) -> float:
    """Return the additive smoothing that the library uses: it raises small values unless force_alpha is set."""
    estimator = subject.recipe.library_estimator
    return float(estimator.alpha) if estimator.force_alpha else max(float(estimator.alpha), 1e-10)


def _count_categories(subject: Subject, codes: Index) -> tuple[Index, Index]:
    """Return the fitted numbers of categories, and those that hold whatever the data are."""
    declared = subject.recipe.library_estimator.min_categories
    floor = np.broadcast_to(np.asarray(0 if declared is None else declared, dtype=np.int64), codes.shape[1:])
    return np.maximum(codes.max(axis=0) + 1, floor), np.ascontiguousarray(floor)


def _pose_categorical(subject: Subject, units: Index) -> Posed:
    codes, domain = np.asarray(hypotheses.codes(subject.data.X)), subject.accepted
    sizes, floor = _count_categories(subject, codes)
    accepted, where = sizes, "the domain is inferred: every category code that the fitted classifier accepts"
    if domain is not None and domain.categories is not None:
        accepted = np.array(domain.categories, dtype=np.int64)
        where = f"the endpoint refuses codes outside the declared {accepted.tolist()} categories"
    settings = {"bernoulli": False, "every": not refuses_more(domain)}
    return _count(subject, units, settings, where, codes=codes, sizes=sizes, floor=floor, accepted=accepted)


def _count(subject: Subject, units: Index, settings: dict[str, Any], where: str, **arrays: NDArray[Any]) -> Posed:
    estimator = subject.recipe.library_estimator
    settings |= {"alpha": _read_smoothing(subject)}
    settings |= {"fit_prior": bool(estimator.fit_prior) and estimator.class_prior is None}
    case = _make_case(subject, units, "categorical", settings, **arrays, **_log_prior(estimator.class_prior))
    return case, (where, f"the recipe is scikit-learn's {type(estimator).__name__}, which counts and nothing else")


def _refuse_bernoulli(subject: Subject) -> str:
    if problem := refusal(subject, "BernoulliNB") or _refuse_smoothing(subject):
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
    reach = "" if domain is None else hypotheses.declared(subject, X, "")
    return reach if isinstance(reach, str) else ""


def _pose_bernoulli(subject: Subject, units: Index) -> Posed:
    X, binarize = np.asarray(hypotheses.dense(subject.data.X)), estimator_of(subject, "BernoulliNB").binarize
    threshold, (below, above) = 0.5 if binarize is None else float(binarize), np.ones((2, X.shape[1]), dtype=bool)
    where = "the domain is inferred: every feature on either side of the threshold, which is all there is"
    if subject.accepted is not None:
        reach, where = hypotheses.reach(subject), "the endpoint refuses queries outside the declared domain"
        below, above = np.asarray(reach.low) <= threshold, np.asarray(reach.high) > threshold
    two, codes = np.full(X.shape[1], 2, dtype=np.int64), (threshold < X).astype(np.int64)
    settings = {"bernoulli": True, "every": bool(below.all()) and not refuses_more(subject.accepted)}
    accepted = np.where(above, 2, 1).astype(np.int64)
    return _count(subject, units, settings, where, codes=codes, sizes=two, floor=two, accepted=accepted)


def _refuse_gaussian(subject: Subject) -> str:
    if problem := refusal(subject, "GaussianNB"):
        return problem
    if (X := hypotheses.dense(subject.data.X)) is None:
        return "the features are not finite numbers"
    if problem := hypotheses.single_precision(subject.data.X):
        return problem
    otherwise = (
        "far from the data DTP is infinite; declare the range of every feature, Domain(box=…), and let the "
        "endpoint refuse anything else"
    )
    reach = hypotheses.declared(subject, X, otherwise)
    return reach if isinstance(reach, str) else ""


def _pose_gaussian(subject: Subject, units: Index) -> Posed:
    estimator, X = estimator_of(subject, "GaussianNB"), np.asarray(hypotheses.dense(subject.data.X))
    reach = hypotheses.reach(subject)
    settings, arrays = hypotheses.state_domain(reach)
    settings |= {"var_smoothing": float(estimator.var_smoothing)}
    arrays |= {"X": X, **_log_prior(estimator.priors)}
    words = (hypotheses.OUTSIDE, "the recipe is scikit-learn's GaussianNB, variance smoothing refitted")
    return _make_case(subject, units, "gaussian", settings, **arrays), words


def _pose_table(subject: Subject, units: Index) -> Posed:
    estimator = estimator_of(subject, _TABLE)
    leaf = np.unique(np.asarray(subject.data.X), axis=0, return_inverse=True)[1].reshape(-1, 1).astype(np.int64)
    settings = {"alpha": float(estimator.alpha), "declared": subject.declared_classes is not None}
    case = _make_case(subject, units, "partitions", settings, leaf=leaf, sizes=np.array([int(leaf.max()) + 1]))
    return case, ("cells without a record answer the same whatever the data are; any query is allowed",)


_COUNTS = "privgate/kernel/counts.py; docs/mathematics.md, section"
_MOMENTS = "privgate/kernel/gaussian.py; docs/mathematics.md, section 3.5"
_TABLE = "ContingencyTable"
ALL = (
    DataTheorem("categorical_nb", f"{_COUNTS} 3.1", _refuse_categorical, _pose_categorical),
    DataTheorem("bernoulli_nb", f"{_COUNTS} 3.1 (V_j = 2)", _refuse_bernoulli, _pose_bernoulli, lost=_NEGATED),
    DataTheorem("gaussian_nb", _MOMENTS, _refuse_gaussian, _pose_gaussian, lost=_FAR),
    DataTheorem("contingency_table", f"{_COUNTS} 1, Theorem 1", partial(refusal, name=_TABLE), _pose_table),
)
