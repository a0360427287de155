"""Naive Bayes, tables of counts and random trees: the cases that the kernel is asked about, and who applies.

The kernel limits everybody from counts and moments alone. Where most is told, or a policy's limit lies between, a
question is looked for that shows it; the kernel puts it to both models.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.engines.count_questions import Tables, best, in_box
from privgate.families import certificate, engine
from privgate.families.certificate import (
    Certificate,
    Certified,
    Units,
    accepted_arrays,
    accepted_settings,
    attained,
    people_of,
)
from privgate.families.over_all_queries import accepted_range, applies
from privgate.families.over_all_queries.accepted_range import Reach
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject

#: (with everybody, without some people): bias (1, K) and (U, K), weights (1, K, d) and (U, K, d)
Linear = tuple[tuple[Float, Float], tuple[Float, Float]]

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

    def limits(self, asked: str, limit: float, **arrays: NDArray[Any]) -> kernel.Limits:
        """Return the kernel's limits; it may refuse."""
        settings = {**self.settings, "limit": float(limit)}
        return kernel.limits(kernel.Case(self.family, asked, settings, {**self.arrays, **arrays}))  # type: ignore[arg-type]  # own or any


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
        high = posed.limits("own", 1.0, **theorem.probe(posed.arrays)).high
    except kernel.Refused:
        return theorem.lost
    alone = (np.bincount(subject.label_codes) <= 1)[subject.label_codes]
    return theorem.lost if np.isinf(high[~alone]).all() and not alone.all() else ""


def _judged(posed: Posed, about: Units) -> Certified:
    """Return the kernel's limits, and once more with questions where that may help."""
    subject, U = about.subject, len(about.units)
    person = people_of(subject, about.units)
    found = posed.limits("any", 1.0 if about.limit is None else about.limit, person=person)
    low, high, questions = found.low[:U], found.high[:U], None
    if posed.narrower:
        return Certified(high, np.zeros(U), np.zeros(U, dtype=bool), posed.words)
    some, alike = _open(low, high, about.limit, int(_WORK / posed.size))
    if posed.propose is not None and len(some):
        step, members, parts = max(1, int(_BLOCK / posed.size)), about.members, []
        parts = [posed.propose([members[k] for k in some[i : i + step]]) for i in range(0, len(some), step)]
        asked, value = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
        nobody: Any = -1 if asked.dtype.kind == "i" else np.nan
        question = np.full((int(person.max()) + 1, asked.shape[1]), nobody, dtype=asked.dtype)
        question[:U][alike >= 0] = asked[alike[alike >= 0]]
        top = max(float(value.max()), float(low[np.isfinite(low)].max(initial=0.0)), 1e-9)
        again = posed.limits("any", top * (1 - 1e-9), person=person, question=question)
        low, high = np.maximum(low, again.low[:U]), np.minimum(high, again.high[:U])
        told = question[:U].astype(np.float64)
        questions = posed.shown(np.where(told == -1, np.nan, told) if asked.dtype.kind == "i" else told)
    return Certified(high, low, attained(low, high), posed.words, {}, questions)


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


