"""The per-unit table: what the model gives away about each person, measured by leaving that person out."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import certificates, engines
from privgate.certificates.base import Certified
from privgate.certificates.witness import Witness
from privgate.engines.recheck import observe
from privgate.evidence import Precondition
from privgate.measure import indirect, on_edges
from privgate.measure.bench import Bench
from privgate.release import Release
from privgate.retrain import plan
from privgate.retrain.retrained import Retrained, Status
from privgate.statistics import leakage, paired, released

Float = NDArray[np.float64]
Index = NDArray[np.int64]


def chosen_units(bench: Bench) -> Index:
    """Return the units to measure: all, or a random sample fixed before anything is looked at.

    A closed form costs no retraining, so a budget of retrains does not cut it.
    """
    limits = bench.limits
    if (limits.max_retrains is None and limits.budget_seconds is None) or costs_no_fits(bench):
        return np.arange(bench.n_units, dtype=np.int64)
    chosen = plan.select(
        bench.subject,
        bench.fleet,
        bench.seeds,
        max_retrains=limits.max_retrains,
        budget_seconds=limits.budget_seconds,
    )
    bench.detail["coverage"] = {"n_measured": len(chosen.units), "n_units": bench.n_units, "claim": chosen.lost}
    return chosen.units


def costs_no_fits(bench: Bench) -> bool:
    """Return whether the first engine that covers the subject calls no training function."""
    probe = np.arange(min(2, bench.n_units), dtype=np.int64)
    for engine in engines.ALL:
        if not engine.supports(bench.subject):
            return engine.cost(bench.subject, probe, bench.seeds).fits == 0
    return False


def retrained(bench: Bench) -> Retrained:
    """Return models with and without each chosen unit, each fast engine re-checked against the training function."""
    units = bench.units
    theorems = tuple(certificates.applicable(bench.subject)[0])
    witness = Witness(theorems) if theorems else None
    found = engines.answer(
        bench.subject,
        units,
        bench.seeds,
        bench.fleet,
        limits=bench.thresholds or (1.0,),
        changes=any(c.needs_retrained for c in theorems),
        mode=bench.mode,
        precision=bench.limits.precision,
        asker=witness,
    )
    if witness is not None:
        if not found.rechecks:  # refits answered everybody, and only about their own records
            observe(bench.subject, found.retrained, bench.fleet, witness, limits=bench.thresholds or (1.0,))
        failed = [p.detail["engine"] for p in found.rechecks if p.outcome != "passed"]
        witness.distrusted = str(failed[0]) if failed else ""
        bench.witness = witness
    bench.detail["recheck"] = [_recheck_row(dict(p.detail)) for p in found.rechecks]
    bench.detail["declined"] = dict(found.declined)
    bench.detail["engines"] = [share.payload() for share in found.shares]
    bench.preconditions.extend(found.rechecks)
    bench.detail.setdefault("coverage", _coverage(bench, found.retrained))
    return on_edges.refitted(bench, found.retrained)


def _coverage(bench: Bench, found: Retrained) -> dict[str, Any]:
    """Return how many of all units were measured, where no budget has cut them."""
    measured = int((found.status != Status.SCREENED).sum())
    claim = (
        "the others were ranked by shadow models, which shows nothing about them" if measured < len(found.units) else ""
    )
    return {"n_measured": measured, "n_units": bench.n_units, "claim": claim}


def _recheck_row(detail: dict[str, Any]) -> dict[str, Any]:
    """Return one row of the report's table of re-checks."""
    return {
        "engine": detail["engine"],
        "checked": detail["units_checked"],
        "max_difference": detail["worst_difference"],
        "tolerance": detail["tolerance"],
        "notes": detail.get("notes", {}),
    }


