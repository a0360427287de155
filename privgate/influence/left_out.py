"""Who is left out: nobody else where a theorem limits everybody, all where a rule needs all, a random sample else.

The sample has two planned looks, its riskiest first so that a refusal comes early. What ranks people is fixed before
they are drawn, and the draw is a function of the operator's secret, data and code only. One sample serves the rule on
a share, the comparison of a closed form, and the refusal; nobody draws again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import MeasurementError
from privgate.evidence import EngineShare, Kind, Measurement, Precondition, Request
from privgate.evidence.telling import sampled
from privgate.influence import aggregate, per_person, riskiest
from privgate.kernel.sample import Looks, exceeding_limit, plan_looks
from privgate.run import refit
from privgate.run.near_questions import CHECKED, plan_looks_at, tell_size
from privgate.run.needs import Need
from privgate.run.run import Noted, Run
from privgate.theorems import catalogue, two_models
from privgate.theorems.closed_form import REFIT, Retrained, Status
from privgate.theorems.theorem import Certified
from privgate.training import budget
from privgate.training.ledger import digest_code

#: of whom a closed form says that they matter most, refitted beside these
WORST = 5
#: share of the people above a limit by the ranking, from which on they are expected to refuse
MANY = 0.3
#: paired seeds of whoever is to contradict a theorem, which holds under every seed
SEEDS = 2


class Plan(NamedTuple):
    """Who is to be left out, before anybody is: everybody in the order drawn, and how many of them each look takes.

    ``looks`` is None where everybody is asked for; ``lost`` says in one sentence what a budget gives up.
    """

    order: Index
    sizes: tuple[int, ...]
    looks: Looks | None = None
    lost: str = ""


def limit_everybody(run: Run) -> Certified | None:
    """Return what theorems say of everybody, where that keeps every limit; None where people are to be left out."""
    speaks = run.subject.release.exact and run.subject.task == "classification"
    if not (speaks and run.by_theorem and run.thresholds) or run.limits.full:
        return None
    everybody = np.arange(run.n_units, dtype=np.int64)
    limits = catalogue.bound(run.subject, everybody, None, fleet=run.fleet)[0]
    return limits if limits.upper.max() <= min(run.thresholds) else None


def plan_looks_of(run: Run) -> Looks | None:
    """Return the planned looks; None where everybody has to be left out, or only theorems are to be contradicted."""
    if run.share is None or run.compute(limit_everybody) is not None:
        return None
    return plan_looks(run.n_units, min(run.n_units - 1, int(run.share * run.n_units + 1e-9)))


def plan_people(run: Run) -> Plan:
    """Return who is to be refitted, of whom a closed form compares its answers where it answers for everybody."""
    return _plan_refits(run, computed=computes_everybody(run))


def _plan_refits(run: Run, *, computed: bool) -> Plan:
    """Return who is to be refitted; a budget takes the first of them, and then a share is approved by planned looks."""
    n, looks = run.n_units, run.compute(plan_looks_of)
    order = budget.order(run.subject, run.fleet)
    allowed = {name: getattr(run.limits, name) for name in ("max_retrains", "budget_seconds")}
    if run.compute(limit_everybody) is not None:
        affordable = budget.count_affordable(run.subject, run.fleet, run.seeds[:SEEDS], **allowed)
        return Plan(order, (min(affordable, tell_size(CHECKED, n)),))
    sizes = (n,) if looks is None else run.compute(plan_looks_at)
    if computed:
        return Plan(order, sizes[:1] if looks else (tell_size(CHECKED, n),), looks)
    affordable = budget.count_affordable(run.subject, run.fleet, run.seeds, **allowed)
    if affordable >= sizes[-1]:
        return Plan(order, sizes, looks)
    sizes = tuple(size for size in sizes if size <= affordable) or (affordable,)
    lost = (
        f"{sampled(sizes[-1], n)}, drawn at random before looking: without a certificate they tell the share "
        "above a limit, and nothing of the largest risk"
    )
    return Plan(order, sizes, looks, lost)


def computes_everybody(run: Run) -> bool:
    """Return whether a closed form's answers are judged: all are asked for, or the kernel limits every error."""
    closed = run.compute(riskiest.compute_everybody).computed
    return closed is not None and (run.share is None or (closed.engine.certain and not len(closed.rest)))


