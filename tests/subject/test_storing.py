"""What is read back is what was written: values, kinds of nothing, types, categories, names and memory order."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from privgate import digest
from privgate.errors import SubjectError
from privgate.subject import containers, storing
from privgate.subject.data import TrainingData

RNG = np.random.default_rng(5)
NUMBERS = RNG.normal(size=(8, 3))
OBJECTS = ["a", None, np.nan, "nan", "None", pd.NA, 1, "1"]
FRAMES = {
    "objects": pd.DataFrame({"t": pd.Series(OBJECTS, dtype=object), "n": range(8)}),
    "text": pd.DataFrame({"t": [*list("abcdefg"), None]}),
    "numbered": pd.DataFrame(NUMBERS, columns=[3, 1, 2]),
    "mixed": pd.DataFrame({"t": pd.Series([1, 1.5, True, "x", -3, float("inf"), 2**70, np.int64(4)], dtype=object)}),
    "unused categories": pd.DataFrame({"c": pd.Categorical([*list("ababab"), None, "a"], categories=list("zba"))}),
    "number categories": pd.DataFrame({"c": pd.Categorical([1, 2] * 4, categories=[2, 1], ordered=True)}),
    "nullable": pd.DataFrame({"i": pd.array([1, None] * 4, dtype="Int64"), "s": pd.array(["a", None] * 4, "string")}),
    "times": pd.DataFrame({"d": pd.date_range("2024-01-01", periods=8, tz="UTC"), "e": pd.to_timedelta(range(8), "s")}),
    "seconds of a zone": pd.DataFrame({"d": pd.date_range("2024-01-01", periods=8, tz="Europe/Berlin", unit="s")}),
    "rows first": pd.DataFrame(np.ascontiguousarray(NUMBERS), columns=list("abc"), copy=False),
    "columns first": pd.DataFrame(np.asfortranarray(NUMBERS), columns=list("abc"), copy=False),
    "shuffled": pd.DataFrame({"a": NUMBERS[:, 0]}, index=[7, 3, 1, 0, 2, 4, 5, 6]),
    "no text left": pd.DataFrame({"t": pd.Series([None] * 8, dtype=object)}),
}
WIDE = sp.csr_matrix(NUMBERS)
WIDE.indices, WIDE.indptr = WIDE.indices.astype(np.int64), WIDE.indptr.astype(np.int64)
OTHERS = {
    "wide places": WIDE,
    "rows first": np.ascontiguousarray(NUMBERS),
    "columns first": np.asfortranarray(NUMBERS),
    "object table": np.array([[1, "a"], [None, np.nan]] * 4, dtype=object),
    "series": pd.Series(list("abcdefgh"), name="text"),
    "rows sparse": sp.csr_matrix(NUMBERS),
    "columns sparse": sp.csc_array(NUMBERS),
    "texts": ["x", "", "\n"] + ["ü"] * 5,
}


@pytest.mark.parametrize("X", [*FRAMES.values(), *OTHERS.values()], ids=[*FRAMES, *(f"{k}, other" for k in OTHERS)])
def test_nothing_changes_between_writing_and_reading(X, tmp_path):
    again = storing.load(tmp_path / storing.save(X, tmp_path / "X"))

    assert type(again) is type(X)
    assert containers.content_digest(again) == containers.content_digest(X)
    assert containers.order_of(again) == containers.order_of(X)
    if isinstance(X, pd.DataFrame):
        pd.testing.assert_frame_equal(again, X.reset_index(drop=True), check_column_type=False)
        ours, theirs = ([containers.cell(v) for v in f.astype(object).to_numpy().ravel()] for f in (X, again))
        assert ours == theirs
        columns = [[c if isinstance(c, str) else int(c), *containers._column(X[c])] for c in X.columns]
        assert containers.content_digest(X) == digest.of_json(columns)  # whatever writes it a column at a time


NOTHINGS = st.sampled_from([None, float("nan"), pd.NA])
CELLS = st.one_of(NOTHINGS, st.text(), st.integers(), st.floats(allow_nan=False), st.booleans())


@settings(deadline=None, max_examples=60)
@given(st.lists(CELLS, min_size=1, max_size=9), st.lists(CELLS, min_size=1, max_size=9))
def test_columns_of_objects_are_the_same_exactly_where_every_cell_is(tmp_path_factory, one, other):
    folder = tmp_path_factory.mktemp("cells")
    frames = [pd.DataFrame({"t": pd.Series(cells, dtype=object)}) for cells in (one, other)]

    again = [storing.load(folder / storing.save(f, folder / str(k))) for k, f in enumerate(frames)]

    same = [[(type(v).__name__, str(v)) for v in f["t"]] for f in again]
    digests = [containers.content_digest(f) for f in again]
    assert same == [[(type(v).__name__, str(v)) for v in f["t"]] for f in frames]
    assert (digests[0] == digests[1]) == (same[0] == same[1])


@pytest.mark.parametrize("X", [*FRAMES.values(), OTHERS["rows first"], OTHERS["columns first"]])
def test_rows_taken_and_put_together_keep_types_and_memory_order(X):
    taken = containers.take(containers.stack(X, containers.take(X, np.arange(3))), np.arange(len(X)))
    assert containers.content_digest(taken) == containers.content_digest(X)
    assert containers.order_of(taken) == containers.order_of(X)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (pd.DataFrame([[1, 2]] * 4, columns=["a", "a"]), "or one twice"),
        (pd.DataFrame([[1, 2]] * 4, columns=["a", 2.5]), "neither text nor numbers"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 0, 1, 0])}), "column 'a' of X is sparse"),
        (np.ma.masked_array([[1.0], [2.0], [3.0], [4.0]], mask=[[0], [1], [0], [0]]), "masked or structured"),
        (np.array(3.0), "no records"),
        ((row for row in [[1.0], [2.0], [3.0], [4.0]]), "X is a builtins generator"),
        ({"a": [1.0, 2.0, 3.0, 4.0]}, "X is a builtins dict"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_once(X, words):
    with pytest.raises(SubjectError, match=words):
        TrainingData(X, [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (pd.DataFrame({"when": pd.Series([pd.Timestamp("2020-01-01")] * 4, dtype=object)}), "'when' holds a Timestamp"),
        (["a", "b", None, "c"], "record 2 does not"),
        (np.zeros((4, 1, 1), dtype=object), "three axes"),
    ],
)
def test_what_only_pickle_could_hold_is_refused_by_name(X, words, tmp_path):
    with pytest.raises(SubjectError, match=words):
        TrainingData(X, [0, 1, 0, 1]).save(tmp_path)


X, MEMBERS = np.arange(8.0).reshape(4, 2), [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (["a", None, "b", "a"], "y is missing .* record 1"),
        (pd.array([1, 0, None, 1], dtype="Int64"), "y (is missing|holds NaN)"),
        ([1, "1", 0, 1], "y mixes int .* with text"),
        (np.array(["2020-01-01", "NaT"] * 2, dtype="M8[D]"), "y is missing"),
    ],
)
def test_labels_that_would_become_others_are_refused(y, words):
    with pytest.raises(SubjectError, match=words):
        TrainingData(X, y)
    with pytest.raises(SubjectError, match=f"candidates: {words}"):
        TrainingData(X, [0, 1, 0, 1], candidates=(X, y))


@pytest.mark.parametrize("name", ["groups", "ids"])
@pytest.mark.parametrize(
    ("values", "words"),
    [([1.0, float("nan"), 2.0, float("nan")], "for record 1 and perhaps others"), ([1, "1", 2, 3], "mixes int")],
)
def test_people_without_a_name_are_refused(name, values, words):
    with pytest.raises(SubjectError, match=f"^{name} .*{words}"):
        TrainingData(X, [0, 1, 0, 1], **{name: values})


def test_objects_of_one_kind_keep_it():
    assert TrainingData(X, np.array([1, 0, 1, 0], dtype=object)).y.dtype.kind == "i"
    assert TrainingData(X, np.array([True, False] * 2, dtype=object)).y.dtype == bool
    assert TrainingData(X, [[0], [1], [0], [1]]).y.shape == (4,)
    assert TrainingData(X, pd.DataFrame({"label": list("abab")})).classes.tolist() == ["a", "b"]


FRAME = pd.DataFrame({"n": [1, 2, 3, 4], "c": pd.Categorical(list("abab"))})


@pytest.mark.parametrize(
    ("X", "candidates", "y", "words"),
    [
        (FRAME, FRAME[["n"]], MEMBERS, "lack the column 'c'"),
        (FRAME, FRAME.assign(m=1), MEMBERS, "training records lack the column 'm'"),
        (FRAME, FRAME.assign(c=pd.Categorical(list("abcc"))), MEMBERS, "'c' of the candidates is of type category"),
        (FRAME, FRAME.assign(n=[1.0, None, 3, 4]), MEMBERS, "'n' of the candidates is of type float64"),
        (FRAME, FRAME.to_numpy(), MEMBERS, "pass one kind"),
        (X, X[:, :1], MEMBERS, "pass the same columns"),
        (X, X, list("0101"), "y of the candidates"),
    ],
)
def test_candidates_of_another_shape_or_type_are_refused(X, candidates, y, words):
    with pytest.raises(SubjectError, match=words):
        TrainingData(X, MEMBERS, candidates=(candidates, y))


def test_candidates_get_the_types_of_the_training_records():
    other = FRAME[["c", "n"]].assign(n=lambda f: f["n"].astype(float), c=pd.Categorical(list("bbaa")))
    data = TrainingData(FRAME, MEMBERS, candidates=(other, [0.0, 1.0, 0.0, 1.0]))

    pool, labels = data.pool()

    assert pool.dtypes.equals(FRAME.dtypes)
    assert labels.dtype == data.y.dtype
