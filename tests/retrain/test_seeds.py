"""Seeds are chosen from what another seed does, not from what a recipe says of itself."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB

from privgate.data import TrainingData
from privgate.engines.refit import ENGINE
from privgate.recipe import Recipe
from privgate.retrain import seeds
from privgate.retrain.fleet import Fleet
from privgate.subject import Subject

N = 40
RNG = np.random.default_rng(1)
DATA = TrainingData(RNG.normal(size=(N, 3)), np.arange(N) % 2)


@pytest.fixture(scope="module")
def fleet():
    with Fleet(jobs=1, ledger="none") as made:
        yield made


def test_training_without_randomness_needs_one_seed(fleet):
    chosen = seeds.choose(Subject.local(Recipe(GaussianNB(), seed=5), DATA), fleet)

    assert (chosen.seeds, chosen.dependent, chosen.moved_by) == ((5,), False, 0.0)


def test_training_with_randomness_gets_pairs_of_which_the_recipes_own_is_first(fleet):
    subject = Subject.local(Recipe(RandomForestClassifier(5), seed=5), DATA)
    chosen = seeds.choose(subject, fleet)

    assert chosen.dependent
    assert chosen.seeds[0] == 5
    assert len(set(chosen.seeds)) == len(chosen.seeds) == seeds.pairs_needed(N)
    assert chosen.seeds == seeds.choose(subject, fleet).seeds
    assert seeds.choose(subject, fleet, count=3).seeds == chosen.seeds[:3]


def test_a_single_seed_of_a_random_recipe_says_that_it_decides_nothing(fleet):
    chosen = seeds.choose(Subject.local(Recipe(RandomForestClassifier(5), seed=5), DATA), fleet, count=1)

    assert "neither blocks nor approves" in chosen.message


def test_pairs_share_their_seed_and_the_runs_without_seed_differ(fleet):
    forest = Subject.local(Recipe(RandomForestClassifier(5), seed=5), DATA)
    chosen = seeds.choose(forest, fleet, count=3)
    found, _ = ENGINE.leave_out(forest, np.arange(4), chosen.seeds, fleet)

    for s, seed in enumerate(chosen.seeds):
        model = RandomForestClassifier(5, random_state=seed).fit(DATA.X, DATA.y)
        np.testing.assert_array_equal(np.exp(found.log_with[s]), model.predict_proba(DATA.X[:4]))
        model = RandomForestClassifier(5, random_state=seed).fit(DATA.X[1:], DATA.y[1:])
        np.testing.assert_array_equal(np.exp(found.log_without[s, :1]), model.predict_proba(DATA.X[:1]))

    open_ended = Subject.local(Recipe(RandomForestClassifier(5)), DATA)
    runs, _ = ENGINE.leave_out(open_ended, np.arange(4), (None, None), fleet)
    assert (runs.log_with[0] != runs.log_with[1]).any()
