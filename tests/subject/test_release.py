"""Released answers: laws over every form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privgate import Release
from privgate.subject.release import measure_changes

FORMS = [Release(), Release("label"), Release(floor=0.01).resolved(range(4))]
LOGITS = arrays(np.float64, (2, 6, 4), elements=st.floats(-8, 8))


def log_softmax(z):
    return z - np.logaddexp.reduce(z, axis=-1, keepdims=True)


@pytest.mark.parametrize("release", FORMS, ids=lambda r: f"{r.form}-{bool(r.floor)}")
@given(z=LOGITS)
def test_changes_are_never_negative_the_same_both_ways_and_none_of_equal_models(release, z):
    p, q = log_softmax(z)
    there, back = measure_changes(p, q, release), measure_changes(q, p, release)
    assert (there >= 0).all()
    np.testing.assert_array_equal(there, back)
    assert (measure_changes(p, p, release) == 0).all()


@pytest.mark.parametrize(
    ("p", "q", "release", "change", "exact"),
    [
        ([0.6, 0.4], [0.51, 0.49], Release("label"), 0.0, 0.203),
        ([0.6, 0.4], [0.49, 0.51], Release("label"), np.inf, 0.243),
    ],
)
def test_a_coarser_answer_may_tell_less_or_more_than_an_exact_one(p, q, release, change, exact):
    assert measure_changes(np.log(p), np.log(q), release) == pytest.approx(change)
    assert measure_changes(np.log(p), np.log(q), Release()) == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("gone", [{"form": "rounded", "step": 0.1}, {"form": "probabilities", "temperature": 2.0}])
def test_a_form_that_went_is_named_where_it_is_read_back(gone):
    with pytest.raises(ValueError, match="rounded, binned or listed"):
        Release.from_payload(gone)
