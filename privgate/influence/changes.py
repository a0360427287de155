"""What models with and without a person say differently about that person, with limits."""

import numpy as np
from numpy.typing import NDArray

from privgate.families.retrained import Retrained, Status
from privgate.influence import on_edges
from privgate.statistics import leakage, paired
from privgate.subject import released
from privgate.subject.release import Release

Float = NDArray[np.float64]
Index = NDArray[np.int64]


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
    lost = without_model(found)
    live = ~lost[rows]
    change = np.zeros(found.log_with.shape)
    change[:, live] = leakage.label_changes(found.log_with[:, live], found.log_without[:, live])
    tested = max(people, n_units)
    estimate = limited(change, tested)
    apart = paired.spread_change(*(np.where(live[None, :, None], v, 0.0) for v in (found.log_with, found.log_without)))
    noise = paired.noise_floor(np.where(live[None, :, None], found.log_with, 0.0))

    def worst(per_row: Float) -> Float:
        out = np.zeros(n_units)
        np.maximum.at(out, rows, per_row)
        return out

    error = 2 * np.nan_to_num(found.error, nan=np.inf)
    screened = np.array([s == Status.SCREENED for s in found.status], dtype=bool)
    columns = {
        "pdtp": worst(estimate.value),
        "pdtp_low": np.where(screened, 0.0, np.maximum(worst(estimate.low) - error, 0.0)),
        "pdtp_high": np.where(screened, np.inf, worst(estimate.high + apart) + error),
        "noise_floor": worst(noise),
    }
    if len(found.seeds) == 1:  # further seeds are trained, and what was asked of a model is what it releases
        vague = np.zeros(found.log_with.shape[1])
        vague[live] = released.without_digits(found.log_with[0, live], found.log_without[0, live])
        columns["pdtp_high"] = np.maximum(columns["pdtp_high"], worst(vague))
    if not release.exact:
        low, nominal, high = np.zeros((3, *found.log_with.shape[:2]))
        shown = on_edges.bounds(found, release, live)
        low[:, live], high[:, live] = shown.low, shown.high
        exactly = released.changes(found.log_with[:, live], found.log_without[:, live], release)
        nominal[:, live] = np.clip(exactly, shown.low, shown.high)
        seen = limited(nominal[:, :, None], tested).value
        # a mean of sizes holds training's noise, too: beyond one seed it shows no more than what is infinite
        least = low[0] if len(low) == 1 else np.where(np.isinf(low).any(axis=0), np.inf, 0.0)
        most = limited(high[:, :, None], tested).high
        for name, figure in (("pdtp", seen), ("pdtp_low", least), ("pdtp_high", most)):
            columns[name] = np.maximum(columns[name], worst(figure))
    return columns


def limited(change: Float, n_units: int) -> paired.MeanChange:
    """Return mean changes over seeds with their limits; half of the error for each of two looks, early and late."""
    return paired.mean_changes(change, n_tests=2 * n_units)


def without_model(found: Retrained) -> NDArray[np.bool_]:
    """Return which units have no model without them, shape (U,): their change has no limit."""
    return np.array([s in (Status.FAILED, Status.UNDEFINED) for s in found.status], dtype=bool)
