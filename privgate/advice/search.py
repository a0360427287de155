"""The search: each way of changing a model is tried, the weakest change that passes is found, and the best confirmed.

On one knob, influence falls as the knob is turned towards its strongest value, nearly always: the strongest is tried
first (where that fails the knob is given up after one measurement), and halving finds the weakest value that passes: at
once where engines make it cheap, else when every kind of change has had its turn.
Nothing rests on it being so: every candidate is measured, and what passes is confirmed by a whole check.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from privgate import digest, families
from privgate.advice import learners, pretrained, usefulness
from privgate.advice import probe as probing
from privgate.advice.advice import Advice
from privgate.advice.candidates import NOTHING, everything, knob_change, noisy, present_values, sampled, sharded
from privgate.advice.change import Change, changed, rehearsed
from privgate.advice.combined import combined
from privgate.advice.confirm import FINALISTS, confirm, rests_on_levels, stricter
from privgate.advice.point import Point, front
from privgate.check import asked
from privgate.errors import MeasurementError, PrivgateError
from privgate.policy import Policy, locate
from privgate.run.run import Budget
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome

#: halvings of one knob: the factor between "passes" and "does not" that is left is small beside the noise of accuracy
HALVINGS = 5
#: share of the time for the model as it stands
PRESENT = 1 / 6
#: trainings, cross-validation among them, up to which a candidate is cheap enough to halve at once
CHEAP = 20

#: a part of the way, 0 to 1, to where little is left of the model -> the change
Scale = Callable[[float], Change]


@dataclass
class Search:
    """One search for a subject under a policy.

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
    public: pretrained.Public | None = None
    halvings: int = HALVINGS
    risk_alone: bool = False
    seconds: float = 1800.0
    tell: Callable[[str], None] = lambda _: None
    points: list[Point] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

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
            later, early = [], list[Change]()
            if self._trains():  # theorems about shards need few trainings, whatever the learner costs
                early = list(sharded(self.subject, asked.unit_limits(self.policy)))
                for change in early:
                    self._one(change)
            for scale, point in list(self._strongest()):
                if point.trainings <= CHEAP:
                    self._weakest(scale)
                else:
                    later.append(scale)
            self._private()
            for change in itertools.chain(learners.early(self.subject), everything(self.subject, self.policy)):
                if change not in early:
                    self._one(change)
            self._fewer(present)
            for scale in later:  # by now every kind of change has had its turn
                self._weakest(scale)
            self.left += learners.skipped(self.subject, self.policy, public=self.public is not None)
            if why := combined(self.subject, self.tried, lambda: self.over):
                self.left.append(why)
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

    # -- one candidate ------------------------------------------------------------------------------------------------

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

    def _trains(self) -> bool:
        """Return whether measuring everybody takes many trainings."""
        subject = self.subject
        everybody = np.arange(len(subject.data.units), dtype=np.int64)
        engine = families.first(subject)[0]
        return engine.trains or engine.cost(subject, everybody, (subject.recipe.seed,)).fits > CHEAP

    def _one(self, change: Change) -> Point | None:
        if not self.over:
            return self.tried(change)
        self.left.append(f"{change.says}: the time is spent")
        return None

    def _fewer(self, present: Point) -> None:
        """Train on fewer people, and on fewer still while that lowers the risk; nobody else can foretell the draw."""
        key = self.fleet.ledger.drawn(b"fewer people", self.fleet.context(self.subject))
        for change in sampled(self.subject, digest.generator(key.hex(), digits=64)):
            point = self._one(change)
            if point is None or not (point.passes or point.of_limit < present.of_limit):
                break

    def _private(self) -> None:
        """Try private training at the epsilon that a rule names; where that is not enough, at the largest that is."""
        scale = learners.named_private(self.subject, self.policy)
        if scale is None:
            return
        try:
            point = self._one(scale(0.0))
            if point is not None and not point.passes and not self.over:
                self.halved(scale)
        except MeasurementError as exc:
            self.left.append(f"training with differential privacy: {exc}")

    # -- what gets weaker on a scale ----------------------------------------------------------------------------------

    def _strongest(self) -> Iterator[tuple[Scale, Point]]:
        """Try the strongest of each knob, of other learners and of noise on answers; yield what passes."""
        for alternatives in self._scales():
            for scale in alternatives:
                try:
                    point = self._one(scale(1.0))
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
        for _, scale in learners.families(self.subject, self.policy):
            yield [scale]
        if (noise := noisy(self.subject)) is not None:
            yield [noise]
        if self.public is None:
            return
        if why := pretrained.unfit(self.subject, self.public):
            self.left.append(f"public pre-training, a frozen encoder: {why}")
        else:
            yield [pretrained.scale(self.subject, self.public)]

    def halved(self, scale: Scale) -> bool:
        """Find the weakest part of the way, 0 to 1, that passes; keep every one tried, return whether any passes."""
        if not self.tried(scale(1.0)).passes:
            return False
        self._weakest(scale)
        return True

    def _weakest(self, scale: Scale) -> None:
        low, high = 0.0, 1.0
        seen = {scale(1.0).says}
        for _ in range(self.halvings):
            middle = (low + high) / 2
            made = scale(middle)
            if made.says in seen:
                break
            seen.add(made.says)
            point = self._one(made)
            if point is None:
                break
            if point.passes:
                high = middle
            else:
                low = middle

    # -- confirming ---------------------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        """Let a whole check look at the most useful candidates that pass, with randomness that nobody has seen."""
        found, left = confirm(
            list(self._worth_confirming()),
            self.policy,
            self.subject,
            fleet=self.fleet,
            limits=self.limits,
            tell=self.tell,
        )
        self.left += left
        for point in found:
            self.points[point.number] = self.again(point)

    def again(self, point: Point) -> Point:
        """Return a confirmed candidate with its usefulness on other folds: it was chosen for that on the first ones."""
        if math.isnan(point.useful) or not point.stands:
            return point
        candidate = rehearsed(changed(self.subject, point.change))
        useful, _ = usefulness.cross_validated(candidate, self.fleet, self.measure, draw=usefulness.AGAIN)
        return point.model_copy(update={"confirmed_useful": useful})

    def _worth_confirming(self) -> Iterator[Point]:
        good = [p for p in self.points if p.number > 0 and p.passes and not p.change.games]
        shown = front(good)[::-1]  # the most useful first
        ranked = sorted(shown or good, key=lambda p: -p.useful if not math.isnan(p.useful) else math.inf)
        if rests_on_levels(self.policy) and len(ranked) > FINALISTS:
            # halving ends close to the limit, where other randomness decides: the others have room to spare
            ranked = [ranked[i * (len(ranked) - 1) // (FINALISTS - 1)] for i in range(FINALISTS)]
        yield from ranked[:FINALISTS]


def named(policy: Policy) -> str:
    """Return how a command names a policy so that it is found."""
    return policy.name if locate.shipped().get(policy.name) == policy.path else policy.path.name or policy.name


def told(point: Point, measure: str) -> str:
    """Return one line about a candidate."""
    risk = "unknown" if math.isnan(point.of_limit) else f"{point.of_limit:.3g} of the limit"
    useful = "" if math.isnan(point.useful) else f", {measure} {point.useful:.4f}"
    open_why = f" ({point.why})" if math.isnan(point.of_limit) and point.why else ""
    return f"{point.number:>3} {point.outcome:<12} {point.change.says}: {risk}{useful}{open_why}"
