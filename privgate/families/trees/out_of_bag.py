"""Bagged forests without each person: trees that happened not to draw them, put together to forests of the same size.

What is estimated is what the rules judge: the mean over seeds of the change of a log-probability, each answer that of a
forest of exactly as many trees as the released one has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Float, Index
from privgate.evidence import Precondition
from privgate.families import designs, recheck, refit
from privgate.families.closed_form import VANISHED
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, Declined, Engine
from privgate.families.retrained import Retrained, Seeds
from privgate.families.trees.covered_trees import LARGEST
from privgate.subject.subject import Subject
from privgate.training import warm
from privgate.training.fleet import Fleet

FORESTS = ("RandomForestClassifier", "ExtraTreesClassifier", "RandomForestRegressor", "ExtraTreesRegressor")
BAGGED = ("BaggingClassifier", "BaggingRegressor")
TREES = ("DecisionTreeClassifier", "ExtraTreeClassifier", "DecisionTreeRegressor", "ExtraTreeRegressor")
#: fewer people with as many records are left to refits, whose answers could not be compared with these
FEW = 12
#: seeds without which draws and real trainings could not be told apart
LEAST = 10
#: forests trained beyond what is needed on average, as a share, before it is seen who still lacks trees
SPARE = 0.06
#: forests of the needed number after which whoever still lacks trees is left to refits
MOST = 2.0
STATED = (
    "the mean over seeds of the change of a log-probability, each answer that of a forest of as many trees as the "
    "released one: answers without a person come from trees that did not draw them, out of forests that draw as often "
    "as one trained without them; runs with and without are independent, not paired, and no answer is that of the "
    "registered model's own seed"
)


class OutOfBag(Engine):
    """Estimates what a bagged forest answers without each person, from trees that did not draw them.

    Theorem: given that a unit of k records was not drawn, a bootstrap of m draws from n records is m uniform draws from
    the other n - k. So, if m is what a forest on n - k records draws, such a tree *is* one of that forest; any B of
    them are an independent forest. Nothing about the seed is paired, and the registered model's own pair is not known.

    Breaks down where training reads records that it did not draw: balanced class weights, shares of n: left to refits.
    """

    name = "out_of_bag"
    hands_on = "too few people have as many records"
    tasks = ("classification", "regression")
    paired = False

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data are not covered; empty if they are."""
        estimator = bagged(subject)
        if estimator is None:
            return "the recipe is not a bagged forest of scikit-learn"
        least = subject.data.n - max((len(rows) for rows in subject.data.units), default=0)
        return (
            designs.design_refusal(subject, real=subject.task == "regression")
            or unfit(estimator)
            or too_many(estimator, least)
        )

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the number of forests, those of all records among them; their time is unknown until one was made."""
        share = 1.0
        if (estimator := bagged(subject)) is not None:
            share = missed(subject, _draws(subject, estimator, 1), 1)
        forests = len(seeds) + int(np.ceil((1 + SPARE) * len(seeds) / share))
        return Cost(forests, float("nan"), 8 * len(seeds) * len(units) * subject.width)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return forests with and without each unit; whoever has a rare number of records is handed on."""
        subject, units, seeds = asked.subject, asked.units, asked.seeds
        if asked.changes:
            raise Declined("a theorem asks for the models themselves, and these are only estimated")
        if len(seeds) < LEAST:
            raise Declined(f"fewer than {LEAST} seeds are asked for, too few to compare draws with real trainings")
        sizes = np.array([len(subject.data.units[int(u)]) for u in units], dtype=np.int64)
        row_unit, row_query = asked.rows
        without = np.full((len(seeds), len(row_unit), subject.width), np.nan)
        covered = np.zeros(len(units), dtype=bool)
        for k in np.unique(sizes).tolist():
            mine = np.flatnonzero(sizes == k)
            share = missed(subject, _draws(subject, bagged(subject), k), k)
            if len(mine) < max(FEW, 1 / max(share, 1e-9)):
                continue
            rows = np.flatnonzero(np.isin(row_unit, mine))
            place = np.searchsorted(mine, row_unit[rows])
            lacking = _Forests(asked, mine, k, share).fill(without, rows, place)
            covered[mine[~lacking]] = True
        with_ = refit.full(subject, seeds, asked.fleet)[:, row_query]
        gone = {int(u): VANISHED for u in np.flatnonzero(vanishing(subject, units))}
        without[:, ~covered[row_unit]] = 0.0  # handed on below
        # sums of shares in another order than the library's
        error = 4.0 * (estimators_in(subject) + 4) * float(np.finfo(np.float64).eps)
        made = Retrained.of(self.name, units, seeds, asked.rows, with_, without, undefined=gone, error=error)
        return made.select(covered), units[~covered]

    def compared(self, asked: Asked, made: Retrained) -> Precondition | None:
        """Compare with real trainings as draws of one kind: no single one could be equal."""
        return recheck.compare(self, asked, made, STATED)


