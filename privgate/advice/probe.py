"""Risk of one candidate by the policy's own rules, and whole checks of a few finalists."""

import datetime as dt
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from privgate.advice.point import Point, front
from privgate.check import beforehand, questions
from privgate.check import check_plan as planning
from privgate.check import gate as about_run
from privgate.check.prepare import prepare
from privgate.errors import MeasurementError
from privgate.evidence import Evidence, Measurement, Request, RunPart
from privgate.evidence.telling import sampled
from privgate.families import answering as families
from privgate.influence import as_published as influence
from privgate.influence import left_out, modes, per_unit
from privgate.membership import attack_figures, board
from privgate.policy import Policy
from privgate.policy.document_shape import WITHHELD
from privgate.policy.judging import conditions
from privgate.policy.rules.dp_epsilon_lower_bound import DpEpsilonLowerBound
from privgate.policy.rules.rule_base import Rule
from privgate.run import pool as pools
from privgate.run.needs import Need
from privgate.run.run import Budget, Run
from privgate.subject.subject import Subject
from privgate.training import plan as spans
from privgate.training.fleet import Fleet
from privgate.verdict import Finding, Outcome, Verdict

# Risk of one candidate, judged by the policy's own rules without the controls of a check: enough to search by.


@dataclass(frozen=True, slots=True)
class Risk:
    """What the policy says of a candidate.

    Parameters
    ----------
    outcome : Outcome
    rule : str
        The enforced rule that is nearest to its limit or furthest beyond it.
    value, limit : float
        Its number, at the unsafe end of what is known, and its limit.
    unit : str
    of_limit : float
        Value over limit: above 1 is too much; infinite where the rule failed without a number, NaN where it is open.
    why : str
        The sentence of the rule, for whoever asks.
    chance : float
        Value over limit of the nearest enforced rule that other randomness may decide otherwise; 0 where there is none.
    """

    outcome: Outcome
    rule: str = ""
    value: float = math.nan
    limit: float = math.nan
    unit: str = ""
    of_limit: float = math.nan
    why: str = ""
    chance: float = math.nan


def probe(
    policy: Policy,
    subject: Subject,
    *,
    fleet: Fleet,
    limits: Budget,
    pruned: bool = True,
    seconds: float = math.inf,
    tell: Callable[[str], None] = lambda _: None,
) -> Risk:
    """Return what the policy's rules say of a subject; never an approval, because no control was made.

    ``pruned``: nothing is trained where an enforced rule can never be decided well for this kind of model, or where
    passing takes longer than so many ``seconds``; and nothing more is measured once one is not kept, attacks included:
    the first that reaches too far ends it, so that the number of what does not pass is a lower limit. Nobody is trained
    without after so many ``seconds``; what is not decided by then is open. ``tell`` is told how long passing takes.
    """
    run = prepare(policy, subject, fleet=fleet, limits=limits)
    run = replace(run, rehearsed=True, deadline=time.monotonic() + seconds)
    if pruned and (why := hopeless(policy, run)):
        return Risk(Outcome.INCONCLUSIVE, why=why)
    run = beforehand.choose_seeds(run, glance=True)
    if pruned and (why := too_long(run, seconds, tell)):
        return Risk(Outcome.INCONCLUSIVE, why=why)
    told = about_run.identity(run)
    measurements = _measurements(policy.asked_of(conditions(told)), run, pruned=pruned)
    records = dict(run.once(per_unit.table)) if run.made(per_unit.table) else {}
    evidence = Evidence(
        subject=told,
        preconditions=(*run.preconditions, *left_out.ranked_only(run)),
        measurements=measurements,
        records=records,
        run=RunPart(mode=modes.told(run), seeds=run.seed_control, isolation=fleet.isolation),
        influence=influence.part(run),
        membership=attack_figures.part(run),
    )
    return of(Verdict({}, policy.judge(evidence, today=dt.datetime.now(dt.UTC).date()).findings, evidence))


def hopeless(policy: Policy, run: Run) -> str:
    """Return why an enforced rule can never be decided well for this kind of model; empty if all can."""
    enforced = [rule for rule in policy.rules if rule.mode == "enforce"]
    rules = [rule.name for rule in enforced]
    attacked = any(Need.SHADOWS in rule.about.needs for rule in enforced)
    never = (why for why in run.cannot_conclude if why.partition(": ")[0] in rules)
    return next(never, "") or (_too_little(policy, run) if attacked else "")


