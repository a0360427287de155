"""What is checked of the training data before anything is retrained."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from privgate.check.beforehand import _check_candidates
from privgate.controls import suites
from privgate.controls.data_checks import check_data, fingerprint_records
from privgate.controls.strangers import list_copies
from privgate.errors import SubjectError
from privgate.file import look
from privgate.run import near_questions, pool
from privgate.subject.data import TrainingData


def preconditions(data):
    return [*check_data(data), *_check_candidates(data)]


def found(data):
    return {p.name: p for p in preconditions(data)}


def clean(n=60, **options):
    rng = np.random.default_rng(1)
    return TrainingData(rng.normal(size=(n, 3)), np.arange(n) % 2, **options)


def test_clean_data_passes_every_check():
    checks = preconditions(clean())

    assert [p.name for p in checks] == [
        "labels",
        "class_of_one",
        "duplicates",
        "overlap",
        "same_population",
    ]
    assert {p.outcome for p in checks} == {"passed"}


ROUNDED = np.random.default_rng(0).normal(size=(40, 3))
ROUNDED[9] = ROUNDED[2] * (1 + 1e-9)
MANY = np.r_[0, 1, np.zeros(36), 1, 1].astype(int)
ALONE, SIX = {"one_record_each": True}, ["a"] * 4 + ["b"] * 2
TWICE = np.array([[1.0], [2.0], [3.0], [4.0], [2.0]])
SAID = [
    (np.eye(4), [1, 1, 1, 1], ALONE, "labels", "failed", {"labels": 1}),
    (np.eye(4), [0, 1, 0, 1], {"candidates": (np.zeros((2, 4)), [0, 7])}, "labels", "inconclusive", {"unknown": 1}),
    # a class of one person is named as such however many records the person has
    (np.eye(6), SIX, ALONE, "class_of_one", "passed", {}),
    (np.eye(6), SIX, {"groups": [0, 1, 2, 3, 4, 4]}, "class_of_one", "warned", {"labels_of_one": 1}),
    # equal features with another label are no duplicate, nor are records that differ by rounding
    (np.array([[1.0], [1.0], [2.0], [3.0]]), [0, 1, 0, 1], ALONE, "duplicates", "passed", {"records": 0}),
    (ROUNDED, MANY, ALONE, "duplicates", "passed", {"records": 0}),
    (TWICE, [0, 1, 0, 1, 1], ALONE, "duplicates", "warned", {"records": 2}),
    (TWICE, [0, 1, 0, 1, 1], {"groups": [0, 1, 2, 3, 1]}, "duplicates", "passed", {"records": 0}),
]


@pytest.mark.parametrize(("X", "y", "whose", "name", "outcome", "detail"), SAID)
def test_what_is_wrong_with_data_is_said(X, y, whose, name, outcome, detail):
    check = found(TrainingData(X, y, **whose))[name]
    assert (check.outcome, {k: check.detail[k] for k in detail}) == (outcome, detail)


def test_the_overlap_names_the_positions_of_candidates():
    data = clean()
    X = np.concatenate([np.full((1, 3), 9.0), data.X[[4, 5]]])
    with_candidates = clean(candidates=(X, [0, data.y[4], 1 - data.y[5]]))

    assert list_copies(with_candidates).tolist() == [1]
    check = found(with_candidates)["overlap"]
    assert (check.outcome, check.detail["candidates"]) == ("warned", [1])


def test_an_integer_frame_overlaps_with_the_same_numbers_as_floats():
    X = pd.DataFrame({"a": [1, 2, 3, 4]})
    others = pd.DataFrame({"a": [4.0, 9.0]})

    assert list_copies(TrainingData(X, [0, 1, 0, 1], candidates=(others, [1, 1]), one_record_each=True)).tolist() == [0]


def test_no_message_or_detail_holds_a_value_a_label_or_an_id():
    secret = "sick-secret"
    X = pd.DataFrame({"diagnosis": [secret, secret, "x", "y"], "person_id": ["s-secret", "s-secret", "q", "r"]})
    data = TrainingData(
        X,
        [secret, secret, "a", "b"],
        ids=[f"secret{i}" for i in range(4)],
        candidates=(X, [secret] * 4),
        one_record_each=True,
    )

    assert all("secret" not in f"{p.message}{dict(p.detail)}" for p in preconditions(data))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=30))
def test_equal_fingerprints_mean_equal_records(rows):
    X = np.array(rows, dtype=float)
    codes = np.unique(X, axis=0, return_inverse=True)[1].ravel()

    frame = pd.DataFrame(X)
    for container in (X, X.reshape(-1, 1, 2), frame, frame.astype(str), sp.csr_matrix(X), [str(r) for r in rows]):
        prints = np.unique(fingerprint_records(container), return_inverse=True)[1].ravel()
        assert len(set(zip(prints.tolist(), codes.tolist(), strict=True))) == len(set(codes.tolist()))
        assert prints.max() == codes.max()


def test_negative_zero_and_nan_are_one_value_each():
    prints = fingerprint_records(np.array([[0.0], [-0.0], [np.nan], [-np.nan], [1.0]]))

    assert prints[0] == prints[1]
    assert prints[2] == prints[3]
    assert len(set(prints.tolist())) == 3


def _columns(n, rng):
    """A column of every type that a frame may hold, with something missing where that is possible."""
    whole, some = rng.integers(0, 60, n), rng.random(n) < 0.2
    days = pd.to_datetime(whole, unit="D").to_series(index=range(n))
    words = [f"w{v}" for v in whole]
    plain = {dtype: whole.astype(dtype) for dtype in ("int64", "uint64", "int8", "float32", "float16", "bool")}
    whole = pd.Series(whole)
    types = ("Int64", "UInt64", "Float64", "boolean", "bool[pyarrow]", "int64[pyarrow]", "double[pyarrow]")
    gone = {f"{t} missing": (whole % 2 if "bool" in t else whole).astype(t).mask(some) for t in types}
    texts = {
        t: pd.Series(words).astype(t).mask(some) for t in ("object", "str", "string", "string[pyarrow]", "category")
    }
    units = [f"datetime64[{u}{zone}]" for u in ("s", "ms", "us", "ns") for zone in ("", ", UTC", ", Europe/Berlin")]
    times = {u: (days if "," not in u else days.dt.tz_localize("UTC")).astype(u).mask(some) for u in units}
    others = {"timedelta": pd.to_timedelta(whole, "h").mask(some), "codes": whole.astype("category").mask(some)}
    others["lists"] = pd.Series([[v] for v in whole])
    return {**plain, **gone, **texts, **times, **others}


SPARSE = [f"{f}_{c}" for f in ("csr", "csc", "coo", "bsr", "dok", "dia", "lil") for c in ("matrix", "array")]
DTYPES = ("float64", "float32", "int64", "bool")


def _containers(n=120):
    """Every container and type that TrainingData accepts."""
    rng = np.random.default_rng(8)
    table = rng.poisson(0.8, size=(n, 24))
    table[:, 0] += rng.integers(0, 40, n)
    dense = (
        "float64",
        "float32",
        "float16",
        "longdouble",
        "int8",
        "uint64",
        "bool",
        "complex128",
        "U6",
        "S6",
        "object",
    )
    found = {f"array of {t}": table.astype(t) for t in (*dense, "datetime64[s]", "timedelta64[ns]")}
    found["objects with nothing"] = np.where(table == 0, None, table)
    found["images"] = table.reshape(n, 4, 6).astype(np.uint8)
    for kind in SPARSE:
        for dtype in DTYPES:
            found[f"{kind} of {dtype}"] = getattr(sp, kind)(table.astype(dtype))
    wide = sp.csr_array(table.astype(float))
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    far, texts = rng.normal(size=n), [f"text {v} of {i}" for i, v in enumerate(table[:, 0])]
    for name, column in _columns(n, rng).items():
        found[f"frame with {name}"] = pd.DataFrame({"zip": column, "far": far})
        found[f"series of {name}"] = pd.Series(column)
    return {**found, "wide indices": wide, "texts": texts, "array of texts": np.array(texts)}


CONTAINERS = _containers()
#: each sparse format with one type, and columns as parts of a frame: the others reach no other line
SHORT = {f"{kind} of {dtype}" for kind, dtype in zip(SPARSE, itertools.cycle(DTYPES), strict=False)}
SHORT |= {"series of str", "series of Int64 missing"}
LONG = {name for name in CONTAINERS if name.startswith(("series of", *SPARSE))} - SHORT


def _part(X, rows):
    if sp.issparse(X):
        return type(X)(X.tocsr()[rows])
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in LONG)) for k in CONTAINERS])
def test_every_control_takes_every_container_and_type(kind):
    X, y = CONTAINERS[kind], np.arange(120) % 2
    data = TrainingData(
        _part(X, slice(80)), y[:80], candidates=(_part(X, slice(80, None)), y[80:]), one_record_each=True
    )

    checks = {p.name: p for p in preconditions(data)}
    assert checks["overlap"].detail["of"] == 40
    assert not [p.name for p in checks.values() if p.outcome == "passed" and p.message.startswith("not looked")]
    for near in (True, False):
        near_questions._kinds(data.X, np.random.default_rng(0), near=near)
    pool.features(data, np.arange(120))
    if not sp.issparse(data.X):
        suites.as_frame(data.X, data.y)
    look.Records.from_container(data.X)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.zeros((4, 0)), "X has no records or no columns; pass"),
        (pd.DataFrame(index=range(4)), "X has no records or no columns; pass"),
        (np.matrix(np.eye(4)), "X is a numpy matrix .*; pass a plain array"),
        (np.zeros(4, dtype=[("a", "f8")]), "masked or structured.*; pass a plain array"),
    ],
)
def test_what_no_control_can_take_is_refused(X, words):
    with pytest.raises(SubjectError, match=words):
        TrainingData(X, [0, 1, 0, 1], one_record_each=True)