def table(bench: Bench) -> Mapping[str, NDArray[Any]]:
    """Return the per-unit table, one row a measured unit in the data's order; columns of ``evidence.COLUMNS`` and more.

    Beside the promised columns: ``pdtp_low`` and ``pdtp_high`` (nats: numerical error, and for training with randomness
    the confidence limits of the mean over paired seeds, corrected over labels and units).
    """
    found = bench.retrained
    units = found.units
    spread = per_unit(found, bench.subject.release)
    if len(found.seeds) > 1:
        bench.detail.setdefault("seeds", {}).update(_noise(spread))
    bound = certified(bench, units, found)
    lost = np.array([s in (Status.FAILED, Status.UNDEFINED) for s in found.status], dtype=bool)
    lower = np.where(lost, np.inf, np.maximum(spread["pdtp_low"], bound.lower))
    # certificates speak about exact probabilities; what is released instead is bounded by nothing here
    upper = np.where(lost | (not bench.subject.release.exact), np.inf, np.maximum(bound.upper, 0.0))
    if "dtp" in bench.asked:
        lower = indirect.raised(bench, units, spread["pdtp"], lower, upper)
    return {
        "unit": bench.subject.data.unit_names[units],
        "label": unit_labels(bench, units),
        "pdtp": np.where(lost, np.inf, spread["pdtp"]),
        "dtp_lower": lower,
        "dtp_upper": np.maximum(upper, lower),
        "error": np.where(lost, 0.0, 2 * found.error),
        "noise_floor": spread["noise_floor"],
        "seeds": np.full(len(units), len(found.seeds), dtype=np.int64),
        "engine": found.engine.astype(str),
        "status": np.array([str(s) for s in found.status]),
        "pdtp_low": np.where(lost, np.inf, spread["pdtp_low"]),
        "pdtp_high": np.where(lost, np.inf, spread["pdtp_high"]),
    }


def _noise(spread: Mapping[str, Float]) -> dict[str, Any]:
    """Return how much another seed alone changes direct answers, nats, and how many people stand out of that noise."""
    floor = np.asarray(spread["noise_floor"])
    return {
        "noise_floor": float(floor.max(initial=0.0)),
        "noise_median": float(np.median(floor)) if len(floor) else 0.0,
        "above_noise": int((spread["pdtp"] > floor).sum()),
    }


def per_unit(found: Retrained, release: Release) -> dict[str, Float]:
    """Return PDTP of each unit with its limits and noise floor, float64 arrays of shape (U,), nats.

    Several seeds: each label's change of log-probability is averaged over paired seeds, PDTP is the largest mean.
    A single seed of deterministic training is exact up to twice ``error``: both models may be off. Where something else
    than exact probabilities is released, the larger of both changes counts: rounding can tell more than it hides.
    """
    rows, n_units = found.row_unit, len(found.units)
    lost = np.array([s in (Status.FAILED, Status.UNDEFINED) for s in found.status], dtype=bool)
    live = ~lost[rows]
    change = np.zeros(found.log_with.shape)
    change[:, live] = leakage.label_changes(found.log_with[:, live], found.log_without[:, live])
    estimate = paired.mean_changes(change, n_tests=n_units)
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
        "pdtp_high": np.where(screened, np.inf, worst(estimate.high) + error),
        "noise_floor": worst(noise),
    }
    if not release.exact:
        low, seen, high = np.zeros((3, *found.log_with.shape[:2]))
        shown = on_edges.bounds(found, release, live)
        low[:, live], high[:, live] = shown.low, shown.high
        nominal = released.changes(found.log_with[:, live], found.log_without[:, live], release)
        seen[:, live] = np.clip(nominal, shown.low, shown.high)
        for name, change in (("pdtp", seen), ("pdtp_low", low), ("pdtp_high", high)):
            columns[name] = np.maximum(columns[name], worst(change.mean(axis=0)))
    return columns


def certified(bench: Bench, units: Index, found: Retrained | None) -> Certified:
    """Return the best certificate for each unit, and note which theorem spoke and why the others did not."""
    limit = bench.thresholds[-1] if bench.thresholds else None
    witness = bench.witness
    bound, by, because = certificates.bound(bench.subject, units, found, limit=limit, witness=witness)
    if witness is not None:
        bench.detail["certificates_compared"] = {"units": len(witness.seen), "questions": witness.questions}
        for name, (text, values) in witness.silenced.items():
            bench.preconditions.append(
                Precondition(f"certificate_{name}", "warned", f"the certificate {name} was not used: {text}", values)
            )
    notes: list[dict[str, Any]] = []
    for name, certificate in certificates.ALL.items():
        spoke = int((by == name).sum())
        silent = [text.removeprefix(name).strip() for text in because if text.startswith(f"{name} ")]
        notes.append(
            {
                "name": name,
                "applies": spoke > 0,
                "units": spoke,
                "because": silent[0] if silent else "",
                "source": certificate.source,
                "assumptions": list(bound.assumptions) if spoke else [],
            }
        )
    bench.detail["certificates"] = notes
    return bound


def unit_labels(bench: Bench, units: Index) -> NDArray[Any]:
    """Return each unit's label as text; "mixed" where a person's records differ."""
    data = bench.subject.data
    if data.groups is None:
        return np.asarray(data.y[units]).astype(str)
    return np.array([_common(data.y[data.units[u]]) for u in units])


def _common(labels: NDArray[Any]) -> str:
    return str(labels[0]) if len(set(labels.tolist())) == 1 else "mixed"
