"""Models with and without each person, as many as the verdict needs: who is left out, by which engine, until when."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.controls.seeds import PAIRED, draw_others, plan_other
from privgate.evidence import Count, Kind, Measurement, Precondition, RecheckRow, UnitCoverage
from privgate.families import answering as families
from privgate.families import bound as bounds
from privgate.families import recheck, refit
from privgate.families.bound import Witness
from privgate.families.certificate import Certified
from privgate.families.engine import Asked
from privgate.families.recheck import observe
from privgate.families.retrained import Retrained, Seeds, Status
from privgate.influence import aggregate, changes, modes
from privgate.influence import changes as on_edges
from privgate.influence import changes as residuals
from privgate.run import beside
from privgate.run.needs import Need
from privgate.run.run import Noted, Run
from privgate.training import budget

#: people above a limit who are refitted at other seeds
MOST_PAIRED = 30


def selection(run: Run) -> budget.Selection:
    """Return the units to measure: all, or a random sample fixed before anything is looked at.

    A closed form costs no retraining, so neither a budget of retrains nor a rule's sample cuts it.
    """
    limits = run.limits
    if run.once(modes.limits) is not None:
        return budget.select(run.subject, run.fleet, run.seeds, sample=modes.SAMPLE)
    unlimited = limits.max_retrains is None and limits.budget_seconds is None
    if (unlimited and (run.sample is None or run.sample >= run.n_units)) or beside.costs_no_fits(run):
        return budget.Selection(np.arange(run.n_units, dtype=np.int64), run.n_units, "")
    return budget.select(
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


def trainings(run: Run) -> int:
    """Return how many trainings without people a run makes at most, where no rule is broken on the way."""
    run = modes.fewer_seeds(run)
    people = len(run.once(chosen_units))
    if beside.costs_no_fits(run):
        return recheck.expected(people, len(run.thresholds), run.drawn)
    if worth_more_people(run):
        people = min(run.up_to or 0, run.n_units)
    seeds = len(run.more_seeds if worth_more_seeds(run) else run.seeds)
    if run.once(modes.used) == "screen":
        return refit.MODELS + refit.retrained(people) * seeds
    first = modes.FOLDS if run.breaks and not run.limits.full else 0
    return first + people * seeds


def hints(run: Run) -> list[str]:
    """Return what may make leaving people out cheaper, or too cheap for an approval."""
    said = [modes.note(run)] if run.limits.mode == "max" else []
    said += [f"{name} does not answer here: {why}" for name, why in families.first(run.subject)[1].items()]
    if spared(run):
        said.append("attacks come first: where they break a rule, nobody is trained without, unless --full is given")
    if run.more_seeds and Need.UPPER_LIMIT in run.asked and not worth_more_seeds(run):
        seeds = len(run.more_seeds)
        said.append(
            f"{seeds} runs, which an approval needs, are not within the budget: it can refuse, and end undecided at "
            f"best; give --seeds {seeds} to measure fewer people on all of them"
        )
    return said


def spared(run: Run) -> bool:
    """Return whether nobody is trained without where attacks break a rule, because that blocks whatever it shows."""
    return bool(run.attacked) and not (run.limits.full or beside.costs_no_fits(run))


@dataclass(frozen=True, eq=False)
class Found(Noted):
    """Models with and without people, and how they were come by.

    Parameters
    ----------
    answered : families.Answered
    seeds : tuple of (int or None)
        Paired seeds that the work ended with.
    chosen : budget.Selection
        Of whom models were wanted, in the end.
    decided_by : str
        The rule that was broken when the work ended early; empty if it did not.
    witness : Witness, optional
        What these models answered where certificates say that they differ most.
    """

    answered: families.Answered = field(kw_only=True)
    seeds: Seeds = field(kw_only=True)
    chosen: budget.Selection = field(kw_only=True)
    decided_by: str = ""
    witness: Witness | None = None

    @property
    def people(self) -> int:
        """Of how many people models were wanted."""
        return len(self.chosen.units)


def found(run: Run) -> Found:
    """Return models with and without each chosen unit, each fast engine re-checked against the training function."""
    run, chosen = modes.fewer_seeds(run), run.once(selection)
    witness = _witness(run)
    made = _answered(run, chosen.units, witness)
    if worth_more_seeds(run) and not _decided(run, len(chosen.units), made.retrained):
        run, witness = replace(run, seeds=run.more_seeds, more_seeds=()), _witness(run)
        made = _answered(run, chosen.units, witness)
    if len(made.left) == 0 and worth_more_people(run) and undecided(run, made.retrained):
        run, witness = replace(run, sample=run.up_to), _witness(run)
        chosen = selection(run)
        made = _answered(run, chosen.units, witness, before=made)
    decided = broken(run, len(chosen.units), made.retrained) if len(made.left) else ""
    if witness is not None:
        if not made.rechecks and not decided:  # refits answered everybody, and only about their own records
            observe(replace(asked(run, chosen.units), asker=witness), made.retrained)
        failed = [recheck_row(p).engine for p in made.rechecks if p.outcome != "passed"]
        witness.distrusted = failed[0] if failed else ""
    shown = made if run.subject.task == "regression" else on_edges.refitted(run, made)
    return Found(made.rechecks, answered=shown, seeds=run.seeds, chosen=chosen, decided_by=decided, witness=witness)


def _witness(run: Run) -> Witness | None:
    good, everywhere = (
        bounds.applicable(run.subject, attacked=Need.SHADOWS in run.asked)[0],
        Need.EVERY_QUERY in run.asked,
    )
    theorems = tuple(c for c in good if everywhere or not c.needs_retrained)  # as ``per_unit`` asks them
    return Witness(theorems) if theorems else None


def retrained(run: Run) -> Retrained:
    """Return the models of ``found``."""
    return run.once(found).answered.retrained


def grew(run: Run) -> bool:
    """Return whether the random sample that was drawn first left a limit open, and more people were looked at."""
    return len(run.once(found).chosen.units) > len(run.once(selection).units)


def seeds(run: Run) -> Seeds:
    """Return the paired seeds that were used in the end, or would be where nobody was trained without."""
    return run.once(found).seeds if run.made(found) else run.seeds


def decided_by(run: Run) -> str:
    """Return the rule that was broken when the work ended early; empty if it did not."""
    return run.once(found).decided_by


def of_everybody(run: Run) -> Certified | None:
    """Return what theorems say of everybody as the models leave it; None where none limits all."""
    return None if run.once(modes.limits) is None else modes.bounds_of(run, run.once(found).witness)


def proven(run: Run) -> Float | None:
    """Return each person's limit of ``of_everybody``, shape (n_units,)."""
    made = run.once(of_everybody)
    return None if made is None else made.upper


