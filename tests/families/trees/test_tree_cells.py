"""The theorem about cells: every cell of small ensembles of every library, real refits, and what is refused by name."""

import functools
import io
import itertools
import json
import warnings
import zlib
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
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
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from privgate import Domain, Recipe, Release, Subject, TrainingData
from privgate.engines import cell_partitions
from privgate.engines.cell_partitions import Effort
from privgate.families import certificates
from privgate.families.certificate import Units
from privgate.families.engine import Asked, Declined
from privgate.families.trees import covered_trees, reading, refits, tree_cells
from privgate.families.trees.ensemble import case_of
from privgate.kernel import limits
from privgate.kernel.cells import Compared, Ensembles, box_of
from privgate.models import Floored
from privgate.training.fit import Fit
from privgate.training.payload import packed, unpacked
from tests.in_process import InProcess

NOBODY = np.zeros(0, dtype=np.int64)


def library(name, rng, d):
    trees, depth, rate = int(rng.integers(1, 6)), int(rng.integers(1, 4)), float(rng.choice([0.1, 0.3]))
    seed = int(rng.integers(1000))
    forest = {"max_depth": depth, "random_state": seed}
    boosted = {"n_estimators": trees, "learning_rate": rate, **forest}
    return {
        "lightgbm": lambda: LGBMClassifier(min_child_samples=2, n_jobs=1, verbose=-1, min_data_in_bin=1, **boosted),
        "lightgbm sigmoid": lambda: LGBMClassifier(
            min_child_samples=2, n_jobs=1, verbose=-1, sigmoid=2.5, objective="binary", **boosted
        ),
        "xgboost": lambda: XGBClassifier(n_jobs=1, min_child_weight=0.1, **boosted),
        "xgboost base": lambda: XGBClassifier(n_jobs=1, base_score=0.2, num_parallel_tree=2, **boosted),
        "histogram": lambda: HistGradientBoostingClassifier(
            max_iter=trees, max_depth=depth, min_samples_leaf=2, learning_rate=rate, random_state=seed
        ),
        "histogram early": lambda: HistGradientBoostingClassifier(
            max_iter=20,
            min_samples_leaf=2,
            early_stopping=True,
            validation_fraction=0.3,
            n_iter_no_change=1,
            tol=0.05,
            random_state=seed,
        ),
        "lightgbm missing": lambda: LGBMClassifier(
            min_child_samples=2, n_jobs=1, verbose=-1, min_data_in_bin=1, **boosted
        ),
        "lightgbm categories": lambda: LGBMClassifier(
            min_child_samples=2,
            n_jobs=1,
            verbose=-1,
            categorical_feature=[0],
            min_data_per_group=1,
            cat_smooth=1,
            max_cat_to_onehot=int(rng.choice([1, 4])),
            **boosted,
        ),
        "xgboost missing": lambda: XGBClassifier(n_jobs=1, min_child_weight=0.1, **boosted),
        "histogram missing": lambda: HistGradientBoostingClassifier(
            max_iter=trees, max_depth=depth, min_samples_leaf=2, learning_rate=rate, random_state=seed
        ),
        "histogram categories": lambda: HistGradientBoostingClassifier(
            max_iter=trees, min_samples_leaf=2, learning_rate=rate, random_state=seed, categorical_features=[d - 1]
        ),
        "gradient": lambda: GradientBoostingClassifier(**boosted),
        "gradient exponential": lambda: GradientBoostingClassifier(loss="exponential", init="zero", **boosted),
        "forest": lambda: Floored(RandomForestClassifier(trees, **forest), floor=0.05),
        "extra trees": lambda: Floored(ExtraTreesClassifier(trees, **forest), floor=0.02),
        "bagging": lambda: Floored(BaggingClassifier(None, trees, max_features=0.6, random_state=seed), floor=0.1),
        "tree": lambda: Floored(DecisionTreeClassifier(**forest), floor=0.05),
    }[name]()


