"""Seeds: whether another seed gives another model, at which seeds people are judged, and how usual the released one is.

The author chose the recorded seed, perhaps as the best of many. So the gate draws other seeds and, where a function
draws without reading its argument, other orders of the records. Section 9.4 of docs/mathematics.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float, Index
from privgate.controls import depends
from privgate.controls.reproduces import DETERMINISTIC, NOBODY, list_pool, train_all
from privgate.errors import MeasurementError
from privgate.evidence import Precondition
from privgate.families.refit import no_answers
from privgate.statistics import leakage
from privgate.statistics.leakage import SEEDS_FOR_A_LIMIT, label_changes
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: other seeds that the released answers are compared with: the released one is the most unusual of 20 by chance 1 in 20
COMPARED = 19
#: other seeds at which a person above a limit is refitted; runs of a recipe without a seed (fewer have no power)
PAIRED, LEAST, MOST = 5, 10, 20
#: how training that draws is judged, in the words of every report
AT = "judged is this code at this seed, no other"
_LABEL = "comparing seeds"
#: nats; another seed that changes a probability by so much counts, however small the probability is
VISIBLE = 1e-3
#: nats; beyond float64's range a log-probability carries nothing
FLOOR = -40.0
#: what gives another model: the seed, or the order of the records
By = Literal["seed", "order"]


@dataclass(frozen=True)
class Seeds:
    """The seeds to judge at, and why: the recipe's own, or paired runs of a recipe without one."""

    seeds: tuple[int | None, ...]
    dependent: bool
    #: the largest change of a probability at any record among the ``compared`` seeds, the recipe's own included
    moved_by: float
    compared: int
    message: str
    #: the order where a function draws without reading its argument
    by: By = "seed"
    #: runs that follow where an upper limit is wanted and no lower one has decided
    more: tuple[int | None, ...] = ()
    #: no part of the estimator reads a seed, so that none was compared
    unread: bool = False


def draw_privately(subject: Subject, purpose: str, fleet: Fleet | None) -> Generator:
    """Return what draws seeds: in a run that is to be signed they are unknown before, and no code is made for them.

    So it is where a ledger lasts: what it remembers of them serves the next run. Else they follow from the digest.
    """
    secret = fleet is not None and (fleet.signable or fleet.ledger.lasting)
    return fleet.drawn(subject, purpose) if fleet is not None and secret else subject.generator(purpose)


def train_at(subject: Subject, number: int, *, by: str, left_out: Index = NOBODY, rows: Index | None = None) -> Fit:
    """Return the training at another seed, in another order, or one run more; asked about the pool without ``rows``."""
    own, asked = subject.recipe.seed, list_pool(subject) if rows is None else rows
    if own is None:
        return Fit(None, asked, left_out=left_out, repeat=number)
    if by == "order":
        return Fit(own, asked, left_out=left_out, order=number)
    return Fit(number, asked, left_out=left_out)


def draw_others(subject: Subject, count: int, *, fleet: Fleet | None) -> list[int]:
    """Return so many other seeds, or orders of the records, drawn by the gate; numbers of runs without a seed."""
    if subject.recipe.seed is None:
        return list(range(1, count + 1))
    drawn = draw_privately(subject, "seeds", fleet).integers(1, 2**31, size=2 * count + 2)
    return list(dict.fromkeys(int(v) for v in drawn if v != subject.recipe.seed))[:count]


