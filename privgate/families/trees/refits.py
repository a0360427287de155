"""Ensembles of trees without each person: trained by the library itself, read into arrays and kept as such.

``covered_trees`` says which recipes these are.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import VANISHED
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, Declined, Engine
from privgate.families.retrained import Retrained, Seeds
from privgate.families.trees import reading
from privgate.families.trees.covered_trees import estimator_of, missing, unfit
from privgate.families.trees.ensemble import Ensemble
from privgate.subject import estimators
from privgate.subject.subject import Subject
from privgate.training import warm

#: names in ``Retrained.changes``: object arrays of shape (S, U)
WITH, WITHOUT = "trees_with", "trees"
#: share of a probability by which a model's own answer may differ from that of its trees as read
AGREE = 1e-4
#: calls that a worker is given at once, at most
CHUNK = 64
#: seconds of work for which no further process is started
SHORT = 3.0


@dataclass(frozen=True, eq=False)
class Call:
    """One training: without which training rows, asked about which records of the pool and which other questions."""

    seed: int | None
    left_out: Index
    queries: Index
    questions: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Training:
    """What all calls share: what a worker is sent."""

    estimator: Any
    X: NDArray[Any]
    y: NDArray[Any]
    classes: NDArray[Any]
    keep: bool
    missing: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Trained:
    """What came of a call: log-probabilities at its queries and questions, the trees if wanted, or what went wrong."""

    log_p: Float
    trees: Ensemble | None = None
    problem: str = ""


class TreeEnsembles(Engine):
    """Trains the library's own estimator again without each person, and keeps the trees for the theorem about cells.

    Exact: it is the training function. Nothing is read off a structure that might stay as it is: a removal moves leaf
    values of every later tree.
    """

    name = "tree_ensembles"
    hands_on = "training without them failed, or the verdict was decided without them"
    trains = True
    certain = True

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data are not covered; empty if they are."""
        return unfit(subject)

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the number of trainings; their time is unknown until one was made."""
        size = getattr(subject.data.X, "nbytes", 0)
        return Cost(fits=len(seeds) * (len(units) + 1), cpu_seconds=float("nan"), memory_bytes=2 * int(size))

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return models with and without each unit; a unit whose training failed is handed on to refits."""
        subject, units, seeds = asked.subject, asked.units, asked.seeds
        if asked.mode == "screen":
            raise Declined("every person costs a training, and the mode screen trains the top of a ranking only")
        members, (row_unit, row_query) = subject.data.units, asked.rows
        bounds = np.searchsorted(row_unit, np.arange(len(units) + 1))
        gone = vanishing(subject, units)
        tried = np.flatnonzero(~gone)
        nobody = np.zeros(0, dtype=np.int64)
        calls = [Call(s, nobody, row_query) for s in seeds]
        calls += [Call(s, members[units[u]], row_query[bounds[u] : bounds[u + 1]]) for s in seeds for u in tried]
        found = trained(subject, calls, keep=True, jobs=getattr(asked.fleet, "jobs", 1))
        whole, less = found[: len(seeds)], found[len(seeds) :]
        if problem := next((t.problem for t in whole if t.problem), ""):
            raise Declined(problem)
        K, bad = len(subject.classes), set[int]()
        log_without = np.full((len(seeds), len(row_query), K), -np.inf)
        trees = np.empty((len(seeds), len(units)), dtype=object)
        for i, made in enumerate(less):
            s, k = divmod(i, len(tried))
            u = int(tried[k])
            if made.problem:
                bad.add(u)
                continue
            log_without[s, bounds[u] : bounds[u + 1]], trees[s, u] = made.log_p, made.trees
        with_ = np.empty_like(trees)
        for s, made in enumerate(whole):
            with_[s] = made.trees
        answer = Retrained.of(
            self.name,
            units,
            seeds,
            asked.rows,
            np.stack([t.log_p for t in whole]),
            log_without,
            undefined={int(u): VANISHED for u in np.flatnonzero(gone)},
            changes={WITH: with_, WITHOUT: trees} if asked.changes else {},
        )
        covers = np.array([u not in bad for u in range(len(units))], dtype=bool)
        return answer.select(covers), units[~covers]


def cores() -> int:
    """Return how many processes may train at once where nobody says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trained(subject: Subject, calls: Sequence[Call], *, keep: bool, jobs: int) -> list[Trained]:
    """Return what came of each call; in worker processes where there is more than one job."""
    X, y = _records(subject), subject.data.y
    same = Training(estimator_of(subject), X, y, subject.classes, keep, missing(subject))
    started = time.perf_counter()
    first = _several(same, calls[:1])
    rest = calls[1:]
    if jobs == 1 or (time.perf_counter() - started) * len(rest) < SHORT:
        return first + _several(same, rest)
    step = min(CHUNK, max(1, -(-len(rest) // (4 * jobs))))
    chunks = [rest[i : i + step] for i in range(0, len(rest), step)]
    return first + [t for part in warm.mapped(partial(_several, same), chunks, jobs=jobs) for t in part]


def _records(subject: Subject) -> NDArray[Any]:
    """Return the pool as an array that the library reads as it reads the records themselves.

    Of whole numbers in a frame LightGBM makes what holds them, of those in an array single precision, which moves its
    thresholds where they are above 2^24.
    """
    X = designs.matrix(subject)
    if hasattr(subject.data.X, "iloc") and type(estimator_of(subject)).__name__ == "LGBMClassifier":
        return X.astype(np.result_type(X.dtype, np.float32), copy=False)
    return X


def _several(same: Training, calls: Sequence[Call]) -> list[Trained]:
    return [_one(same, c) for c in calls]


def _one(same: Training, call: Call) -> Trained:
    from sklearn.base import clone

    kept = np.ones(len(same.y), dtype=bool)
    kept[call.left_out] = False
    asked = same.X[call.queries]
    if call.questions is not None:
        whole = same.X.dtype.kind != "f" and not np.isfinite(call.questions).all()  # these hold nothing missing
        asked = np.concatenate([asked, call.questions.astype(np.float64 if whole else same.X.dtype)])
    try:
        model = estimators.set_seed(clone(same.estimator), call.seed).fit(same.X[: len(same.y)][kept], same.y[kept])
        p = np.asarray(model.predict_proba(asked), dtype=np.float64)
        trees = reading.read(model, X=same.X[:1], missing=same.missing) if same.keep else None
    except Exception as exc:  # noqa: BLE001  the library may refuse the records in any way; refits say how
        return Trained(np.zeros((0, len(same.classes))), problem=f"{type(exc).__name__}: {exc}")
    if p.shape[1] != len(same.classes) or not np.array_equal(np.asarray(model.classes_), same.classes):
        return Trained(np.zeros((0, len(same.classes))), problem="the model answers about other labels")
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    if trees is not None and not _agrees(trees, asked, log_p):
        return Trained(log_p, problem="the trees as read do not give what the model answers")
    return Trained(log_p, trees)


def _agrees(trees: Ensemble, asked: NDArray[Any], log_p: Float) -> bool:
    """Whether arrays give what the model answers, up to the library's rounding, at a few of the questions."""
    some = slice(None, None, max(1, len(asked) // 16))
    ours = np.exp(trees.log_probabilities(np.asarray(asked[some], dtype=np.float64)))
    return bool((np.abs(ours - np.exp(log_p[some])) <= AGREE * ours + 1e-6).all())


ENGINE = TreeEnsembles()