def unusual(name, rng, d):
    """The same libraries with settings that few people touch, each with some probability."""
    seed, trees, depth = int(rng.integers(1000)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
    pick = lambda *values: values[int(rng.integers(len(values)))]
    some = lambda *parts: {k: v for part in parts if rng.random() < 0.3 for k, v in part.items()}
    boosted = {"learning_rate": pick(0.05, 0.3, 1.0), "random_state": seed}
    monotone = [int(v) for v in rng.integers(-1, 2, d)]
    if name.startswith("lightgbm"):
        parts = some(
            {"subsample": 0.7, "subsample_freq": 1},
            {"colsample_bytree": 0.6},
            {"extra_trees": True},
            {"boost_from_average": False},
            {"max_bin": pick(2, 3, 5)},
            {"monotone_constraints": monotone},
            {"path_smooth": 1.0},
            {"use_missing": False},
            {"max_delta_step": 0.5, "reg_alpha": 0.1},
        )
        parts |= {
            "lightgbm weights": pick({"is_unbalance": True}, {"scale_pos_weight": 5.0}) | {"objective": "binary"},
            "lightgbm any categories": {
                "categorical_feature": [0],
                "cat_smooth": pick(0, 1),
                "cat_l2": pick(0, 10.0),
                "max_cat_threshold": pick(2, 32),
                "max_cat_to_onehot": pick(1, 4),
                "min_data_per_group": 1,
                "monotone_constraints": None,
            },
        }.get(name, {"class_weight": pick(None, "balanced")})
        small = {"min_child_samples": pick(1, 2, 5), "min_data_in_bin": pick(1, 3), "n_jobs": 1, "verbose": -1}
        return LGBMClassifier(n_estimators=trees, max_depth=depth, **boosted, **small, **parts)
    if name.startswith("xgboost"):
        method = pick({"tree_method": "exact"}, {"tree_method": "approx"}, {"max_bin": 4})
        if rng.random() < 0.3:
            method = {"grow_policy": "lossguide", "max_leaves": 4, "tree_method": "hist"}
        parts = some(
            {"subsample": 0.7},
            {"colsample_bylevel": 0.6},
            {"num_parallel_tree": 2},
            {"max_delta_step": 0.5, "reg_alpha": 0.1, "gamma": 0.05},
            {"monotone_constraints": tuple(monotone)},
            {"base_score": pick(0.01, 0.9)},
        )
        given = {"max_depth": 0 if "max_leaves" in method else depth, "min_child_weight": pick(0, 0.1, 1), "n_jobs": 1}
        return XGBClassifier(n_estimators=trees, **boosted, **given, **method, **parts)
    if name.startswith("histogram"):
        parts = some(
            {"class_weight": "balanced"},
            {"max_features": 0.5},
            {"early_stopping": True, "validation_fraction": 0.2, "n_iter_no_change": 2},
            {"max_leaf_nodes": 3},
            {"l2_regularization": 0.1},
        )
        parts |= {"categorical_features": [d - 1]} if "categories" in name else {"max_bins": pick(2, 4, 255)}
        return HistGradientBoostingClassifier(max_iter=trees, min_samples_leaf=pick(1, 2, 5), **boosted, **parts)
    if name.startswith("gradient"):
        parts = some(
            {"subsample": 0.6},
            {"n_iter_no_change": 1, "validation_fraction": 0.3},
            {"init": "zero"},
            {"ccp_alpha": 0.02},
        )
        return GradientBoostingClassifier(n_estimators=trees, max_depth=depth, **boosted, **parts)
    if name.startswith("bagging"):
        base = pick(None, DecisionTreeClassifier(max_depth=depth, class_weight="balanced"), DecisionTreeClassifier())
        share = {"max_samples": pick(0.3, 0.8), "max_features": pick(0.4, 1.0), "bootstrap_features": pick(True, False)}
        return Floored(BaggingClassifier(base, trees, random_state=seed, **share), floor=0.05)
    parts = some({"class_weight": {0: 5.0, 1: 0.1}}, {"ccp_alpha": 0.02}, {"max_leaf_nodes": 3, "criterion": "entropy"})
    model = pick(RandomForestClassifier, ExtraTreesClassifier)
    bootstrap = pick({"bootstrap": False}, {"bootstrap": True, "max_samples": 0.4})
    forest = model(trees, max_depth=depth, random_state=seed, **bootstrap, **parts)
    return Floored(forest, floor=pick(1e-6, 0.01, 0.2))


UNUSUAL = (
    "lightgbm any",
    "lightgbm weights",
    "lightgbm any missing",
    "lightgbm any categories",
    "xgboost any",
    "xgboost any missing",
    "histogram any",
    "histogram any missing",
    "histogram any categories",
    "gradient any",
    "bagging any",
    "forest any",
)
LIBRARIES = (
    "lightgbm",
    "lightgbm sigmoid",
    "xgboost",
    "xgboost base",
    "histogram",
    "histogram early",
    "lightgbm missing",
    "lightgbm categories",
    "xgboost missing",
    "histogram missing",
    "histogram categories",
    "gradient",
    "gradient exponential",
    "forest",
    "extra trees",
    "bagging",
    "tree",
)
#: about two classes only
TWO = ("gradient exponential", "lightgbm sigmoid", "xgboost base", "lightgbm weights")


def small(name, seed):
    """A subject on few records: whole numbers, single precision, large numbers, or anything is allowed."""
    rng = np.random.default_rng(seed)
    n, d, K = int(rng.integers(16, 40)), int(rng.integers(1, 4)), 2 if name in TWO else int(rng.choice([2, 2, 3]))
    kind = seed % 4
    if kind == 0:
        X, domain = rng.integers(0, 4, (n, d)), Domain(categories=(4,) * d)
    else:
        X = rng.normal(size=(n, d)).astype(np.float32 if kind == 1 else np.float64) * (1000 if kind == 2 else 1)
        ends = zip(X.min(axis=0).tolist(), X.max(axis=0).tolist(), strict=True)
        domain = None if kind == 3 else Domain(box=tuple((a - 1, b + 1) for a, b in ends))
    if "categories" in name:
        X[:, 0 if "lightgbm" in name else -1] = rng.integers(0, 6, n)  # also in a box of real numbers
        domain = Domain(categories=(6,) * d) if kind == 0 else None
    if "missing" in name or (kind == 3 and "categories" in name):
        X = X.astype(np.float32 if kind == 1 else np.float64)
        X[rng.random(X.shape) < 0.2] = np.nan
        domain = None
    if "missing" in name and kind in (0, 2):
        X = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)])
        ends = zip(np.nanmin(X, axis=0, initial=0), np.nanmax(X, axis=0, initial=0), strict=True)
        domain = Domain.of({c: (float(a) - 1, float(b) + 1, None) for c, (a, b) in zip(X, ends, strict=True)})
    y = np.concatenate([np.arange(K), np.arange(K), rng.integers(0, K, n - 2 * K)])
    made = unusual(name, rng, d) if name in UNUSUAL else library(name, rng, d)
    return Subject.local(Recipe(made, seed=1), TrainingData(X, y, domain=domain))