def bagged(subject: Subject) -> Any:
    """Return the recipe's estimator if it is a bagged ensemble of scikit-learn's own, else None."""
    return next((e for n in (*FORESTS, *BAGGED) if (e := designs.estimator_of(subject, n)) is not None), None)


def unfit(estimator: Any) -> str:
    """Return which parameter makes training read records that it did not draw; empty if none does."""
    name, tree = type(estimator).__name__, estimator
    if not estimator.bootstrap:
        return f"{name}(bootstrap=False): every tree sees every record"
    if estimator.warm_start:
        return f"{name}(warm_start=True) goes on from another model"
    if name in BAGGED:
        tree = estimator.estimator
        if tree is None:
            return ""
        if type(tree).__name__ not in TREES or not type(tree).__module__.startswith("sklearn."):
            return f"{name} averages {type(tree).__name__}, which is none of {', '.join(TREES)}"
    for parameter in ("min_samples_leaf", "min_samples_split"):
        if not isinstance(value := getattr(tree, parameter), Integral):
            return f"{parameter}={value!r} is a share of all records, drawn or not"
    weights = getattr(tree, "class_weight", None)
    if weights is not None and not (isinstance(weights, str) and weights == "balanced_subsample"):
        return f"class_weight={weights!r} weighs records that a tree did not draw"
    return ""


def too_many(estimator: Any, least: int) -> str:
    """Return what is too many of; empty if nothing is. ``least``: records that are left without whoever has most."""
    name = type(estimator).__name__
    if not isinstance(estimator.n_estimators, Integral) or int(estimator.n_estimators) < 1:
        return f"{name}(n_estimators={estimator.n_estimators!r}) grows no forest"
    if int(estimator.n_estimators) > LARGEST:
        return f"{name}(n_estimators={estimator.n_estimators}) is above {LARGEST}, so it is trained in a box"
    if isinstance(estimator.max_samples, Integral) and int(estimator.max_samples) > least:
        return f"{name}(max_samples={estimator.max_samples}) is more than the {least} records that are left of some"
    return ""


def draws(estimator: Any, n: int, width: int) -> int:
    """Return how many records each tree of such a forest draws out of n: the library says it itself."""
    from sklearn.base import clone

    tiny = clone(estimator).set_params(n_estimators=1, n_jobs=None, random_state=0, **_quiet(estimator))
    return len(tiny.fit(np.zeros((n, width)), np.arange(n) % 2).estimators_samples_[0])


def _quiet(estimator: Any) -> dict[str, Any]:
    return {"oob_score": False} if estimator.oob_score else {}


def missed(subject: Subject, drawn: int, size: int) -> float:
    """Return the share of trees that draw no record of a unit of ``size`` records."""
    return float((1 - size / subject.data.n) ** drawn) if size < subject.data.n else 0.0


def _draws(subject: Subject, estimator: Any, size: int) -> int:
    n, width = subject.data.n, int(designs.matrix(subject).shape[1])
    return draws(estimator, n - size, width) if size < n else n


def estimators_in(subject: Subject) -> int:
    """Return the number of trees in the released forest."""
    return int(bagged(subject).n_estimators)


@dataclass(frozen=True, eq=False)
class _Work:
    """What every forest trained here shares: what a worker is sent."""

    estimator: Any
    X: NDArray[Any]
    y: NDArray[Any]
    questions: NDArray[Any]
    rows: Index  # of ``questions``, for each pair
    unit: Index  # of each pair
    members: Index  # training rows of each unit, shape (U, k)