def asked(run: Run, units: Index) -> Asked:
    """Return what an engine is asked about some units."""
    theorems = bounds.applicable(run.subject, attacked=Need.SHADOWS in run.asked)[0]
    changes = Need.EVERY_QUERY in run.asked and any(c.needs_retrained for c in theorems)  # as ``per_unit`` asks them
    mode = run.once(modes.used)
    near = run.once(beside.of_people)
    return Asked(
        near.asked,
        units,
        run.seeds,
        run.fleet,
        queries=near.queries(units),
        changes=changes,
        mode=mode,
        limits=run.thresholds or (1.0,),
        drawn=max(run.drawn, len(units) if run.sampled and len(units) < run.n_units else 0),
    )


def _answered(
    run: Run, units: Index, witness: Witness | None, before: families.Answered | None = None
) -> families.Answered:
    """Return models of everybody chosen; what a re-check has shown ``before`` of an engine is not forgotten."""
    failed = () if before is None else tuple(p for p in before.rechecks if p.outcome != "passed")
    wrong = {recheck_row(p).engine for p in failed}
    breaks = partial(broken, run, len(units))
    until, wanted = modes.until(breaks), asked(run, units)
    if before is not None:
        first = before.retrained.units
        then = [aggregate.second(r, run.n_units) for r in run.breaks]
        wanted = replace(wanted, first=first, drawn=max(wanted.drawn, 2 * len(first), *then))
    made = families.answer(
        replace(
            wanted,
            engines=tuple(e for e in families.of(run.subject) if e.name not in wrong),
            asker=witness,
            refitting=until if _may_stop(run) else None,
        )
    )
    declined = {recheck_row(p).engine: p.message for p in failed}
    return replace(made, rechecks=(*failed, *made.rechecks), declined={**declined, **made.declined})


def _may_stop(run: Run) -> bool:
    """Return whether work ends with the first broken rule; a regressor's unit of measure may take everybody."""
    known = run.subject.task == "classification" or residuals.widest(run.subject) is not None
    return bool(run.breaks) and not run.limits.full and known


