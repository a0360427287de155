"""Judging: evidence in, findings out; pure."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from privgate.evidence import BehindMembership, Count, Evidence, Measurement, Precondition, RunPart
from privgate.evidence.telling import sampled
from privgate.evidence.verdict import Finding, Outcome, worst
from privgate.policy.document_shape import WARNING_DAYS, Document, Waiver
from privgate.policy.rules import about
from privgate.policy.rules.rule_base import STEPS, Audit, Rule
from privgate.run.needs import Need
from privgate.statistics.roc import APPROVING


@dataclass(frozen=True, slots=True)
class Waived:
    """What became of one waiver, a dated exception up to a ceiling; one that does not apply is reported, too."""

    waiver: Waiver
    #: ``applied``, ``not needed``, ``above ceiling``, ``expired``, ``not yet``, ``other model``
    state: str
    #: days until it ends, where it applies and ends within 14
    ends_in: int | None = None

    def payload(self) -> dict[str, Any]:
        """Return JSON values for the report: people, dates, ceiling, and what became of it."""
        stated = self.waiver.model_dump(mode="json")
        soon = "" if self.ends_in is None else f", ends in {self.ends_in} days"
        kept = {k: stated[k] for k in ("reason", "requester", "approver", "expires", "ceiling")}
        return {"rule": self.waiver.rule, "status": f"{self.state}{soon}", **kept}


def _apply(
    waiver: Waiver, rule: Rule, finding: Finding, measurement: Measurement, *, facts: Mapping[str, Any], today: date
) -> tuple[Finding, Waived]:
    """Return the finding as a waiver for this model leaves it, and what became of the waiver.

    A finding is waived if the rule would pass with the ceiling for a limit; it then counts as warned.
    """
    state, why = "applied", ""
    if today > waiver.expires:
        state, why = "expired", f"it ended on {waiver.expires}"
    elif today < waiver.granted:
        state, why = "not yet", f"it begins on {waiver.granted}"
    elif finding.outcome.releases:
        state = "not needed"
    elif everything := rule.with_limit(waiver.ceiling).vacuous(facts):
        state, why = "above ceiling", f"a ceiling of {waiver.ceiling:g} would waive everything: {everything}"
    elif rule.with_limit(waiver.ceiling).judge(measurement).outcome is not Outcome.PASSED:
        state, why = "above ceiling", f"it ends at {waiver.ceiling:g}, and the measurement is not within that"
    if state != "applied":
        if why and not finding.outcome.releases:
            finding = replace(finding, message=f"{finding.message}; a waiver does not apply ({state}: {why})")
        return finding, Waived(waiver, state)
    days = (waiver.expires - today).days
    soon = days if days <= WARNING_DAYS else None
    ending = "" if soon is None else f"; ends in {soon} days"
    text = (
        f"waived up to {waiver.ceiling:g} until {waiver.expires}: {waiver.reason} "
        f"(asked by {waiver.requester}, approved by {waiver.approver}{ending})"
    )
    return replace(finding, outcome=Outcome.WARNED, waiver=text), Waived(waiver, state, soon)


@dataclass(frozen=True)
class Judged:
    """Findings, what became of every waiver of the policy, and the last day of an approval made today."""

    #: preconditions first, then one a rule, in the policy's order
    findings: tuple[Finding, ...]
    #: applied, not needed, above ceiling, expired, not yet, other model
    waivers: tuple[Waived, ...]
    #: never later than a waiver that the approval rests on
    expires: date


def judge(policy: Document, evidence: Evidence, *, facts: Mapping[str, Any], today: date) -> Judged:
    """Return one finding a precondition, then one a rule; nothing can go missing.

    ``facts`` is what ``Rule.vacuous`` may know of the subject.
    """
    findings = [_precondition(p) for p in evidence.preconditions]
    waivers: list[Waived] = []
    powerless, holds = policy.powerless(facts), conditions(evidence.subject)
    model = (evidence.subject.get("name"), (evidence.subject.get("digests") or {}).get("model"))
    for rule in policy.rules:
        if why := rule.unasked(holds):
            finding = Finding(rule.name, rule.title, Outcome.NOT_NEEDED, f"not asked: {why}", metric=rule.metric)
            findings.append(replace(finding, mode=rule.mode))
            waivers += [Waived(w, "not needed") for w in policy.waivers if w.rule == rule.name]
            continue
        limits = (r.limit for r in policy.rules if r.request() == rule.request())
        request = rule.request()
        missing = Measurement(request, problem=f"{request.key} was not measured")
        measurement = evidence.measurements.get(request, missing).against(*limits)
        finding = _weigh(rule.judge(measurement), rule, facts, powerless)
        withheld = policy.withheld(rule, str(evidence.subject.get("file", "")))
        if withheld and not finding.outcome.releases:
            message = f"{withheld}: its answers were judged, not the file; {finding.message}"
            finding = replace(finding, outcome=Outcome.WARNED, message=message)
        for waiver in (w for w in policy.waivers if w.rule == rule.name):
            became = Waived(waiver, "other model")
            if model == (waiver.model, waiver.version):
                finding, became = _apply(waiver, rule, finding, measurement, facts=facts, today=today)
            waivers.append(became)
        # after the waivers: they excuse a number, not too little effort behind it
        findings.append(_enough(policy.audit, rule, finding, measurement, evidence))
    ends = [w.waiver.expires for w in waivers if w.state == "applied"]
    return Judged(tuple(findings), tuple(waivers), min([today + timedelta(days=policy.valid_days), *ends]))


def conditions(subject: Mapping[str, Any]) -> set[str]:
    """Return what of ``CONDITIONS`` holds of the model that evidence is about.

    What it trains and claims is read from what it says of itself; that a theorem applies, the run found out. Where that
    is wrong, a rule is asked too much or not at all, and what it would have answered stays unanswered.
    """
    task = "regressor" if subject.get("task") == "regression" else "classifier"
    claim = ["claim"] if (subject.get("recipe") or {}).get("dp") is not None else []
    return {task, *claim, *(["theorem"] if subject.get("theorems") else [])}


def _weigh(finding: Finding, rule: Rule, facts: Mapping[str, Any], powerless: str) -> Finding:
    """Return the finding, a warning at best where nothing could break the rule; inconclusive where none could."""
    why = rule.vacuous(facts)
    if not why:
        return finding
    least = Outcome.INCONCLUSIVE if powerless and rule.mode == "enforce" else Outcome.WARNED
    return replace(
        finding,
        outcome=worst((finding.outcome, least)),
        message=f"this rule cannot refuse: {why}; {finding.message}",
        meaning=f"Cannot refuse: {why}. {finding.meaning}".rstrip(),
        advice=finding.advice or "set a limit that a measurement can break",
    )


#: a precondition that may block -> what stands in the way; those of claims begin with dp_, all others are of the data
CAUSES: Mapping[str, str] = {
    "answers": "influence",
    "coins": "seed",
    "depends_on_data": "recipe",
    "environment": "place",
    "file": "file",
    "keys": "file",
    "leave_one_out_moves": "influence",
    "people": "people",
    "recipe": "recipe",
    "recorded_seed": "guarantee",
    "remembers_nothing": "recipe",
    "reproduces": "seed",
}
#: words of a message -> its cause, whichever control asked: no training, no answer, too few people to leave out
_ENDED: Mapping[str, str] = {
    "training raised": "error",
    "prediction raised": "error",
    "training did not end": "place",
    "training needs more memory": "place",
    "worker process died": "place",
    "and the data hold": "data",
}
#: the condition that nothing was spared because a rule refuses already
REACHED = "reached"
#: their own message names a command, which succeeds
_SAYS_ITS_STEP = frozenset({REACHED, "dp_extra", "mode", "opened_files", "people_declared", "served", "task"})
#: words of a recipe that gives no model, or one that cannot be asked; no seed mends that
_NO_ANSWERS = " on its own complete data"
#: word of a shortfall -> its cause
_MISSING: Mapping[str, str] = {" candidates ": "people", "isolation": "isolation"}


_CONDITION_ENDS = (Outcome.PASSED, Outcome.WARNED, Outcome.FAILED)


def _precondition(condition: Precondition) -> Finding:
    # another word is doubt
    outcome = next((o for o in _CONDITION_ENDS if o == condition.outcome), Outcome.INCONCLUSIVE)
    title = condition.name.replace("_", " ")
    ended = next((cause for words, cause in _ENDED.items() if words in condition.message), None)
    cause = ended or CAUSES.get(condition.name) or ("guarantee" if condition.name.startswith("dp_") else "data")
    said = condition.name in _SAYS_ITS_STEP or (not ended and _NO_ANSWERS in condition.message)
    advice = "" if outcome.releases or said else STEPS[cause]
    name, title = f"precondition:{condition.name}", title[:1].upper() + title[1:]
    return Finding(name, title, outcome, condition.message, advice=advice)


def _enough(audit: Audit, rule: Rule, finding: Finding, measurement: Measurement, evidence: Evidence) -> Finding:
    """Return the finding, inconclusive where it would release on less effort than the policy's minimum."""
    judged = finding.outcome.releases and measurement.applicable and not measurement.problem
    short = next(list_shortfalls(audit, rule, measurement, evidence), "") if judged else ""
    if not short:
        return finding
    open_ = rule.finding(Outcome.INCONCLUSIVE, f"{short}: undecided", measurement)
    steps = (STEPS[cause] for word, cause in _MISSING.items() if word in short)
    return replace(open_, advice=next(steps, open_.advice))


