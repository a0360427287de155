"""A recipe gets exactly the rows that ``np.delete`` would give it, in the same order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.training.fit import Fit, select

N, P = 12, 15
X = np.arange(P * 3.0).reshape(P, 3)
Y = np.array([f"label {i % 4}" for i in range(P)])
CLASSES = np.unique(Y)
QUERY = np.array([0])


@given(
    st.lists(st.lists(st.integers(0, N - 1), max_size=4, unique=True), min_size=1, max_size=12),
    st.booleans(),
)
def test_any_sequence_of_rows_left_out_equals_delete(sequence, fortran):
    pool = np.asfortranarray(X) if fortran else X

    for left_out in sequence:
        got_X, got_y = select(pool, Y, N, CLASSES, Fit(0, QUERY, left_out=np.array(left_out, dtype=np.int64)))
        np.testing.assert_array_equal(got_X, np.delete(X[:N], left_out, axis=0))
        np.testing.assert_array_equal(got_y, np.delete(Y[:N], left_out))


def test_members_come_in_the_order_given_and_from_candidates_too():
    got_X, got_y = select(X, Y, N, CLASSES, Fit(0, QUERY, members=np.array([13, 2, 7])))

    np.testing.assert_array_equal(got_X, X[[13, 2, 7]])
    np.testing.assert_array_equal(got_y, Y[[13, 2, 7]])


def test_labels_are_replaced_where_asked():
    _, got = select(X, Y, N, CLASSES, Fit(0, QUERY, left_out=np.array([0]), relabel=((3, 0), (5, 2))))

    expected = Y[:N].copy()
    expected[[3, 5]] = ["label 0", "label 2"]
    np.testing.assert_array_equal(got, expected[1:])


def test_training_that_writes_into_its_input_spoils_nothing():
    for t in (3, 4, 2, 11, 0):
        got_X, got_y = select(X, Y, N, CLASSES, Fit(0, QUERY, left_out=np.array([t])))
        np.testing.assert_array_equal(got_X, np.delete(X[:N], t, axis=0))
        got_X[:] = -1
        got_y[:] = ""


def test_a_row_that_is_no_training_record_cannot_be_left_out():
    with pytest.raises(IndexError, match="12 is out of bounds"):
        select(X, Y, N, CLASSES, Fit(0, QUERY, left_out=np.array([N])))
