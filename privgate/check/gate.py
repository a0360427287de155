"""The route of one run: policy, preconditions, plan, retrain, measure, judge."""

import contextlib
import datetime as dt
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any

from privgate import cases
from privgate.arrays import Index
from privgate.cases import Kept
from privgate.check import beforehand as preconditions
from privgate.check import confirm, questions
from privgate.check import plan as planning
from privgate.check.prepare import asked_of, prepare
from privgate.documents import strict_json
from privgate.errors import DigestMismatchError, SubjectError
from privgate.evidence import Evidence, Measurement, Precondition, Remembered, Request, RunPart, RunTrace, TrainingPlan
from privgate.evidence.verdict import Verdict
from privgate.file import measure as file
from privgate.influence import left_out, published
from privgate.policy import Policy, judging
from privgate.policy.document_shape import WITHHELD
from privgate.policy.rules import METRICS, about
from privgate.run.needs import Need
from privgate.run.run import Budget, Run
from privgate.subject.subject import Subject
from privgate.theorems import catalogue
from privgate.theorems.pipelines import seen
from privgate.training import budget, isolation
from privgate.training.fleet import Fleet
from privgate.version import __version__


def _describe_run(run: Run, planned: TrainingPlan | None) -> RunPart:
    """Return what evidence says of the run itself, and what a reader needs to run it again."""
    fleet, control = run.fleet, run.seed_control
    seeds = left_out.retrained(run).seeds if run.has_computed(left_out.leave_out) else run.seeds
    if control is not None and control.dependent:
        control = control.model_copy(update={"paired": len(seeds)})
    python = {"privgate": __version__, "python": platform.python_version()}
    return RunPart(
        cannot_conclude=run.cannot_conclude,
        plan=planned,
        seeds=control,
        trace=RunTrace(
            versions=python | {name: metadata.version(name) for name in ("numpy", "scikit-learn")},
            system=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            command=" ".join(["privgate", *sys.argv[1:]]) if "privgate" in sys.argv[0] else "",
            seeds=seeds,
            training_calls=fleet.calls,
            digests=dict(run.subject.digests),
        ),
        isolation=fleet.isolation_of(run.subject),
        remembered=Remembered(
            signable=fleet.signable or not fleet.recalled, trained=fleet.calls, remembered=fleet.recalled
        ),
        nonce=run.nonce,
    )


def _describe_subject(run: Run) -> Mapping[str, Any]:
    """Return the subject's words and digests for the report, which theorems bound it, and whether its file is had."""
    subject, theorems, data = run.subject, run.theorems, run.subject.data
    return {
        "name": subject.name,
        "version": subject.version,
        "uri": subject.uri,
        "digests": dict(subject.digests),
        "n_records": data.n,
        "n_units": len(data.units),
        **({"people": {"declared": data.people_declared, "by": data.declared_by}} if data.people_declared else {}),
        "n_classes": len(subject.classes) if subject.task == "classification" else 0,
        **({} if subject.task == "classification" else {"task": subject.task}),
        **({"theorems": list(theorems)} if theorems else {}),
        **({"file": WITHHELD} if run.limits.file_withheld else {}),
        "n_candidates": 0 if data.candidates is None else len(data.candidates[1]),
        "release": subject.release.payload(),
        "domain": None if data.effective_domain is None else data.effective_domain.payload(),
        "recipe": dict(subject.recipe.payload),
        "detail": {k: v for k, v in subject.detail.items() if k != "preconditions"},
    }


