"""Quantile regression attack: how unusual the confidence is for a non-member who looks like this."""

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float, Index
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.membership.attacks.long import describe
from privgate.membership.attacks.observed import own_logit, resolution, usable_shadows

#: rows of (shadow model without the record, record) that the regressions learn from
MOST_ROWS = 8000
#: the two quantiles that place and scale a confidence among non-members
QUANTILES = (0.5, 0.9)
#: few large steps find what three times as many of a third do
STEPS, RATE = 20, 0.3


class Quantile(Attack):
    """Where a record's confidence lies among the confidences expected of non-members with its features.

    The score is the distance from the predicted median of non-members in units of the distance from median to
    0.9-quantile; 1 means a false-positive rate of 10 %.

    Left out: the paper regresses the *target's* confidences on public non-members; ours regresses shadow models'
    confidences on records they were not trained on, so that no non-member is spent on calibration and all remain
    trials. Two quantiles by gradient-boosted trees; at most 8,000 rows; features that are not numeric are not seen.
    """

    name, title = "quantile", "Quantile regression"
    source = "Bertran et al. (2023), Algorithm 1"
    threat_model = "probabilities for the record; knows its features and answers for candidates"
    min_shadows = 1
    planted_shadows, trains, rows, apart = 2, True, 2 * MOST_ROWS, True
    per_record = True

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        step = resolution(log_p, signals.labels)
        figure, known = own_logit(log_p, signals.labels, step=step), describe(signals)
        picked = rng.permutation(np.flatnonzero(~inside.ravel()))[:MOST_ROWS]
        given = known[picked % inside.shape[1]], figure.ravel()[picked], known, rng.integers(2**31, size=len(QUANTILES))
        middle, upper = np.asarray(signals.compute(expect_quantiles, *given))
        spread = upper - middle
        # crossing or equal quantiles: one scale for all rather than a division by nothing
        usual = max(float(np.median(spread)), 1e-3)
        spread = np.where(spread > 0.1 * usual, spread, usual)
        return lambda target: (own_logit(target, signals.labels, step=step) - middle) / spread


def expect_quantiles(rows: Float, values: Float, known: Float, seeds: Index) -> list[list[float]]:
    """Return each of ``QUANTILES`` expected at ``known`` (P, d), by trees that learned ``values`` at ``rows``."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    options = {"loss": "quantile", "max_iter": STEPS, "learning_rate": RATE, "early_stopping": False}
    each = zip(QUANTILES, seeds.tolist(), strict=True)
    trees = (HistGradientBoostingRegressor(quantile=q, random_state=seed, **options) for q, seed in each)
    return [tree.fit(rows, values).predict(known).tolist() for tree in trees]