def count_trainings(run: Run, *, look: int = -1) -> int:
    """Return how many trainings without people a run makes, where no rule is broken on the way, until a look ends it.

    With look 0, of whom nobody may exceed a limit; at most with the last.
    """
    plan, closed = run.compute(plan_people), run.compute(riskiest.compute_everybody).computed
    people = plan.sizes[look]
    if run.compute(limit_everybody) is not None:
        return people * len(run.seeds[:SEEDS]) + 1
    if closed is not None and computes_everybody(run):
        return len(_list_compared(run, plan)) + 1
    ranking = riskiest.FOLDS if _may_stop(run) and closed is None else 0
    return ranking + people * len(run.seeds)


def list_hints(run: Run) -> list[str]:
    """Return how many people approve, and what comes before them."""
    looks, said = run.compute(plan_looks_of), list[str]()
    if looks is not None and not computes_everybody(run) and looks.sizes[0] < run.n_units:
        first, second = looks.sizes
        said.append(f"{first} people drawn at random approve if none exceeds; if some do, {second} are left out")
    if spared(run):
        said.append("attacks come first: where they break a rule, nobody is trained without, unless --full is given")
    return said


def spared(run: Run) -> bool:
    """Return whether nobody is trained without where attacks break a rule, because that blocks whatever it shows."""
    return bool(run.attacked) and not run.limits.full and not computes_everybody(run)


def expects_refusal(run: Run) -> bool:
    """Return whether the ranking shows so many above a limit that people come before further looks at attacks."""
    may = spared(run) and _may_stop(run) and run.compute(limit_everybody) is None
    if not may or run.at_once or run.subject.task == "regression":
        return False
    score = run.compute(riskiest.rank_everybody).score
    return bool((score > max(run.thresholds)).mean() >= MANY)


@dataclass(frozen=True, eq=False)
class LeftOut(Noted):
    """Models with and without people, and how they were come by."""

    retrained: Retrained = field(kw_only=True)
    #: of how many people models were wanted
    people: int = field(kw_only=True)
    #: what each way of leaving out answered
    shares: tuple[EngineShare, ...] = ()
    #: why closed forms do not answer: name -> sentence
    declined: Mapping[str, str] = field(default_factory=dict)
    #: the rule that was broken when the work ended early; empty if it did not
    decided_by: str = ""
    #: of how many people at most a closed form may be wrong, with 95 % confidence; 0 where none is believed
    unsure: int = 0


def leave_out(run: Run) -> LeftOut:
    """Return models with and without people, as many as the verdict needs; a closed form compared with refits."""
    plan = run.compute(plan_people)
    if run.compute(limit_everybody) is not None:
        run = replace(run, seeds=run.seeds[:SEEDS])
        refits = _ask(run, np.sort(plan.order[: plan.sizes[0]]))
        return LeftOut(retrained=refits, people=len(refits.units), shares=_list_shares(refits, len(refits.units), None))
    form, whole = run.compute(riskiest.compute_everybody), computes_everybody(run)
    if whole:
        compared = _list_compared(run, plan)
        refitted, people, decided = _refit_looks(run, [compared], run.n_units if plan.looks is None else len(compared))
    else:
        refitted, people, decided = _refit_looks(run, [plan.order[:size] for size in plan.sizes], plan.sizes[-1])
    checked, computed, declined, unsure = None, form.computed, dict(form.declined), 0
    if computed is not None:
        checked = _compare(run, computed, refitted)
        if checked.outcome != "passed":  # nothing it said is used, the planned people are refitted, and no others
            declined[computed.engine.name], computed = checked.message, None
            if whole and not decided:
                plan = _plan_refits(run, computed=False)
                refitted, people, decided = _refit_looks(run, [plan.order[:s] for s in plan.sizes], plan.sizes[-1])
        elif whole and not decided:
            others = ~np.isin(computed.answers.units, refitted.units)  # whoever it leaves was refitted
            refitted, people = Retrained.concatenate([computed.answers.select(others), refitted]), run.n_units
            unsure = 0 if computed.engine.certain else exceeding_limit(0, plan.sizes[0], people, alpha=0.05)
    return LeftOut(
        tuple(p for p in (run.compute(describe_draw), checked) if p is not None),
        retrained=refitted,
        people=people,
        shares=_list_shares(refitted, people, computed if whole else None),
        declined=declined,
        decided_by=decided,
        unsure=unsure,
    )


