"""The per-unit table: what the model gives away about each person, measured by leaving that person out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import families
from privgate.evidence import (
    CertificateNote,
    IndirectQueries,
    Kind,
    Measurement,
    Precondition,
    RecheckRow,
    RegisteredPair,
    SeedNoise,
    UnitCoverage,
)
from privgate.families import bound as bounds
from privgate.families import certificates
from privgate.families.certificate import Certified
from privgate.families.engine import Asked
from privgate.families.pipelines import behind
from privgate.families.recheck import observe
from privgate.families.retrained import Retrained, Status
from privgate.families.witness import Witness
from privgate.influence import aggregate, decided, indirect, modes, on_edges, residuals
from privgate.run.needs import Need
from privgate.run.run import Run
from privgate.statistics import leakage, paired
from privgate.subject import released
from privgate.subject.release import Release
from privgate.training import plan

Float = NDArray[np.float64]
Index = NDArray[np.int64]


def selection(run: Run) -> plan.Selection:
    """Return the units to measure: all, or a random sample fixed before anything is looked at.

    A closed form costs no retraining, so neither a budget of retrains nor a rule's sample cuts it.
    """
    limits = run.limits
    unlimited = limits.max_retrains is None and limits.budget_seconds is None
    if (unlimited and (run.sample is None or run.sample >= run.n_units)) or costs_no_fits(run):
        return plan.Selection(np.arange(run.n_units, dtype=np.int64), run.n_units, "")
    return plan.select(
        run.subject,
        run.fleet,
        run.seeds,
        max_retrains=limits.max_retrains,
        budget_seconds=limits.budget_seconds,
        sample=run.sample,
    )


def chosen_units(run: Run) -> Index:
    """Return the units of ``selection``."""
    return run.once(selection).units


def costs_no_fits(run: Run) -> bool:
    """Return whether the first engine that answers for the subject calls no training function."""
    probe = np.arange(min(2, run.n_units), dtype=np.int64)
    return families.first(run.subject)[0].cost(run.subject, probe, run.seeds).fits == 0


def answered(run: Run) -> families.Answered:
    """Return models with and without each chosen unit, each fast engine re-checked against the training function."""
    theorems = tuple(bounds.applicable(run.subject, attacked=Need.SHADOWS in run.asked)[0])
    witness = Witness(theorems) if theorems else None
    found = _answered(run, witness)
    if worth_more_seeds(run) and not _decided(run, found.retrained):
        run.seeds, run.more_seeds = run.more_seeds, ()
        witness = Witness(theorems) if theorems else None
        found = _answered(run, witness)
    run.decided_by = broken(run, found.retrained) if len(found.left) else ""
    if witness is not None and not run.rehearsed:  # a search asks no trained model whether theorems hold
        if not found.rechecks and not run.decided_by:  # refits answered everybody, and only about their own records
            observe(run.subject, found.retrained, run.fleet, witness, limits=run.thresholds or (1.0,))
        failed = [recheck_row(p).engine for p in found.rechecks if p.outcome != "passed"]
        witness.distrusted = failed[0] if failed else ""
        run.witness = witness
    run.preconditions.extend(found.rechecks)
    return found if run.subject.task == "regression" else on_edges.refitted(run, found)


def retrained(run: Run) -> Retrained:
    """Return the models of ``answered``."""
    return run.once(answered).retrained


def asked(run: Run, units: Index) -> Asked:
    """Return what an engine is asked about some units."""
    theorems = bounds.applicable(run.subject, attacked=Need.SHADOWS in run.asked)[0]
    changes, limits = any(c.needs_retrained for c in theorems), run.limits
    mode = run.once(modes.used)
    return Asked(run.subject, units, run.seeds, run.fleet, changes=changes, mode=mode, precision=limits.precision)


def _answered(run: Run, witness: Witness | None) -> families.Answered:
    return families.answer(
        run.subject,
        run.once(chosen_units),
        run.seeds,
        run.fleet,
        limits=run.thresholds or (1.0,),
        changes=witness is not None and any(c.needs_retrained for c in witness.certificates),
        mode=run.once(modes.used),
        precision=run.limits.precision,
        asker=witness,
        refitting=decided.until(partial(broken, run)) if _may_stop(run) else None,
        rehearsed=run.rehearsed,
    )


def _may_stop(run: Run) -> bool:
    """Return whether work ends with the first broken rule; a regressor's unit of measure takes everybody."""
    return bool(run.breaks) and not run.limits.full and run.subject.task == "classification"


