"""The metric ``sensitivity``: how far leaving one person out moves a regressor's answer; and DTP where noise is added.

Sensitivity is not DTP: an answer that is one number changes it or not, and no probability of any answer is bounded.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.cases import Kept
from privgate.controls.seeds import JUDGED_AT
from privgate.controls.served import describe_release
from privgate.errors import MeasurementError
from privgate.evidence import BehindInfluence, Kind, Measurement, Request, SensitivityFigures
from privgate.influence import changes as residuals
from privgate.influence import extent, left_out, per_unit
from privgate.influence.other_seeds import confirm_at_other_seeds, describe_seeds
from privgate.run import beside
from privgate.run.run import Run
from privgate.subject.release import Gaussian, Laplace, Noise
from privgate.theorems import least_squares, two_models
from privgate.theorems.certificate import Certified, Units

NOT_DTP = "sensitivity is not DTP: it bounds no probability and no attack by itself"
#: residual deviation over that of normal residuals of the same median size, above which a few records make it
FEW_LARGE = 3.0
#: as a share of the targets' deviation, a residual deviation below which the model answers with its targets
NOTHING_LEFT = 1e-9


def changes(run: Run) -> residuals.Changes:
    """Return the changes of each chosen unit's own answers."""
    return residuals.of(run.subject, run.once(left_out.retrained))


def lower(run: Run) -> Float:
    """Return the lower limits of ``changes`` that stand where training draws, deviations of the targets, shape (U,)."""
    own, found, noise = run.once(changes).low, run.once(left_out.retrained), run.subject.release.noise
    if not run.at_seed or isinstance(noise, Gaussian):
        return own
    scale = run.once(unit) if noise is None else noise.scale / run.subject.scale[1]
    return confirm_at_other_seeds(run, found.units, own / scale, scale) * scale


def over_all(run: Run) -> Certified:
    """Return the largest change over the declared domain."""
    subject, made = run.subject, run.once(left_out.retrained)
    limited = least_squares.over_domain(subject, made.units)
    if not limited.why or two_models.refusal(subject):
        return limited
    limited = two_models.LINEAR.certify(Units(subject, made.units, made, fleet=run.fleet))
    return replace(limited, cases=tuple(replace(k, theorem=two_models.LINEAR.name) for k in limited.cases))


def cases(run: Run) -> tuple[Kept, ...]:
    """Return the cases that limits over the declared domain rest on."""
    return run.once(over_all).cases


def unit(run: Run) -> float:
    """Return the residual deviation at records left out, in deviations of the targets.

    Where the verdict was decided before everybody was left out, what it cannot exceed: figures are lower limits then.

    Raises
    ------
    MeasurementError
        There is none.
    """
    if left_out.count_missing(run) and (most := residuals.widest(run.subject)) is not None:
        return most
    found, typical = run.once(changes).outside, run.once(changes).typical
    if not found > NOTHING_LEFT:
        raise MeasurementError(
            "the model predicts every record that it was trained without: its residuals have no deviation to measure "
            "changes in; look for a copy of the target among the features"
        )
    if not found <= FEW_LARGE * typical:
        raise MeasurementError(
            f"a few residuals are so large that the residual deviation ({found * run.subject.scale[1]:.3g}) is "
            f"{found / typical:.3g} times what most records are missed by; on that scale nobody else's influence would "
            "show; predict a logarithm or clip the targets"
            if typical > 0
            else "most records are predicted exactly without them, so that the residual deviation speaks of a few only"
        )
    return found


def table(run: Run) -> Mapping[str, NDArray[Any]]:
    """Return the per-person table of a regressor, one row a measured unit; columns of ``evidence.SENSITIVITY_COLUMNS``.

    With Laplace noise on the answers also the columns of a classifier's table, in nats: change over scale.
    """
    found, own, over = run.once(left_out.retrained), run.once(changes), run.once(over_all)
    scale = run.once(unit)
    noised = {} if run.subject.release.noise is None else run.once(nats)
    unknown = np.inf if left_out.count_missing(run) else 0.0  # the unit may be smaller
    return {
        "unit": run.subject.data.unit_names[found.units],
        "moved": own.value / scale,
        "moved_low": run.once(lower) / scale,
        "moved_high": own.high / scale + unknown,
        "moved_upper": np.maximum(own.high, over.upper) / scale + unknown,
        "noise_floor": own.noise / scale,
        "seeds": np.full(len(found.units), len(found.seeds), dtype=np.int64),
        "engine": found.engine.astype(str),
        "status": np.array([str(s) for s in found.status]),
        **noised,
    }


def nats(run: Run) -> Mapping[str, Float]:
    """Return PDTP and DTP of each unit under the declared noise, nats.

    Laplace noise of scale b: ``max over answers of |ln density - ln density'| = |change| / b``. Normal noise: the ratio
    of two shifted normal densities is unbounded over unbounded answers, so that any change at all is infinite.
    """
    noise, own, over = run.subject.release.noise, run.once(changes), run.once(over_all)
    deviation = run.subject.scale[1]
    if isinstance(noise, Laplace):
        each = deviation / noise.scale
        value, low, high, upper = (each * v for v in (own.value, run.once(lower), own.high, over.upper))
    else:
        value, low, high, upper = (np.where(v > 0, np.inf, 0.0) for v in (own.value, own.low, own.high, over.upper))
    return {
        "pdtp": value,
        "pdtp_low": low,
        "pdtp_high": high,
        "dtp_lower": low,
        "dtp_upper": np.maximum(upper, high),
        "error": np.zeros(len(value)),
    }