def case(subject, one, other):
    """What the kernel is asked about two ensembles of a subject."""
    d = subject.data.X.shape[1]
    low, high, whole = covered_trees.accepted(covered_trees.reach(subject), d)
    box = np.array([low, high])
    if one.width:
        box = np.concatenate([box, [np.zeros(d), covered_trees.missing(subject)]], axis=1)
    return case_of((one, other), box, whole=whole)


def sides(asked):
    """Return, for each feature, a question in every cell: the largest of the cell, the last of them somewhere in it."""
    all_, (low, high) = Ensembles.of(asked), box_of(asked)
    for f in range(len(low)):
        cuts = np.unique(all_.cut[all_.feature == f])
        cuts = cuts[(cuts >= low[f]) & (cuts < high[f])]
        last = cuts[-1] + max(1.0, abs(cuts[-1])) if len(cuts) else 0.0
        yield np.append(cuts, high[f] if np.isfinite(high[f]) else last)


def every_cell(asked, subject):
    """A question in every cell, and whether the declared domain and the records' number type hold all of them."""
    at, d = np.array(list(itertools.product(*sides(asked)))), subject.data.X.shape[1]
    made = np.where(at[:, d:] > 0, np.nan, at[:, :d]) if at.shape[1] > d else at
    reach, kind = covered_trees.reach(subject), np.asarray(subject.data.X).dtype
    held = made.astype(kind).astype(np.float64)
    inside = np.ones(len(made), dtype=bool)
    if reach is not None:
        inside = reach.inside(np.where(np.isnan(made), reach.low, held))
    return made[inside], bool(inside.all() and np.array_equal(held, made, equal_nan=True))


def as_records(questions, X):
    """Return questions in the records' own number type; as they are where that holds nothing missing."""
    return questions if X.dtype.kind != "f" and not np.isfinite(questions).all() else questions.astype(X.dtype)