def evaluate(
    policy: Policy | str | PathLike[str],
    subject: Subject,
    *,
    fleet: Fleet | None = None,
    limits: Budget | None = None,
    observe: bool = False,
    nonce: str = "",
    announce: Callable[[str], None] | None = None,
) -> Verdict:
    """Judge ``subject`` by every rule of ``policy``, in the policy's order; ``privgate.evaluate`` adds the way out."""
    if not isinstance(policy, Policy):
        policy = Policy.load(Path(policy) if isinstance(policy, PathLike) else policy)
    with contextlib.ExitStack() as own:
        run = prepare(policy, subject, fleet=fleet or own.enter_context(Fleet()), limits=limits)
        evidence = collect(replace(run, nonce=nonce), policy, announce or (lambda _: None))
        drawn = partial(budget.order, run.subject, run.fleet)
        return judged(policy, evidence, observe=observe, subject=run.subject, order=drawn)


def collect(run: Run, policy: Policy, tell: Callable[[str], None]) -> Evidence:
    """Return everything that the policy's rules need to know; nothing is judged here."""
    described, policy_asked = _describe_subject(run), asked_of(policy, run.subject, run.theorems)
    for sentence in (*_warnings(run), *planning.describe_candidates(run, policy_asked)):
        tell(sentence)
    run, checked, stopped = preconditions.check(run, policy_asked, tell)
    planned = None
    if not stopped and run.seed_control is not None:  # else attacks refuse already
        if Need.LEAVE_ONE_OUT in run.needs and (first := seen(run.subject)).steps:
            checked.append(Precondition("first_steps", "passed", first.words, {"steps": list(first.steps)}))
        planned, _, said = planning.make(run, policy_asked)
        for sentence in said:
            tell(sentence)
        run = preconditions.try_people_first(run)
    requests = dict.fromkeys(rule.request() for rule in policy_asked.rules)
    measured = dict[Request, Measurement]()
    for request in (r for r in requests if r in run.attacked):  # attacks first: they take few trainings
        measured[request] = questions.answer(run, request, preconditions.stop_attacks(run, stopped))
    run, more = (run, []) if stopped else preconditions.compare_seeds(run, measured)
    checked += more
    for request in (r for r in requests if r not in run.attacked):
        measured[request] = questions.answer(run, request, stopped or _end_by_attacks(run, request, measured))
    measurements = {request: measured[request] for request in requests}
    people = published.find_table(run)
    records, kept = ({}, ()) if people is None else (dict(run.compute(people.list_people)), people.list_cases(run))
    return Evidence(
        subject=described,
        preconditions=(*checked, *run.preconditions),
        measurements=measurements,
        records=records,
        cases=kept,
        run=_describe_run(run, planned),
        influence=published.describe_influence(run),
        artifact=file.look_if_needed(run),
        **run.notes,
    )


def _warnings(run: Run) -> Iterator[str]:
    """Yield what a user should know before the work starts: how isolated it is, what it can never conclude."""
    if run.fleet.isolation == isolation.NONE:
        why = isolation.why(run.fleet.isolate, cluster=run.fleet.cluster is not None)
        yield f"isolation none: training code runs as you and can read what you can ({why})"
    elif run.fleet.isolation_of(run.subject).endswith(isolation.NETWORKED):
        yield "the recipe declares that training needs the network: its code reaches whatever this host reaches"
    yield from run.cannot_conclude
    if run.subject.release.floor and not run.subject.release.alone:
        yield (
            "the file holds exact answers, so that the floor is not judged alone; state --file-not-downloadable, if "
            "nobody who may ask the model can get its file"
        )
    if (contents := file.look_if_needed(run)) is not None:
        what = "the file" if contents.judged == "file" else "the model that the recipe trains (nothing is stored)"
        yield f"{what} {contents.bytes_said}"