def broken(run: Run, people: int, found: Retrained) -> str:
    """Return the name of an enforced rule that these models, of so many people wanted, break; empty if they break none.

    Whoever has no model here counts as possibly without influence and possibly without limit. What is judged is what
    the report will say, by the rule itself.
    """
    if run.subject.task == "regression":
        own, widest = residuals.of(run.subject, found), residuals.widest(run.subject)
        # before everybody is left out the unit of measure is not known, but how large it can be may be
        sure = widest if people == run.n_units else None
        unit = own.outside if len(found.units) == people else sure
        if run.subject.release.noise is not None or unit is None:
            return ""
        low, lost = own.low / unit, np.isinf(own.low)
    else:
        unit, lost = 1.0, changes.without_model(found)
        low = np.where(lost, np.inf, changes.per_unit(found, run.subject.release, people=people)["pdtp_low"])
    breaks = partial(broken_by, run, people, found)
    if not (name := breaks(low)) or not run.at_seed:
        return name
    return breaks(confirm_at_other_seeds(run, found.units, low, unit))


# Where training draws: a change above a limit at the released seed may be the seed's own noise.


@dataclass(eq=False)
class Confirmed:
    """What other seeds say of people above a limit: person -> lower limit, in the unit of the answers."""

    lower: dict[int, float] = field(default_factory=dict)


def confirmed(run: Run) -> Confirmed:
    """Return what is known so far of one run; filled as people are refitted at other seeds."""
    del run
    return Confirmed()


def confirm_at_other_seeds(run: Run, people: Index, low: Float, scale: float = 1.0) -> Float:
    """Return the lower limits that stand where training depends on its seed, shape (U,); larger is worse.

    Parameters
    ----------
    run : Run
    people : int64 array of shape (U,)
    low : float64 array of shape (U,)
        Lower limits at the released seed.
    scale : float
        Unit of ``low``, in the answers' own.

    Notes
    -----
    A person above no limit keeps the value. Those above one, riskiest first and at most ``MOST_PAIRED``, are refitted
    at five other seeds, each with and without them: their limit is Student's of the mean change, corrected for all of
    them. A person whom these seeds do not show may be without influence: 0. Section 9.4 of docs/mathematics.md.
    """
    if not run.at_seed or not run.people:
        return low
    least, known = min(limit for limit, _ in run.people), run.once(confirmed).lower
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
    near, members = run.once(beside.of_people), run.subject.data.units
    row_unit, row_query = near.of_units(people)
    by = "seed" if run.seed_control is None else run.seed_control.coins
    drawn = draw_others(run.subject, PAIRED, fleet=run.fleet)
    rows = [row_query[row_unit == u] for u in range(len(people))]
    fits = [plan_other(near.asked, s, by=by, rows=row_query) for s in drawn]
    fits += [
        plan_other(near.asked, s, by=by, rows=rows[u], left_out=members[int(person)])
        for s in drawn
        for u, person in enumerate(people)
    ]
    answers = run.fleet.fits(near.asked, fits, label="refitting at other seeds")
    whole, less = answers[: len(drawn)], np.array(answers[len(drawn) :], dtype=object).reshape(len(drawn), len(people))
    if any(a.problem for a in whole):
        return np.zeros(len(people))  # other seeds show nothing
    # a person without whom no seed can train has no model without them; one who fails at some seeds shows nothing
    lost = np.array([[bool(a.problem) for a in row] for row in less])
    with_ = np.stack([a.log_p for a in whole])
    without = np.stack(
        [
            np.concatenate([with_[s][row_unit == u] if a.problem else a.log_p for u, a in enumerate(row)])
            for s, row in enumerate(less)
        ]
    )
    status = {int(u): "no model without this person" for u in np.flatnonzero(lost.all(axis=0))}
    paired = Retrained.of("refit", people, tuple(drawn), (row_unit, row_query), with_, without, undefined=status)
    if run.subject.task == "regression":
        lower = residuals.of(run.subject, paired).low
    else:
        lower = changes.per_unit(paired, run.subject.release, people=MOST_PAIRED)["pdtp_low"]
    return np.where(lost.all(axis=0), np.inf, np.where(lost.any(axis=0), 0.0, lower))


def describe_seeds(run: Run) -> dict[str, bool]:
    """Return for evidence that a number is about the released seed, and what other seeds say of people above limits."""
    if not run.at_seed:
        return {}
    lower, least = run.once(confirmed).lower, min((limit for limit, _ in run.people), default=np.inf)
    return {"own_coins": True, "followed": bool(lower), "shown": any(v > least for v in lower.values())}


def broken_by(run: Run, people: int, found: Retrained, low: Float) -> str:
    """Return the name of an enforced rule that lower limits of units break, shape (U,); empty if they break none."""
    more = people - len(found.units)
    padded = with_left(more, low, low, np.full(len(low), np.inf))
    ranking = aggregate.Ranking.of(found, np.zeros(len(low), dtype=bool), more)
    for request, (name, breaks) in run.breaks.items():
        seen = aggregate.asked(request, *padded, run.n_units, ranking=ranking)
        kind: Kind = "point" if run.averaged and len(found.seeds) == 1 else "bound"
        if breaks(Measurement(request, seen.value, seen.low, seen.high, kind=kind)):
            return name
    return ""