def _ask(run: Run, people: Index) -> Retrained:
    """Return refits of some people, whose models are read where a rule or a theorem needs that."""
    reads = run.subject.task == "regression" and not two_models.refusal(run.subject)
    return refit.leave_out(riskiest.ask_about(run, people), changes=Need.EVERY_QUERY in run.needs or reads)


def _list_compared(run: Run, plan: Plan) -> Index:
    """Return whom to refit where a closed form answers for everybody: those drawn; where all are judged, others too.

    These are the riskiest, and whom it leaves to refits: each of them alone can refuse.
    """
    closed, drawn = run.compute(riskiest.compute_everybody).computed, plan.order[: plan.sizes[0]]
    if closed is None or plan.looks is not None:
        return drawn
    worst = np.argsort(-run.compute(riskiest.rank_everybody).score, kind="stable")[:WORST]
    return np.unique(np.concatenate([drawn, worst, closed.rest]))


def _compare(run: Run, computed: refit.Computed, refits: Retrained) -> Precondition:
    subject = riskiest.ask_about(run, refits.units[:0]).subject
    return refit.compare(computed, refits, refit.train_on_all(subject, run.seeds[:1], run.fleet)[0])


def _refit_looks(run: Run, looks: Sequence[Index], people: int) -> tuple[Retrained, int, str]:
    """Return refits, of how many of ``people`` they are, and the rule that ended them early; empty if none did."""
    stops, parts, broken = _may_stop(run), list[Retrained](), [""]

    def see(now: Index) -> tuple[int, bool]:
        parts[:] = [Retrained.concatenate([*parts, _ask(run, now)])]
        if stops and len(parts[0].units) < len(looks[-1]):
            broken[0] = find_broken(run, people, parts[0])
        return _count_above(run, parts[0]), bool(broken[0])

    score = run.compute(riskiest.rank_everybody).score if stops else np.zeros(run.n_units)
    planned = run.compute(plan_looks_of)
    refusing = run.n_units if not stops else 1 if planned is None else planned.refusing
    taken = riskiest.look_riskiest_first(looks, score, see, refusing=refusing, workers=run.fleet.workers)
    return parts[0], people if taken == len(looks[-1]) else taken, broken[0]


def _count_above(run: Run, refits: Retrained) -> int:
    """Return how many people may be above a limit; 0 where everybody is asked for, of whom no look may be the last."""
    if run.compute(plan_looks_of) is None or not run.thresholds:
        return 0
    subject, noise = run.subject, run.subject.release.noise
    if subject.task == "regression":
        moves = per_person.measure_moves(subject, refits)
        high = moves.high / (moves.outside if noise is None else noise.scale / subject.scale[1])
        return int((~(high <= min(run.thresholds))).sum())
    high = per_person.measure_influence(refits, subject.release)["pdtp_high"] + run.registered_apart[0]
    if Need.EVERY_QUERY in run.needs:
        upper = catalogue.bound(subject, refits.units, refits, fleet=run.fleet)[0].upper
        high = np.maximum(high, upper + run.registered_apart[1])
    return int((refits.lost | (high > min(run.thresholds))).sum())


def _may_stop(run: Run) -> bool:
    """Return whether work ends with the first broken rule; a regressor's unit of measure then comes from folds.

    Where answers carry noise, its scale is the unit, and nobody is left out for nothing.
    """
    known = run.subject.task == "classification" or (
        run.subject.release.noise is None and run.compute(riskiest.compute_everybody).computed is None
    )
    return bool(run.breaks) and not run.limits.full and known


def find_broken(run: Run, people: int, refits: Retrained) -> str:
    """Return the name of an enforced rule that these models, of so many people wanted, decide; empty if they do not.

    Whoever has no model here counts as possibly without influence and possibly without limit; the rule itself judges
    what the report will say. One that breaks at this seed alone stays undecided where nobody else will be paired.
    """
    scale = 1.0
    if run.subject.task == "regression":
        moves, fewer = per_person.measure_moves(run.subject, refits), len(refits.units) < people
        try:
            scale, low = per_person.measure_unit(run, moves, missing=fewer), moves.low
        except MeasurementError:  # and no look may be the last
            return ""
    else:
        own = per_person.measure_influence(refits, run.subject.release, people=people)["pdtp_low"]
        low = np.where(refits.lost, np.inf, own)
    if not (name := _break_rule(run, people, refits, low / scale)) or not run.at_seed:
        return name
    confirmed = per_person.confirm_at_other_seeds(run, refits.units, low / scale, scale)
    spent = len(run.compute(per_person.known_limits)) >= per_person.MOST_PAIRED
    return _break_rule(run, people, refits, confirmed) or (name if spent else "")


