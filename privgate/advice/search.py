"""The one search behind ``privgate advise`` and ``check --advise``: the weakest turn of a knob that passes.

A change is measured by the policy's own rules, in a check whose randomness is not that of any check that decides. The
most useful change that passes is then checked once as a whole, with the randomness of an ordinary check.
"""

import contextlib
import math
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from privgate import digest
from privgate.advice.knobs import Change, Floor, find_changes, find_floor
from privgate.arrays import Index
from privgate.check import beforehand, gate, prepare
from privgate.errors import MeasurementError, PrivgateError, UsageError
from privgate.evidence import NextStep
from privgate.evidence.figures import percent
from privgate.evidence.verdict import Outcome, Verdict
from privgate.policy import Policy, problems
from privgate.policy.document_shape import WITHHELD
from privgate.policy.rules.rule_base import STEPS
from privgate.run.run import Budget
from privgate.statistics import roc
from privgate.subject.subject import Subject
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

#: seconds of a search if nobody says
SECONDS = 1800.0
FOLDS = 5  # of cross-validation
#: standard errors by which a model must answer better than one that ignores the features
MARGIN = 2.0
#: a probability of 0 for the right label costs this much at most: one answer must not decide
_LEAST = 1e-15


class Rehearsal(Subject):
    """A subject whose randomness is not that of a check: what the search has looked at decides no verdict."""

    @property
    def training_digest(self) -> str:
        """As of the subject, and different from it."""
        return digest.of_json([super().training_digest, "advice"])


@dataclass(frozen=True)
class Tried:
    """One change and what was measured of it."""

    change: Change | Floor
    #: cross-validated, larger is better: mean log-probability of the right label, or minus the mean squared error in
    #: variances of the targets; NaN where it could not be trained
    useful: float = math.nan
    #: the same in words that people use: accuracy, or error
    quality: str = ""
    #: whether every rule was kept, and why not
    passes: bool = False
    why: str = ""


@dataclass
class Advice:
    """What a search has found."""

    uri: str
    policy: str
    #: why nothing was searched, or nothing else: one sentence; empty where changes were measured to the end
    ended: str = ""
    #: of the model as it stands
    quality: str = ""
    tried: list[Tried] = field(default_factory=list)
    #: the most useful change that passes
    best: Tried | None = None
    #: of the whole check of the best change, or of the model as it stands where that passes
    verdict: Verdict | None = None

    @property
    def approved(self) -> bool:
        """Whether a whole check approves the change, or the model as it stands."""
        return self.verdict is not None and self.verdict.outcome.releases

    @property
    def lines(self) -> list[str]:
        """Everything for people, the diff of the recipe last."""
        said = [f"as it stands: {self.quality}"] if self.quality else []
        said += [
            f"{t.change.says}: {'keeps the policy' if t.passes else t.why} ({t.quality or 'not trained'})"
            for t in self.tried
        ]
        if self.ended:
            said.append(self.ended)
        if self.best is None:
            nothing = "no change that was tried keeps the policy: take another learner or policy"
            return said if self.ended else [*said, nothing]
        if not self.approved:
            return [*said, f"{self.best.change.says}: a whole check does not approve it: {_why_not(self.verdict)}"]
        step = "a whole check approves this change; train with it, log the model again, and check it:"
        return [*said, step, *(f"  {line}" for line in self.best.change.diff)]

    def payload(self) -> dict[str, Any]:
        """Return JSON values."""
        diff = self.best.change.diff if self.best is not None and self.approved else []
        return {"uri": self.uri, "policy": self.policy, "approved": self.approved, "diff": diff, "said": self.lines}


