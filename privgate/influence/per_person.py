"""What models with and without a person say differently about that person, with limits."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.controls.seeds import PAIRED, draw_others, plan_other
from privgate.errors import MeasurementError
from privgate.influence import riskiest
from privgate.kernel.scores import largest
from privgate.run import near_questions
from privgate.run.run import Run
from privgate.statistics import leakage
from privgate.subject.release import Release, bound_changes, measure_changes, without_digits
from privgate.subject.subject import Subject
from privgate.theorems.closed_form import REFIT, Retrained

#: the deviation of normal residuals, over the median of their sizes
TO_DEVIATION = 1.4826
#: residual deviation over that of normal residuals of the same median size, above which a few records make it
FEW_LARGE = 3.0
#: as a share of the targets' deviation, a residual deviation below which the model answers with its targets
NOTHING_LEFT = 1e-9
#: of the residual deviation without a fifth of the people; of one person less it may be larger by chance, 1.1-fold
TO_SPARE = 1.25


def list_origins(refits: Retrained) -> dict[str, NDArray[Any]]:
    """Return the columns that say how each person's row was come by, shape (U,)."""
    return {
        "seeds": np.full(len(refits.units), len(refits.seeds), dtype=np.int64),
        "engine": refits.engine.astype(str),
        "status": np.array([str(s) for s in refits.status]),
    }


def measure_influence(refits: Retrained, release: Release, *, people: int = 0) -> dict[str, Float]:
    """Return PDTP of each person with its limits and noise floor, float64 arrays of shape (U,), nats.

    ``people`` might have been measured, U at least: limits over seeds are corrected for all of them. Over several seeds
    each label's change is averaged, PDTP is the largest mean, and its upper limit counts a changed spread as well. A
    single seed of deterministic training is exact up to twice ``error``: both models may be off. Where something else
    than exact probabilities is released, the larger of both changes counts: rounding can tell more than it hides.
    """
    live, tested = ~refits.lost[refits.row_unit], max(people, len(refits.units))
    change = np.zeros(refits.log_with.shape)
    change[:, live] = leakage.label_changes(refits.log_with[:, live], refits.log_without[:, live])
    value, low, high, noise = _average(refits, change, tested)
    columns = {"pdtp": value, "pdtp_low": low, "pdtp_high": high, "noise_floor": noise}
    if len(refits.seeds) == 1:  # further seeds are trained, and what was asked of a model is what it releases
        vague = np.zeros(refits.log_with.shape[1])
        vague[live] = without_digits(refits.log_with[0, live], refits.log_without[0, live])
        columns["pdtp_high"] = np.maximum(high, _take_worst(refits, vague))
    if release.exact:
        return columns
    low, nominal, high = np.zeros((3, *refits.log_with.shape[:2]))
    both = refits.log_with[:, live], refits.log_without[:, live]
    low[:, live], high[:, live] = bound_changes(*both, release)  # no closed form answers about such releases
    nominal[:, live] = np.clip(measure_changes(*both, release), low[:, live], high[:, live])
    seen, most = (leakage.mean_changes(v[:, :, None], n_tests=2 * tested) for v in (nominal, high))
    # a mean of sizes holds training's noise, too: beyond one seed it shows no more than what is infinite
    least = low[0] if len(low) == 1 else np.where(np.isinf(low).any(axis=0), np.inf, 0.0)
    for name, per_row in (("pdtp", seen.value), ("pdtp_low", least), ("pdtp_high", most.high)):
        worst = _take_worst(refits, per_row)
        columns[name] = worst if release.alone else np.maximum(columns[name], worst)
    return columns


