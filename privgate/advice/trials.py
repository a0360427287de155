"""Trials of one search: candidates are measured one by one and kept, and halving finds the weakest that passes.

On one knob, influence falls as the knob is turned towards its strongest value, nearly always, and halving finds the
weakest value that passes. Nothing rests on it being so: every candidate is measured.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from privgate.advice import pretrained, usefulness
from privgate.advice import probe as probing
from privgate.advice.change import Change, changed, rehearsed
from privgate.advice.confirm import FINALISTS, stricter
from privgate.advice.point import Point
from privgate.errors import PrivgateError
from privgate.policy import Policy
from privgate.run.run import Budget
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome

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
    public: pretrained.Public | None = None
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