def list_shortfalls(audit: Audit, rule: Rule, measurement: Measurement, evidence: Evidence) -> Iterator[str]:
    """Yield in which way less was done than the policy's audit minimum."""
    ran, least, needs = evidence.run.isolation, audit.min_isolation, rule.about.needs
    box, networked = ran.partition(" ")[0] == "bubblewrap", ran.endswith(" with network")
    if least != "none" and not (box and (not networked or least.endswith(" with network"))):
        yield f"training code ran with isolation {ran}, the policy wants {least}"
    if rule.about.per_unit:
        covered = measurement.n / measurement.population if measurement.population else 0.0
        some = sampled(measurement.n, measurement.population)
        if measurement.n < audit.min_units:
            yield f"{some}, the policy wants {audit.min_units}"
        if covered < audit.min_coverage:
            yield f"{some}, the policy wants {audit.min_coverage:.1%}"
    if Need.LEAVE_ONE_OUT in needs and (seeds := _seeds(evidence.run)) < audit.min_seeds > 1:
        yield f"{seeds} seeds were compared, the policy wants {audit.min_seeds}"
    if Need.SHADOWS not in needs:
        return
    behind = BehindMembership.read(measurement.behind)
    shadows, stand = behind.shadow_models, "shadow models stand behind this"
    if shadows < audit.min_shadow_models > 1:
        yield f"{shadows} {stand}, the policy wants {audit.min_shadow_models}"
    if rule.request().option("level") and shadows < min(APPROVING):
        yield f"{shadows} {stand}, an approval at a level wants {min(APPROVING)}"
    # those that serve as trials, where the measurement says so: not copies of members, not unknown labels
    outside = int(evidence.subject.get("n_candidates") or 0)
    people = outside if behind.candidates is None else behind.candidates
    if people < audit.min_candidates > 1:
        yield f"{Count(people, outside)} candidates stand behind this, the policy wants {audit.min_candidates}"