def _too_little(policy: Policy, run: Run) -> str:
    """Return what attacks lack of the least effort that the policy counts; empty if nothing."""
    models = policy.audit.min_shadow_models
    if run.limits.shadow_models < models:
        return f"the policy wants {models} shadow models: --shadow-models {models}"
    try:
        pools.of(run.subject.data)
    except MeasurementError as exc:
        return str(exc)
    return beforehand.too_few(policy, run)


def too_long(run: Run, seconds: float, tell: Callable[[str], None] = lambda _: None) -> str:
    """Return how long an approval would take, by a few timed trainings, where that is longer; empty if it is not.

    What breaks a rule ends earlier, but what cannot be shown to pass is no advice.
    """
    if seconds == math.inf:
        return ""
    planned, _ = planning.make(run)
    whole = planned.seconds
    if left_out.worth_more_seeds(run):
        whole *= len(run.more_seeds) / len(run.seeds)
    tell(spans.span(whole))
    if whole <= seconds:
        return ""
    return f"to show that it is approved takes about {spans.span(whole)}, and the search has {spans.span(seconds)} left"


def of(verdict: Verdict) -> Risk:
    """Return the risk that findings show: the worst outcome, and the number nearest to or furthest beyond its limit.

    Advice prints it: a number that tells a few people is the one that may be told.
    """
    judged = [f for f in verdict.findings if f.outcome is not Outcome.NOT_NEEDED]
    enforced = [verdict.said(f) for f in judged if f.mode == "enforce" and f.applies]
    told_of = max(enforced, key=_nearness, default=None)
    outcome = verdict.outcome
    if told_of is None:
        return Risk(outcome)
    estimated = {request.key for request, m in verdict.evidence.measurements.items() if m.kind == "confidence"}
    near = [_of_limit(f) for f in enforced if f.request in estimated]
    chance = max((math.inf if math.isnan(v) else v for v in near), default=0.0)
    number, of_limit = unsafe(told_of), _of_limit(told_of)
    return Risk(outcome, told_of.rule, number, told_of.limit, told_of.unit, of_limit, told_of.message, chance)


def _nearness(finding: Finding) -> tuple[int, float]:
    """Return how bad a finding is, and how near its limit; a warning lets pass what its number does not show."""
    of_limit, passes = _of_limit(finding), finding.outcome.releases
    unknown = math.isnan(of_limit) or (passes and of_limit > 1)
    return (0 if passes else finding.outcome.rank), (-1.0 if unknown else of_limit)


def unsafe(finding: Finding) -> float:
    """Return the end of what is known that decides: of a failure the safe one, else the unsafe one."""
    end = finding.low if (finding.direction == "max") == (finding.outcome is Outcome.FAILED) else finding.high
    if math.isinf(end) and finding.outcome is Outcome.PASSED:
        return finding.value  # an audit has no upper limit, and its rule asks for none
    return finding.value if math.isnan(end) else end


def _of_limit(finding: Finding) -> float:
    value, limit = unsafe(finding), finding.limit
    if math.isnan(value) or math.isnan(limit):
        return math.inf if finding.outcome is Outcome.FAILED else math.nan
    over, under = (value, limit) if finding.direction == "max" else (limit, value)
    return over / under if under > 0 else (0.0 if over <= 0 else math.inf)


def _measurements(policy: Policy, run: Run, *, pruned: bool) -> dict[Request, Measurement]:
    """Return what the rules ask for; ``pruned``, only until an enforced one is not kept."""
    found, waived, over = dict[Request, Measurement](), {w.rule for w in policy.waivers}, ""
    # a look at the file costs one training, and refuses all that neighbours and kernels can be turned into
    for rule in sorted(policy.rules, key=lambda rule: rule.about.needs != {Need.LOOKED}):
        request = rule.request()
        if request in found:
            continue
        if over:
            found[request] = Measurement(request, problem=f"not measured, because {over} is not kept")
            continue
        found[request] = _measured(run, rule, pruned=pruned)
        withheld = policy.withheld(rule, WITHHELD if run.limits.file_withheld else "")
        alone = rule.mode == "enforce" and rule.name not in waived and not rule.either and not withheld
        if pruned and alone and not _kept(rule, found[request]):
            over = rule.name
    return found


