"""A run is a value: a step returns what it found, and nothing of it is assigned from outside or inside."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, Subject, TrainingData
from privgate.evidence import Precondition
from privgate.run.run import Noted, Run


def test_what_is_made_once_is_shared_by_a_run_that_knows_more_and_tells_what_it_found():
    data = TrainingData(np.eye(4), [0, 1, 0, 1], one_record_each=True)
    run = Run(Subject.local(Recipe(GaussianNB()), data), None)
    said, calls = Precondition("x", "warned", "a sentence"), []

    def found(known):
        calls.append(known)
        return Noted((said,))

    more = replace(run, seeds=(1, 2))
    assert run.preconditions == ()
    assert more.compute(found) is run.compute(found)
    assert (run.preconditions, more.preconditions, len(calls)) == ((said,), (said,), 1)
    with pytest.raises(FrozenInstanceError):
        run.seeds = ()
