"""Which cases of a law the default run asks."""

import itertools

from tests.sampling import chosen

PAIRS = [(("engine", a), ("kind", b)) for a, b in itertools.product(range(7), range(3))]


def test_every_value_of_every_parameter_is_shown():
    asked = chosen(PAIRS)

    assert len(asked) == 7
    assert {v for k in asked for v in PAIRS[k]} == {v for case in PAIRS for v in case}


def test_a_number_takes_cases_from_the_whole_list():
    assert chosen([(("a", k),) for k in range(10)], 3) == {0, 3, 6}
    assert chosen([(("a", 0),)], 3) == {0}