def stated(asked, k, trees, questions):
    """Return by how much a library's answers may be off from exact ones at each question, as the theorem says, nats."""
    all_, box = Ensembles.of(asked), box_of(asked)
    both = Compared.of(asked, all_, 0, box, all_.leaves(0, box))
    if trees.link == "mean":
        labels = trees.value.shape[1]
        return np.full(len(questions), both.nats([0.0] * 2 * labels, np.ones(2 * labels)))
    return np.array([both.rounding(k, float(s[0])) for s in trees.leaf_sums(questions)])


def enumerate_cells(name, seed):
    """Compare the bound with every cell of two people's models; return how close it came, NaN where not comparable."""
    subject, close = small(name, seed), []
    assert covered_trees.unfit(subject) == ""
    X = np.asarray(subject.data.X)
    fleet, left_out = InProcess(), [NOBODY, np.array([6]), np.array([9])]
    reads = (f"{refits.__name__}:trees", "".join("01"[int(m)] for m in covered_trees.missing(subject)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = fleet.fits(subject, [Fit(1, np.arange(3), left_out=gone, reads=reads) for gone in left_out])
        assert not any(a.problem for a in answers)
        whole, *less = (refits.ensemble(a.read) for a in answers)
        for gone, made in zip(left_out[1:], less, strict=True):
            both = case(subject, whole, made)
            if np.prod([float(len(side)) for side in sides(both)]) > 5000:
                continue
            Q, complete = every_cell(both, subject)
            if not len(Q):
                continue
            one, other = refits.asked_at(fleet, subject, 1, [(NOBODY, as_records(Q, X)), (gone, as_records(Q, X))])
            with np.errstate(invalid="ignore"):
                truth = np.nan_to_num(np.abs(one.log_p - other.log_p), nan=0.0, posinf=np.inf).max()  # both answer 0
            upper = limits(cell_partitions.proposed(both, Effort(20_000)).case).high[0]
            assert upper >= truth
            if np.isinf(truth):
                continue
            read = Q.astype(X.dtype).astype(np.float64)
            assert np.array_equal(np.isinf(read), np.isinf(Q))  # no number becomes infinite
            if not np.isinf(one.log_p).any() and not np.isinf(other.log_p).any():
                for k, (trees, answered) in enumerate(((whole, one.log_p), (made, other.log_p))):
                    off = np.abs(trees.log_probabilities(read) - answered)  # what was read answers
                    assert (off <= stated(both, k, trees, read)[:, None]).all()
            if complete:
                if whole.link == "mean":
                    largest = truth
                else:
                    sums = [t.scale * t.leaf_sums(read) for t in (whole, made)]
                    change = sums[0] - sums[1]
                    largest = np.ptp(change, axis=1).max() if change.shape[1] > 1 else np.abs(change).max()
                close.append(upper - largest if np.isfinite(upper) else 0.0)
    return close


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", LIBRARIES)
def test_never_below_any_cell_of_real_models_and_equal_to_the_largest(name):
    close = [c for seed in range(5) for c in enumerate_cells(name, seed)]
    assert close
    assert min(close) >= 0
    assert max(close) < 2e-3


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", UNUSUAL)
def test_settings_that_few_people_touch_change_nothing(name):
    close = [c for seed in range(1000, 1012) for c in enumerate_cells(name, seed)]
    assert close
    assert min(close) >= 0


class Answering(InProcess):
    """A fleet of which what is read comes back changed."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def fits(self, subject, fits, **told):
        made = super().fits(subject, fits, **told)
        return [replace(a, read=self.change(k, a.read)) for k, a in enumerate(made)]


def grown(read):
    """Return trees among 384 MiB of zeros, as bytes of a few MiB: packed once, and put together."""
    body, zeros, packer = zlib.decompress(read), bytes(1 << 24), zlib.compressobj(1)
    parts = [packer.compress(body), packer.flush(zlib.Z_FULL_FLUSH), *[packed_alone(zeros)] * 24]
    total = functools.reduce(lambda so_far, _: zlib.adler32(zeros, so_far), range(24), zlib.adler32(body))
    return b"".join([*parts, zlib.compressobj(wbits=-15).flush(), total.to_bytes(4, "big")])


@functools.cache
def packed_alone(content):
    """Return a part of a packed stream that refers to nothing before it."""
    packer = zlib.compressobj(1, wbits=-15)
    return packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)


def inflated(read):
    """Return what holds an array that is packed once more."""
    body = io.BytesIO()
    np.savez_compressed(body, told=np.array("{}"), start=np.zeros(1 << 22))
    raw = body.getvalue()
    return zlib.compress(len(raw).to_bytes(8, "little") + raw + bytes(-len(raw) % 8))


def floats(read):
    """Return trees whose features are no whole numbers."""
    arrays, told = unpacked(np.frombuffer(zlib.decompress(read), "<f8"))
    return zlib.compress(packed(arrays | {"feature": arrays["feature"] + 0.5}, told).tobytes())


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "change", [lambda _: b"", lambda read: read[:-9], lambda _: b"x" * 99, inflated, floats, grown]
)
def test_what_is_read_of_a_model_and_holds_no_trees_is_declined_or_handed_on(change):
    X, y, domain = table(60)
    subject = Subject.local(Recipe(RandomForestClassifier(2, max_depth=2), seed=0), TrainingData(X, y, domain=domain))
    about = partial(Asked, subject, np.arange(3), (0,), queries=None, changes=True)
    read = Answering(lambda _, r: r)
    assert refits.ensemble(change(read.fits(subject, [whole_of(subject)])[0].read)) is None

    made, left = refits.ENGINE.answers(about(Answering(lambda k, r: change(r) if k == 1 else r)))
    assert (made.units.tolist(), left.tolist()) == ([0, 2], [1])
    with pytest.raises(Declined, match="holds no trees"):
        refits.ENGINE.answers(about(Answering(lambda k, r: change(r))))


def whole_of(subject):
    reads = (f"{refits.__name__}:trees", "".join("01"[int(m)] for m in covered_trees.missing(subject)))
    return Fit(0, np.arange(3), left_out=NOBODY, reads=reads)


def test_any_bytes_are_trees_or_none():
    X, y, domain = table(60)
    subject = Subject.local(Recipe(RandomForestClassifier(2, max_depth=2), seed=0), TrainingData(X, y, domain=domain))
    plain, rng = zlib.decompress(InProcess().fits(subject, [whole_of(subject)])[0].read), np.random.default_rng(3)
    for _ in range(500):
        changed = bytearray(plain)
        for at in rng.integers(0, len(plain), rng.integers(1, 8)):
            changed[at] = rng.integers(0, 256)
        made = refits.ensemble(zlib.compress(bytes(changed)))
        assert made is None or made.feature.dtype.kind == "i"


@pytest.mark.parametrize("read", [b"", bytes(24), np.full(4, np.nan).tobytes(), np.full(4, np.inf).tobytes()])
def test_what_is_read_at_questions_and_answers_none_is_a_problem(read):
    X, y, domain = table(60)
    subject = Subject.local(Recipe(RandomForestClassifier(2, max_depth=2), seed=0), TrainingData(X, y, domain=domain))
    (made,) = refits.asked_at(Answering(lambda *_: read), subject, 0, [(NOBODY, X[:2])])
    assert "no answer to the questions" in made.problem


@pytest.mark.slow
@pytest.mark.parametrize("name", UNUSUAL)
def test_every_cell_of_hundreds_of_unusual_ensembles(name):
    close = [c for seed in range(2000, 2300) for c in enumerate_cells(name, seed)]
    assert len(close) > 150
    assert min(close) >= 0


def test_infinity_is_a_question_and_exceeds_every_finite_threshold_but_no_infinite_one():
    """A split on whether a value is missing has an infinite threshold: beyond it is no cell."""
    rng = np.random.default_rng(0)
    for kind in (np.float32, np.float64):
        X = rng.normal(size=(60, 1)).astype(kind)
        X[::3] = np.nan
        y = np.isnan(X[:, 0]).astype(int)
        y[:6] = [0, 1, 0, 1, 0, 1]
        for model in (
            LGBMClassifier(n_estimators=5, min_child_samples=2, min_data_in_bin=1, n_jobs=1, verbose=-1),
            HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=2, random_state=0),
        ):
            subject = Subject.local(Recipe(model, seed=0), TrainingData(X, y))
            fleet = InProcess()
            made, _ = refits.ENGINE.answers(Asked(subject, np.arange(6), (0,), fleet, None, changes=True))
            found = tree_cells.TreeCells().certify(Units(subject, np.arange(6), made, 0.01, fleet))
            assert found.detail["refuted"] > 0
            asked = np.array([[np.inf], [np.nan], [-np.inf]], dtype=kind)
            asks = [(gone, asked) for gone in (NOBODY, *np.arange(6)[:, None])]
            whole, *less = refits.asked_at(fleet, subject, 0, asks)
            assert (found.upper >= [np.abs(whole.log_p - one.log_p).max() for one in less]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_every_cell_of_a_thousand_ensembles_of_every_kind(name):
    close = [c for seed in range(100, 460) for c in enumerate_cells(name, seed)]  # each on all records and without two
    assert len(close) > 200
    assert min(close) >= 0
    assert max(close) < 2e-3


def table(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 3)), 2)
    y = (X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=n) > 0).astype(int)
    return X, y, Domain(box=((-5.0, 5.0),) * 3)


def certified(model, limit, n=240, units=None):
    X, y, domain = table(n)
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, y, domain=domain))
    units = np.arange(12) if units is None else units
    made, left = refits.ENGINE.answers(Asked(subject, units, (0,), InProcess(), None, changes=True))
    assert not len(left)
    return subject, made, tree_cells.TreeCells().certify(Units(subject, units, made, limit, InProcess()))


@pytest.mark.slow
def test_strong_regularisation_is_proven_and_library_defaults_are_refuted_by_a_real_question(monkeypatch):
    monkeypatch.setattr(tree_cells, "MORE", (400,))
    tame = LGBMClassifier(n_estimators=20, max_depth=2, min_child_samples=60, reg_lambda=100, n_jobs=1, verbose=-1)
    _, _, found = certified(tame, 1.0)
    assert found.detail["proven"] == 12
    assert (found.upper <= 1).all()
    assert (found.lower == 0).all()

    wild = XGBClassifier(n_estimators=60, max_depth=6, n_jobs=1)
    subject, _, found = certified(wild, 1.0)
    refuted = np.flatnonzero(found.lower > 1)
    assert len(refuted) >= 6
    assert found.detail["refuted"] == len(refuted)
    for k in refuted[:3]:
        q = found.questions[k : k + 1]
        keep = np.arange(subject.data.n) != k
        logs = [
            np.log(XGBClassifier(n_estimators=60, max_depth=6, n_jobs=1, random_state=0).fit(*d).predict_proba(q))
            for d in ((subject.data.X, subject.data.y), (subject.data.X[keep], subject.data.y[keep]))
        ]
        assert np.abs(logs[0] - logs[1]).max() == pytest.approx(found.lower[k], abs=1e-6)
    assert (found.upper >= found.lower).all()


def test_what_was_not_searched_to_the_end_is_open_and_no_pass(monkeypatch):
    model = LGBMClassifier(n_estimators=60, max_depth=4, min_child_samples=20, reg_lambda=20, n_jobs=1, verbose=-1)
    _, _, patient = certified(model, 2.0)
    monkeypatch.setattr(tree_cells, "FIRST", 2)
    monkeypatch.setattr(tree_cells, "TOGETHER", 0)
    _, _, hasty = certified(model, 2.0)
    assert (hasty.upper >= patient.lower).all()
    assert hasty.detail["open"] > patient.detail["open"]
    assert (hasty.upper[hasty.upper > 2] > 2).all()
    assert hasty.detail["proven"] == (hasty.upper <= 2).sum()


def test_effort_goes_first_to_those_nearest_to_the_limit():
    upper, seen = np.array([1.5, 0.9, 9.0, 1.1, 3.0]), np.array([0.0, 0.0, 0.0, 0.2, 2.0])
    assert tree_cells._undecided(upper, seen, 1.0, dict.fromkeys(range(5), ())) == [3, 0, 2]


def refused(model, X=None, y=None, **more):
    first, second, domain = table(40)
    X, y = first if X is None else X, second if y is None else y
    data = TrainingData(X, y, domain=domain)
    return certificates.ALL["tree_cells"].applies(Subject.local(Recipe(model, **more), data))


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (LGBMClassifier(boosting_type="dart"), "dart"),
        (LGBMClassifier(boosting_type="rf"), "rf"),
        (LGBMClassifier(linear_tree=True), "linear_tree"),
        (LGBMClassifier(objective="multiclassova"), "multiclassova"),
        (LGBMClassifier(machines="elsewhere:1"), "machines"),
        (LGBMClassifier(forcedsplits_filename="splits.json"), "forcedsplits_filename"),
        (LGBMClassifier(learning_rate="0.1 forcedsplits_filename=splits.json"), "learning_rate"),
        (LGBMClassifier(monotone_constraints=[0, "0 machines=elsewhere:1"]), "monotone_constraints"),
        (LGBMClassifier(zero_as_missing=True), "zero_as_missing"),
        (LGBMClassifier(n_estimators=10**9), "n_estimators"),
        (HistGradientBoostingClassifier(max_iter=10**7, random_state=0), "max_iter"),
        (XGBClassifier(booster="dart"), "dart"),
        (XGBClassifier(booster="gblinear"), "gblinear"),
        (XGBClassifier(missing=0.0), "missing"),
        (XGBClassifier(early_stopping_rounds=3), "early_stopping_rounds"),
        (XGBClassifier(enable_categorical=True), "enable_categorical"),
        (XGBClassifier(multi_strategy="multi_output_tree"), "multi_output_tree"),
        (GradientBoostingClassifier(init=LogisticRegression()), "init"),
        (GradientBoostingClassifier(), "random_state"),
        (BaggingClassifier(LogisticRegression(), random_state=0), "LogisticRegression"),
        (Floored(BaggingClassifier(LogisticRegression(), random_state=0)), "LogisticRegression"),
        (Floored(GradientBoostingClassifier(random_state=0)), "GradientBoostingClassifier"),
        (Floored(RandomForestClassifier(random_state=0), floor=0.0), "floor"),
        (RandomForestClassifier(random_state=0), "Floored"),
        (DecisionTreeClassifier(random_state=0), "Floored"),
        (make_pipeline(StandardScaler(), LGBMClassifier()), "the recipe is not "),
    ],
)
def test_what_is_not_covered_is_refused_by_name(model, word):
    said = refused(model)
    assert said.startswith("does not apply, because ")
    assert word in said


def test_missing_values_that_the_domain_or_the_library_does_not_take_are_refused_by_name():
    X, y, domain = table(40)
    X[3, 1] = np.nan
    assert "records miss values" in refused(LGBMClassifier(), X, y)
    assert "NaN" in refused(GradientBoostingClassifier(random_state=0), X, y)
    assert "NaN" in refused(Floored(RandomForestClassifier(random_state=0)), X, y)
    data = TrainingData(np.nan_to_num(X), y, domain=domain)
    label = Subject.local(Recipe(LGBMClassifier()), data, release=Release("label"))
    assert "label" in certificates.ALL["tree_cells"].applies(label)


def test_who_alone_lets_a_value_be_missing_is_refuted_by_a_question_that_misses_it():
    """Default directions follow who is there: answers about missing values change most, and only they."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = (X[:, 0] > 0).astype(int)
    X[:3], y[:3] = np.nan, [1, 0, 1]
    model = XGBClassifier(n_estimators=20, max_depth=2, n_jobs=1, min_child_weight=0, reg_lambda=0.01)
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, y))
    units = np.arange(3)
    made, _ = refits.ENGINE.answers(Asked(subject, units, (0,), InProcess(), None, changes=True))

    found = tree_cells.TreeCells().certify(Units(subject, units, made, 0.5, InProcess()))

    assert np.isnan(found.questions[found.lower > 0.5]).any()
    assert "columns 0 may be missing" in found.assumptions[0]