def _measured(run: Run, rule: Rule, *, pruned: bool) -> Measurement:
    request = rule.request()
    try:
        if run.deadline < math.inf and Need.LEAVE_ONE_OUT in rule.about.needs and families.first(run.subject)[0].trains:
            _in_time(run)
        too_far = _reaching_too_far(run, rule) if pruned else None
        return questions.measure(run, request) if too_far is None else too_far
    except MeasurementError as exc:
        return Measurement(request, problem=str(exc))


def _in_time(run: Run) -> None:
    """Train without people until a rule is broken, everybody was left out, or the time is over.

    Raises
    ------
    MeasurementError
        It is over, and nothing is decided.
    """
    left = run.once(left_out.left)
    if len(left) and not left_out.decided_by(run):
        seen = run.once(left_out.found).people - len(left)
        raise MeasurementError(
            f"{sampled(seen, run.n_units)} in the time that there was, riskiest first; they break no rule, and the "
            "others are open"
        )


def _reaching_too_far(run: Run, rule: Rule) -> Measurement | None:
    """Return what the first attack reaches that alone breaks a rule about any; None where none does.

    The slowest attacks learn networks and take nearly all of the time; the strongest ones are quick and come first.
    """
    request = rule.request()
    if request.option("attack") != "any" or request.option("scope") == "record" or request in run.attacked:
        return None  # or all attacks are tried with a few shadow models first
    for attack in run.once(board.run).catalogue:
        options = dict(request.options) | {"attack": attack.name}
        try:
            found = replace(questions.measure(run, Request.of(request.metric, **options)), request=request)
        except MeasurementError:
            continue  # it does not run here, and the rule about any says so
        if not _kept(rule, found):
            return found
    return None


def _kept(rule: Rule, measurement: Measurement) -> bool:
    finding = rule.judge(measurement)
    return finding.outcome.releases or not finding.applies


# Confirming: a whole check of a few finalists, with randomness that the search has never seen.
#
# Each finalist is one more try to pass by chance. Where a rule may be passed by chance, there is one, so that its level
# is that of any check. What is exact or proven needs no level.

#: candidates that a whole check looks at again at most
FINALISTS = 3
#: share of a limit up to which what rests on chance has room: other shadow models moved 0.583 of 0.6 to 0.609
ROOM = 0.95


def finalists(points: Sequence[Point], policy: Policy) -> list[Point]:
    """Return which candidates that pass a whole check looks at, the most useful first."""
    good = [p for p in points if p.number > 0 and p.passes and not p.change.games]
    if not (good and rests_on_levels(policy)):
        return sorted(front(good) or good, key=lambda p: -p.useful)[:FINALISTS]
    # halving ends close to the limit, where other randomness decides: as useful within the noise, and room to spare;
    # a certificate that stands at its limit holds with any randomness
    good = [p for p in good if _by_chance(p) <= ROOM] or good
    best = max(good, key=lambda p: p.useful)
    least = best.useful - (0.0 if math.isnan(best.useful_error) else best.useful_error)
    return [min((p for p in good if p.useful >= least), key=lambda p: (_by_chance(p), -p.useful))]


def _by_chance(point: Point) -> float:
    near = point.of_limit if math.isnan(point.chance) else point.chance
    return math.inf if math.isnan(near) else near


def rests_on_levels(policy: Policy) -> bool:
    """Return whether a rule may be passed by chance, with a confidence that it names."""
    return any(_has_level(rule) for rule in policy.rules)


def _has_level(rule: Rule) -> bool:
    """Return whether passing rests on a confidence that the rule names; an audit's is that of blocking."""
    return "confidence" in type(rule).model_fields and not isinstance(rule, DpEpsilonLowerBound)


def one_try(policy: Policy, checked: Verdict) -> bool:
    """Return whether an enforced rule was judged by limits whose level nobody can share; an audit only ever blocks."""
    measured = checked.evidence.measurements
    rules = [r for r in policy.rules if r.mode == "enforce" and not _has_level(r) and not r.about.shows_leaks_only]
    return any(m.kind == "confidence" for r in rules if (m := measured.get(r.request())) is not None)


def confirmed(point: Point, checked: Verdict) -> Point:
    """Return the candidate with what a whole check said of it."""
    risk = of(checked)
    same = next((unsafe(checked.said(f)) for f in checked.findings if f.rule == point.rule), math.nan)
    why = point.why if checked.outcome.releases else risk.why
    return point.model_copy(update={"confirmed": checked.outcome.value, "confirmed_value": same, "why": why})