def advise(
    policy: Policy,
    subject: Subject,
    *,
    fleet: Fleet,
    limits: Budget | None = None,
    verdict: Verdict | None = None,
    seconds: float = SECONDS,
    tell: Callable[[str], None] = lambda _: None,
) -> Advice:
    """Return the most useful change of one parameter that passes the policy, confirmed by a whole check.

    ``verdict`` is that of the model as it stands, which is checked first where this is absent; ``limits`` are of each
    check. After ``seconds`` no other change is begun, and ``tell`` is told one sentence a change. What ``fleet``
    remembers is not trained again: an interrupted search goes on.
    """
    until, limits = time.monotonic() + seconds, limits or Budget()
    advice = Advice(subject.uri, policy.name)
    floor, knobs = find_floor(subject), list(find_changes(subject.recipe.payload))
    if verdict is None:
        run = prepare.prepare(policy, subject, fleet=fleet, limits=limits)
        if stopped := beforehand.check_untrained(run, prepare.asked_of(policy, subject, run.theorems))[1]:
            advice.ended = f"no change of the model can be approved: {stopped[0].message}"
            return advice
    if not (floor or knobs):
        advice.ended = "the recipe has no parameter of which it is known that it protects people; change the learner"
        return advice
    if verdict is None:
        tell("checking the model as it stands")
        verdict = gate.evaluate(policy, subject, fleet=fleet, limits=limits)
    if verdict.outcome.releases:
        advice.verdict, advice.ended = verdict, "the model as it stands keeps the policy"
        return advice
    if why := _first(verdict):
        advice.ended = f"no change of a parameter helps before this: {why}"
        return advice
    with contextlib.suppress(MeasurementError):
        advice.quality = cross_validate(subject, fleet)[2]
    for changes in ([[floor]] if floor else []) + knobs:
        withheld = limits.file_withheld or policy.file == WITHHELD
        if withheld and any(t.passes and isinstance(t.change, Floor) for t in advice.tried):
            break  # the same model, and nothing weaker
        answers = False  # whether a weaker turn of this knob answers well
        for change in changes:
            if time.monotonic() > until:
                advice.ended = "the time is spent: give a longer --budget to try the rest"
                break
            tried = _try(policy, subject, change, fleet, limits)
            advice.tried.append(tried)
            tell(f"{change.says}: {'keeps the policy' if tried.passes else tried.why}")
            if tried.passes or (answers and math.isnan(tried.useful)):  # stronger ones answer worse
                break
            answers = answers or not math.isnan(tried.useful)
    passing = [t for t in advice.tried if t.passes]
    if passing:  # a floor helps only where nobody gets the file, so that it comes last
        without = [t for t in passing if not isinstance(t.change, Floor)]
        advice.best = max(without or passing, key=lambda t: t.useful)
        tell(f"checking as a whole: {advice.best.change.says}")
        changed, allowed = advice.best.change.change(subject), _allow(limits, advice.best.change)
        advice.verdict = gate.evaluate(policy, changed, fleet=fleet, limits=allowed)
    return advice


def _allow(limits: Budget, change: Change | Floor) -> Budget:
    """Return the limits under which a change is tried: a floor is with the statement that it needs."""
    return replace(limits, file_withheld=limits.file_withheld or isinstance(change, Floor))


def _first(verdict: Verdict) -> str:
    """Return what has to be done before any parameter is turned; empty where a change may be approved."""
    if stopped := beforehand.stopping(verdict.evidence.preconditions):
        return stopped[0].message
    others = tuple(text for cause, text in STEPS.items() if cause != "influence")
    steps = (f.advice for f in verdict.findings if f.mode == "enforce" and not f.outcome.releases)
    return next((step for step in steps if step.startswith(others)), "")


def _try(policy: Policy, subject: Subject, change: Change | Floor, fleet: Fleet, limits: Budget) -> Tried:
    """Measure one change; one that cannot be trained, or answers no better than without features, never passes."""
    tried = Tried(change)
    try:
        changed = change.change(subject)
        rehearsal = Rehearsal(
            changed.recipe, changed.data, None, changed.release, changed.name, digests=changed.digests
        )
        useful, worst, quality = cross_validate(rehearsal, fleet)
        cost = _price_floor(rehearsal, fleet) if isinstance(change, Floor) else ""
        tried = replace(tried, quality=quality + cost)
        if not useful > worst:
            return replace(tried, why="it answers no better than without the features")
        tried = replace(tried, useful=useful)
        verdict = gate.evaluate(policy, rehearsal, fleet=fleet, limits=_allow(limits, change))
    except (PrivgateError, ValueError, TypeError) as exc:  # a parameter that this learner refuses is no change
        return replace(tried, why=str(exc) or type(exc).__name__)
    return replace(tried, passes=verdict.outcome.releases, why=_why_not(verdict))


def _why_not(verdict: Verdict | None) -> str:
    findings = [] if verdict is None else [f for f in map(verdict.said, verdict.findings) if f.mode == "enforce"]
    return next((f.message for f in findings if f.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)), "")


def cross_validate(subject: Subject, fleet: Fleet) -> tuple[float, float, str]:
    """Return what a model is good for, by people's folds: (usefulness, what it must exceed, in words)."""
    held = _folds(subject)
    fits = [Fit(subject.recipe.payload["seed"], rows, left_out=rows) for rows in held]
    gained, useful, share = [], [], []
    for rows, answer in zip(held, fleet.fits(subject, fits, label="cross-validation"), strict=True):
        if answer.problem:
            raise MeasurementError(f"cross-validation: {answer.problem}")
        others = np.setdiff1d(np.arange(subject.data.n), rows)
        if subject.task == "regression":
            y = (subject.data.y - subject.scale[0]) / subject.scale[1]
            noise = subject.release.noise
            spread = 0.0 if noise is None else noise.deviation / subject.scale[1]
            each = -((answer.log_p.ravel() - y[rows]) ** 2) - spread**2
            without = -((np.mean(y[others]) - y[rows]) ** 2)
            share.append(float(-each.mean()))
        else:
            truth, p = subject.label_codes, np.exp(answer.log_p)
            p = subject.release.shown(p) if subject.release.floor else p
            shares = np.bincount(truth[others], minlength=p.shape[1]) / len(others)
            each = np.log(np.maximum(p[np.arange(len(rows)), truth[rows]], _LEAST))
            without = np.log(np.maximum(shares[truth[rows]], _LEAST))
            share.append(float((p.argmax(axis=1) == truth[rows]).mean()))
        useful.append(float(each.mean()))
        gained.append(float((each - without).mean()))
    worst = float(np.mean(useful) - np.mean(gained) + MARGIN * np.std(gained, ddof=1) / np.sqrt(len(gained)))
    mean = float(np.mean(share))
    words = f"accuracy {mean:.4f}"
    if subject.task == "regression":
        words = f"root mean squared error {math.sqrt(mean) * subject.scale[1]:.4g}"
    return float(np.mean(useful)), worst, f"cross-validated {words}"