def judged(
    policy: Policy, evidence: Evidence, *, observe: bool, subject: Subject, order: Callable[[], Index] | None = None
) -> Verdict:
    """Return the verdict on evidence, decided now: nothing is measured, and an approval says until when it holds.

    What passes by theorem is confirmed by the subject; ``order`` is that in which people are drawn.
    """
    now = dt.datetime.now(dt.UTC)
    known = policy.resolved, subject, evidence, order
    named = {n: getattr(policy, n) for n in ("name", "version", "digest")}
    named |= {"path": policy.path.name, "source": policy.resolved}
    judged = policy.judge(evidence, today=now.date(), confirm=lambda f: confirm.confirm_findings(f, *known))
    verdict = Verdict(policy=named, findings=judged.findings, evidence=evidence, observed=observe)
    detail: dict[str, Any] = {
        "decided_at": now.isoformat(timespec="seconds"),
        "waivers": [w.payload() for w in judged.waivers],
        "scope": judging.find_scope(judged.findings),
    }
    if not verdict.outcome.releases:
        detail["next_steps"] = [step.payload() for step in evidence.run.next_steps]
    if verdict.approved:
        last = dt.datetime.combine(judged.expires, dt.time(23, 59, 59), dt.UTC)
        detail["expires"] = last.isoformat(timespec="seconds")
    return replace(verdict, detail=detail)


def again(subject: Subject, document: Mapping[str, Any], folder: Path, policy: Any) -> list[str]:
    """Return a sentence for each rule of a report that passes again, by cases that are made of the subject's data.

    ``DigestMismatchError``: the report is about other data, another recipe or another rule, a case is not what they
    make, or says something else. ``SubjectError``: what the folder holds cannot be read, is by another policy, or is
    about no theorem whose cases can be made.
    """
    with strict_json.reading("report.json cannot be recomputed", SubjectError):
        if document["policy"]["digest"] != policy.digest:
            raise SubjectError(f"the report was judged by another policy than {policy.name}; name that one")
        stated = document["evidence"]["subject"]
        for name in ("data", "recipe", "model"):
            if stated["digests"].get(name) != subject.digests.get(name):
                raise DigestMismatchError(f"the report is about another {name} than {subject.uri or 'the subject'}")
        if stated["n_units"] != len(subject.data.units):
            raise DigestMismatchError("the report is about another number of people than the data")
        _stated(document, {r.get("id") or r["metric"]: r for r in policy.resolved["rules"]})
    said = dict[str, None]()

    def made_again(k: Kept) -> Kept:
        if why := confirm.canonical(subject, k):
            if k.theorem not in catalogue.THEOREMS:
                raise SubjectError(why)
            raise DigestMismatchError(f"{why}; the report rests on something else than these data")
        said[f"{k.theorem}: its arrays are what the data make"] = None
        return confirm.claimed(subject, k)

    recomputed = cases.recompute(document, folder, made_again)
    return [*said, *recomputed]


def _stated(document: Mapping[str, Any], rules: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ``DigestMismatchError`` where a finding has another limit or question than the policy's rule."""
    requests = {m["request"]["key"]: m["request"] for m in document["evidence"]["measurements"]}
    for f in document["findings"]:
        if Need.LEAVE_ONE_OUT not in about(f["metric"]).needs:
            continue
        rule, options = rules.get(f["rule"], {}), requests[f["request"]]["options"]
        differ = [n for n in ("aggregate", "q", "threshold", "sample", "over") if options.get(n) != rule.get(n)]
        if differ or (rule.get("metric"), rule.get(f["direction"])) != (f["metric"], f["limit"]):
            raise DigestMismatchError(f"rule {f['rule']!r} of the report is not the policy's")


def _end_by_attacks(run: Run, request: Request, measured: Mapping[Request, Measurement]) -> list[Precondition]:
    """Return that attacks block already, where the request is about trainings that take nothing of it back.

    Before the controls have looked at the recipe, these are all trainings that are no shadow models.
    """
    needs, early = METRICS[request.metric].needs, run.seed_control is None
    spared = planning.TRAINED.keys() - {Need.SHADOWS} if early else {Need.LEAVE_ONE_OUT}
    if needs.isdisjoint(spared) or not run.attack_breaks(measured) or not (early or left_out.spared(run)):
        return []
    text = "a rule on attacks refuses, which no other training takes back; --full measures it all the same"
    return [Precondition(judging.REACHED, "failed", text)]
