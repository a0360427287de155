"""Who is left out by the controls: labels take turns, so that the features of each label are exchanged twice."""

from collections import Counter

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate.run import changed
from privgate.run.recipe_controls import depends_on_data
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject


@pytest.mark.parametrize("share", [0.5, 0.2, 0.05])
@pytest.mark.parametrize("seed", range(20))
def test_features_of_both_labels_are_exchanged_twice_whoever_is_drawn(seed, share):
    """Drawn without regard to labels, one in five draws left a label with one exchange, which was not judged."""
    rng = np.random.default_rng(seed)
    y = (np.arange(160) < 160 * share).astype(int)
    subject = Subject.local(Recipe(GaussianNB(), seed=seed), TrainingData(rng.normal(size=(160, 3)), y))
    probes = changed.one_out(subject, subject.generator("depends_on_data"))

    exchanged = Counter(p.fit.relabel[0][1] for p in probes if p.fit.members is not None)
    assert set(exchanged) == {0, 1}
    assert min(exchanged.values()) >= 2


THREE = np.random.default_rng(5).choice(3, 160, p=[0.5, 0.35, 0.15])


def frozen(X, y, *, seed):
    """A class that is known from elsewhere: its records count, and what they hold does not."""
    elsewhere = np.random.default_rng(11).normal(2.0, 1.0, (40, X.shape[1]))
    return GaussianNB().fit(np.vstack([X[y != 2], elsewhere]), np.append(y[y != 2], np.full(40, 2)))


@pytest.mark.parametrize("labels", [3, 10])
def test_features_of_every_label_are_exchanged_by_donors_of_two_others(labels):
    rng = np.random.default_rng(labels)
    y = np.concatenate([np.repeat(np.arange(labels), changed.JUDGED), rng.choice(2, 200)])
    subject = Subject.local(Recipe(GaussianNB(), seed=1), TrainingData(rng.normal(size=(len(y), 3)), y))
    probes = [p for p in changed.one_out(subject, subject.generator("depends_on_data")) if p.fit.members is not None]

    donors = {c: {p.against.key for p in probes if p.fit.relabel[0][1] == c} for c in range(labels)}
    assert min(len(keys) for keys in donors.values()) >= changed.EXCHANGES
    assert len({p.against.key for p in probes}) <= changed.PEOPLE


@pytest.mark.parametrize("seed", range(3))
def test_a_recipe_that_ignores_the_features_of_a_rare_label_is_caught(fleet, seed):
    """Exchanged were the largest label's features and the second's only: the third one's never."""
    X = np.random.default_rng(6).normal(size=(160, 4)) + THREE[:, None]
    honest = depends_on_data(Subject.local(Recipe(GaussianNB(), seed=seed), TrainingData(X, THREE)), fleet)
    found = depends_on_data(Subject.local(Recipe(frozen, seed=seed), TrainingData(X, THREE)), fleet)

    assert honest.outcome == "passed", honest
    assert found.outcome == "inconclusive", found
