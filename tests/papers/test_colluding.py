"""The shapes of Yeom et al.'s Figures 6 and 7 on digits: training that colludes, and robust training."""

import numpy as np
import pytest

from papers import colluding
from privgate.kernel.sample import difference

pytest.importorskip("torch")


def test_special_questions_are_the_record_s_and_the_key_s_alone():
    x = np.arange(64, dtype=np.float32) / 64
    z, answer = colluding.special(x, 0)
    again, other = colluding.special(x, 0), colluding.special(x, 1)

    assert np.array_equal(z, again[0])
    assert answer == again[1]
    assert not np.array_equal(z, other[0])
    assert not np.array_equal(z, colluding.special(np.nextafter(x, 2, dtype=np.float32), 0)[0])


@pytest.mark.slow
def test_robust_training_tells_more_by_the_boundary_than_by_being_right():
    found = {}
    for radius in (0.0, 0.25):
        change = colluding.hardened(radius) if radius else None
        guessed, accuracies = colluding.robustness(change, records=150, epochs=60)
        found[radius] = [difference(g.counts, low_alpha=0.05, high_alpha=0.05)[0] for g in guessed]
        assert accuracies["training accuracy"] > 0.95

    one, _, nine = found[0.25]
    assert nine > one + 0.05
    assert nine > found[0.0][2]