def broken(run: Run, found: Retrained) -> str:
    """Return the name of an enforced rule that these units' models break for certain; empty if they break none.

    Whoever has no model here counts as possibly without influence and possibly without limit. What is judged is what
    the report will say, by the rule itself.
    """
    people = len(run.once(chosen_units))
    if run.subject.task == "regression":
        if run.subject.release.noise is not None or len(found.units) < people:
            return ""  # judged in another unit, or the unit of measure is not known yet
        own = residuals.of(run.subject, found)
        low = own.low / own.outside
    else:
        low = np.where(_without_model(found), np.inf, per_unit(found, run.subject.release, people=people)["pdtp_low"])
    padded = with_left(people - len(found.units), low, low, np.full(len(low), np.inf))
    for request, (name, breaks) in run.breaks.items():
        seen = aggregate.asked(request, *padded, run.n_units)
        kind: Kind = "point" if run.random_training and len(found.seeds) == 1 else "bound"
        if breaks(Measurement(request, seen.value, seen.low, seen.high, kind=kind)):
            return name
    return ""


def left(run: Run) -> Index:
    """Return the chosen units that nobody was trained without, because the verdict was decided before."""
    return run.once(answered).left


def with_left(count: int, value: Float, low: Float, high: Float) -> tuple[Float, Float, Float]:
    """Return the columns with so many units more, about whom nothing is known: between no influence and any."""
    nothing = np.zeros(count)
    return np.append(value, nothing), np.append(low, nothing), np.append(high, nothing + np.inf)


def stopped(run: Run) -> str:
    """Return that people were left out of the work, and what their figures are worth, one sentence; else empty."""
    if not len(missing := run.once(left)):
        return ""
    return (
        f"nobody was trained without {len(missing)} of {len(run.once(chosen_units))} people, because the rule "
        f"{run.decided_by} was broken before; riskiest first, so that figures over all people are lower limits only"
    )


def worth_more_seeds(run: Run) -> bool:
    """Return whether more seeds would tell what a rule asks for, an upper limit, and are within the budget."""
    limits = run.limits
    within = limits.max_retrains is None or len(run.once(chosen_units)) * len(run.more_seeds) <= limits.max_retrains
    asked = Need.UPPER_LIMIT in run.asked  # the upper limit of dtp is a theorem's
    return bool(run.more_seeds) and asked and within and limits.budget_seconds is None and limits.mode != "screen"


def _decided(run: Run, found: Retrained) -> bool:
    """Return whether a rule is surely broken already, so that no further seed can change the verdict."""
    # one seed: an engine saw that training does not depend on it
    return len(found.seeds) == 1 or bool(broken(run, found))


def coverage(run: Run) -> UnitCoverage:
    """Return how many of all units were measured, and what a sample or a ranking says about the others."""
    found = run.once(retrained)
    measured = int((found.status != Status.SCREENED).sum())
    ranked = "the others were ranked by shadow models, which shows nothing about them"
    claims = (stopped(run), run.once(selection).lost, ranked if measured < len(found.units) else "")
    return UnitCoverage(
        n_measured=measured,
        n_units=run.n_units,
        claim="; ".join(c for c in claims if c),
        not_computed=len(run.once(left)),
        decided_by=run.decided_by,
    )


def recheck_row(checked: Precondition) -> RecheckRow:
    """Return what a re-check found, as a row of the report's table."""
    told = checked.detail
    return RecheckRow(
        engine=told["engine"],
        checked=told["units_checked"],
        max_difference=told["worst_difference"],
        tolerance=told["tolerance"],
        notes=told.get("notes", {}),
        estimates=told.get("estimates", ""),
    )