def _break_rule(run: Run, people: int, refits: Retrained, low: Float) -> str:
    """Return the name of an enforced rule that lower limits of people break, shape (U,); empty if they break none."""
    padded = pad_missing(people - len(refits.units), low, low, np.full(len(low), np.inf))
    for request, (name, breaks) in run.breaks.items():
        seen = aggregate.summarize(request, *padded, run.n_units, looks=run.compute(plan_looks_of))
        kind: Kind = "point" if run.averaged and len(refits.seeds) == 1 else "bound"
        if breaks(Measurement(request, seen.value, seen.low, seen.high, kind=kind)):
            return name
    return ""


def pad_missing(count: int, value: Float, low: Float, high: Float) -> tuple[Float, Float, Float]:
    """Return the columns with so many people more, about whom nothing is known: between no influence and any."""
    nothing = np.zeros(count)
    return np.append(value, nothing), np.append(low, nothing), np.append(high, nothing + np.inf)


def summarize(run: Run, request: Request, value: Float, low: Float, high: Float) -> aggregate.Aggregated:
    """Return the aggregate of everybody who was wanted, by the looks that were planned."""
    unsure = run.compute(leave_out).unsure
    return aggregate.summarize(request, value, low, high, run.n_units, looks=run.compute(plan_looks_of), unsure=unsure)


#: why people were left without an answer
DECIDED = "the verdict was decided without them"


def retrained(run: Run) -> Retrained:
    """Return the models of ``leave_out``."""
    return run.compute(leave_out).retrained


def count_missing(run: Run) -> int:
    """Return how many people nobody was trained without, because the verdict was decided before."""
    refits = run.compute(leave_out)
    return refits.people - len(refits.retrained.units)


def describe_draw(run: Run) -> Precondition | None:
    """Return by whom people were drawn, after what was fixed, and for the how manieth time; None without a sample."""
    plan, fleet = run.compute(plan_people), run.fleet
    if plan.looks is None or plan.sizes[0] >= run.n_units:
        return None
    tries = fleet.ledger.count_tries(run.subject.name, digest_code(run.subject)) if run.subject.name else 1
    by = "the operator's key" if fleet.ledger.given else "a key of this user: whoever drew could have known whom"
    text = f"people were drawn by {by}; it is draw {tries} of this model"
    if not fleet.ledger.lasting:
        text = f"{text.partition(';')[0]}; without a ledger nobody counts how often code was changed and tried"
    if tries > 1:
        text += (
            f", and with so many tries on changed code a wrong approval has probability {1 - 0.95**tries:.2g} at most"
        )
    detail = {"sizes": list(plan.sizes), "given_key": fleet.ledger.given, "tries": tries}
    if run.has_computed(riskiest.rank_everybody):
        detail["ranked_by"] = run.compute(riskiest.rank_everybody).digest
    return Precondition("draw", "passed", text, detail)


def _list_shares(refits: Retrained, people: int, computed: refit.Computed | None) -> tuple[EngineShare, ...]:
    real = refits.engine == REFIT
    n_refits = int(real.sum())
    if computed is None or real.all():
        why = {DECIDED: people - n_refits} if people > n_refits else {}
        return (EngineShare.from_parts(REFIT, people, n_refits, why, _count_limitless(refits, real)),)
    own, name = len(real) - n_refits, computed.engine.name
    why = {**computed.why, "they were refitted to compare": people - own - len(computed.rest)}
    return (
        EngineShare.from_parts(name, people, own, {k: v for k, v in why.items() if v}, _count_limitless(refits, ~real)),
        EngineShare.from_parts(REFIT, n_refits, n_refits, {}, _count_limitless(refits, real)),
    )


def _count_limitless(refits: Retrained, some: NDArray[np.bool_]) -> dict[str, int]:
    """Return why people have no model to compare with; what training said when it failed may name data, and stays."""
    counts: dict[str, int] = {}
    for k in np.flatnonzero(refits.lost & some):
        failed = refits.status[k] == Status.FAILED
        reason = "training without them failed" if failed else refits.reason.get(int(k), "no model without them exists")
        counts[reason] = counts.get(reason, 0) + 1
    return counts
