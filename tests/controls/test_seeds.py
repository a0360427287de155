"""Seeds are chosen from what another seed does, not from what a recipe says of itself."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB

from privgate.controls import seeds as controls
from privgate.run.refit import leave_out, train_on_all
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.theorems.closed_form import RefitRequest

N = 40
RNG = np.random.default_rng(1)
DATA = TrainingData(RNG.normal(size=(N, 3)), np.arange(N) % 2, one_record_each=True)


def test_training_without_randomness_needs_one_seed(fleet):
    chosen, control = controls.choose_seeds(Subject.local(Recipe(GaussianNB(), seed=5), DATA), fleet)

    assert (chosen, control.dependent, control.moved_by) == ((5,), False, 0.0)


def test_training_with_randomness_is_judged_at_the_recipes_own_seed(fleet):
    subject = Subject.local(Recipe(RandomForestClassifier(5), seed=5), DATA)
    chosen, control = controls.choose_seeds(subject, fleet)

    assert (control.dependent, chosen, control.coins) == (True, (5,), "seed")
    assert controls.choose_seeds(subject, fleet, count=3)[0] == (5,)
    assert "this code at this seed" in control.note


def test_pairs_share_their_seed_and_the_runs_without_seed_differ(fleet):
    forest = Subject.local(Recipe(RandomForestClassifier(5), seed=5), DATA)
    seeds = (5, 6, 7)
    found = leave_out(RefitRequest(forest, np.arange(4), seeds, fleet))

    for s, seed in enumerate(seeds):
        model = RandomForestClassifier(5, random_state=seed).fit(DATA.X, DATA.y)
        np.testing.assert_array_equal(np.exp(found.log_with[s]), model.predict_proba(DATA.X[:4]))
        model = RandomForestClassifier(5, random_state=seed).fit(DATA.X[1:], DATA.y[1:])
        np.testing.assert_array_equal(np.exp(found.log_without[s, :1]), model.predict_proba(DATA.X[:1]))

    open_ended = Subject.local(Recipe(RandomForestClassifier(5)), DATA)
    runs = train_on_all(
        open_ended, (None, None), fleet
    )  # about everybody: of four people, one pair of forests in 25 says the same
    assert (runs[0] != runs[1]).any()


def odd_only(X, y, *, seed):
    """A seed that matters for an odd number of records only: never on all of an even number."""
    return GaussianNB(priors=[0.4, 0.6] if len(X) % 2 and seed % 2 else None).fit(X, y)


@pytest.mark.parametrize("count", [N, N - 1])
def test_a_seed_that_matters_for_odd_numbers_of_records_only_is_seen(fleet, count):
    data = TrainingData(DATA.X[:count], DATA.y[:count], one_record_each=True)
    # of two other seeds, one for each number of records, one is odd where the recipe's is even
    seen = [
        controls.choose_seeds(Subject.local(Recipe(odd_only, seed=s), data), fleet)[1].dependent
        for s in range(4, 24, 2)
    ]

    assert any(seen)