class _Forests:
    """Forests without any of some units that have equally many records."""

    def __init__(self, asked: Asked, mine: Index, size: int, share: float) -> None:
        self.asked, self.share, self.n_units = asked, share, len(mine)
        members = asked.subject.data.units
        self.members = np.stack([members[int(asked.units[u])] for u in mine])
        self.drawn = _draws(asked.subject, bagged(asked.subject), size)

    def fill(self, without: Float, rows: Index, place: Index) -> NDArray[np.bool_]:
        """Write log-probabilities of every pair's forests; return which units lack trees for them.

        Parameters
        ----------
        without : float64 array of shape (S, R, K), written at ``rows``
        rows, place : int64 arrays
            Pairs, and to which of the units each belongs.
        """
        subject, seeds = self.asked.subject, len(self.asked.seeds)
        B = estimators_in(subject)
        every, at = np.unique(self.asked.rows[1][rows], return_inverse=True)
        X = designs.matrix(subject)
        estimator = bagged(subject)
        estimator.set_params(max_samples=self.drawn, n_jobs=None, **_quiet(estimator))
        work = _Work(estimator, X[: subject.data.n], subject.data.y, X[every], at, place, self.members)
        total = np.zeros((seeds, len(rows), subject.width))
        count = np.zeros(self.n_units, dtype=np.int64)
        rng = digest.generator(subject.training_digest, digits=32)
        forests = 0
        while count.min() < seeds * B and forests < MOST * seeds / self.share + 2:
            lacking = seeds * B - int(count.min())
            more = int(np.ceil((1 + SPARE) * lacking / (B * self.share)))
            for out, answers in _trained(work, rng.integers(0, 2**31 - 1, more).tolist(), self.asked.fleet):
                theirs = np.flatnonzero(out[place])
                slot = count[place[theirs]] // B
                kept = slot < seeds
                total[slot[kept], theirs[kept]] += answers[kept]
                count[out] += 1
            forests += more
        if subject.task == "regression":
            mean, deviation = subject.scale
            without[:, rows] = (total / B - mean) / deviation
        else:
            with np.errstate(divide="ignore"):
                without[:, rows] = np.log(total / B)
        return count < seeds * B


def _trained(work: _Work, seeds: list[int], fleet: Fleet) -> Iterator[tuple[NDArray[np.bool_], Float]]:
    """Yield, for every tree of forests of these seeds, who was not drawn and its answers at their pairs."""
    jobs = getattr(fleet, "jobs", 1)
    if jobs == 1 or len(seeds) < 3:
        for seed in seeds:
            yield from _one(work, seed)
        return
    for trees in warm.mapped(partial(_one, work), seeds, jobs=jobs):
        yield from trees


def _one(work: _Work, seed: int) -> list[tuple[NDArray[np.bool_], Float]]:
    from sklearn.base import clone

    from privgate.subject import estimators

    forest = estimators.set_seed(clone(work.estimator), seed).fit(work.X, work.y)
    asked = work.questions.astype(np.float32)  # as the library's trees read them
    chosen = getattr(forest, "estimators_features_", [None] * len(forest.estimators_))
    found = []
    for tree, drawn, features in zip(forest.estimators_, forest.estimators_samples_, chosen, strict=True):
        held = np.zeros(len(work.X), dtype=bool)
        held[drawn] = True
        out: NDArray[np.bool_] = np.asarray(~held[work.members].any(axis=1))
        rows = work.rows[out[work.unit]]
        seen = asked[rows] if features is None else asked[rows][:, features]
        if not len(seen):
            answers = np.zeros((0, 1))
        elif hasattr(tree, "predict_proba"):
            answers = tree.predict_proba(seen)
            if answers.shape[1] != len(forest.classes_):
                raise Declined("a tree of the forest answers about other labels")
        else:
            answers = tree.predict(seen)[:, None]
        found.append((out, np.asarray(answers, dtype=np.float64)))
    return found


ENGINE = OutOfBag()