def _average(refits: Retrained, change: Float, tested: int) -> tuple[Float, Float, Float, Float]:
    """Return value, lower and upper limit, and seed's noise of each person, shape (U,): the largest of their rows."""
    live = ~refits.lost[refits.row_unit]
    estimate = leakage.mean_changes(change, n_tests=2 * tested)
    with_, without = (np.where(live[None, :, None], v, 0.0) for v in (refits.log_with, refits.log_without))
    rows = (estimate.value, estimate.low, estimate.high + leakage.spread_change(with_, without))
    value, low, high, noise = (_take_worst(refits, v) for v in (*rows, leakage.noise_floor(with_)))
    error = 2 * np.nan_to_num(refits.error, nan=np.inf)
    return value, np.maximum(low - error, 0.0), high + error, noise


def _take_worst(refits: Retrained, per_row: Float) -> Float:
    return largest(refits.row_unit, len(refits.units), per_row)


class Moves(NamedTuple):
    """How far leaving a person out moves a regressor's answers about them, deviations of the targets; shapes (U,).

    The unit of the report is the root mean square at records left out: what a stranger's target is missed by.
    """

    #: shape (U,): largest over the person's records; infinite where no model without the person exists. Over paired
    #: seeds: means with Student's limits
    value: Float
    low: Float
    high: Float
    #: shape (U,): what another seed alone changes
    noise: Float
    #: root mean squares of the residuals with and without the record, over the records measured; NaN without any
    inside: float
    outside: float
    #: what ``outside`` would be for normal residuals of the same median size
    typical: float


def measure_moves(subject: Subject, refits: Retrained) -> Moves:
    """Return how far leaving each person out moves a regressor's answers."""
    live = ~refits.lost[refits.row_unit]
    change = np.where(live[None, :, None], refits.log_with - np.nan_to_num(refits.log_without), 0.0)
    value, low, high, noise = _average(refits, change, len(refits.units))
    value, high = (np.where(refits.lost, np.inf, v) for v in (value, high))
    low = np.where(refits.lost, np.inf, low)
    mean, deviation = subject.scale
    live &= refits.row_query < subject.data.n  # other questions have no target
    truth = ((subject.data.y[refits.row_query[live]].astype(np.float64) - mean) / deviation)[None]
    residuals = [truth - answers[:, live, 0] for answers in (refits.log_with, refits.log_without)]
    inside, outside = (float(np.sqrt(np.mean(r**2))) if live.any() else np.nan for r in residuals)
    typical = float(TO_DEVIATION * np.median(np.abs(residuals[1]))) if live.any() else np.nan
    return Moves(value, low, high, np.where(refits.lost, 0.0, noise), inside, outside, typical)


def measure_unit(run: Run, moves: Moves, *, missing: bool) -> float:
    """Return the residual deviation at records left out, in deviations of the targets.

    Where the verdict is decided before everybody is left out (``missing``), models without a fifth of the people say
    it, and a quarter is added, so that changes count as smaller. ``MeasurementError``: there is none.
    """
    outside, typical, deviation = moves.outside, moves.typical, run.subject.scale[1]
    if missing:
        truth = (run.subject.data.y.astype(np.float64) - run.subject.scale[0]) / deviation
        missed = truth - run.compute(riskiest.answer_without_folds)[1][:, 0]
        # NaN where one could not be trained
        outside, typical = float(np.sqrt(np.mean(missed**2))), float(TO_DEVIATION * np.median(np.abs(missed)))
    if not outside > NOTHING_LEFT:
        raise MeasurementError(
            "the model predicts every record that it was trained without: its residuals have no deviation to measure "
            "changes in; look for a copy of the target among the features"
        )
    if not outside <= FEW_LARGE * typical:
        raise MeasurementError(
            f"a few residuals are so large that the residual deviation ({outside * deviation:.3g}) is "
            f"{outside / typical:.3g} times what most records are missed by; on that scale nobody else's influence "
            "would show; predict a logarithm or clip the targets"
            if typical > 0
            else "most records are predicted exactly without them, so that the residual deviation speaks of a few only"
        )
    return outside * TO_SPARE if missing else outside


# Where training draws, a change above a limit at the released seed may be the seed's own noise: other seeds tell.