def measure(run: Run, request: Request) -> Measurement:
    """Return the aggregate over units of how far each moves answers, in residual deviations.

    Raises
    ------
    MeasurementError
        The model has no residuals to measure in, or an aggregate is unknown.
    """
    records = run.once(table)
    low, high = records["moved_low"], records["moved_high"]
    value = records["moved"]
    everywhere = request.option("over", "own") == "domain"
    over = run.once(over_all)
    if everywhere:
        high = records["moved_upper"]
        if not over.why:  # attained at a question, but for what rounding takes there
            seen = over.lower / run.once(unit)
            value, low = np.maximum(value, seen), np.maximum(low, seen)
    return _measured(run, request, value, low, high, over.why if everywhere else "", proven=everywhere)


def noised(run: Run, request: Request, *, everywhere: bool) -> Measurement:
    """Return the change of one noisy answer in nats, at each unit's own records or over the whole declared domain."""
    records, over = run.once(table), run.once(over_all)
    low, value, high = (records[c] for c in ("pdtp_low", "pdtp", "dtp_upper" if everywhere else "pdtp_high"))
    why = over.why if everywhere else ""
    return _measured(run, request, value, low, high, why, proven=everywhere, noised=True)


def _measured(  # noqa: PLR0917  one number with its interval
    run: Run, request: Request, value: Float, low: Float, high: Float, why: str, *, proven: bool, noised: bool = False
) -> Measurement:
    records = run.once(table)
    if not len(value):
        raise MeasurementError("nobody was measured; raise --max-retrains or the budget")
    run.once(per_unit.contradicted)
    found = left_out.summarize(run, request, *left_out.pad_missing(left_out.count_missing(run), value, low, high))
    share = request.option("aggregate", "max") == "share_above"
    seeds = len(run.once(left_out.retrained).seeds)
    kind: Kind = "bound" if proven or found.low != found.high else "exact"
    # over seeds and over a sample of people: the errors add up
    doubt = [0.05] * run.averaged + [1 - c for c in [found.confidence] if c is not None]
    if doubt:
        kind = "point" if run.averaged and seeds == 1 else "confidence"
    return Measurement(
        request,
        found.value,
        found.low,
        found.high,
        unit="fraction" if share else ("nats" if noised else "residual deviations"),
        kind=kind,
        confidence=round(1 - sum(doubt), 12) if doubt else None,
        n=len(value),
        population=run.n_units,
        where=str(records["unit"][found.where]) if found.where >= 0 else "",
        assumptions=tuple(_assumptions(run, proven=proven, seeds=seeds, noised=noised)),
        behind=BehindInfluence(
            claim=extent.describe_end(run) or found.claim,
            over_limit={str(t): int((low > t).sum()) for t in run.thresholds},
            **({"paired_seeds": seeds} if run.averaged else {}),
            **describe_seeds(run),
            **({} if found.beyond is None else {"beyond": found.beyond}),
            **extent.describe_missing(run),
            **({"why_no_certificate": (why,)} if why else {}),
        ),
    )


def _assumptions(run: Run, *, proven: bool, seeds: int, noised: bool) -> list[str]:
    said = ["left out means: the same seed for what randomness there is, the record absent everywhere"]
    if run.averaged:
        said.append(f"averaged over {seeds} runs with and without, not this very model")
    if run.at_seed:
        said.append(JUDGED_AT)
    said.append(
        "every question of the declared domain, and the endpoint refuses all others"
        if proven
        else f"direct queries only: each person is asked about {beside.asked_at(run)}"
    )
    if not noised:
        unit_now, all_units = run.once(unit), len(run.once(left_out.retrained).units)
        shown = unit_now * run.subject.scale[1]
        few = f"at most {shown:.4g}, because answers lie among the targets"
        so = few if left_out.count_missing(run) else f"{shown:.4g}, over {all_units} people left out"
        said.append(f"the residual deviation is {so}; {NOT_DTP}")
        return said
    said.append("one answer: whoever asks the same k times, or k related questions, learns up to k times as much")
    said.append(
        f"the endpoint adds {describe_release(run.subject.release)}, fresh each time, and nothing else tells the answer"
    )
    if isinstance(run.subject.release.noise, Gaussian):
        said.append("normal noise bounds no change over unbounded answers; Laplace noise does")
    return said


def told_apart(noise: Noise, shift: float) -> float:
    """Return the largest advantage of telling two answers apart behind noise, a fraction: their total variation.

    Laplace: ``1 - exp(-shift / 2b)``; normal: ``2 Phi(shift / 2s) - 1``, its trade-off curve at its best point. Nobody
    does better on one answer, whatever is known beside it.
    """
    return float(2 * noise.below(np.array(shift / 2)) - 1)


def figures(run: Run) -> SensitivityFigures:
    """Return what the report shows of a regressor's answers beside its rules."""
    own, over, deviation = run.once(changes), run.once(over_all), run.subject.scale[1]
    records = run.once(table)
    size = np.asarray(records["moved"])
    top = float(np.max(records["moved_upper"])) if not over.why else None
    noise = run.subject.release.noise
    return SensitivityFigures(
        residual_inside=own.inside * deviation,
        residual_outside=(run.once(unit) if left_out.count_missing(run) else own.outside) * deviation,
        median=float(np.median(size)),
        most=float(size.max()),
        p99=float(np.quantile(size, 0.99, method="inverted_cdf")),
        over_domain=top,
        why_no_domain=over.why,
        noise="" if noise is None else describe_release(run.subject.release),
        noise_advantage=None if noise is None or run.averaged else told_apart(noise, float(own.high.max()) * deviation),
    )