def test_categories_that_are_no_numbers_are_refused_by_name():
    X = pd.DataFrame({"a": pd.Categorical(["u", "v"] * 50), "b": np.arange(100.0)})
    fitted = HistGradientBoostingClassifier(random_state=0).fit(X, np.arange(100) % 2)
    with pytest.raises(ValueError, match="categories are no numbers"):
        refits.reading.read(fitted, X=np.zeros((1, 2)))


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_of_thresholds_goes_where_the_set_of_categories_says(seed):
    rng = np.random.default_rng(seed)
    cuts, sides = np.sort(rng.normal(size=5)), rng.integers(1, 3, 6)
    leaves = (np.array([0, -1, -1]), np.zeros(3), np.zeros(3), np.zeros(3), np.array([0.0, 1.0, 2.0]), np.zeros(3))
    made = reading.with_runs(leaves, [(0, 0, cuts, sides, 2)])
    table = reading.joined([made], "logistic", np.zeros(1))

    for x in [*cuts, *(cuts + 1e-9), -9.0]:
        node = 0
        while table.feature[node] >= 0:
            node = (table.left if x <= table.cut[node] else table.right)[node]
        assert table.value[node, 0] == sides[np.searchsorted(cuts, x)]


def test_a_released_zero_in_single_precision_is_no_bound():
    """Above a score of 16.6 XGBoost releases exactly 0 as 1 - p: scores hardly move, what is released is infinite."""
    X = np.repeat([[0.0], [1.0]], 400, axis=0)
    y = np.repeat([0, 1], 400)
    model = XGBClassifier(n_estimators=200, max_depth=1, learning_rate=1.0, reg_lambda=0, min_child_weight=0, n_jobs=1)
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, y, domain=Domain(box=((0.0, 1.0),))))
    made, _ = refits.ENGINE.answers(Asked(subject, np.arange(2), (0,), InProcess(), None, changes=True))
    found = tree_cells.TreeCells().certify(Units(subject, np.arange(2), made, 1.0, InProcess()))
    assert np.isinf(found.upper).all()


