"""No answer to a value that is missing, infinite or lost by a first step changes more than the theorem says."""

import warnings

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder, PolynomialFeatures
from xgboost import XGBClassifier

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.families import certificates
from privgate.families.certificate import Units
from privgate.families.engine import Asked
from privgate.families.pipelines import behind
from privgate.families.trees import refits
from privgate.models import FixedScaler, Floored, FrozenEncoder
from tests.in_process import InProcess

ASKED = (np.nan, np.inf, -np.inf, -2.0, -1.0, 0.0, 1e300, 1e39)
FORESTS = (
    RandomForestClassifier(3, max_depth=2, random_state=0),
    ExtraTreesClassifier(3, max_depth=2, random_state=0),
    BaggingClassifier(n_estimators=3, random_state=0),
)
LAST = {
    "histogram": HistGradientBoostingClassifier(max_iter=4, min_samples_leaf=3, random_state=0),
    "lightgbm": LGBMClassifier(n_estimators=4, min_child_samples=3, min_data_in_bin=1, n_jobs=1, verbose=-1),
    "xgboost": XGBClassifier(n_estimators=4, max_depth=2, n_jobs=1),
    "gradient": GradientBoostingClassifier(n_estimators=4, random_state=0),
    "forest": Floored(FORESTS[0], floor=0.05),
    "extra": Floored(FORESTS[1], floor=0.05),
    "bagging": Floored(FORESTS[2], floor=0.05),
}
CODES = [list(range(5))] * 2
FIRST = {
    "none": None,
    "passed on": FunctionTransformer(),
    "log1p": FunctionTransformer(np.log1p),
    "sqrt": FunctionTransformer(np.sqrt),
    "codes": OrdinalEncoder(categories=CODES, handle_unknown="use_encoded_value", unknown_value=np.nan),
    "codes of what is missing": OrdinalEncoder(
        categories=[[*range(5), np.nan]] * 2, handle_unknown="use_encoded_value", unknown_value=-1
    ),
}
DOMAINS = {"nothing declared": None, "negative numbers": ((-3.0, 5.0),) * 2, "no negative number": ((0.0, 5.0),) * 2}


def subject_of(last, first, domain, *, seed=0, n=40, lost=0.0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 5, (n, 2)).astype(np.float64)
    X[rng.random(X.shape) < lost] = np.nan
    y = np.concatenate([[0, 0, 1, 1], rng.integers(0, 2, n - 4)])
    model = clone(LAST[last]) if FIRST[first] is None else make_pipeline(clone(FIRST[first]), clone(LAST[last]))
    ends = DOMAINS[domain]
    return Subject.local(Recipe(model, seed=0), TrainingData(X, y, domain=None if ends is None else Domain(box=ends)))


def questions(subject, rng, count=30):
    """Numbers, and all pairs of what is strange; only what the declared domain holds."""
    made = rng.choice(np.concatenate([ASKED, np.arange(6.0)]), (count, 2))
    made = np.concatenate([made, np.array(np.meshgrid(ASKED, ASKED)).reshape(2, -1).T, rng.normal(2, 2, (count, 2))])
    if subject.data.domain is None:
        return made
    low, high = np.array(subject.data.domain.box).T
    return made[((made >= low) & (made <= high)).all(axis=1)]


def answered(model, Q):
    """The questions that a model does not refuse."""
    try:
        model.predict_proba(Q)
    except ValueError:
        if len(Q) > 1:
            return np.concatenate([answered(model, part) for part in np.array_split(Q, 2)])
        return Q[:0]
    return Q


def bounded(subject, units):
    engine = behind.engines(subject, (refits.ENGINE,))[0]
    certificate = behind.certificates(subject, certificates.ALL)["tree_cells"]
    assert not certificate.unfit(subject)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made, left = engine.answers(Asked(subject, units, (0,), InProcess(), None, changes=True))
        assert not len(left)
        return certificate.certify(Units(subject, units, made, None))


def changes(subject, units, Q):
    X, y, model = subject.data.X, subject.data.y, subject.recipe.training
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = clone(model).fit(X, y)
        Q = answered(whole, Q)
        less = [clone(model).fit(np.delete(X, u, 0), np.delete(y, u)) for u in units]
        return np.array([np.abs(np.log(whole.predict_proba(Q)) - np.log(m.predict_proba(Q))).max() for m in less])


