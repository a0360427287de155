"""Scikit-learn's histogram boosting without each record: its own algorithm, compiled, for one record after another.

No structure survives a removal: at the library's defaults nearly every tree splits elsewhere. So every model is trained
in full, by the library's arithmetic in its order (``boosting_loop``); bins are those of the records that are left. That
the answers are those of the library is not believed: refits of people drawn at random show it, and how far they are off
counts for everybody.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from privgate.arrays import Float, Index
from privgate.families.closed_form import VANISHED
from privgate.families.designs import matrix, vanishing
from privgate.families.engine import Asked, Cost, Declined, LibraryEngine
from privgate.families.retrained import Retrained, Seeds
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: parameters, and the values with which training is what is compiled here
PLAIN = {
    "loss": "log_loss",
    "max_features": 1.0,
    "monotonic_cst": None,
    "interaction_cst": None,
    "warm_start": False,
    "class_weight": None,
}
#: records above which early_stopping="auto" stops early, and above which the library bins by a sample
STOPS, SAMPLED = 10_000, 200_000
#: bytes of histograms of one training
MOST = 2**27
#: values that the library would round together, or clip
LARGEST = 1e300
#: learning rate and l2_regularization beyond which products of two hessians, or scores, overflow
STEEPEST = 1e100
#: seconds for a record's column in a histogram, for a cell of a node's, and for a record's gradient
UPDATE, CELL, RECORD = 2e-9, 1.5e-9, 1e-8


class Posed(NamedTuple):
    """What all models of a subject share.

    Parameters
    ----------
    pool : float64 array of shape (P, d)
    label : int64 array of shape (n,)
    present : int64 array of shape (K,)
        Which of the subject's classes there are.
    columns, begin, setting
        As in ``boosting_loop.scores``.
    everybody : float64 array of shape (P, K)
        Log-probabilities of the model with everybody.
    """

    pool: Float
    label: Index
    present: Index
    columns: tuple[Any, ...]
    begin: Index
    setting: tuple[Any, ...]
    everybody: Float


class HistBoosting(LibraryEngine):
    """Leave-one-out of ``HistGradientBoostingClassifier``: numbers without missing values, no early stopping.

    It ranks people. Theorems that compare the trees themselves get them from the recipe's own training, and so does
    everybody where a rule asks about a sample of people.
    """

    name = "hist_boosting"
    library = "HistGradientBoostingClassifier"
    single_records = True
    hands_on = "their class has no other record, or the verdict was decided without them"
    trains = True
    divisible = True
    sample = 149
    bare = True

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters of the estimator, or which data of its own, are not covered; empty if all are."""
        if why := _odd(estimator):
            return why
        n = subject.data.n
        if estimator.early_stopping not in (False, "auto") or (estimator.early_stopping == "auto" and n > STOPS):
            return f"training stops early; early_stopping=False does not, nor does 'auto' up to {STOPS:,} records"
        if not isinstance(estimator.categorical_features, str | None) or estimator.categorical_features == "":
            return "categorical_features names columns"
        if n > SAMPLED:
            return f"bins are drawn from a sample of more than {SAMPLED:,} records"
        pool = matrix(subject)
        if (np.abs(pool, dtype=np.float64) > LARGEST).any():
            return f"there are numbers beyond {LARGEST:g}"
        if 24 * _leaves(estimator, n) * pool.shape[1] * estimator.max_bins > MOST:
            return "its trees may have so many leaves that their histograms do not fit the memory"
        if len(np.unique(subject.label_codes)) < 2:
            return "there is one class only"
        if len(subject.data.units) <= 2 * self.sample:
            return f"up to {2 * self.sample} people are retrained as fast as a sample of them"
        return _uncompiled()

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of as many trainings of this kind, by rule of thumb."""
        estimator: Any = subject.recipe.library_estimator
        X, K = matrix(subject)[: subject.data.n], len(subject.classes)
        n, d = X.shape
        nodes = 2 * min(_leaves(estimator, n), n)
        levels = 1 + np.log2(nodes) / 2
        cells = d * min(n, estimator.max_bins)
        tree = RECORD * n * levels + UPDATE * n * d * levels + CELL * nodes * cells
        trees = estimator.max_iter * (1 if K <= 2 else K)
        return Cost(0, float((len(units) + 1) * trees * tree), 24 * _leaves(estimator, n) * cells)

    def prepared(self, subject: Subject) -> Any:
        """Return what all models share; remembered in this process."""
        return _posed(subject)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return the models of people with one record; the last records of a class are handed on.

        Raises
        ------
        Declined
            Models themselves are asked for.
        """
        if asked.changes:
            raise Declined("theorems compare the trees themselves, which the recipe's own training gives")
        subject, units, (row_unit, row_query) = asked.subject, asked.units, asked.rows
        posed, members = asked.common or _posed(subject), subject.data.units
        record = members.first[units]
        gone = vanishing(subject, units)
        kept = (np.diff(members.bounds)[units] == 1) & (np.bincount(posed.label)[posed.label[record]] > 1) | gone
        alone = kept & ~gone
        rows, sizes = np.flatnonzero(alone[row_unit]), np.bincount(row_unit, minlength=len(units))[alone]
        log_without = np.full((len(row_query), len(subject.classes)), -np.inf)
        fleet: Fleet | None = asked.fleet  # an engine that is asked by itself has none
        workers = 1 if fleet is None else fleet.workers
        log_without[np.ix_(rows, posed.present)] = without(posed, record[alone], sizes, row_query[rows], workers)
        log_with = np.full_like(log_without, -np.inf)
        log_with[:, posed.present] = posed.everybody[row_query]
        made = Retrained.of(
            self.name,
            units,
            asked.seeds[:1],
            asked.rows,
            log_with[None],
            log_without[None],
            undefined={int(k): VANISHED for k in np.flatnonzero(gone)},
        )
        return made.select(kept), units[~kept]