def _seeds(run: RunPart) -> int:
    """Return the number of runs of a recipe without a seed, or of seeds that were compared; 1 if it is not said."""
    own = run.trace is not None and len(run.trace.seeds) == 1 and run.trace.seeds[0] is not None
    if run.seeds is not None and (own or not run.seeds.dependent):
        # where nothing reads a seed, all of them give the same model
        return sys.maxsize if run.seeds.unread else run.seeds.compared
    return 0 if run.trace is None else len(run.trace.seeds)


def find_scope(findings: Sequence[Finding]) -> str:
    """Return of which questions alone an approval speaks, "direct" or "beside"; empty where it says more.

    A rule on people's own records was judged, and none that limits everybody over all questions was met.
    """
    direct = [f for f in findings if about(f.metric).direct_only and f.outcome is not Outcome.NOT_NEEDED]
    own = [f for f in direct if "over=domain" not in f.request]
    if not own or met_for_everybody(findings):
        return ""
    return "beside" if all("over=beside" in f.request for f in own) else "direct"


def met_for_everybody(findings: Iterable[Finding]) -> list[Finding]:
    """Return the met rules that limit every person over all questions; a quantile or a share leaves some out."""
    met = [f for f in findings if about(f.metric).over_all_queries and f.outcome is Outcome.PASSED and not f.waiver]
    return [f for f in met if f.unit == "nats" and not f.suffix]