def test_numbers_between_thresholds_that_single_precision_does_not_tell_apart_are_covered():
    X = np.linspace(1.0, 1.0 + 2.0**-20, 64)[:, None]
    y = (np.arange(64) % 3 > 0).astype(int)
    model = XGBClassifier(n_estimators=5, max_depth=4, min_child_weight=0, n_jobs=1)
    box = Domain(box=((float(X.min()), float(X.max())),))
    subject = Subject.local(Recipe(model, seed=0), TrainingData(X, y, domain=box))
    made, _ = refits.ENGINE.answers(Asked(subject, np.arange(4), (0,), InProcess(), None, changes=True))
    found = tree_cells.TreeCells().certify(Units(subject, np.arange(4), made, None, InProcess()))
    many = np.linspace(X.min(), X.max(), 4001)[:, None]
    fit = lambda keep: np.log(
        XGBClassifier(**model.get_params()).set_params(random_state=0).fit(X[keep], y[keep]).predict_proba(many)
    )
    everybody = fit(np.ones(64, dtype=bool))
    for k in range(4):
        assert np.abs(everybody - fit(np.arange(64) != k)).max() <= found.upper[k]


def test_the_table_of_the_report_is_json():
    _, _, found = certified(GradientBoostingClassifier(n_estimators=5, max_depth=2), 1.0)
    assert json.loads(json.dumps(found.detail)) == found.detail


