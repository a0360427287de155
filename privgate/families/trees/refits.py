"""Ensembles of trees without each person: trained by the library itself, read into arrays and kept as such.

Which recipes train an ensemble that theorems about cells cover is said here; anything else is refused by name.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import VANISHED
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, Declined, Engine
from privgate.families.over_all_queries.accepted_range import Reach
from privgate.families.retrained import Retrained, Seeds
from privgate.families.trees import reading
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

Rule = Callable[[Any], bool]


def _among(*values: Any) -> Rule:
    return lambda v: any(v is a or (type(v) is type(a) and v == a) for a in values)


def _off(v: Any) -> bool:
    return v is False


def _tree(v: Any) -> bool:
    return v is None or (type(v).__name__ in ("DecisionTreeClassifier", "ExtraTreeClassifier"))


#: library -> class -> parameter -> what it may be
COVERED: Mapping[str, Mapping[str, Mapping[str, Rule]]] = {
    "lightgbm": {
        "LGBMClassifier": {
            "boosting_type": _among("gbdt"),
            "objective": _among(None, "binary", "multiclass"),
        }
    },
    "xgboost": {
        "XGBClassifier": {
            "booster": _among(None, "gbtree"),
            "objective": _among(None, "binary:logistic", "multi:softprob"),
            "enable_categorical": _off,
            "multi_strategy": _among(None, "one_output_per_tree"),
            "callbacks": _among(None),
            "early_stopping_rounds": _among(None),
            "feature_types": _among(None),
            "missing": lambda v: isinstance(v, float) and math.isnan(v),
            "device": _among(None, "cpu"),
        }
    },
    "sklearn": {
        "HistGradientBoostingClassifier": {"warm_start": _off},
        "GradientBoostingClassifier": {"init": _among(None, "zero"), "warm_start": _off},
        "RandomForestClassifier": {"warm_start": _off},
        "ExtraTreesClassifier": {"warm_start": _off},
        "BaggingClassifier": {"estimator": _tree, "warm_start": _off},
        "DecisionTreeClassifier": {},
        "ExtraTreeClassifier": {},
    },
    "privgate": {"Floored": {}, "KeyedForest": {}},
}
#: LightGBM takes any keyword, among them names of files and of other computers
# fmt: off
LIGHTGBM = frozenset((
    "boosting_type", "num_leaves", "max_depth", "learning_rate", "n_estimators", "subsample_for_bin", "objective",
    "class_weight", "min_split_gain", "min_child_weight", "min_child_samples", "subsample", "subsample_freq",
    "colsample_bytree", "reg_alpha", "reg_lambda", "random_state", "n_jobs", "importance_type", "deterministic",
    "force_row_wise", "force_col_wise", "verbose", "verbosity", "max_bin", "min_data_in_bin", "feature_pre_filter",
    "boost_from_average", "lambda_l1", "lambda_l2", "extra_trees", "extra_seed", "path_smooth", "sigmoid",
    "is_unbalance", "scale_pos_weight", "min_data_in_leaf", "min_sum_hessian_in_leaf", "bin_construct_sample_cnt",
    "max_delta_step", "feature_fraction", "feature_fraction_bynode", "bagging_fraction", "bagging_freq",
    "bagging_seed", "categorical_feature", "cat_smooth", "cat_l2", "max_cat_threshold", "max_cat_to_onehot",
    "min_data_per_group", "use_missing", "num_threads", "seed", "monotone_constraints", "min_gain_to_split"
))
# fmt: on
#: which of them may be text: the library joins all others into one line, in which a blank begins the next parameter
WORDS = frozenset(("boosting_type", "objective", "class_weight", "importance_type"))
#: parameters by which a training could outlast any patience, and up to where it is made where the gate itself runs;
#: larger ones train in a box, with its limits of time and memory
SIZES = ("n_estimators", "max_iter", "num_leaves", "max_leaf_nodes", "max_leaves", "max_bin", "max_bins", "depth")
LARGEST = 10_000  # of any of SIZES
OTHER = "the recipe is not an ensemble of trees of scikit-learn, LightGBM or XGBoost released by predict_proba"


def estimator_of(subject: Subject) -> Any:
    """Return the recipe's estimator if it is of a covered class and nothing beside it answers; else None."""
    payload = subject.recipe.payload
    spec = payload.get("estimator")
    if payload["predict"] is not None or not isinstance(spec, Mapping):
        return None
    home, _, name = str(spec.get("class")).partition(":")
    library = home.split(".")[0]
    if name not in COVERED.get(library, {}) or find_spec(library) is None:
        return None
    if library == "privgate" and home != "privgate.models":
        return None
    brought = {part.split("/")[0].split(".")[0] for part in subject.recipe.snapshot}
    if brought & set(COVERED):  # modules of its own by the names of those that are meant
        return None
    return subject.recipe.estimator_of(*(f"{h}." for h in COVERED if h != "privgate"), "privgate.models:")


