"""What models with and without a person say differently about that person, with limits."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.evidence import EngineShare
from privgate.families import answering as families
from privgate.families import designs, refit
from privgate.families.engine import TOLERANCE, Asked
from privgate.families.retrained import Retrained, Shown, Status
from privgate.run import beside
from privgate.run.run import Run
from privgate.statistics import leakage
from privgate.subject import released
from privgate.subject.release import Release
from privgate.subject.subject import Subject

# Declared releases of people whose answer lies next to an edge: their models are trained, not computed.
#
# Rounding, bins, lists and labels make a whole step of an error far below any limit. A fast engine's answer is
# therefore carried through the release with its error, outward; who touches an edge within it is retrained, whose
# error is 0.

#: why a fast engine's units are handed on after all
WHY = "what is released lies on an edge within the engine's error"

_TOLERANCE = {e.name: e.tolerance for e in families.ALL}


def error(found: Retrained) -> Float:
    """Return by how much each log-probability may be off, shape (U,), nats; infinite where nobody knows.

    A re-check lets a fast engine pass that is off by its tolerance beyond its stated error; only a real model has none.
    """
    seen = np.isin(found.shown, (Shown.DRAWN, Shown.CHOSEN)) & (found.error == 0) & (len(found.seeds) == 1)
    real = (found.engine == refit.ENGINE.name) | seen
    slack = np.array([_TOLERANCE.get(str(name), TOLERANCE) for name in found.engine])
    return np.asarray(np.where(real, 0.0, np.nan_to_num(found.error, nan=np.inf) + slack))


def bounds(found: Retrained, release: Release, live: NDArray[np.bool_]) -> released.Bounds:
    """Return the changes of what is released at the rows where ``live`` (R,) is true, for every seed: shape (S, R')."""
    return released.bounds(
        found.log_with[:, live], found.log_without[:, live], release, error(found)[found.row_unit][live]
    )


def refitted(run: Run, answered: families.Answered) -> families.Answered:
    """Return the same answers with real models for the units whose release hangs on the engine's error.

    With a budget of retrains no more are made than it allows, those with the largest change of exact probabilities
    first; the others keep the worst that their error leaves possible.
    """
    release, found = run.subject.release, answered.retrained
    if release.exact or not len(found.units):
        return answered
    known = ~np.isin(found.status.astype(str), (Status.FAILED, Status.UNDEFINED, Status.SCREENED))
    live = known[found.row_unit]
    shown = bounds(found, release, live)
    touching = np.zeros(len(found.units), dtype=bool)
    np.logical_or.at(touching, found.row_unit[live], shown.touches.any(axis=0))
    some = _affordable(run, found, touching)
    if not some.any():
        return answered
    near, units = run.once(beside.of_people), found.units[some]
    put = Asked(near.asked, units, found.seeds, run.fleet, near.queries(units), engines=(refit.ENGINE,))
    made = families.answer(put)
    return replace(
        answered,
        retrained=Retrained.concatenate([found.select(~some), replace(made.retrained, changes={})]),
        shares=_shares(answered, made.shares, found.engine[some]),
    )


def _affordable(run: Run, found: Retrained, touching: NDArray[np.bool_]) -> NDArray[np.bool_]:
    most = run.limits.max_retrains
    if most is None or touching.sum() * len(found.seeds) <= most:
        return touching
    with np.errstate(invalid="ignore"):
        change = np.abs(np.nan_to_num(found.log_with - found.log_without, nan=0.0)).max(axis=(0, 2))
    largest = np.zeros(len(found.units))
    np.maximum.at(largest, found.row_unit, change)
    order = np.argsort(-np.where(touching, largest, -1.0), kind="stable")[: most // len(found.seeds)]
    some = np.zeros(len(touching), dtype=bool)
    some[order] = touching[order]
    return some


def _shares(
    answered: families.Answered, refits: tuple[EngineShare, ...], engines: NDArray[Any]
) -> tuple[EngineShare, ...]:
    """Return who answered for how many people, those handed on after all counted where they went."""
    found = []
    for share in answered.shares:
        gone = int((engines == share.engine).sum())
        why = {**share.why, WHY: gone}
        found.append(
            EngineShare.of(share.engine, share.asked, (share.answered or 0) - gone, why, share.without_limit)
            if gone
            else share
        )
    for share in refits:
        place = next((k for k, known in enumerate(found) if known.engine == share.engine), None)
        if place is None:
            found.append(share)
            continue
        known = found[place]
        limitless = {
            r: (known.without_limit.get(r) or 0) + (share.without_limit.get(r) or 0)
            for r in {**known.without_limit, **share.without_limit}
        }
        asked, answers = (
            (a or 0) + (b or 0) for a, b in ((known.asked, share.asked), (known.answered, share.answered))
        )
        found[place] = EngineShare.of(known.engine, asked, answers, known.why, limitless)
    return tuple(found)


# What models with and without a person say differently about that person, with limits.


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
    apart = leakage.spread_change(*(np.where(live[None, :, None], v, 0.0) for v in (found.log_with, found.log_without)))
    noise = leakage.noise_floor(np.where(live[None, :, None], found.log_with, 0.0))

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
        shown = bounds(found, release, live)
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


def limited(change: Float, n_units: int) -> leakage.MeanChange:
    """Return mean changes over seeds with their limits; half of the error for each of two looks, early and late."""
    return leakage.mean_changes(change, n_tests=2 * n_units)


def without_model(found: Retrained) -> NDArray[np.bool_]:
    """Return which units have no model without them, shape (U,): their change has no limit."""
    return np.array([s in (Status.FAILED, Status.UNDEFINED) for s in found.status], dtype=bool)


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
    if subject.task != "regression" or not any(designs.estimator_of(subject, name) is not None for name in _AMONG):
        return None
    y = subject.data.y.astype(np.float64)
    return float(np.sqrt(np.mean(np.maximum(y - y.min(), y.max() - y) ** 2)) / subject.scale[1])


def of(subject: Subject, found: Retrained) -> Changes:
    """Return the changes of a subject's answers when each unit is left out."""
    rows, n_units = found.row_unit, len(found.units)
    lost = np.isin(found.status, (Status.FAILED, Status.UNDEFINED))
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