def choose(
    subject: Subject, fleet: Fleet, *, n_units: int | None = None, count: int | None = None, glance: bool = False
) -> Seeds:
    """Return the seeds to judge a subject at, and whether its training depends on them.

    Two other seeds are tried, one on everybody and one without one person, and one other order of the records of a
    function. Whether they matter or not, the recipe's own seed is used: the verdict is about this code at this seed. A
    recipe without a seed has runs with and without each person, see ``_pair_runs``.

    ``n_units`` people will be left out, all if absent. ``count`` is the number of runs of a recipe without a seed;
    where given, seeds are compared though no part reads one. For a plan, ``glance``, one other seed is tried.

    Raises
    ------
    MeasurementError
        Training on everybody fails.
    """
    own = subject.recipe.seed
    if count is None and reads_no_seed(subject.recipe):
        text = "no part of the estimator reads a seed; one is used"
        return Seeds((own,), dependent=False, moved_by=0.0, compared=1, message=text, unread=True)
    if problem := fleet.fits(subject, [train_all(subject)], label=_LABEL)[0].problem:
        raise MeasurementError(no_answers(problem))
    pairs, moved = list_pairs(subject, fleet, glance=glance), {"seed": 0.0, "order": 0.0}
    answers = fleet.fits(subject, [fit for _, *two in pairs for fit in two], label=_LABEL)
    for (by, *_), plain, other in zip(pairs, answers[::2], answers[1::2], strict=True):
        apart = _measure_change(subject, plain, other)
        # orders of additions move answers, too, by less than this
        moved[by] = max(moved[by], apart if by == "seed" or apart > VISIBLE else 0.0)
    compared = 1 + sum(by == "seed" for by, *_ in pairs)
    kind: By = "seed" if moved["seed"] > DETERMINISTIC else "order"
    dependent = max(moved.values()) > DETERMINISTIC
    if dependent and own is None:
        return _pair_runs(moved["seed"], compared, count, len(subject.data.units) if n_units is None else n_units)
    if dependent:
        text = describe(moved[kind], kind)
    else:
        where = " on all data, so one seed" if glance else ", on all data and with one person left out; one"
        kind, text = "seed", f"{compared} seeds gave the same models{where} is used"
    return Seeds((own,), dependent=dependent, moved_by=moved[kind], compared=compared, message=text, by=kind)


def describe(moved: float, by: str = "seed") -> str:
    """Return what another seed changes and about which seed the verdict is, one sentence."""
    what = "another seed" if by == "seed" else "another order of the records"
    return f"{what} moves predictions by up to {moved:.2g}; {AT}"


def _pair_runs(moved: float, compared: int, count: int | None, people: int) -> Seeds:
    """Return paired runs: ``1 + log2(N / 0.05)`` for N people, within ``LEAST`` and ``MOST``, can refuse.

    An upper limit needs ``SEEDS_FOR_A_LIMIT``. docs/mathematics.md, section 9.4.
    """
    pairs = min(MOST, max(LEAST, math.ceil(1 + math.log2(max(1, people) / 0.05)))) if count is None else count
    judged, more = f"everybody is judged on {pairs} runs with and without", SEEDS_FOR_A_LIMIT if count is None else 0
    if more:
        judged += f", and on {more} where these do not refuse"
    elif pairs == 1:
        judged = "a single run neither refuses nor approves"
    elif pairs < SEEDS_FOR_A_LIMIT:
        judged += f", which can refuse; an approval needs {SEEDS_FOR_A_LIMIT}"
    text = f"another run moves predictions by up to {moved:.2g}; {judged}"
    none = (None,)
    return Seeds(none * pairs, dependent=True, moved_by=moved, compared=compared, message=text, more=none * more)


def list_pairs(subject: Subject, fleet: Fleet, *, glance: bool = False) -> list[tuple[By, Fit, Fit]]:
    """Return the pairs of trainings that ``choose`` compares: what is changed, without the change, and with it."""
    first, second, third = draw_others(subject, 3, fleet=fleet)
    pairs: list[tuple[By, Fit, Fit]] = [("seed", train_all(subject), train_at(subject, first, by="seed"))]
    if subject.recipe.seed is not None and not subject.recipe.is_estimator:  # the gate sets the seed of an estimator
        pairs.append(("order", train_all(subject), train_at(subject, third, by="order")))
    for person in () if glance else depends.draw_people(subject):
        other = train_at(subject, second, by="seed", left_out=subject.data.units[person])
        pairs.append(("seed", depends.without(subject, person), other))
    return pairs


def _measure_change(subject: Subject, one: Answer, other: Answer) -> float:
    """Return the largest change of a probability, above ``DETERMINISTIC`` where a tiny one changes by a visible factor.

    Risk is measured in nats: 1e-9 and 1e-7 are 4.6 apart. A training that fails for one seed only is moved by all.
    """
    if one.problem or other.problem:
        return float(not (one.problem and other.problem))
    gap = leakage.widest(subject.comparable(a.log_p) for a in (one, other))
    if subject.task == "regression" or np.abs(label_changes(one.log_p, other.log_p)).max() <= VISIBLE:
        return gap
    return max(gap, 2 * DETERMINISTIC)