def test_large_whole_numbers_of_a_frame_are_not_rounded_as_those_of_an_array():
    """LightGBM reads a frame in double precision, an array of whole numbers in single: above 2^24 its cells differ."""
    rng = np.random.default_rng(0)
    n, first = 40, 1_718_452_800
    X = pd.DataFrame({"time": first + 3 * np.sort(rng.choice(4000, n, replace=False))})
    y = (np.arange(n) > n // 2).astype(int)
    y[rng.integers(n)] ^= 1
    model = LGBMClassifier(learning_rate=0.3, min_child_samples=2, min_data_in_bin=1, reg_lambda=0.1, n_jobs=1)
    model.set_params(n_estimators=8, verbose=-1)
    box = Domain(box=((float(first), float(first + 12_000)),))
    subject, units = Subject.local(Recipe(model, seed=0), TrainingData(X, y, domain=box)), np.arange(n)
    made, _ = refits.ENGINE.answers(Asked(subject, units, (0,), InProcess(), None, changes=True))
    found = tree_cells.TreeCells().certify(Units(subject, units, made, None, InProcess()))
    asked = pd.DataFrame({"time": np.arange(first, first + 12_001)})
    fit = lambda kept: np.log(clone(model).set_params(random_state=0).fit(X[kept], y[kept]).predict_proba(asked))
    everybody = fit(np.ones(n, dtype=bool))
    for k in range(n):
        assert np.abs(everybody - fit(np.arange(n) != k)).max() <= found.upper[k]
