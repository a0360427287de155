"""What models with and without a person say differently about that person, with limits."""

from dataclasses import dataclass

import numpy as np

from privgate.arrays import Float
from privgate.statistics import leakage
from privgate.subject import released
from privgate.subject.release import Release
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses
from privgate.theorems.retrained import Retrained


def per_unit(found: Retrained, release: Release, *, people: int = 0) -> dict[str, Float]:
    """Return PDTP of each unit with its limits and noise floor, float64 arrays of shape (U,), nats.

    Parameters
    ----------
    found : Retrained
    release : Release
    people : int
        Units that might have been measured: limits over seeds are corrected for all of them, whoever was; at least U.

    Notes
    -----
    Several seeds: each label's change of log-probability is averaged over paired seeds, PDTP is the largest mean; its
    upper limit counts a changed spread over seeds as well.
    A single seed of deterministic training is exact up to twice ``error``: both models may be off. Where something else
    than exact probabilities is released, the larger of both changes counts: rounding can tell more than it hides.
    """
    rows, n_units = found.row_unit, len(found.units)
    live = ~found.lost[rows]
    change = np.zeros(found.log_with.shape)
    change[:, live] = leakage.label_changes(found.log_with[:, live], found.log_without[:, live])
    tested = max(people, n_units)
    estimate = limited(change, tested)
    apart = leakage.spread_change(*(np.where(live[None, :, None], v, 0.0) for v in (found.log_with, found.log_without)))
    noise = leakage.noise_floor(np.where(live[None, :, None], found.log_with, 0.0))

    def worst(per_row: Float) -> Float:
        out = np.zeros(n_units)
        np.maximum.at(out, rows, per_row)
        return out

    error = 2 * np.nan_to_num(found.error, nan=np.inf)
    columns = {
        "pdtp": worst(estimate.value),
        "pdtp_low": np.maximum(worst(estimate.low) - error, 0.0),
        "pdtp_high": worst(estimate.high + apart) + error,
        "noise_floor": worst(noise),
    }
    if len(found.seeds) == 1:  # further seeds are trained, and what was asked of a model is what it releases
        vague = np.zeros(found.log_with.shape[1])
        vague[live] = released.without_digits(found.log_with[0, live], found.log_without[0, live])
        columns["pdtp_high"] = np.maximum(columns["pdtp_high"], worst(vague))
    if not release.exact:
        low, nominal, high = np.zeros((3, *found.log_with.shape[:2]))
        both = found.log_with[:, live], found.log_without[:, live]
        low[:, live], high[:, live] = released.bounds(*both, release)  # no closed form answers about such releases
        exactly = released.changes(*both, release)
        nominal[:, live] = np.clip(exactly, low[:, live], high[:, live])
        seen = limited(nominal[:, :, None], tested).value
        # a mean of sizes holds training's noise, too: beyond one seed it shows no more than what is infinite
        least = low[0] if len(low) == 1 else np.where(np.isinf(low).any(axis=0), np.inf, 0.0)
        most = limited(high[:, :, None], tested).high
        for name, figure in (("pdtp", seen), ("pdtp_low", least), ("pdtp_high", most)):
            columns[name] = worst(figure) if release.alone else np.maximum(columns[name], worst(figure))
    return columns


def limited(change: Float, n_units: int) -> leakage.MeanChange:
    """Return mean changes over seeds with their limits, corrected for all people."""
    return leakage.mean_changes(change, n_tests=2 * n_units)


# What leaving one person out does to a regressor's answer, in units of its residual deviation. Sensitivity is not DTP.
#
# The unit is the root mean square of the residuals at records left out: what an answer misses a stranger's target by,
# and so the noise that anybody who looks for a person has to see through. Where training depends on its seed, changes
# are means over paired seeds, with Student's limits.

#: the deviation of normal residuals, over the median of their sizes
TO_DEVIATION = 1.4826


@dataclass(frozen=True, eq=False)
class Changes:
    """Changes of each unit's own answers, in deviations of the targets; shapes (U,).

    Parameters
    ----------
    value, low, high : float64 arrays of shape (U,)
        Largest over the unit's records; infinite where no model without the unit exists.
    noise : float64 array of shape (U,)
        What another seed alone changes.
    inside, outside : float
        Root mean squares of the residuals with and without the record, over the records measured; NaN without any.
    typical : float
        What ``outside`` would be for normal residuals of the same median size.
    """

    value: Float
    low: Float
    high: Float
    noise: Float
    inside: float
    outside: float
    typical: float


#: scikit-learn's learners whose answers are means or medians of targets, and so lie among them
_AMONG = ("DecisionTreeRegressor", "ExtraTreeRegressor", "RandomForestRegressor", "ExtraTreesRegressor",
          "KNeighborsRegressor")  # fmt: skip


def widest(subject: Subject) -> float | None:
    """Return what ``outside`` cannot exceed over all records, in deviations of the targets; None where that is unknown.

    An answer that lies among the targets misses none of them by more than the farther end.
    """
    if subject.task != "regression" or not any(hypotheses.estimator_of(subject, name) is not None for name in _AMONG):
        return None
    y = subject.data.y.astype(np.float64)
    return float(np.sqrt(np.mean(np.maximum(y - y.min(), y.max() - y) ** 2)) / subject.scale[1])


def of(subject: Subject, found: Retrained) -> Changes:
    """Return the changes of a subject's answers when each unit is left out."""
    rows, n_units = found.row_unit, len(found.units)
    lost = found.lost
    live = ~lost[rows]
    change = np.where(live[None, :, None], found.log_with - np.nan_to_num(found.log_without), 0.0)
    estimate = leakage.mean_changes(change, n_tests=2 * n_units)
    apart = leakage.spread_change(*(np.where(live[None, :, None], v, 0.0) for v in (found.log_with, found.log_without)))
    noise = leakage.noise_floor(np.where(live[None, :, None], found.log_with, 0.0))
    error = 2 * np.nan_to_num(found.error, nan=np.inf)

    def worst(per_row: Float) -> Float:
        out = np.zeros(n_units)
        np.maximum.at(out, rows, per_row)
        return np.where(lost, np.inf, out)

    mean, deviation = subject.scale
    live &= found.row_query < subject.data.n  # beside a record there is no target
    truth = ((subject.data.y[found.row_query[live]].astype(np.float64) - mean) / deviation)[None]
    measured = found.log_with[:, live, 0], found.log_without[:, live, 0]
    inside, outside = (float(np.sqrt(np.mean((truth - m) ** 2))) if live.any() else np.nan for m in measured)
    return Changes(
        worst(estimate.value),
        np.maximum(worst(estimate.low) - error, 0.0),
        worst(estimate.high + apart) + error,
        np.where(lost, 0.0, worst(noise)),
        inside,
        outside,
        float(TO_DEVIATION * np.median(np.abs(truth - measured[1]))) if live.any() else np.nan,
    )
