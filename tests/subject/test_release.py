"""Released answers: the two traps of section 11.5, and laws over every form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privgate import Release
from privgate.statistics import leakage
from privgate.subject.release import measure_changes, released

FORMS = [
    Release(),
    Release("rounded", step=0.01),
    Release("binned", step=0.01),
    Release("top_k", k=2),
    Release("label"),
    Release(temperature=2.0),
]
LOGITS = arrays(np.float64, (2, 6, 4), elements=st.floats(-8, 8))


def log_softmax(z):
    return z - np.logaddexp.reduce(z, axis=-1, keepdims=True)


@pytest.mark.parametrize("release", FORMS, ids=lambda r: f"{r.form}-{r.temperature}")
@given(z=LOGITS)
def test_changes_are_never_negative_the_same_both_ways_and_none_of_equal_models(release, z):
    p, q = log_softmax(z)
    there, back = measure_changes(p, q, release), measure_changes(q, p, release)
    assert (there >= 0).all()
    np.testing.assert_array_equal(there, back)
    assert (measure_changes(p, p, release) == 0).all()


@given(z=LOGITS)
def test_rounded_values_are_multiples_within_half_a_step(z):
    p = log_softmax(z[0])
    out = np.exp(released(p, Release("rounded", step=0.05)))
    assert np.abs(out - np.exp(p)).max() <= 0.025 + 1e-9
    np.testing.assert_allclose(out / 0.05, np.round(out / 0.05), atol=1e-9)


@given(z=LOGITS)
def test_binned_values_are_centres_of_the_bin_that_holds_the_probability(z):
    p = np.exp(log_softmax(z[0]))
    out = np.exp(released(np.log(p), Release("binned", step=0.01)))
    assert (np.abs(out - p) <= 0.005 + 1e-9).all()
    assert out.min() >= 0.005 - 1e-12
    assert out.max() <= 0.995 + 1e-12


@given(z=LOGITS, temperature=st.floats(0.25, 8))
def test_temperature_divides_the_change_of_log_odds_exactly(z, temperature):
    """Correction (11): ODTP is multiplied by 1 / temperature; DTP is not."""
    p, q = log_softmax(z)
    hot = [released(v, Release(temperature=temperature)) for v in (p, q)]
    heated, plain = (np.ptp(leakage.label_changes(*pair), axis=-1) for pair in (hot, (p, q)))
    np.testing.assert_allclose(heated, plain / temperature, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("p", "q", "release", "change", "exact"),
    [
        ([0.00999, 0.99001], [0.01001, 0.98999], Release("binned"), np.log(3), 0.002),  # more than probabilities tell
        ([1e-6, 1 - 1e-6], [0.0099, 0.9901], Release("binned"), 0.0, 9.2),  # and less
        ([0.5, 0.3, 0.2], [0.5, 0.2, 0.3], Release("top_k", k=2), np.inf, 0.405),
        ([0.5, 0.3, 0.2], [0.5, 0.2, 0.3], Release("top_k", k=3), np.log(1.5), 0.405),
        ([0.004, 0.996], [0.006, 0.994], Release("rounded"), np.inf, 0.405),
        ([0.6, 0.4], [0.51, 0.49], Release("label"), 0.0, 0.203),
        ([0.6, 0.4], [0.49, 0.51], Release("label"), np.inf, 0.243),
    ],
)
def test_a_coarser_answer_may_tell_less_or_more_than_an_exact_one(p, q, release, change, exact):
    assert measure_changes(np.log(p), np.log(q), release) == pytest.approx(change)
    assert measure_changes(np.log(p), np.log(q), Release()) == pytest.approx(exact, abs=1e-3)
