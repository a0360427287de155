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
def test_equal_models_release_equal_answers(release, z):
    p = log_softmax(z)
    assert (measure_changes(p, p, release) == 0).all()


@pytest.mark.parametrize("release", FORMS, ids=lambda r: f"{r.form}-{r.temperature}")
@given(z=LOGITS)
def test_changes_are_never_negative_and_the_same_both_ways(release, z):
    p, q = log_softmax(z)
    there, back = measure_changes(p, q, release), measure_changes(q, p, release)
    assert (there >= 0).all()
    np.testing.assert_array_equal(there, back)


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


def test_a_bins_edge_blocks_what_exact_probabilities_would_pass():
    p, q = np.log([0.00999, 0.99001]), np.log([0.01001, 0.98999])
    assert measure_changes(p, q, Release("binned")) == pytest.approx(np.log(3))
    assert measure_changes(p, q, Release()) < 0.01


def test_a_bin_hides_what_exact_probabilities_tell():
    p, q = np.log([1e-6, 1 - 1e-6]), np.log([0.0099, 0.9901])
    assert measure_changes(p, q, Release("binned")) == 0
    assert measure_changes(p, q, Release()) > 9


def test_a_label_that_one_model_alone_lists_is_infinite():
    p, q = np.log([0.5, 0.3, 0.2]), np.log([0.5, 0.2, 0.3])
    assert np.isinf(measure_changes(p, q, Release("top_k", k=2)))
    assert measure_changes(p, q, Release("top_k", k=3)) == pytest.approx(np.log(1.5))


def test_a_rounded_zero_in_one_model_alone_is_infinite():
    assert np.isinf(measure_changes(np.log([0.004, 0.996]), np.log([0.006, 0.994]), Release("rounded")))


def test_label_only_is_nothing_or_infinite():
    p, q = np.log([[0.6, 0.4], [0.6, 0.4]]), np.log([[0.51, 0.49], [0.49, 0.51]])
    np.testing.assert_array_equal(measure_changes(p, q, Release("label")), [0.0, np.inf])
