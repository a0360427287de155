"""The search: each way of changing a model is tried, the weakest change that passes is found, and the best confirmed.

The strongest of a knob is tried first (where that fails the knob is given up after one measurement). The weakest that
passes is looked for at once where engines make it cheap, else when every kind of change has had its turn. What passes
is confirmed by a whole check.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from privgate import digest, families
from privgate.advice import learners, pretrained, usefulness
from privgate.advice.advice import Advice
from privgate.advice.candidates import NOTHING, everything, knob_change, noisy, present_values, sampled, sharded
from privgate.advice.change import Change
from privgate.advice.combined import combined
from privgate.advice.confirm import confirm, finalists
from privgate.advice.point import Point
from privgate.advice.trials import Scale, Trials
from privgate.check import asked
from privgate.errors import MeasurementError, PrivgateError
from privgate.policy import Policy, locate

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
            early = list(sharded(self.subject, asked.unit_limits(self.policy)))
            for change in early:
                self.one(change)
        for scale, point in list(self._strongest()):
            if point.trainings <= CHEAP:
                self.weakest(scale)
            else:
                later.append(scale)
        self._private()
        for change in itertools.chain(learners.early(self.subject), everything(self.subject, self.policy)):
            if change not in early:
                self.one(change)
        self._fewer(present)
        for scale in later:  # by now every kind of change has had its turn
            self.weakest(scale)
        self.left += learners.skipped(self.subject, self.policy, public=self.public is not None)
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

    def _private(self) -> None:
        """Try private training at the epsilon that a rule names; where that is not enough, at the largest that is."""
        scale = learners.named_private(self.subject, self.policy)
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
    return policy.name if locate.shipped().get(policy.name) == policy.path else policy.path.name or policy.name
