"""Two different calls never share a name; the same call always has the same one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privgate.training.fit import Fit

rows = st.lists(st.integers(0, 5), max_size=3).map(tuple)
parts = st.tuples(
    st.none() | st.integers(0, 3),
    rows,
    st.booleans(),
    rows,
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=2).map(tuple),
    st.integers(0, 2),
)


def made(seed, queries, by_members, who, relabel, repeat):
    named = {"members" if by_members else "left_out": np.array(who, dtype=np.int64)}
    return Fit(seed, np.array(queries, dtype=np.int64), **named, relabel=relabel, repeat=repeat)


@given(parts, parts)
def test_the_encoding_tells_calls_apart_exactly_when_they_differ(one, other):
    assert (made(*one).encoding == made(*other).encoding) == (one == other)