def _odd(estimator: Any) -> str:
    """Return which parameter is not covered, whatever the data; empty if all are."""
    import sklearn

    if tuple(int(v) for v in sklearn.__version__.split(".")[:2]) < (1, 9):
        return "scikit-learn before 1.9 may cut bins elsewhere"
    if wrong := [name for name, value in PLAIN.items() if getattr(estimator, name, value) != value]:
        return f"{wrong[0]} is not {PLAIN[wrong[0]]!r}"
    if max(estimator.learning_rate, estimator.l2_regularization) > STEEPEST:
        return f"learning_rate or l2_regularization is beyond {STEEPEST:g}"
    # compiled code looks at no end of an array
    return "" if 2 <= estimator.max_bins <= 255 else "max_bins is not between 2 and 255"


@cache
def _uncompiled() -> str:
    """Return why there is no compiled loop here; empty if there is one."""
    try:
        from privgate.families.trees import boosting_loop  # noqa: F401  whether it can be
    except (ImportError, RuntimeError) as exc:  # numba knows no such numpy, or finds no folder that it may write to
        todo = "pip install 'privgate[boosting]'" if isinstance(exc, ImportError) else "set NUMBA_CACHE_DIR"
        return f"its loop is compiled by numba, which is missing or fails here: {todo}"
    return ""


def without(posed: Posed, records: Index, sizes: Index, queries: Index, workers: int = 1) -> Float:
    """Return log-probabilities (R, K) of models without each record, each at so many of the queries, pool rows (R,)."""
    ends = np.cumsum(sizes)
    parts = np.array_split(np.arange(len(records)), min(len(records), 4 * workers if workers > 1 else 1) or 1)

    def part(some: Index) -> Float:
        mine = slice(ends[some[0]] - sizes[some[0]], ends[some[-1]]) if len(some) else slice(0, 0)
        return _scores(posed, records[some], sizes[some], posed.pool[queries[mine]])

    if workers == 1:
        found = [part(some) for some in parts]
    else:
        with ThreadPoolExecutor(workers) as pool:  # compiled code holds no lock
            found = list(pool.map(part, parts))
    return _log_probabilities(np.concatenate(found))


