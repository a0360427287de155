"""The one search behind report, ``advise`` and ``apply``: the weakest change that passes and answers well."""

import dataclasses
import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privgate import digest
from privgate.advice import candidates
from privgate.advice import point as usefulness
from privgate.advice import probe as probing
from privgate.advice.advice_page import Advice
from privgate.advice.candidates import NOTHING, Scale
from privgate.advice.change import Change, changed, rehearsed
from privgate.advice.point import Point, Use
from privgate.advice.probe import FINALISTS, finalists, rests_on_levels
from privgate.check import beforehand, gate, prepare
from privgate.errors import MeasurementError, PrivgateError
from privgate.families import answering as families
from privgate.policy import Policy, problems
from privgate.policy.judging import conditions
from privgate.run.run import Budget, Run
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome

# Every candidate is cross-validated first, which takes five trainings. What cannot be trained, or answers no better
# than whoever ignores the features, is too strong a change: its risk is not measured, and halving goes on below it.
#
# On one scale influence falls as the change gets stronger, nearly always, and halving finds the weakest that passes.
# Nothing rests on it being so: every candidate is measured.

#: halvings of one scale: the factor between "passes" and "does not" that is left is small beside the noise of accuracy
HALVINGS = 5
#: halvings, knobs, and CPU seconds for everybody, of what a check measures at once
HALVED, KNOBS, AT_ONCE = 3, 2, 1.0
#: share of the time for the model as it stands
PRESENT = 1 / 6
#: trainings, cross-validation among them, up to which a candidate is cheap
CHEAP = 20
#: seconds of a search if nobody says
BUDGET = 1800.0