def compare(subject, units, seed=0):
    found = bounded(subject, units)
    truth = changes(subject, units, questions(subject, np.random.default_rng(seed)))
    assert (found.upper >= truth - 1e-9).all()
    return found, truth


@pytest.mark.parametrize("domain", ["nothing declared", "negative numbers"])
@pytest.mark.parametrize("first", ["log1p", "sqrt", "codes"])
def test_what_a_first_step_loses_counts_as_missing(first, domain):
    compare(subject_of("histogram", first, domain), np.arange(4))


@pytest.mark.parametrize("last", LAST)
def test_whoever_answers_a_missing_value_is_bounded_there_unless_a_domain_excludes_it(last):
    compare(subject_of(last, "none", "nothing declared"), np.arange(4))


def test_a_domain_that_excludes_missing_values_keeps_its_bound_and_says_so():
    """Where every step's image is known the bound is that of numbers alone: nothing is paid for missing values."""
    for first in ("none", "passed on", "log1p"):
        subject = subject_of("histogram", first, "no negative number")
        found, _ = compare(subject, np.arange(4))
        assert any("no value of a question is missing" in s for s in found.assumptions)
    anything = bounded(subject_of("histogram", "none", "nothing declared"), np.arange(4))
    assert "columns 0, 1 may be missing" in anything.assumptions[0]
    assert (anything.upper >= found.upper).all()


def test_steps_that_overflow_may_lose_a_value_whatever_their_range():
    """A sigmoid answers between 0 and 1, and NaN to the difference of two infinities."""
    weights = np.array([[1e10], [-1e10]])
    encoder = FrozenEncoder.made([(weights, np.zeros(1)), "sigmoid"], public="drawn at random")
    wide = FixedScaler({0: (-1.7e308, 1.7e308), 1: (0, 5)})
    for step, lost in ((encoder, (0,)), (wide, (0,))):
        rng = np.random.default_rng(0)
        X = rng.random((40, 2))
        model = make_pipeline(step, clone(LAST["histogram"]))
        subject = Subject.local(Recipe(model, seed=0), TrainingData(X, rng.integers(0, 2, 40)))
        assert behind.seen(subject).subject.data.domain.missing == lost


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("end", "lost"), [(30, False), (255, False), (300, True), (1000, True), (1e12, True), (1e14, True)]
)
@pytest.mark.parametrize("step", [PolynomialFeatures(3), PolynomialFeatures(3, interaction_only=True)], ids=str)
def test_a_product_that_overflows_in_the_precision_of_its_question_counts_as_missing(end, lost, step):
    """In half precision 300 * 300 is infinite, and 0 times that is a missing value."""
    rng = np.random.default_rng(0)
    X = rng.choice([0.0, 1.0, end / 2, end], (40, 3))
    model = make_pipeline(step, clone(LAST["histogram"]))
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, rng.integers(0, 2, 40), domain=[(0, end)] * 3))
    assert bool(behind.seen(subject).subject.data.domain.missing) is lost
    units, values = np.arange(4), [0.0, 1.0, end / 2, end]
    Q = np.array(np.meshgrid(values, values, values)).reshape(3, -1).T
    with np.errstate(over="ignore"):
        asked = [q[np.isfinite(q).all(axis=1)] for q in map(Q.astype, (np.float16, np.float32, np.float64))]
        truth = np.max([changes(subject, units, q) for q in asked if len(q)], axis=0)
    assert (bounded(subject, units).upper >= truth - 1e-9).all()