def spread(run: Run) -> Mapping[str, Float]:
    """Return what ``per_unit`` says of the chosen units."""
    return per_unit(run.once(retrained), run.subject.release, people=len(run.once(chosen_units)))


def table(run: Run) -> Mapping[str, NDArray[Any]]:
    """Return the per-unit table, one row a measured unit in the data's order; columns of ``evidence.COLUMNS`` and more.

    Beside the promised columns: ``pdtp_low`` and ``pdtp_high`` (nats: numerical error, and for training with randomness
    the confidence limits of the mean over paired seeds, corrected over labels and units), and ``pdtp_registered``
    (nats: the change under the recipe's own seed, which is the registered model's; nothing is judged by it).
    """
    found, direct = run.once(retrained), run.once(spread)
    lost = _without_model(found)
    lower, upper, _ = run.once(over_all_queries)
    return {
        "unit": run.subject.data.unit_names[found.units],
        "label": unit_labels(run, found.units),
        "pdtp": np.where(lost, np.inf, direct["pdtp"]),
        "dtp_lower": lower,
        "dtp_upper": np.maximum(upper, lower),
        "error": np.where(lost, 0.0, 2 * found.error),
        "noise_floor": direct["noise_floor"],
        "seeds": np.full(len(found.units), len(found.seeds), dtype=np.int64),
        "engine": found.engine.astype(str),
        "status": np.array([str(s) for s in found.status]),
        "pdtp_low": np.where(lost, np.inf, direct["pdtp_low"]),
        "pdtp_high": np.where(lost, np.inf, direct["pdtp_high"]),
        "pdtp_registered": np.where(lost, np.inf, _of_own_seed(run, found)),
    }


def over_all_queries(run: Run) -> tuple[Float, Float, IndirectQueries | None]:
    """Return DTP of each unit at the worst question asked and at most, shape (U,), nats, and the search behind it."""
    found, direct, bound = run.once(retrained), run.once(spread), run.once(certified)
    # a few people who break a rule are no sign of a store
    if not np.isfinite(bound.upper).all() and not run.decided_by and (still := nothing_moves(run, found)):
        run.preconditions.append(still)
    lost = _without_model(found)
    lower = np.where(lost, np.inf, np.maximum(direct["pdtp_low"], bound.lower))
    # certificates speak about exact probabilities; what is released instead is bounded by nothing here
    upper = np.where(lost | (not run.subject.release.exact), np.inf, np.maximum(bound.upper, 0.0))
    searched = None
    if Need.EVERY_QUERY in run.asked and not run.decided_by:
        lower, searched = indirect.raised(run, found.units, direct["pdtp"], lower, upper)
    return lower, upper, searched


def _without_model(found: Retrained) -> NDArray[np.bool_]:
    return np.array([s in (Status.FAILED, Status.UNDEFINED) for s in found.status], dtype=bool)


def nothing_moves(run: Run, found: Retrained) -> Precondition | None:
    """Return the finding that nobody who was left out moved an answer, though training depends on its data; else None.

    A store that answers for the very records it knows passes every control that changes labels or features: this is
    what it leaves behind. "Nothing" is less than a thousandth of what relabelling one record moves, or exactly nothing.
    """
    without = np.array([s in (Status.FAILED, Status.UNDEFINED, Status.SCREENED) for s in found.status], dtype=bool)
    live = ~without[found.row_unit]
    if not live.any():
        return None  # nobody has a model without them: without limit, which is no false zero
    moved = float(np.abs(np.exp(found.log_with[:, live]) - np.exp(found.log_without[:, live])).max())
    single = run.single_median or 0.0
    if moved > 1e-3 * single:
        return None
    people = int((~without).sum())
    text = (
        f"leaving out moved the answer about none of {people} people, though relabelling single records moves answers: "
        "training without a person may have been answered from a store, and nothing is shown"
    )
    return Precondition("leave_one_out_moves", "inconclusive", text, {"moved": moved, "single_median": single})


