"""The array finder against a search by hand: rows are found wherever they stand, and nobody is found by chance."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from privgate.artifact import traces

SMALL = settings(max_examples=60)


def by_hand(array, X):
    return np.array([bool((array == x).all(axis=1).any()) and bool(x.any()) for x in X])


@SMALL
@given(seed=st.integers(0, 10**6), n=st.integers(2, 40), d=st.integers(2, 6), kept=st.integers(0, 10))
def test_rows_of_numbers_are_found_as_a_hand_finds_them(seed, n, d, kept):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    chosen = rng.choice(n, min(kept, n), replace=False)
    array = rng.permutation(np.vstack([X[chosen], rng.normal(size=(7, d))]))
    sure, perhaps = traces.found(array, traces.table(X))

    np.testing.assert_array_equal(sure, by_hand(array, X))
    assert not perhaps.any()


@SMALL
@given(seed=st.integers(0, 10**6), n=st.integers(20, 60), d=st.integers(1, 3))
def test_coarse_records_are_never_found_for_certain_where_chance_makes_them(seed, n, d):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, size=(n, d))
    every = np.array(np.meshgrid(*[[0, 1]] * d)).reshape(d, -1).T
    sure, _ = traces.found(np.vstack([every, every]), traces.table(X))

    assert not sure.any()


@SMALL
@given(
    seed=st.integers(0, 10**6),
    way=st.sampled_from(["rows", "columns", "flat", "flat columns", "beside", "deep", "sparse", "single"]),
)
def test_the_way_in_which_rows_are_laid_out_hides_none(seed, way):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 4)) * (rng.random((30, 4)) < 0.8)
    some = X[5:12]
    made = {
        "rows": some,
        "columns": some.T.copy(),
        "flat": some.ravel(),
        "flat columns": some.T.ravel(),
        "beside": np.column_stack([rng.normal(size=7), some, rng.normal(size=7)]),
        "deep": some.reshape(7, 2, 2),
        "sparse": sp.csr_matrix(some),
        "single": some.astype(np.float32),
    }[way]
    sure, _ = traces.found(made, traces.table(X))
    assert sure[5:12][some.any(axis=1)].all()
    assert not np.delete(sure, np.arange(5, 12)).any()
    np.testing.assert_array_equal(traces.found(made, traces.table(sp.csr_matrix(X)))[0], sure)


def test_missing_numbers_and_signed_zeros_are_the_same_number():
    X = np.array([[1.0, np.nan, 0.0], [2.0, 5.0, -0.0], [3.0, 1.0, 1.0]])
    sure, _ = traces.found(np.array([[1.0, np.nan, -0.0], [2.0, 5.0, 0.0]]), traces.table(X))

    assert sure.tolist() == [True, True, False]


def test_rows_of_zeros_are_nobodys():
    X = np.eye(20)[:, :10]
    sure, perhaps = traces.found(np.zeros((50, 10)), traces.table(X))

    assert not sure.any()
    assert not perhaps.any()


def test_sequences_are_columns_in_order_and_constants_are_not():
    y = np.arange(10.0) + 0.5

    assert traces.sequence(y.copy(), [y])
    assert traces.sequence(y.astype(np.float32), [y])
    assert traces.sequence(y.reshape(-1, 1), [y])
    assert not traces.sequence(y[::-1].copy(), [y])
    assert not traces.sequence(np.ones(10), [np.ones(10)])