def refusal(subject: Subject) -> str:
    """Return why the recipe, its data or its domain are not covered; empty if they are."""
    estimator = estimator_of(subject)
    if estimator is None:
        return OTHER
    if not subject.release.exact:
        return f"the release is {subject.release.form}; the bound is about probabilities"
    if problem := _parameters(estimator, seeded=subject.recipe.seed is not None) or designs.design_refusal(
        subject, missing=type(estimator).__name__ in reading.MISSING
    ):
        return problem
    if len(subject.data.classes()) < 2:
        return "the training data have one class only"
    found = reach(subject)
    return found if isinstance(found, str) else ""


def unfit(subject: Subject) -> str:
    """Return why the theorem about cells bounds nothing here; empty if it may."""
    if problem := refusal(subject):
        return problem
    name = type(estimator_of(subject)).__name__
    if name in reading.MEANS:
        return (
            f"{name} answers 0 where all its leaves hold one label, and a single record may change that, which makes "
            "DTP infinite; wrap it as privgate.models.Floored(…, floor=0.01)"
        )
    return ""


def reach(subject: Subject) -> Reach | str | None:
    """Return the declared domain, None where none is declared (any question is allowed), or why it is unusable."""
    domain = subject.data.domain
    if domain is None:
        return None
    d = int(np.asarray(subject.data.X).shape[1])
    if domain.columns is not None and not domain.is_table and not domain.categorical and len(domain.columns) == d:
        low, high = np.array([c.ends for c in domain.columns], dtype=np.float64).T  # some of them may be missing
        return Reach(low, high)
    found = Reach.of(domain, d)
    if not isinstance(found, str) and (np.isnan(designs.matrix(subject)) & ~missing(subject)).any():
        return "records miss values that the domain does not let miss; declare columns as (low, high, None)"
    return found


def missing(subject: Subject) -> NDArray[np.bool_]:
    """Return which features of a question may be missing, shape (d,): as declared, else all, if the model answers."""
    domain, d = subject.data.domain, int(np.asarray(subject.data.X).shape[1])
    if type(estimator_of(subject)).__name__ in reading.WHOLE:
        return np.zeros(d, dtype=bool)
    if domain is None:
        return np.ones(d, dtype=bool)
    if domain.columns is not None:
        return np.array([c.missing for c in domain.columns], dtype=bool)
    return np.isin(np.arange(d), domain.missing)


def _text(value: Any) -> bool:
    """Whether a parameter holds anything but numbers, and lists of them."""
    if isinstance(value, list | tuple | np.ndarray):
        return any(_text(v) for v in np.asarray(value, dtype=object).ravel().tolist())
    return value is not None and not isinstance(value, bool | int | float | np.number)


def _floor(estimator: Any) -> str:
    return "" if float(estimator.floor) > 0 else f"floor is {estimator.floor!r}, and must be above 0"


def _parameters(estimator: Any, *, seeded: bool) -> str:
    """Return which parameter takes the model out of the theorem; empty if none does."""
    name = type(estimator).__name__
    if name == "Floored":
        if type(estimator.base).__name__ not in reading.MEANS or not type(estimator.base).__module__.startswith(
            "sklearn."
        ):
            return f"Floored holds {type(estimator.base).__name__}, which is none of {', '.join(reading.MEANS)}"
        return _floor(estimator) or _parameters(estimator.base, seeded=seeded)
    if name == "KeyedForest":
        if isinstance(estimator.n_estimators, int) and estimator.n_estimators > LARGEST:
            return f"KeyedForest(n_estimators={estimator.n_estimators}) is above {LARGEST}, so it is trained in a box"
        return _floor(estimator)
    library = type(estimator).__module__.split(".")[0]
    given = estimator.get_params(deep=False)
    for parameter, fine in COVERED[library][name].items():
        if parameter in given and not fine(given[parameter]):
            return f"{name}({parameter}={given[parameter]!r}) is not covered"
    known = LIGHTGBM if library == "lightgbm" else frozenset(type(estimator)().get_params(deep=False))
    if unknown := sorted(set(given) - known):
        return f"{name}({unknown[0]}=…) is not covered"
    if large := [p for p in SIZES if isinstance(given.get(p), int | float) and given[p] > LARGEST]:
        return f"{name}({large[0]}={given[large[0]]!r}) is above {LARGEST}, so it is trained in a box"
    if library == "lightgbm" and (words := sorted(p for p in set(given) - WORDS if _text(given[p]))):
        return f"{name}({words[0]}={given[words[0]]!r}) is not covered: pass numbers, not text"
    if library == "sklearn" and given.get("random_state") is None and not seeded:
        return f"{name} has no random_state and the recipe no seed: its trees are drawn anew every time"
    return ""


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