def _price_floor(subject: Subject, fleet: Fleet) -> str:
    """Return what a floor costs on candidates, the end of a sentence; empty where no label of theirs is known."""
    data, labels = subject.data, subject.classes
    y = data.pool()[1]
    rows = data.n + np.flatnonzero(np.isin(y[data.n :], labels))
    if not len(rows):
        return ""
    (answer,) = fleet.fits(subject, [Fit(subject.recipe.payload["seed"], rows, left_out=rows[:0])], label="floor")
    if answer.problem:
        raise MeasurementError(answer.problem)
    truth, exact = np.searchsorted(labels, y[rows]), np.exp(answer.log_p)
    floored = subject.release.shown(exact)
    low = (floored <= np.array(subject.release.floor)).any(axis=1).mean()
    said = [f"; of {len(rows):,} candidates' answers {percent(low)} have a label at the floor"]
    present = [k for k in range(len(labels)) if 0 < (truth == k).sum() < len(rows)]
    areas, losses = ([f(p) for p in (exact, floored)] for f in (
        lambda p: np.mean([roc.auc(p[:, k], truth == k) for k in present]) if present else math.nan,
        lambda p: -np.log(np.maximum(p[np.arange(len(rows)), truth], _LEAST)).mean(),
    ))  # fmt: skip
    said += [f"{name} {a:.4f} becomes {b:.4f}" for name, (a, b) in (("AUC", areas), ("log loss", losses))]
    return ", ".join(said)


def _folds(subject: Subject) -> list[Index]:
    """Return the rows of each fold: a person's records are in one, labels spread evenly, the same for every change."""
    units, draw = subject.data.units, np.random.default_rng(0)
    labels = subject.label_codes[[int(rows[0]) for rows in units]]
    order = np.lexsort((draw.random(len(units)), labels))
    return [np.sort(np.concatenate([units[int(u)] for u in order[f::FOLDS]])) for f in range(min(FOLDS, len(units)))]


def search_command(subject: Subject, policy: Policy) -> str:
    """Return the command line of a search; empty where the recipe has nothing to turn."""
    known = problems.shipped().get(policy.name) == policy.path or not policy.path.name
    named = policy.name if known else os.path.relpath(policy.path)
    words = ["privgate", "advise", subject.uri or "URI", "--policy", named]
    return shlex.join(words) if find_floor(subject) or any(find_changes(subject.recipe.payload)) else ""


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
    """Return the verdict by every rule of ``policy``; a failed policy is one, never an exception.

    Where it blocks, it names the search for a change that passes.

    Parameters
    ----------
    policy : Policy, str or path
        A policy, the name of a shipped one, or its file.
    subject : Subject
        ``Subject.load("models:/name/version")`` or ``Subject.local(recipe, data)``.
    fleet : Fleet, optional
        Where training runs and is remembered; worker processes on this machine if absent.
    limits : Budget, optional
        What the run may cost.
    observe : bool
        The operator's setting: the verdict is recorded, nothing is approved by it.
    nonce : str
        The requester of this check; its signer refuses the report of any other.
    announce : callable, optional
        Is told in sentences what can never be concluded, and what the work will cost, before it starts.
    """
    if not isinstance(subject, Subject):
        raise UsageError(
            f"evaluate judges a Subject, not a {type(subject).__name__}; "
            "pass Subject.local(recipe, data) or Subject.load('models:/name/version')"
        )
    if not isinstance(policy, Policy):
        policy = Policy.load(Path(policy) if isinstance(policy, PathLike) else policy)
    verdict = gate.evaluate(
        policy, subject, fleet=fleet, limits=limits, observe=observe, nonce=nonce, announce=announce
    )
    command = search_command(subject, policy)
    if verdict.outcome.releases or _first(verdict) or not command:
        return verdict
    effect = (
        "changes of one parameter are measured by the same rules; the most useful that keeps them is checked as a whole"
    )
    calls = verdict.evidence.run.trace.training_calls if verdict.evidence.run.trace else 0
    count = sum(map(len, find_changes(subject.recipe.payload))) + bool(find_floor(subject))
    cost = f"at most {count + 1} checks; this one made {calls} trainings"
    step = NextStep(action=f"search for a change that is approved: `{command}`", effect=effect, cost=cost)
    run = verdict.evidence.run.model_copy(update={"next_steps": (step,)})
    detail = {**verdict.detail, "next_steps": [step.payload()]}
    return replace(verdict, evidence=replace(verdict.evidence, run=run), detail=detail)