def _scores(posed: Posed, records: Index, sizes: Index, questions: Float) -> Float:
    from privgate.families.trees import boosting_loop

    n = len(posed.label) - int((records >= 0).all())
    most = posed.setting[6] - 1
    percentiles = np.linspace(0, 100, num=most + 1)[1:-1]
    # where they lie follows from how many values there are
    cuts = np.percentile(np.arange(n, dtype=np.float64), percentiles, method="averaged_inverted_cdf")
    starts = _starts(posed, [-1, *range(len(posed.present))])
    of = np.where(records < 0, 0, posed.label[records] + 1)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    told: Float = boosting_loop.scores(
        records, bounds, questions, posed.columns, posed.label, starts[of], cuts, posed.begin, posed.setting
    )
    return told


def _starts(posed: Posed, classes: Sequence[int]) -> Float:
    """Return scores before the first tree without a record of each of the classes; -1 takes none."""
    from scipy.special import logit
    from scipy.stats import gmean

    found, counts = [], np.bincount(posed.label)
    for c in classes:
        left = counts - (np.arange(len(counts)) == c)
        p = (left / left.sum())[None]
        eps = np.finfo(np.float64).eps
        if len(counts) == 2:
            found.append(logit(np.clip(p[:, 1], 10 * eps, 1 - 10 * eps)))
        else:
            p = np.clip(p, eps, 1 - eps)
            found.append(np.log(p / gmean(p, axis=1)[:, None])[0])
    return np.array(found)


def _log_probabilities(scores: Float) -> Float:
    """Return what the library's probabilities are the exponentials of."""
    from scipy.special import expit
    from sklearn.utils.extmath import softmax

    if scores.shape[1] == 1:
        second = expit(scores[:, 0])
        p = np.stack([1 - second, second], axis=1)
    else:
        p = softmax(scores)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))


def _leaves(estimator: Any, n: int) -> int:
    """Return how many leaves a tree has at most, one more where nothing else ends it."""
    found = n // estimator.min_samples_leaf + 1
    found = found if estimator.max_depth is None else min(found, 2 ** min(estimator.max_depth, 40))
    return int(max(2, found if estimator.max_leaf_nodes is None else min(found, estimator.max_leaf_nodes)))


@lru_cache(maxsize=4)
def _posed(subject: Subject) -> Posed:
    estimator: Any = subject.recipe.library_estimator
    pool = matrix(subject).astype(np.float64)
    n = subject.data.n
    order = np.argsort(pool[:n].T, axis=1, kind="stable")
    values, rank = np.take_along_axis(pool[:n].T, order, axis=1), np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(n)[None], axis=1)
    distinct = 1 + (values[:, 1:] != values[:, :-1]).sum(axis=1)
    bins = np.minimum(distinct, estimator.max_bins)
    present, label = np.unique(subject.label_codes, return_inverse=True)
    deepest = -1 if estimator.max_depth is None else int(estimator.max_depth)
    setting = (
        int(estimator.max_iter),
        _leaves(estimator, n),
        float(estimator.learning_rate),
        float(estimator.l2_regularization),
        int(estimator.min_samples_leaf),
        deepest,
        int(estimator.max_bins) + 1,
    )
    columns = np.ascontiguousarray(values), order, rank, distinct > estimator.max_bins
    begin = np.concatenate([[0], np.cumsum(bins)])
    posed = Posed(pool, label.astype(np.int64), present, columns, begin, setting, np.zeros((0, 0)))
    nobody, all_of = np.array([-1]), np.array([len(pool)])
    return posed._replace(everybody=_log_probabilities(_scores(posed, nobody, all_of, pool)))


ENGINE = HistBoosting()
