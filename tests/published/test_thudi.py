"""Numbers printed by Thudi et al. (2022), "Bounding Membership Inference", section 6.1, and the reference tables."""

import pytest

from papers import thudi2022
from privgate.claims import bounds
from privgate.claims.bounds import EpsilonDelta, Gaussian


@pytest.mark.parametrize(
    ("epsilon", "ours", "erlingsson", "sablayrolles"), [(1, 0.7311, 0.8161, 0.75), (2, 0.8808, 0.9323, 1.0)]
)
def test_the_comparison_at_prior_one_half(epsilon, ours, erlingsson, sablayrolles):
    assert round(bounds.positive_accuracy(epsilon, 0.5), 4) == ours
    assert round(EpsilonDelta(epsilon).accuracy(0.5), 4) == ours
    assert round(thudi2022.erlingsson(epsilon), 4) == erlingsson
    assert round(thudi2022.sablayrolles(epsilon, 0.5), 4) == sablayrolles


@pytest.mark.parametrize(
    ("prior", "row"),
    # the reference table rounded twice where it says .070, .356, .859
    [(0.01, (0.016, 0.027, 0.069, 0.355)), (0.1, (0.155, 0.232, 0.451, 0.858)), (0.5, (0.622, 0.731, 0.881, 0.982))],
)
def test_the_positive_accuracy_table(prior, row):
    found = [bounds.positive_accuracy(e, prior) for e in (0.5, 1, 2, 4)]
    assert tuple(round(v, 3) for v in found) == row


def test_positive_accuracy_is_not_bounded_for_epsilon_delta():
    found = [EpsilonDelta(1, 1e-3).positive_accuracy(0.5, f) for f in (0.1, 1e-2, 1e-3, 1e-4, 1e-6)]
    assert found == pytest.approx([0.732, 0.738, 0.788, 0.927, 0.999], abs=5e-4)


def test_one_gaussian_step_has_bounded_accuracy_and_unbounded_positive_accuracy():
    # section 6.3: sensitivity 1, noise σ; overall accuracy at most Φ(1/2σ), positive accuracy up to 1
    from scipy.stats import norm

    sigma = 2.0
    curve = Gaussian(1 / sigma)
    assert curve.accuracy(0.5) == pytest.approx(norm.cdf(1 / (2 * sigma)), abs=1e-12)
    tau = -8.0
    fpr = norm.cdf(tau / sigma)
    attained = 0.5 * norm.cdf((tau + 1) / sigma) / (0.5 * norm.cdf((tau + 1) / sigma) + 0.5 * fpr)
    assert curve.positive_accuracy(0.5, fpr) == pytest.approx(attained, abs=1e-9)
    assert curve.positive_accuracy(0.5, norm.cdf(-60 / sigma)) > 0.9999