def rank_distances(answers: Sequence[Float]) -> Float:
    """Return how far each model's answers lie from the others' at its most unusual answer, shape (M,).

    ``answers`` are M float64 arrays of shape (D,), nats or numbers, of M models about the same records. Deviations of
    each answer over all M models, the median one added, measure it: whatever the seeds do, the M values are
    exchangeable where the first seed was drawn like the others, and so is their order.
    """
    mean, scale = leakage.moments(answers)
    if (scale > 0).any():
        scale += np.median(scale[scale > 0])
    scale[~(scale > 0)] = np.inf
    return np.array([np.nan_to_num(np.abs(one - mean) / scale, copy=False).max() for one in answers])


def list_compared(subject: Subject, fleet: Fleet, *, by: str, count: int = COMPARED) -> list[Fit]:
    """Return the trainings at other seeds that the released answers are compared with."""
    return [train_at(subject, number, by=by) for number in draw_others(subject, count, fleet=fleet)]


def compare_released(subject: Subject, fleet: Fleet, *, by: str, count: int | None = None) -> Precondition:
    """Return whether the released answers are as other seeds give them: one rank test of the released seed.

    "Inconclusive" where it is the most unusual of all: of 20 seeds that is 1 in 20 for one that was drawn. An order is
    no draw, because the records' own order may mean something (time, labels): there it is a warning. Seeds whose
    training fails are replaced by others.
    """
    wanted = max(COMPARED, count or 0)
    fits = list_compared(subject, fleet, by=by, count=2 * wanted)
    own = _answer_records(subject, fleet, [train_all(subject)])  # what cannot be trained again stands out
    others = list[Float]()
    while len(others) < wanted and fits:
        missing = wanted - len(others)
        others += _answer_records(subject, fleet, fits[:missing])
        fits = fits[missing:]
    answers, spread, moved = [*own, *others], np.zeros(1), 0.0
    if len(answers) > 1:
        spread = np.nan_to_num(np.sqrt(2.0) * leakage.moments(answers, ddof=1)[1], nan=np.inf)
    if others:
        moved = leakage.widest(map(np.exp, answers) if subject.task == "classification" else answers)
    detail = {"coins": len(others), "moved_by": moved, "median": float(np.median(spread)), "floor": float(spread.max())}
    outcome, step = "inconclusive", ""
    if len(others) < COMPARED:
        text = (
            f"only {len(others)} models at other seeds could be trained, too few to compare the released answers with"
        )
    elif own and ((distance := rank_distances(answers))[1:] >= distance[0]).any():
        outcome, text = "passed", f"the released answers are as usual as those of {len(others)} models at other seeds"
    else:
        if by == "order":
            outcome, step = "warned", "let the code draw from its argument seed, and "
        text = (
            f"the released answers are further from the usual than those of all {len(others)} models at other seeds: "
            f"the seed may have been chosen among many; {step}release a model with a seed that nobody picked"
        )
    return Precondition("coins", outcome, text, detail)


def _answer_records(subject: Subject, fleet: Fleet, fits: list[Fit]) -> list[Float]:
    """Return what models answer about the records, each of shape (D,); those whose training failed are absent."""
    answers = [a.log_p[: subject.data.n].ravel() for a in fleet.fits(subject, fits, label=_LABEL) if not a.problem]
    return [np.maximum(own, FLOOR) for own in answers] if subject.task == "classification" else answers


#: classes that read no seed
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
#: classes that read none where a parameter has one of these values; scikit-learn says so of 'random_state'
_READS_NONE_WHERE = {
    **dict.fromkeys(("LogisticRegression", "Ridge"), ("solver", _SOLVERS)),
    **dict.fromkeys(("Lasso", "ElasticNet"), ("selection", ("cyclic",))),
}


def reads_no_seed(recipe: Recipe) -> bool:
    """Return whether the recipe is an estimator made of classes that are known to read no seed as they are set."""
    if (estimator := recipe.library_estimator) is None:
        return False
    parts = [estimator, *(p for p in estimator.get_params(deep=True).values() if hasattr(p, "get_params"))]
    rest = [p for p in parts if type(p).__name__ not in _READS_NONE]
    where = [_READS_NONE_WHERE.get(type(p).__name__, ("", ())) for p in rest]
    return all(getattr(p, name, None) in values for p, (name, values) in zip(rest, where, strict=True))