def left(run: Run) -> Index:
    """Return the chosen units that nobody was trained without, because the verdict was decided before."""
    return run.once(found).answered.left


def with_left(count: int, value: Float, low: Float, high: Float) -> tuple[Float, Float, Float]:
    """Return the columns with so many units more, about whom nothing is known: between no influence and any."""
    nothing = np.zeros(count)
    return np.append(value, nothing), np.append(low, nothing), np.append(high, nothing + np.inf)


def stopped(run: Run) -> str:
    """Return that people were left out of the work, and what their figures are worth, one sentence; else empty."""
    if not len(missing := run.once(left)):
        return ""
    people = run.once(found).people
    return (
        f"{Count(len(missing), people)} of {people} people were not left out of any training, because the rule "
        f"{decided_by(run)} had refused before; riskiest first, so that figures over all people are lower limits only"
    )


def worth_more_seeds(run: Run) -> bool:
    """Return whether more seeds would tell what a rule asks for, an upper limit, and are within the budget."""
    limits = run.limits
    if run.once(modes.limits) is not None:
        return False  # under every seed
    within = limits.max_retrains is None or len(run.once(chosen_units)) * len(run.more_seeds) <= limits.max_retrains
    asked = Need.UPPER_LIMIT in run.asked  # the upper limit of dtp is a theorem's
    return bool(run.more_seeds) and asked and within and limits.budget_seconds is None and limits.mode != "screen"


def worth_more_people(run: Run) -> bool:
    """Return whether the random sample may grow: once, within the budget, and where one seed is enough."""
    limits = run.limits
    unlimited = limits.max_retrains is None and limits.budget_seconds is None
    grows = run.up_to is not None and len(run.once(chosen_units)) < min(run.up_to, run.n_units)
    # over all questions, people's upper limits are a theorem's, and no sample tells them
    fixed = not run.averaged and limits.mode == "all" and Need.EVERY_QUERY not in run.asked
    return grows and unlimited and fixed and run.once(modes.limits) is None and run.subject.task == "classification"


def undecided(run: Run, found: Retrained) -> bool:
    """Return whether a rule whose sample may grow has its limit within what these units' models leave open."""
    shown = changes.per_unit(found, run.subject.release, people=len(found.units))
    lost, apart = changes.without_model(found), run.registered_apart[0]
    value, low, high = (np.where(lost, np.inf, shown[name]) for name in ("pdtp", "pdtp_low", "pdtp_high"))
    for request in run.breaks:
        if request.option("up_to") is not None:
            ranking = aggregate.Ranking.of(found, np.zeros(len(low), dtype=bool))
            seen = aggregate.asked(request, value, low, high + apart, run.n_units, ranking=ranking)
            if seen.low <= request.option("limit") < seen.high:
                return True
    return False


def _decided(run: Run, people: int, found: Retrained) -> bool:
    """Return whether a rule is surely broken already, so that no further seed can change the verdict."""
    # one seed: an engine saw that training does not depend on it
    return len(found.seeds) == 1 or bool(broken(run, people, found))


def coverage(run: Run) -> UnitCoverage:
    """Return how many of all units were measured, and what a sample or a ranking says about the others."""
    made = run.once(retrained)
    measured = int((made.status != Status.SCREENED).sum())
    ranked = "the others were ranked by shadow models, which shows nothing about them"
    claims = (
        stopped(run),
        modes.said(run.once(proven)) or run.once(found).chosen.lost,
        ranked if measured < len(made.units) else "",
    )
    return UnitCoverage(
        n_measured=measured,
        n_units=run.n_units,
        claim="; ".join(c for c in claims if c),
        not_computed=len(run.once(left)),
        decided_by=decided_by(run),
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


def ranked_only(run: Run) -> list[Precondition]:
    """Return the finding by which a screened run never approves; none in the other modes."""
    if run.once(modes.used) != "screen":
        return []
    text, detail = "screened, not certified: ", dict[str, Any]()
    if run.made(retrained):
        status = run.once(retrained).status
        ranked = int((status == Status.SCREENED).sum())
        detail = {"ranked": ranked, "measured": len(status) - ranked}
        text += f"{Count(ranked, len(status))} of {len(status)} people were only ranked by shadow models; "
    return [Precondition("mode", "inconclusive", f"{text}mode screen approves nothing; {modes.AGAIN}", detail)]
