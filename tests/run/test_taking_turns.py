"""Who is left out by the controls: labels take turns, so that the features of each label are exchanged twice."""

from collections import Counter

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate.run import changed
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
