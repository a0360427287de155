"""What leaving one person out does to a regressor's answer, in units of its residual deviation. Sensitivity is not DTP.

The unit is the root mean square of the residuals at records left out: what an answer misses a stranger's target by, and
so the noise that anybody who looks for a person has to see through. Where training depends on its seed, changes are
means over paired seeds, with Student's limits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.retrained import Retrained, Status
from privgate.statistics import paired
from privgate.subject.subject import Subject

Float = NDArray[np.float64]


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
    if subject.task != "regression" or not any(design.estimator_of(subject, name) is not None for name in _AMONG):
        return None
    y = subject.data.y.astype(np.float64)
    return float(np.sqrt(np.mean(np.maximum(y - y.min(), y.max() - y) ** 2)) / subject.scale[1])


def of(subject: Subject, found: Retrained) -> Changes:
    """Return the changes of a subject's answers when each unit is left out."""
    rows, n_units = found.row_unit, len(found.units)
    lost = np.isin(found.status, (Status.FAILED, Status.UNDEFINED))
    live = ~lost[rows]
    change = np.where(live[None, :, None], found.log_with - np.nan_to_num(found.log_without), 0.0)
    estimate = paired.mean_changes(change, n_tests=2 * n_units)
    apart = paired.spread_change(*(np.where(live[None, :, None], v, 0.0) for v in (found.log_with, found.log_without)))
    noise = paired.noise_floor(np.where(live[None, :, None], found.log_with, 0.0))
    error = 2 * np.nan_to_num(found.error, nan=np.inf)

    def worst(per_row: Float) -> Float:
        out = np.zeros(n_units)
        np.maximum.at(out, rows, per_row)
        return np.where(lost, np.inf, out)

    mean, deviation = subject.scale
    truth = ((subject.data.y[found.row_query].astype(np.float64) - mean) / deviation)[None, live]
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
