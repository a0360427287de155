"""The search: each way of changing a model is tried, and the weakest change that passes is found."""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from privgate import digest
from privgate.advice import apply, candidates
from privgate.advice import point as usefulness
from privgate.advice import probe as probing
from privgate.advice.advice_page import Advice
from privgate.advice.candidates import NOTHING, everything, knob_change, noisy, present_values, sampled, sharded
from privgate.advice.change import Change, Setting, changed, rehearsed
from privgate.advice.point import Point
from privgate.advice.probe import FINALISTS, confirm, finalists, stricter
from privgate.check import prepare
from privgate.errors import MeasurementError, PrivgateError
from privgate.families import answering as families
from privgate.policy import Policy, problems
from privgate.run.run import Budget
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome

# Trials of one search: candidates are measured one by one and kept, and halving finds the weakest that passes.
#
# On one knob, influence falls as the knob is turned towards its strongest value, nearly always, and halving finds the
# weakest value that passes. Nothing rests on it being so: every candidate is measured.

#: halvings of one knob: the factor between "passes" and "does not" that is left is small beside the noise of accuracy
HALVINGS = 5
#: share of the time for the model as it stands
PRESENT = 1 / 6

#: a part of the way, 0 to 1, to where little is left of the model -> the change
Scale = Callable[[float], Change]


@dataclass
class Trials:
    """What one search for a subject under a policy has measured.

    Parameters
    ----------
    policy, subject : Policy, Subject
    fleet : Fleet
    limits : Budget
        Of each measurement.
    measure : str
        Of usefulness: see ``usefulness.chosen``; the usual one if empty.
    public : Public, optional
        Records of nobody in the training data, to train an encoder on.
    halvings : int
        Of one knob.
    risk_alone : bool
        Whether usefulness is left for later: see ``with_use``.
    seconds : float
        Wall time after which nothing new is begun; a third is kept for confirming.
    tell : callable
        Is told one sentence a candidate.
    """

    policy: Policy
    subject: Subject
    fleet: Fleet
    limits: Budget = field(default_factory=Budget)
    measure: str = ""
    public: apply.Public | None = None
    halvings: int = HALVINGS
    risk_alone: bool = False
    seconds: float = 1800.0
    tell: Callable[[str], None] = lambda _: None
    points: list[Point] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """Whether no time is left to try anything new."""
        return self.remaining < 0

    @property
    def remaining(self) -> float:
        """Seconds of the search, confirming aside; what a check tries on its own is counted in trainings alone."""
        return math.inf if self.risk_alone else self.began + self.seconds * 2 / 3 - time.monotonic()

    def tried(self, change: Change, *, pruned: bool = True) -> Point:
        """Measure one candidate, keep it and return it; one that cannot be trained is inconclusive, never a pass."""
        start, calls = time.monotonic(), self.fleet.calls
        useful = error = math.nan
        digests = {"recipe": "", "data": ""}
        try:
            candidate = rehearsed(changed(self.subject, change))
            digests = {"recipe": candidate.recipe.digest, "data": candidate.data.digest}
            # what would not pass as one of several finalists is none
            policy = stricter(self.policy, FINALISTS) if pruned else self.policy
            # the model as it stands needs no number: a large one with much randomness may take longer than all others
            left = self.remaining if pruned else min(self.remaining, PRESENT * self.seconds)
            risk = probing.probe(policy, candidate, fleet=self.fleet, limits=self.limits, pruned=pruned, seconds=left)
            if not self.risk_alone and (risk.outcome.releases or not math.isnan(risk.of_limit) or not pruned):
                useful, error = usefulness.cross_validated(candidate, self.fleet, self.measure)
        except (PrivgateError, ValueError, TypeError) as exc:
            # a parameter that this learner refuses is no candidate; whatever else is wrong shows in its sentence
            risk = probing.Risk(Outcome.INCONCLUSIVE, why=str(exc) or type(exc).__name__)
        point = self.pointed(
            change,
            risk,
            useful=useful,
            useful_error=error,
            trainings=self.fleet.calls - calls,
            seconds=round(time.monotonic() - start, 2),
            **digests,
        )
        self.points.append(point)
        self.tell(told(point, self.measure))
        return point

    def pointed(self, change: Change, risk: probing.Risk, **more: Any) -> Point:
        """Return the next point of this search, not kept yet."""
        told = dataclasses.asdict(risk) | {"outcome": risk.outcome.value}
        return Point(number=len(self.points), change=change, **told, **more)

    def with_use(self, point: Point) -> Point:
        """Return a candidate with its usefulness; NaN stays where it cannot be trained."""
        candidate = rehearsed(changed(self.subject, point.change))
        try:
            useful, error = usefulness.cross_validated(candidate, self.fleet, self.measure)
        except PrivgateError:
            return point
        return point.model_copy(update={"useful": useful, "useful_error": error})

    def again(self, point: Point) -> Point:
        """Return a confirmed candidate with its usefulness on other folds: it was chosen for that on the first ones."""
        if math.isnan(point.useful) or not point.stands:
            return point
        candidate = rehearsed(changed(self.subject, point.change))
        useful, _ = usefulness.cross_validated(candidate, self.fleet, self.measure, draw=usefulness.AGAIN)
        return point.model_copy(update={"confirmed_useful": useful})

    def one(self, change: Change) -> Point | None:
        """Measure one candidate while there is time; say that there was none, where there is not."""
        if not self.over:
            return self.tried(change)
        self.left.append(f"{change.says}: the time is spent")
        return None

    def halved(self, scale: Scale) -> bool:
        """Find the weakest part of the way, 0 to 1, that passes; keep every one tried, return whether any passes."""
        if not self.tried(scale(1.0)).passes:
            return False
        self.weakest(scale)
        return True

    def weakest(self, scale: Scale) -> None:
        """Halve the way from nothing to the strongest, which passed."""
        low, high = 0.0, 1.0
        seen = {scale(1.0).says}
        for _ in range(self.halvings):
            middle = (low + high) / 2
            made = scale(middle)
            if made.says in seen:
                break
            seen.add(made.says)
            point = self.one(made)
            if point is None:
                break
            if point.passes:
                high = middle
            else:
                low = middle