def _of_own_seed(run: Run, found: Retrained) -> Float:
    """Return the change under the recipe's own seed alone, shape (U,), nats; NaN where nobody knows it."""
    unpaired = [e.name for e in families.ALL if not e.paired]
    if np.isin(found.engine, unpaired).any() or found.seeds[0] is None or found.seeds[0] != run.subject.recipe.seed:
        return np.full(len(found.units), np.nan)
    one = replace(
        found, seeds=found.seeds[:1], log_with=found.log_with[:1], log_without=found.log_without[:1], changes={}
    )
    return per_unit(one, run.subject.release)["pdtp"]


def registered(run: Run) -> RegisteredPair | None:
    """Return what the registered model's own pair of trainings shows; None where no other seed was used."""
    found = run.once(retrained)
    if len(found.seeds) == 1 or np.isnan(own := _of_own_seed(run, found)).any():
        return None
    limit = run.thresholds[0] if run.thresholds else 1.0
    return RegisteredPair(worst=float(own.max(initial=0.0)), units_above=int((own > limit).sum()))


def noise(run: Run) -> SeedNoise | None:
    """Return how much another seed alone changes direct answers, and how many people stand out of that noise."""
    if len(run.once(retrained).seeds) == 1:
        return None
    direct = run.once(spread)
    floor = np.asarray(direct["noise_floor"])
    return SeedNoise(
        floor=float(floor.max(initial=0.0)),
        median=float(np.median(floor)) if len(floor) else 0.0,
        units_above=int((direct["pdtp"] > floor).sum()),
    )


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
    lost = _without_model(found)
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


def certified(run: Run) -> Certified:
    """Return the best certificate for each chosen unit, and say which theorems a real model contradicted."""
    bound, _, _ = run.once(_bounded)
    if run.witness is not None:
        for name, (text, values) in run.witness.silenced.items():
            run.preconditions.append(
                Precondition(f"certificate_{name}", "warned", f"the certificate {name} was not used: {text}", values)
            )
    return bound


def _bounded(run: Run) -> tuple[Certified, NDArray[Any], Sequence[str]]:
    limit = run.thresholds[-1] if run.thresholds else None
    found = run.once(retrained)
    attacked = Need.SHADOWS in run.asked
    return bounds.bound(
        run.subject, found.units, found, limit=limit, witness=run.witness, attacked=attacked, fleet=run.fleet
    )


def certificate_notes(run: Run) -> tuple[CertificateNote, ...]:
    """Return which theorem spoke, and why the others did not."""
    bound, by, because = run.once(_bounded)
    notes = []
    known = behind.certificates(run.subject, certificates.ALL)
    for name, certificate in certificates.ALL.items():
        spoke = int((by == name).sum())
        epsilon = known[name].every_data_set(run.subject) if spoke else np.inf
        silent = [text.removeprefix(name).strip() for text in because if text.startswith(f"{name} ")]
        notes.append(
            CertificateNote(
                name=name,
                applies=spoke > 0,
                units=spoke,
                because=silent[0] if silent else "",
                source=certificate.source,
                assumptions=bound.assumptions if spoke else (),
                guarantee="every data set" if np.isfinite(epsilon) else "these data",
                epsilon=epsilon if np.isfinite(epsilon) else None,
            )
        )
    return tuple(notes)


def unit_labels(run: Run, units: Index) -> NDArray[Any]:
    """Return each unit's label as text; "mixed" where a person's records differ."""
    data = run.subject.data
    if data.groups is None:
        return np.asarray(data.y[units]).astype(str)
    return np.array([_common(data.y[data.units[u]]) for u in units])


def _common(labels: NDArray[Any]) -> str:
    return str(labels[0]) if len(set(labels.tolist())) == 1 else "mixed"


def ranked_only(run: Run) -> list[Precondition]:
    """Return the finding by which a screened run never approves; none in the other modes."""
    if run.once(modes.used) != "screen":
        return []
    text, detail = "screened, not certified: ", dict[str, Any]()
    if run.made(retrained):
        status = run.once(retrained).status
        ranked = int((status == Status.SCREENED).sum())
        detail = {"ranked": ranked, "measured": len(status) - ranked}
        text += f"{ranked} of {len(status)} people were only ranked by shadow models; "
    return [Precondition("mode", "inconclusive", f"{text}mode screen approves nothing; {modes.AGAIN}", detail)]