@dataclass
class Way:
    """One scale of changes, halved between what leaks too much and what is enough, or too much of a change.

    Parameters
    ----------
    scale : callable
        A part of the way, 0 to 1, to where little is left of the model -> the change.
    low, high : float
        The strongest part that leaks too much, and the weakest that passes, cannot be trained or answers badly.
    found : Point, optional
        The weakest candidate that passes.
    seen : set of str
        What was tried.
    why : str
        What the last one said; what stays open for one reason is not asked a third time.
    """

    scale: Scale
    low: float = 0.0
    high: float = 1.0
    found: Point | None = None
    seen: set[str] = field(default_factory=set)
    why: str = ""

    @property
    def too_strong(self) -> bool:
        """Whether all that was tried cannot be trained or answers badly."""
        return self.found is None and self.low == 0.0 < self.high < 1.0

    def step(self, tried: Callable[[Change], Point | None]) -> bool:
        """Try the middle of what is left; return whether there was anything new and time for it."""
        middle = (self.low + self.high) / 2
        change = self.scale(middle)
        if change.says in self.seen or (point := tried(change)) is None:
            return False
        self.seen.add(change.says)
        if point.passes:
            self.found = point
        open_again = math.isnan(point.of_limit) and point.worth and point.why == self.why
        self.why = point.why
        if point.passes or not point.worth:
            self.high = middle
        else:
            self.low = middle
        return not open_again


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
    halvings : int
        Of one scale.
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
    halvings: int = HALVINGS
    seconds: float = BUDGET
    tell: Callable[[str], None] = lambda _: None
    points: list[Point] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Choose the measure of usefulness.

        Raises
        ------
        UsageError
            There is no such measure.
        """
        self.measure = usefulness.chosen(self.subject, self.measure)

    @property
    def remaining(self) -> float:
        """Seconds of the search, confirming aside; without end within a check, which counts trainings alone."""
        return self.began + self.seconds * 2 / 3 - time.monotonic()

    @property
    def passing(self) -> list[Point]:
        """Candidates that keep every rule and answer well, without those that only make numbers smaller."""
        return [p for p in self.points[1:] if p.passes and not p.change.games]

    def tried(self, change: Change) -> Point:
        """Measure one candidate once, keep it and return it; one that cannot be trained never passes."""
        if (known := self._known(change)) is not None:
            return known
        start, calls, present = time.monotonic(), self.fleet.calls, change == NOTHING
        use, risk = Use(), probing.Risk(Outcome.INCONCLUSIVE)
        digests = {"recipe": "", "data": ""}
        try:
            # nobody chose the model as it stands: what a check has trained of it is not trained again
            candidate = self.subject if present else rehearsed(changed(self.subject, change))
            digests = {"recipe": candidate.recipe.digest, "data": candidate.data.digest}
            use = usefulness.cross_validated(candidate, self.fleet, self.measure)
            if present or not use.useless(self.measure):
                risk = self._risk(change, candidate, pruned=not present)
            else:
                risk = probing.Risk(Outcome.INCONCLUSIVE, why=use.useless(self.measure))
        except (PrivgateError, ValueError, TypeError) as exc:
            # a parameter that this learner refuses is no candidate; whatever else is wrong shows in its sentence
            risk = probing.Risk(Outcome.INCONCLUSIVE, why=str(exc) or type(exc).__name__)
        point = self.pointed(
            change,
            risk,
            **use.told(),
            trainings=self.fleet.calls - calls,
            seconds=round(time.monotonic() - start, 2),
            **digests,
        )
        self.points.append(point)
        self.tell(told(point, self.measure))
        return point

    def _known(self, change: Change) -> Point | None:
        """Return what was measured of a change that makes the same of the subject; None where nothing was."""
        alike = change.model_copy(update={"says": ""})
        return next((p for p in self.points if p.change.model_copy(update={"says": ""}) == alike), None)

    def _risk(self, change: Change, candidate: Subject, *, pruned: bool) -> probing.Risk:
        # the model as it stands needs no number: a large one with much randomness may take longer than all others
        seconds = self.remaining if pruned else min(self.remaining, PRESENT * self.seconds)
        return probing.probe(
            self.policy,
            candidate,
            fleet=self.fleet,
            limits=self.limits,
            pruned=pruned,
            seconds=seconds,
            tell=lambda span: self.tell(f"    {change.says}: {span} planned"),
        )

    def pointed(self, change: Change, risk: probing.Risk, **more: Any) -> Point:
        """Return the next point of this search, not kept yet."""
        return Point(
            number=len(self.points),
            change=change,
            **(dataclasses.asdict(risk) | {"outcome": risk.outcome.value}),
            **more,
        )

    def again(self, point: Point) -> Point:
        """Return a confirmed candidate with its usefulness on other folds: it was chosen for that on the first ones."""
        if not point.stands:
            return point
        candidate = rehearsed(changed(self.subject, point.change))
        try:
            use = usefulness.cross_validated(candidate, self.fleet, self.measure, draw=usefulness.AGAIN)
        except PrivgateError as exc:
            self.left.append(f"{point.change.says}: its usefulness on other folds: {exc}")
            use = Use()
        if math.isnan(use.mean) or math.isnan(use.floor):  # what could not be asked again does not stand
            return point.model_copy(update={"confirmed_useful": -math.inf})
        return point.model_copy(update={"confirmed_useful": use.mean, "floor": max(point.floor, use.floor)})

    def one(self, change: Change) -> Point | None:
        """Measure one candidate while there is time; say that there was none, where there is not."""
        if self.remaining >= 0 or self._known(change) is not None:
            return self.tried(change)
        self.left.append(f"{change.says}: the time is spent")
        return None

    # -- the order: what a check measures at once, first moves, the weakest of what passes, and people last

    def advice(self) -> Advice:
        """Return everything that was tried; what passes was confirmed.

        Raises
        ------
        UsageError
            The policy is not for this subject.
        """
        present = self.tried(NOTHING)
        if not present.passes:
            self._every_way()
        self._confirm()
        return Advice(
            uri=self.subject.uri,
            policy=named(self.policy),
            policy_digest=self.policy.digest,
            recipe=self.subject.recipe.digest,
            data=self.subject.data.digest,
            measure=self.measure,
            points=tuple(self.points),
            left=tuple(dict.fromkeys(self.left)),
        )

    def at_once(self, run: Run) -> None:
        """Measure the changes of knobs that an engine answers within a check.

        What engines state decides which, never the clock: the same check says the same, and ``advise`` tries all of it.
        """
        for alternatives in itertools.islice(candidates.knob_scales(self.subject), KNOBS):
            for scale in alternatives:
                way = Way(scale)
                while cheap(run, scale(1.0)) and len(way.seen) < HALVED and way.step(self.one):
                    pass
                if way.found is not None:
                    break

    def removal(self, limits: tuple[float, ...]) -> None:
        """Try leaving people out where nothing else passes."""
        if self.passing or (found := candidates.removals(self.subject, limits)) is None:
            return
        key = self.fleet.ledger.drawn(b"left out", self.fleet.context(self.subject))
        draw = digest.generator(key.hex(), digits=64)
        for change in candidates.left_out(self.subject, found, min(limits), draw):
            self.one(change)

    def _every_way(self) -> None:
        """Try every way of changing a model that does not pass as it stands."""
        run = prepare.prepare(self.policy, self.subject, fleet=self.fleet, limits=self.limits)
        if ended := beforehand.beforehand(beforehand.untrained(run, self.policy)):
            self.left.append(f"no change of the model can be approved: {ended[0].message}")
            return
        limits = prepare.unit_limits(self.policy.asked_of(conditions(gate.identity(run))))
        self.at_once(run)
        shards = list(candidates.sharded(self.subject, limits))
        ways = list(self._first(candidates.together(self.subject)))
        if self._trains():  # certificates of shards need few trainings, whatever the learner costs
            self._in_shards(shards)
        ways += self._first(self._scales())
        for change in (
            *candidates.early(self.subject),
            *candidates.releases(self.subject),
            *shards,
        ):
            self.one(change)
        for _ in range(self.halvings - 1):  # by now every kind of change has had its turn
            if any(w.found for w in ways):
                ways = [w for w in ways if w.found]
            ways = [w for w in ways if w.step(self.one)]
        self.removal(limits)

    def _in_shards(self, shards: Iterable[Change]) -> None:
        """Try more shards while fewer leak too much: everybody is limited, and attacks alone are left."""
        for change in shards:
            point = self.one(change)
            if point is None or point.passes or not point.worth or math.isnan(point.of_limit):
                return

    def _trains(self) -> bool:
        """Return whether measuring everybody takes many trainings."""
        subject = self.subject
        everybody = np.arange(len(subject.data.units), dtype=np.int64)
        engine = families.first(subject)[0]
        return engine.trains or engine.cost(subject, everybody, (subject.recipe.seed,)).fits > CHEAP

    def _first(self, scales: Iterable[list[Scale]]) -> Iterator[Way]:
        """Yield each way once its risk was measured: what is too strong costs five trainings, and is halved at once."""
        for alternatives in scales:
            for scale in alternatives:
                way = Way(scale)
                try:
                    going = way.step(self.one)
                    while going and way.too_strong and len(way.seen) < self.halvings:
                        going = way.step(self.one)
                except MeasurementError as exc:
                    self.left.append(str(exc))
                    break
                if going:
                    yield way
                if way.found is not None:
                    break

    def _scales(self) -> Iterator[list[Scale]]:
        """Yield each scale, first as it is and then with what belongs beside it."""
        yield from candidates.knob_scales(self.subject)
        if (noise := candidates.noisy(self.subject)) is not None:
            yield [noise]

    def _confirm(self) -> None:
        """Let a whole check look at the most useful candidates that pass, with randomness that nobody has seen."""
        chosen, left = finalists(self.points, self.policy), len(self.passing)
        for point in chosen:
            candidate, left = changed(self.subject, point.change), left - 1
            try:
                checked = gate.evaluate(self.policy, candidate, fleet=self.fleet, limits=self.limits)
            except PrivgateError as exc:
                self.left.append(f"{point.change.says}: not confirmed: {exc}")
                continue
            self.points[point.number] = self.again(probing.confirmed(point, checked))
            self.tell(f"  checked again, {checked.outcome.word}: {point.change.says}")
            if probing.one_try(self.policy, checked):
                why = "its level allows one try"
                break
        else:
            why = "its level allows one try" if rests_on_levels(self.policy) else f"{FINALISTS} at most"
        if left:
            self.left.append(f"a whole check of {left} more that were approved in the search: {why}")


def cheap(run: Run, change: Change, *, times: int = 1) -> bool:
    """Return whether an engine answers for everybody so many times at once, and nobody is retrained beside it."""
    everybody = np.arange(run.n_units, dtype=np.int64)
    if run.limits.mode == "screen":
        return False
    try:
        made = changed(run.subject, change)
        cost = families.first(made)[0].cost(made, everybody, (None,))
    except (PrivgateError, ValueError, TypeError):
        return False  # a parameter that this learner refuses
    return cost.fits == 0 and times * cost.cpu_seconds <= AT_ONCE


def told(point: Point, measure: str) -> str:
    """Return one line about a candidate."""
    risk = "unknown" if math.isnan(point.of_limit) else f"{point.of_limit:.3g} of the limit"
    useful = "" if math.isnan(point.useful) else f", {measure} {point.useful:.4f}"
    open_why = f" ({point.why})" if math.isnan(point.of_limit) and point.why else ""
    return f"{point.number:>3} {Outcome(point.outcome).word:<9} {point.change.says}: {risk}{useful}{open_why}"


def named(policy: Policy) -> str:
    """Return how a command names a policy so that it is found."""
    shipped = problems.shipped().get(policy.name) == policy.path or not policy.path.name
    return policy.name if shipped else os.path.relpath(policy.path)