def told(point: Point, measure: str) -> str:
    """Return one line about a candidate."""
    risk = "unknown" if math.isnan(point.of_limit) else f"{point.of_limit:.3g} of the limit"
    useful = "" if math.isnan(point.useful) else f", {measure} {point.useful:.4f}"
    open_why = f" ({point.why})" if math.isnan(point.of_limit) and point.why else ""
    return f"{point.number:>3} {point.outcome:<12} {point.change.says}: {risk}{useful}{open_why}"


# Several knobs at once: Optuna proposes, the same measurements answer.

#: tries; boosting has four or five knobs
TRIALS = 12


def combined(subject: Subject, tried: Callable[[Change], Point], over: Callable[[], bool]) -> str:
    """Try settings of several knobs together, towards a useful model within the limit.

    Returns why not all were tried; empty if they were, or there is nothing to combine.
    """
    knobs = present_values(subject)
    if len(knobs) < 2:
        return ""
    try:
        import optuna
    except ImportError:
        return "several parameters together: `pip install 'privgate[advise]'` for Optuna"
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def excess(trial: Any) -> list[float]:
        return [float(trial.user_attrs.get("excess", 1.0))]

    # from Optuna 5 on a trial is told itself
    told = hasattr(optuna.trial.Trial, "set_constraint")
    sampler = optuna.samplers.TPESampler(
        seed=0, n_startup_trials=TRIALS // 2, **({} if told else {"constraints_func": excess})
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    # from the middle of the way: all at their weakest is the model as it stands
    study.enqueue_trial({str(i): 0.5 for i in range(len(knobs))})
    for _ in range(TRIALS):
        if over():
            return "several parameters together: the time is spent"
        trial = study.ask()
        parts = [trial.suggest_float(str(i), 0.0, 1.0) for i in range(len(knobs))]
        values = [knob.between(start, part) for (_, knob, start), part in zip(knobs, parts, strict=True)]
        says = ", ".join(f"{knob.parameter} {value:g}" for (_, knob, _), value in zip(knobs, values, strict=True))
        settings = tuple(Setting(place=place, value=v) for (place, _, _), v in zip(knobs, values, strict=True))
        point = tried(Change(says=says, kind="parameters", settings=settings))
        known = not math.isnan(point.of_limit)
        beyond = min(point.of_limit, 1e9) - 1.0 if known else (-1.0 if point.passes else 1e9)
        if told:
            trial.set_constraint("risk", beyond)
        else:
            trial.set_user_attr("excess", beyond)
        study.tell(trial, point.useful if not math.isnan(point.useful) else -1e9)
    return ""


# The search: each way of changing a model is tried, the weakest change that passes is found, and the best confirmed.
#
# The strongest of a knob is tried first (where that fails the knob is given up after one measurement). The weakest
# that passes is looked for at once where engines make it cheap, else when every kind of change has had its turn. What
# passes is confirmed by a whole check.

#: trainings, cross-validation among them, up to which a candidate is cheap enough to halve at once
CHEAP = 20


@dataclass
class Search(Trials):
    """One search for a subject under a policy; parameters are those of ``Trials``."""

    def advice(self) -> Advice:
        """Return everything that was tried; what passes was confirmed.

        Raises
        ------
        UsageError
            The policy is not for this subject, or the measure is unknown.
        """
        self.measure = usefulness.chosen(self.subject, self.measure)
        present = self.tried(NOTHING, pruned=False)
        if not present.passes:
            self._every_way(present)
        self._confirm()
        return Advice(
            uri=self.subject.uri,
            policy=named(self.policy),
            policy_digest=self.policy.digest,
            recipe=self.subject.recipe.digest,
            data=self.subject.data.digest,
            measure=self.measure,
            points=tuple(self.points),
            left=tuple(self.left),
        )

    def _every_way(self, present: Point) -> None:
        """Try every way of changing a model that does not pass as it stands."""
        later, early = [], list[Change]()
        if self._trains():  # theorems about shards need few trainings, whatever the learner costs
            early = list(sharded(self.subject, prepare.unit_limits(self.policy)))
            for change in early:
                self.one(change)
        for scale, point in list(self._strongest()):
            if point.trainings <= CHEAP:
                self.weakest(scale)
            else:
                later.append(scale)
        self._private()
        for change in itertools.chain(candidates.early(self.subject), everything(self.subject, self.policy)):
            if change not in early:
                self.one(change)
        self._fewer(present)
        for scale in later:  # by now every kind of change has had its turn
            self.weakest(scale)
        self.left += candidates.skipped(self.subject, self.policy, public=self.public is not None)
        if why := combined(self.subject, self.tried, lambda: self.over):
            self.left.append(why)

    def _trains(self) -> bool:
        """Return whether measuring everybody takes many trainings."""
        subject = self.subject
        everybody = np.arange(len(subject.data.units), dtype=np.int64)
        engine = families.first(subject)[0]
        return engine.trains or engine.cost(subject, everybody, (subject.recipe.seed,)).fits > CHEAP

    def _strongest(self) -> Iterator[tuple[Scale, Point]]:
        """Try the strongest of each knob, of other learners and of noise on answers; yield what passes."""
        for alternatives in self._scales():
            for scale in alternatives:
                try:
                    point = self.one(scale(1.0))
                except PrivgateError as exc:
                    self.left.append(str(exc))
                    break
                if point is not None and point.passes:
                    yield scale, point
                    break

    def _scales(self) -> Iterator[list[Scale]]:
        """Yield each scale, first as it is and then with what belongs beside it."""
        for place, knob, start in present_values(self.subject):
            yield [
                partial(knob_change, place, knob, start, beside=beside)
                for beside in ((False, True) if knob.beside else (False,))
            ]
        for _, scale in candidates.families(self.subject, self.policy):
            yield [scale]
        if (noise := noisy(self.subject)) is not None:
            yield [noise]
        if self.public is None:
            return
        if why := apply.unfit(self.subject, self.public):
            self.left.append(f"public pre-training, a frozen encoder: {why}")
        else:
            yield [apply.scale(self.subject, self.public)]

    def _private(self) -> None:
        """Try private training at the epsilon that a rule names; where that is not enough, at the largest that is."""
        scale = candidates.named_private(self.subject, self.policy)
        if scale is None:
            return
        try:
            point = self.one(scale(0.0))
            if point is not None and not point.passes and not self.over:
                self.halved(scale)
        except MeasurementError as exc:
            self.left.append(f"training with differential privacy: {exc}")

    def _fewer(self, present: Point) -> None:
        """Train on fewer people, and on fewer still while that lowers the risk; nobody else can foretell the draw."""
        key = self.fleet.ledger.drawn(b"fewer people", self.fleet.context(self.subject))
        for change in sampled(self.subject, digest.generator(key.hex(), digits=64)):
            point = self.one(change)
            if point is None or not (point.passes or point.of_limit < present.of_limit):
                break

    def _confirm(self) -> None:
        """Let a whole check look at the most useful candidates that pass, with randomness that nobody has seen."""
        found, left = confirm(
            finalists(self.points, self.policy),
            self.policy,
            self.subject,
            fleet=self.fleet,
            limits=self.limits,
            tell=self.tell,
        )
        self.left += left
        for point in found:
            self.points[point.number] = self.again(point)


def named(policy: Policy) -> str:
    """Return how a command names a policy so that it is found."""
    return policy.name if problems.shipped().get(policy.name) == policy.path else policy.path.name or policy.name