#: people above a limit who are refitted at other seeds
MOST_PAIRED = 30


def known_limits(run: Run) -> dict[int, float]:
    """Return the lower limits of people that one run knows, in the answers' unit; filled as they are refitted."""
    del run
    return {}


def confirm_at_other_seeds(run: Run, people: Index, low: Float, scale: float = 1.0) -> Float:
    """Return the lower limits of people that stand where training depends on its seed, shape (U,); larger is worse.

    Who is above no limit keeps the value. Those above one, riskiest first and at most ``MOST_PAIRED``, are refitted at
    five other seeds: their limit is Student's of the mean change, corrected for all; 0 where nothing shows. ``scale``
    is the unit of ``low`` in the answers' own. Section 9.4 of docs/mathematics.md.
    """
    if not run.at_seed or not run.people:
        return low
    least, known = min(limit for limit, _ in run.people), run.compute(known_limits)
    worst = [int(k) for k in np.argsort(-low, kind="stable") if low[k] > least]
    if min(share for _, share in run.people) * len(people) < MOST_PAIRED:  # else so few people break no rule
        missing = [p for p in (int(people[k]) for k in worst[:MOST_PAIRED]) if p not in known]
        missing = missing[: max(0, MOST_PAIRED - len(known))]
        if missing:
            known.update(zip(missing, _pair(run, np.array(missing, dtype=np.int64)).tolist(), strict=True))
    out = np.array(low, dtype=np.float64)
    out[worst] = [known.get(int(people[k]), 0.0) / scale for k in worst]
    return out


def _pair(run: Run, people: Index) -> Float:
    """Return the lower limit of each person's change over other seeds, shape (U,), in the answers' own unit."""
    near, members = run.compute(near_questions.ask_near_people), run.subject.data.units
    row_unit, row_query = near.list_rows(people)
    by = "seed" if run.seed_control is None else run.seed_control.coins
    drawn = draw_others(run.subject, PAIRED, fleet=run.fleet)
    rows = [row_query[row_unit == u] for u in range(len(people))]
    fits = [plan_other(near.extended, s, by=by, rows=row_query) for s in drawn]
    fits += [
        plan_other(near.extended, s, by=by, rows=rows[u], left_out=members[int(person)])
        for s in drawn
        for u, person in enumerate(people)
    ]
    answers = run.fleet.fits(near.extended, fits, label="refitting at other seeds")
    whole, less = answers[: len(drawn)], np.array(answers[len(drawn) :], dtype=object).reshape(len(drawn), len(people))
    if any(a.problem for a in whole):
        return np.zeros(len(people))  # other seeds show nothing
    # a person without whom no seed can train has no model without them; one who fails at some seeds shows nothing
    lost = np.array([[bool(a.problem) for a in row] for row in less])
    with_ = np.stack([a.log_p for a in whole])
    without = with_.copy()
    for s, u in zip(*np.nonzero(~lost), strict=True):
        without[s, row_unit == u] = less[s, u].log_p
    status = {int(u): "no model without this person" for u in np.flatnonzero(lost.all(axis=0))}
    paired = Retrained.from_columns(
        REFIT, people, tuple(drawn), (row_unit, row_query), with_, without, undefined=status
    )
    if run.subject.task == "regression":
        lower = measure_moves(run.subject, paired).low
    else:
        lower = measure_influence(paired, run.subject.release, people=MOST_PAIRED)["pdtp_low"]
    return np.where(lost.all(axis=0), np.inf, np.where(lost.any(axis=0), 0.0, lower))


def describe_seeds(run: Run) -> dict[str, bool]:
    """Return for evidence that a number is about the released seed, and what other seeds say of people above limits."""
    if not run.at_seed:
        return {}
    lower, least = run.compute(known_limits), min((limit for limit, _ in run.people), default=np.inf)
    return {"own_coins": True, "followed": bool(lower), "shown": any(v > least for v in lower.values())}
