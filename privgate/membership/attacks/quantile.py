"""Quantile regression attack: how unusual the confidence is for a non-member who looks like this."""

import numpy as np
from numpy.random import Generator

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
    planted_shadows, trains, rows = 2, True, 2 * MOST_ROWS
    per_record = True

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        from sklearn.ensemble import HistGradientBoostingRegressor

        log_p, inside = usable_shadows(signals, least=self.min_shadows)
        step = resolution(log_p, signals.labels)
        figure, known = own_logit(log_p, signals.labels, step=step), describe(signals)
        picked = rng.permutation(np.flatnonzero(~inside.ravel()))[:MOST_ROWS]
        rows, values, ends = known[picked % inside.shape[1]], figure.ravel()[picked], []
        for q in QUANTILES:
            trees = HistGradientBoostingRegressor(
                loss="quantile", quantile=q, max_iter=STEPS, learning_rate=RATE, early_stopping=False,
                random_state=int(rng.integers(2**31)),
            )  # fmt: skip
            ends.append(trees.fit(rows, values).predict(known))
        middle, spread = ends[0], ends[1] - ends[0]
        # crossing or equal quantiles: one scale for all rather than a division by nothing
        usual = max(float(np.median(spread)), 1e-3)
        spread = np.where(spread > 0.1 * usual, spread, usual)
        return lambda target: (own_logit(target, signals.labels, step=step) - middle) / spread
