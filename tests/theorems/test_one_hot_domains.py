"""Domains with one-hot blocks, against every query there is."""

import itertools

import numpy as np
import pytest

from privgate import Domain
from privgate.theorems.hypotheses import attain, read_domain

BOX = Domain(box=((-1.0, 2.0), *[(0.0, 1.0)] * 5, (0.0, 0.5)), blocks=((1, 2, 3), (4, 5)))


def test_what_a_domain_of_blocks_says_of_vectors():
    three, two = (np.eye(k + 1, k, -1).tolist() for k in (3, 2))  # one of them, or none
    corners = np.array([[a, *b, *c, d] for a, b, c, d in itertools.product((-1.0, 2.0), three, two, (0.0, 0.5))])
    reach, w = read_domain(BOX, 7), np.random.default_rng(0).normal(size=(50, 7))
    assert reach.inside(corners).all()
    assert not reach.inside(np.array([[0.0, 1, 1, 0, 0, 0, 0], [0.0, 0, 0, 0, 2, 0, 0]])).any()
    np.testing.assert_allclose(reach.bound_dot(w), (corners @ w.T).max(axis=0))
    best = attain(reach, w)
    assert reach.inside(best).all()
    np.testing.assert_allclose((best * w).sum(axis=1), reach.bound_dot(w))
    assert reach.inside(attain(reach, np.ones((1, 7)))).all()  # columns that tie
    assert Domain.from_payload(BOX.payload()) == BOX
    assert "blocks" not in Domain(box=((0.0, 1.0),)).payload()


@pytest.mark.parametrize("blocks", [((0, 1),), ((1, 1),), ((1, 2), (2, 3)), ((9,),)])
def test_blocks_are_sides_from_0_to_1_each_once(blocks):
    with pytest.raises(ValueError, match="block"):
        Domain(box=BOX.box, blocks=blocks)
