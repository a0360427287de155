"""Seeds: whether another seed gives another model, at which seeds people are judged, and how usual the released one is.

An author may have chosen the recorded seed as the best of many. So the gate draws other seeds. Where a function draws
without reading its argument, the gate draws other orders of the records. Section 9.4 of docs/mathematics.md.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from privgate.arrays import Float, Index
from privgate.controls import depends
from privgate.controls.reproduces import DETERMINISTIC, NOBODY, list_pool, make_generator, measure_gap, plan_training
from privgate.evidence import Precondition, SeedControl
from privgate.statistics import leakage
from privgate.statistics.leakage import SEEDS_FOR_A_LIMIT, label_changes
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: other seeds that the released answers are compared with: the released one is the most unusual of 20 by chance 1 in 20
COMPARED = 19
#: other seeds at which a person above a limit is refitted
PAIRED = 5
#: which seed every report's verdict is about
JUDGED_AT = "judged is this code at this seed, no other"
_LABEL = "comparing seeds"
#: nats; another seed that changes a probability by so much counts, however small the probability is
VISIBLE = 1e-3
#: nats; log-probabilities below are raised to it, because they lie beyond float64's range
FLOOR = -40.0
#: what gives another model: the seed, or the order of the records
By = Literal["seed", "order"]


def plan_other(subject: Subject, number: int, *, by: str, left_out: Index = NOBODY, rows: Index | None = None) -> Fit:
    """Return a planned training at another seed, order or run; its model answers about ``rows``, or the whole pool."""
    own, queries = subject.recipe.seed, list_pool(subject) if rows is None else rows
    if own is None:
        return Fit(None, queries, left_out=left_out, repeat=number)
    if by == "order":
        return Fit(own, queries, left_out=left_out, order=number)
    return Fit(number, queries, left_out=left_out)


def draw_others(subject: Subject, count: int, *, fleet: Fleet | None) -> list[int]:
    """Return ``count`` other seeds or orders that the gate draws; numbers of runs where the recipe has no seed."""
    if subject.recipe.seed is None:
        return list(range(1, count + 1))
    drawn = make_generator(subject, "seeds", fleet, recorded=True).integers(1, 2**31, size=2 * count + 2)
    return list(dict.fromkeys(int(v) for v in drawn if v != subject.recipe.seed))[:count]


def choose_seeds(
    subject: Subject, fleet: Fleet, *, count: int | None = None
) -> tuple[tuple[int | None, ...], SeedControl]:
    """Return the seeds to judge at, None for each run of a recipe without one, and whether training depends on them.

    The recipe's own seed is judged either way. Two other seeds are compared, and one other order of a function's
    records. ``count`` is the operator's number of runs of a recipe without a seed.
    """
    own = subject.recipe.seed
    if count is None and reads_no_seed(subject.recipe):
        text = "no part of the estimator reads a seed; one is used"
        return (own,), SeedControl(dependent=False, compared=1, unread=True, note=text)
    pairs, moved = list_pairs(subject, fleet), {"seed": 0.0, "order": 0.0}
    answers = fleet.fits(subject, [fit for _, *two in pairs for fit in two], label=_LABEL)
    for (by, *_), plain, other in zip(pairs, answers[::2], answers[1::2], strict=True):
        gap = _measure_change(subject, plain, other)
        # another order of additions moves answers, too, though by less than ``VISIBLE``
        moved[by] = max(moved[by], gap if by == "seed" or gap > VISIBLE else 0.0)
    compared = 1 + sum(by == "seed" for by, *_ in pairs)
    kind: By = "seed" if moved["seed"] > DETERMINISTIC else "order"
    dependent = max(moved.values()) > DETERMINISTIC
    if dependent and own is None:
        return _pair_runs(moved["seed"], compared, SEEDS_FOR_A_LIMIT if count is None else count)
    if dependent:
        text = describe_dependence(moved[kind], kind)
    else:
        text = f"{compared} seeds gave the same models, on all data and with one person left out; one is used"
        kind = "seed"
    found = {"moved_by": moved[kind], "compared": compared, "coins": kind, "note": text}
    return (own,), SeedControl(dependent=dependent, paired=int(dependent), **found)


def describe_dependence(moved: float, by: str = "seed") -> str:
    """Return a sentence: how far another seed moves predictions, and which seed the verdict is about."""
    what = "another seed" if by == "seed" else "another order of the records"
    return f"{what} moves predictions by up to {moved:.2g}; {JUDGED_AT}"


def _pair_runs(moved: float, compared: int, pairs: int) -> tuple[tuple[int | None, ...], SeedControl]:
    judged = f"everybody is judged on {pairs} runs with and without"
    if pairs == 1:
        judged = "a single run neither refuses nor approves"
    elif pairs < SEEDS_FOR_A_LIMIT:
        judged += f", which can refuse; an approval needs {SEEDS_FOR_A_LIMIT}"
    text = f"another run moves predictions by up to {moved:.2g}; {judged}"
    return (None,) * pairs, SeedControl(dependent=True, paired=pairs, moved_by=moved, compared=compared, note=text)


def list_pairs(subject: Subject, fleet: Fleet) -> list[tuple[By, Fit, Fit]]:
    """Return what ``choose_seeds`` compares: what is changed, the training without the change, and the one with it."""
    first, second, third = draw_others(subject, 3, fleet=fleet)
    pairs: list[tuple[By, Fit, Fit]] = [("seed", plan_training(subject), plan_other(subject, first, by="seed"))]
    if subject.recipe.seed is not None and not subject.recipe.is_estimator:  # the gate sets the seed of an estimator
        pairs.append(("order", plan_training(subject), plan_other(subject, third, by="order")))
    for person in depends.draw_people(subject):
        rows = subject.data.units[person]
        other = plan_other(subject, second, by="seed", left_out=rows)
        pairs.append(("seed", plan_training(subject, left_out=rows), other))
    return pairs


def _measure_change(subject: Subject, one: Answer, other: Answer) -> float:
    """Return the largest change of a probability, above ``DETERMINISTIC`` where any changes by ``VISIBLE`` nats."""
    if one.problem or other.problem:
        return float(not (one.problem and other.problem))  # a training that fails at one seed only changes all
    gap = measure_gap(subject, one, other)
    if subject.task == "regression" or np.abs(label_changes(one.log_p, other.log_p)).max() <= VISIBLE:
        return gap
    return max(gap, 2 * DETERMINISTIC)


def rank_distances(answers: Sequence[Float]) -> Float:
    """Return how far each model's answers lie from the others' at its most unusual answer, shape (M,).

    Each of M models gives D answers about the same records. The unit of a distance is the answer's deviation over all
    models, plus the median deviation. If the first seed was drawn like the others, the M distances are exchangeable.
    """
    mean, scale = leakage.moments(answers)
    if (scale > 0).any():
        scale += np.median(scale[scale > 0])
    scale[~(scale > 0)] = np.inf
    return np.array([np.nan_to_num(np.abs(one - mean) / scale, copy=False).max() for one in answers])


def list_compared(subject: Subject, fleet: Fleet, *, by: str, count: int = COMPARED) -> list[Fit]:
    """Return the trainings at other seeds that the released answers are compared with."""
    return [plan_other(subject, number, by=by) for number in draw_others(subject, count, fleet=fleet)]


def compare_released(subject: Subject, fleet: Fleet, *, by: str, count: int | None = None) -> Precondition:
    """Test by ranks whether the released answers are as usual as those at other seeds.

    The result is inconclusive where the released seed is the most unusual of 20: a drawn seed is that once in 20. For
    orders it is a warning, because the records' own order may mean something. Seeds whose training fails are replaced.
    """
    wanted = max(COMPARED, count or 0)
    fits = list_compared(subject, fleet, by=by, count=2 * wanted)
    own = _list_answers(subject, fleet, [plan_training(subject)])  # empty where the recipe fails at its own seed
    others = list[Float]()
    while len(others) < wanted and fits:
        missing = wanted - len(others)
        others += _list_answers(subject, fleet, fits[:missing])
        fits = fits[missing:]
    answers, spread, moved = [*own, *others], np.zeros(1), 0.0
    if len(answers) > 1:
        spread = np.nan_to_num(np.sqrt(2.0) * leakage.moments(answers, ddof=1)[1], nan=np.inf)
    if others:
        moved = leakage.widest(map(np.exp, answers) if subject.task == "classification" else answers)
    detail = {"coins": len(others), "moved_by": moved, "median": float(np.median(spread)), "floor": float(spread.max())}
    if len(others) < COMPARED:
        text = f"only {len(others)} models at other seeds could be trained"
        text += ", too few to compare the released answers with"
        return Precondition("coins", "inconclusive", text, detail)
    if own and ((distance := rank_distances(answers))[1:] >= distance[0]).any():
        text = f"the released answers are as usual as those of {len(others)} models at other seeds"
        return Precondition("coins", "passed", text, detail)
    step = "let the code draw from its argument seed, and " if by == "order" else ""
    text = (
        f"the released answers are further from the usual than those of all {len(others)} models at other seeds: "
        f"the seed may have been chosen among many; {step}release a model with a seed that nobody picked"
    )
    return Precondition("coins", "warned" if by == "order" else "inconclusive", text, detail)


def _list_answers(subject: Subject, fleet: Fleet, fits: list[Fit]) -> list[Float]:
    answers = [a.log_p[: subject.data.n].ravel() for a in fleet.fits(subject, fits, label=_LABEL) if not a.problem]
    return [np.maximum(own, FLOOR) for own in answers] if subject.task == "classification" else answers


#: scikit-learn and privgate classes that read no seed, whatever their parameters
_READS_NONE = frozenset(
    (
        "GaussianNB", "CategoricalNB", "BernoulliNB", "MultinomialNB", "ComplementNB", "LinearRegression",
        "KNeighborsClassifier", "KNeighborsRegressor", "NearestCentroid", "KernelRidge", "LinearDiscriminantAnalysis",
        "QuadraticDiscriminantAnalysis", "Pipeline", "ColumnTransformer", "FeatureUnion", "FixedScaler", "FixedOneHot",
        "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "Normalizer", "OneHotEncoder",
        "OrdinalEncoder", "SimpleImputer", "Binarizer", "PolynomialFeatures", "CountVectorizer", "TfidfVectorizer",
        "TfidfTransformer", "HashingVectorizer",
    )
)  # fmt: skip
_SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky", "cholesky", "svd", "lsqr", "sparse_cg", "auto")
#: class -> (parameter, its values with which the class reads no seed), as scikit-learn documents for 'random_state'
_READS_NONE_WHERE = {
    **dict.fromkeys(("LogisticRegression", "Ridge"), ("solver", _SOLVERS)),
    **dict.fromkeys(("Lasso", "ElasticNet"), ("selection", ("cyclic",))),
}


def reads_no_seed(recipe: Recipe) -> bool:
    """Return whether every part of the recipe's estimator is of a class that reads no seed with these parameters."""
    if (estimator := recipe.library_estimator) is None:
        return False
    parts = [estimator, *(p for p in estimator.get_params(deep=True).values() if hasattr(p, "get_params"))]
    for part in (p for p in parts if type(p).__name__ not in _READS_NONE):
        name, values = _READS_NONE_WHERE.get(type(part).__name__, ("", ()))
        if getattr(part, name, None) not in values:
            return False
    return True
