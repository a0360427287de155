"""What rules about membership have in common: against whom, how sure, and which attack."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from privgate.evidence import Measurement
from privgate.evidence.measurement import BehindMembership
from privgate.policy.policy_part import Audit
from privgate.policy.rules.rule_base import Rule, next_step, wrong
from privgate.run.needs import Need
from privgate.statistics.roc import APPROVING
from privgate.verdict import Finding, Outcome

Confidence = Annotated[float, Field(gt=0.5, lt=1)]

#: what figures of attacks rest on
ATTACKED = frozenset({Need.SHADOWS, Need.CANDIDATES})
#: below this an interval misses the truth so often that somebody should say why
LEAST_CONFIDENCE = 0.9
WHO = {
    "model": "over all people in the data",
    "class": "for the worst label",
    "group": "for the worst group",
    "record": "for the person at greatest risk",
}


def unsure(confidence: float) -> Iterator[str]:
    """Yield that limits of this confidence miss the truth often."""
    if confidence < LEAST_CONFIDENCE:
        yield f"confidence {confidence:g}: the truth lies outside in {100 * (1 - confidence):.3g} % of releases"


class CandidatesRule(Rule):
    """A limit on how differently the model treats its training data and candidates, people it was not trained on."""

    #: what would lower the number, and what would narrow its interval
    lower_it: ClassVar[str]
    narrow_it: ClassVar[str]

    scope: str
    group: str | None = Field(default=None, description="One sensitive column, for scope group; all of them if absent.")
    confidence: Confidence = Field(default=0.95, description="Of the limits that are compared with max.")

    @model_validator(mode="after")
    def _group_has_its_scope(self) -> Self:
        if self.group is not None and self.scope != "group":
            raise wrong("group", f"'group' belongs to scope 'group', not to {self.scope!r}")
        return self

    def who(self) -> str:
        """Return whom the number speaks about."""
        return WHO[self.scope]

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what would settle or lower the number."""
        if measurement.problem:
            return next_step("people")
        return self.lower_it if outcome is Outcome.FAILED else self.narrow_it

    def remarks(self, audit: Audit, suites: Mapping[str, str]) -> Iterator[str]:
        """Add what a confidence and a limit cannot do."""
        yield from super().remarks(audit, suites)
        yield from unsure(self.confidence)
        if self.limit == self.about.guessing:
            yield "can never approve: guessing reaches this limit, and the upper confidence limit lies above guessing"


class MembershipRule(CandidatesRule):
    """A limit on how well a membership attack does against this model.

    ``scope`` says against whom: ``model`` is the registered model, trials over its records and the candidates;
    ``class`` and ``group`` the worst of them; ``record`` the worst single record, over models trained on random
    subsets of the pool.
    """

    lower_it = next_step("attack")
    narrow_it = "more candidates or more shadow models narrow the interval"

    attack: str = Field(default="any", description="Catalogue key of the attack, or any: the best of all that apply.")
    scope: Literal["model", "class", "group", "record"] = Field(default="model", description="Against whom.")
    level: Annotated[float, Field(gt=0, lt=0.5)] | None = Field(
        default=None,
        description="Probability of a wrong verdict, either way, over all looks: at 4, 8, 16, 32 and 64 shadow models, "
        "until the rule is decided; one look at all of them if absent. It is 1 - confidence.",
    )

    @model_validator(mode="after")
    def _level_fits(self) -> Self:
        if self.level is not None and not math.isclose(self.level, 1 - self.confidence):
            raise wrong("level", f"level {self.level:g} is not 1 - confidence {self.confidence:g}: they are one number")
        if self.level is not None and self.scope == "record":
            raise wrong("level", "scope 'record' has target models of its own: name 'confidence', not 'level'")
        return self

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Add how many candidates would decide it, where the interval alone leaves it open."""
        said = super().advice(measurement, outcome)
        early = self.level is not None and BehindMembership.of(measurement.behind).shadow_models < min(APPROVING)
        if outcome is not Outcome.INCONCLUSIVE or measurement.problem or early:  # another rule was broken before
            return said
        needed = self.needed(measurement)
        if needed is None:
            return f"{said}; at this figure none are enough: {self.lower_it}"
        if self._open(measurement):
            return "no upper limit was found: let every attack run and, at a level, every shadow model be trained"
        drawn = measurement.n < measurement.population and self.scope != "record"
        more = "; only a larger audit.min_candidates of the policy has more of them tried" if drawn else ""
        return f"{said}: about {needed:,} candidates decide it if all are tried and the figure stays as it is{more}"

    def finding(self, outcome: Outcome, message: str, measurement: Measurement) -> Finding:
        """Return the finding; that no upper limit was found is no figure, and is said instead of one."""
        made = super().finding(outcome, message, measurement)
        if measurement.problem or outcome in (Outcome.PASSED, Outcome.FAILED) or not self._open(measurement):
            return made
        said = f"{self.who()}, how well {self.what()} tells members from others was not decided"
        return replace(made, meaning=f"{said}: no upper limit was found")

    def _open(self, measurement: Measurement) -> bool:
        return measurement.high >= self.about.worst

    def needed(self, measurement: Measurement) -> int | None:
        """Return how many candidates bring the upper limit to what is allowed; None where the figure itself is above.

        An interval narrows with the root of their number.
        """
        m, behind = measurement, BehindMembership.of(measurement.behind)
        room, wide = self.limit - m.value, m.high - m.value
        if behind.candidates is None or not room > 0:
            return None
        times = max(1.0, wide / room) ** 2
        return math.ceil(float(behind.candidates) * times / 100) * 100

    def what(self) -> str:
        """Return which attacks the number speaks about."""
        return "any attack that was run" if self.attack == "any" else f"the attack {self.attack!r}"

    def remarks(self, audit: Audit, suites: Mapping[str, str]) -> Iterator[str]:
        """Add that one attack is not the best of all."""
        yield from super().remarks(audit, suites)
        if self.attack != "any":
            yield f"only the attack {self.attack!r} is judged, and some answers blind it; 'any' judges the best of all"