def _prior(learnt: bool, log_prior: Float | None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:  # noqa: FBT001
    return {"fit_prior": learnt}, {} if log_prior is None else {"log_prior": log_prior}


def basis(subject: Subject) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return settings and arrays that every case has."""
    return {"classes": len(subject.classes)}, {"label": subject.label_codes.astype(np.int64)}


def _narrower(domain: Domain | None) -> bool:
    """Return whether a domain refuses more than each feature's values say by themselves."""
    more = domain is not None and (domain.max_length, domain.norm, domain.queries) != (None, None, None)
    return more or (domain is not None and bool(domain.blocks))


def counted(
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
    estimator, (settings, arrays) = subject.recipe.library_estimator, basis(subject)
    (sizes, floor, accepted), label, K = categories, arrays["label"], settings["classes"]
    alpha, (fitted, fixed) = float(applies.smoothings(estimator)), _prior(*applies.prior(estimator))
    narrower = _narrower(subject.data.domain)
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


class WordsCertificate(ByCounts):
    """Scores are linear in the document, so that the change of a log-odds is largest at a corner of the domain."""

    def __init__(self, library: str, name: str, section: str, lost: str = "") -> None:
        self.library, self.name, self.lost = library, name, lost
        self.source = f"privgate/kernel/words.py; docs/mathematics.md, section {section}"

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; empty if none does."""
        return applies.refusal(subject, self.library) or applies.linear_domain(subject, "documents")

    def posed(self, subject: Subject) -> Posed:
        """Return the case of sums of words."""
        estimator, X = engine.estimator_of(subject, self.library), np.asarray(applies.dense(subject.data.X))
        reach, (settings, arrays), d = applies.reach(subject), basis(subject), X.shape[1]
        alpha, kind = np.array(np.broadcast_to(applies.smoothings(estimator), (d,))), "multinomial"
        if self.library == "ComplementNB":
            kind = "normed" if estimator.norm else "complement"
        else:
            fitted, fixed = _prior(*applies.prior(estimator))
            settings, arrays = settings | fitted, arrays | fixed
        settings |= {"weights": kind, **accepted_settings(reach)}
        arrays |= {"X": X, "alpha": alpha, **accepted_arrays(reach, d)}
        label, K = arrays["label"], settings["classes"]
        hot = (label[:, None] == np.arange(K)).astype(np.float64)
        T, N = (hot.T @ X)[None], hot.sum(axis=0)[None]

        def scores(T: Float, N: Float) -> tuple[Float, Float]:
            fixed = arrays.get("log_prior", np.zeros(K))
            bias = np.log(N) if settings.get("fit_prior") else np.broadcast_to(fixed, N.shape)
            held = np.maximum(T if kind == "multinomial" else T.sum(axis=1, keepdims=True) - T, 0.0) + alpha
            logs = np.log(held) - np.log(held.sum(axis=2, keepdims=True))
            if kind == "normed":
                logs = logs / logs.sum(axis=2, keepdims=True)
            return bias, -logs if kind == "complement" else logs

        def propose(members: list[Index]) -> tuple[Float, Float]:
            rows, who = np.concatenate(members), np.repeat(np.arange(len(members)), [len(m) for m in members])
            left, held = np.repeat(T, len(members), axis=0), np.repeat(N, len(members), axis=0)
            np.subtract.at(left, (who, label[rows]), X[rows])
            np.subtract.at(held, (who, label[rows]), 1.0)
            return _document((scores(T, N), scores(left, held)), reach)

        words = (reach.words(), f"the recipe is scikit-learn's {self.library}, which counts and nothing else")
        return Posed("words", settings, arrays, words, propose, 300 * K * K * d)


def _document(both: Linear, reach: Reach) -> tuple[Float, Float]:
    """Return a question (U, d) of the domain at which scores that are linear in it tell much, and how much."""
    ((bias, w), (left, v)), d = both, both[0][1].shape[2]
    if reach.stated == 1 and reach.length is not None:  # documents of one word, or none
        size = np.floor(reach.length)
        cells = [np.concatenate([size * m, np.zeros((*m.shape[:2], 1))], axis=2) for m in (w, v)]
        chosen, value = best(Tables(bias, left, cells[0], cells[1], np.zeros(1, dtype=np.int64)))
        return size * np.eye(d + 1, d)[chosen[:, 0]], value
    if reach.stated == 1 and reach.low is not None and reach.high is not None:

        def scored(x: Float) -> Tables:
            P = x.shape[2]
            cells = [(m[:, :, :, None] * x[:, None]).reshape(max(len(m), len(x)), m.shape[1], d * P) for m in (w, v)]
            return Tables(bias, left, cells[0], cells[1], P * np.arange(d))

        return in_box(scored, reach.low, reach.high, whole=reach.whole)
    found = accepted_range.telling(both[0], both[1], reach)
    if reach.norm is not None:
        found = found * (1 - 1e-12)  # for sure inside
    with_, without = (b + np.einsum("nkd,nd->nk", np.broadcast_to(m, v.shape), found) for b, m in both)
    logs = [z - np.logaddexp.reduce(z, axis=1, keepdims=True) for z in (with_, without)]
    return found, np.asarray(np.abs(logs[0] - logs[1]).max(axis=1))


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
        estimator, (settings, arrays) = applies.own_estimator(subject, self.library), basis(subject)
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


COMPLEMENT_LOST = (
    "the library adds the smoothing to all counts of a word before it takes a class's own off, and so little smoothing "
    "is lost in rounding there; raise alpha"
)
WORDS = (
    WordsCertificate("MultinomialNB", "multinomial_nb", "3.3"),
    WordsCertificate("ComplementNB", "complement_nb", "3.4", COMPLEMENT_LOST),
)
SHARES = (
    SharesCertificate("ContingencyTable", "contingency_table", "section 1, Theorem 1"),
    SharesCertificate("RandomTrees", "random_trees", "sections 4.2 and 4.3"),
)
