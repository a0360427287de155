"""Nobody of a random pipeline, ensemble, release or regressor is above a limit, by training again without them."""

import pytest
from random_subjects import judged


def held(people, seed, fleet, capsys):
    told, above = judged(people, seed, fleet)
    with capsys.disabled():
        print("", *(f"{kind} {what}: {n}" for (kind, what), n in sorted(told.items())), sep="\n")
    assert not above
    assert sum(n for (_, what), n in told.items() if what == "bounded") > people / 3


@pytest.mark.slow
def test_nobody_of_a_few_random_subjects_is_above_a_limit(fleet, capsys):
    held(120, 3, fleet, capsys)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_of_five_thousand_is_above_a_limit(seed, fleet, capsys):
    held(5_000, seed, fleet, capsys)