@pytest.mark.parametrize(
    ("function", "end"),
    [(np.log1p, 0.48892602), (np.exp, 0.68920118), (np.cbrt, 0.7), (np.sqrt, 2.9)],
    ids=lambda v: getattr(v, "__name__", ""),
)
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_a_step_that_rounds_in_the_precision_of_its_question_stays_within_its_range(function, end, kind):
    """Records that lie one step of single precision apart at the end of a domain: a threshold lies between them."""
    rng = np.random.default_rng(0)
    last = np.float32(end) if np.float32(end) <= end else np.nextafter(np.float32(end), np.float32(0))
    ends = np.array([last, np.nextafter(last, np.float32(0)), np.float16(end * 0.999)], dtype=np.float64)
    X = np.column_stack([np.repeat(ends[:2], 30), rng.random(60)])
    y = np.r_[np.ones(30, int), np.zeros(30, int)]
    y[[0, 31]] = 0, 1
    model = make_pipeline(FunctionTransformer(function), clone(LAST["histogram"]))
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, y, domain=[(0, end), (0, 1)]))
    Q = np.array([[v, w] for v in ends for w in (0.0, 0.5, 1.0)]).astype(kind)
    Q = Q[Q[:, 0].astype(np.float64) <= end]
    units = np.array([0, 1, 31, 32])
    assert (bounded(subject, units).upper >= changes(subject, units, Q) - 1e-9).all()


@pytest.mark.parametrize(
    ("step", "end", "beyond"),
    [(PolynomialFeatures((2, 2), interaction_only=True), 300, 320), (FunctionTransformer(np.exp), 11.5, 12.0)],
    ids=["product", "exp"],
)
def test_where_records_lie_beyond_a_domain_no_range_of_it_counts(step, end, beyond):
    """Thresholds lie beyond it, too, and in half precision a product or a power of a question is infinite."""
    rng = np.random.default_rng(0)
    X = np.full((60, 2), float(end))
    X[:30] = 1 + (X[:30] - 1) * rng.random((30, 2))
    X[57:] = beyond
    y = np.r_[np.arange(57) % 8 == 0, [True] * 3].astype(int)
    model = make_pipeline(step, clone(LAST["histogram"]))
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, y, domain=[(1, end)] * 2))
    assert behind.seen(subject).no_image == "training records lie outside the declared domain"
    units, Q = np.array([57, 58]), np.array([[end, end]], np.float16)
    with np.errstate(over="ignore"):
        assert (bounded(subject, units).upper >= changes(subject, units, Q) - 1e-9).all()


def test_a_root_behind_a_step_that_answers_0_is_no_missing_value():
    model = make_pipeline(FunctionTransformer(np.log1p), FunctionTransformer(np.sqrt), clone(LAST["histogram"]))
    X = np.random.default_rng(0).random((40, 2)) * 100
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, np.arange(40) % 2, domain=[(0, 100)] * 2))
    assert behind.seen(subject).subject.data.domain.missing == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last", "first"),  # no pipeline around another library's model is seen through
    [(last, first) for last in LAST for first in FIRST if first == "none" or last not in ("lightgbm", "xgboost")],
)
@pytest.mark.parametrize("domain", DOMAINS)
def test_people_of_random_pipelines(last, first, domain):
    for seed in range(100, 103):
        compare(subject_of(last, first, domain, seed=seed), np.arange(10), seed)


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.longdouble])
def test_lightgbm_rounds_questions_of_other_number_types_than_its_records(kind):
    """A domain ends at 2^24 + 3, which single precision rounds beyond a cut that records outside of it have made."""
    b = 2.0**24
    X = np.array([b] * 10 + [b + 2] * 10 + [b + 3] * 10 + [b + 4] * 3)[:, None]
    y = np.array([0, 1] * 15 + [1, 1, 0])
    model = LGBMClassifier(n_estimators=5, learning_rate=0.5, min_child_samples=1, min_data_in_bin=1,
                           min_child_weight=0, n_jobs=1, verbose=-1, random_state=0)  # fmt: skip
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, y, domain=Domain(box=((b, b + 3),))))
    units = np.array([30, 32])
    made, _ = refits.ENGINE.answers(Asked(subject, units, (0,), InProcess(), None, changes=True))
    upper = certificates.ALL["tree_cells"].bound(subject, units, made, limit=0.05, fleet=InProcess()).upper

    asked = np.array([b, b + 1, b + 2, b + 3]).astype(kind)[:, None]
    everybody = clone(model).fit(X, y).predict_proba(asked)
    for unit, most in zip(units, upper, strict=True):
        without = clone(model).fit(np.delete(X, unit, axis=0), np.delete(y, unit)).predict_proba(asked)
        assert np.abs(np.log(everybody) - np.log(without)).max() <= most
