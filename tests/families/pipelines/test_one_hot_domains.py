"""Domains with one-hot blocks: bounds against every query there is, and nothing attained that is none."""

import itertools

import numpy as np
import pytest

from privgate import Domain
from privgate.engines.count_questions import change
from privgate.families.certificate import accepted_arrays
from privgate.families.over_all_queries import accepted_range
from privgate.families.over_all_queries.accepted_range import Reach
from privgate.kernel import Case
from privgate.kernel.accepted import Accepted
from privgate.kernel.softmax_release import over_questions

BOX = Domain(box=((-1.0, 2.0), *[(0.0, 1.0)] * 5, (0.0, 0.5)), blocks=((1, 2, 3), (4, 5)))


def vertices():
    ends = itertools.product((-1.0, 2.0), (0.0, 0.5), range(4), range(3))
    rows = np.zeros((48, 7))
    for row, (first, last, a, b) in zip(rows, ends, strict=True):
        row[0], row[6] = first, last
        if a:
            row[a] = 1.0
        if b:
            row[3 + b] = 1.0
    return rows


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("K", [2, 3])
def test_bounds_hold_at_every_query_and_are_no_wider_than_the_box_s(seed, K):
    rng = np.random.default_rng(seed)
    reach = Reach.of(BOX, 7)
    size = rng.choice([0.1, 1.0, 4.0])
    with_ = rng.normal(size=(1, K)) * size, rng.normal(size=(1, K, 7)) * size
    without = tuple(v + rng.normal(size=(5, *v.shape[1:])) * 0.3 for v in with_)
    upper = over(with_, without, BOX)
    assert (upper <= over(with_, without, Domain(box=BOX.box)) + 1e-12).all()
    told = accepted_range.telling(with_, without, reach)
    assert reach.inside(told).all()

    corners = vertices()
    inner = np.repeat(corners, 9, axis=0)
    inner[:, 0], inner[:, 6] = -1 + 3 * rng.random(len(inner)), 0.5 * rng.random(len(inner))
    for k in range(5):

        def at(x, k=k):
            return change(with_[0][0] + x @ with_[1][0].T, without[0][k] + x @ without[1][k].T)

        assert max(at(corners).max(), at(inner).max()) <= upper[k] + 1e-12
        assert at(told[k : k + 1])[0] <= at(corners).max() + 1e-12


def over(with_, without, domain):
    """Return the kernel's limits of how far released probabilities of two softmax models differ over a domain."""
    moves = np.concatenate([without[1] - with_[1], (without[0] - with_[0])[:, :, None]], axis=2)
    case = Case("logistic", "any", {}, accepted_arrays(Reach.of(domain, 7), 7))
    free = (0.0, np.zeros(len(moves)))
    made = np.column_stack([with_[1][0], with_[0][0]])
    return over_questions(Accepted.of(case, 7), made, moves, errors=free, rounded=free, limit=0.0)


def test_what_a_domain_of_blocks_says_of_vectors():
    reach, corners = Reach.of(BOX, 7), vertices()
    assert reach.inside(corners).all()
    assert not reach.inside(np.array([[0.0, 1, 1, 0, 0, 0, 0], [0.0, 0, 0, 0, 2, 0, 0]])).any()
    w = np.random.default_rng(0).normal(size=(50, 7))
    np.testing.assert_allclose(reach.maximum(w), (corners @ w.T).max(axis=0))
    best = reach.best(w)
    assert reach.inside(best).all()
    np.testing.assert_allclose((best * w).sum(axis=1), reach.maximum(w))
    assert reach.inside(reach.best(np.ones((1, 7)))).all()  # columns that tie
    one, two = reach.longest(7)
    assert np.abs(corners).sum(axis=1).max() == pytest.approx(one)
    assert np.linalg.norm(corners, axis=1).max() == pytest.approx(two)
    assert Domain.from_payload(BOX.payload()) == BOX
    assert "blocks" not in Domain(box=((0.0, 1.0),)).payload()


@pytest.mark.parametrize("blocks", [((0, 1),), ((1, 1),), ((1, 2), (2, 3)), ((9,),)])
def test_blocks_are_sides_from_0_to_1_each_once(blocks):
    with pytest.raises(ValueError, match="block"):
        Domain(box=BOX.box, blocks=blocks)
