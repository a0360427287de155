"""What rules about membership attacks have in common: which attack, against whom, and how sure."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from privgate.evidence import Measurement, Request
from privgate.policy.rules.base import Rule, wrong
from privgate.verdict import Outcome

Confidence = Annotated[float, Field(gt=0.5, lt=1)]

WHO = {
    "model": "over all people in the data",
    "class": "for the worst label",
    "group": "for the worst group",
    "record": "for the person at greatest risk",
}


class MembershipRule(Rule):
    """A limit on how well a membership attack does against this model.

    ``scope`` says against whom: ``model`` is the registered model, trials over its records and the candidates;
    ``class`` and ``group`` the worst of them; ``record`` the worst single record, over models trained on random
    subsets of the pool.
    """

    attack: str = Field(default="any", description="Catalogue key of the attack, or any: the best of all that apply.")
    scope: Literal["model", "class", "group", "record"] = Field(default="model", description="Against whom.")
    group: str | None = Field(default=None, description="One sensitive column, for scope group; all of them if absent.")
    confidence: Confidence = Field(default=0.95, description="Of the limits that are compared with max.")

    @model_validator(mode="after")
    def _group_has_its_scope(self) -> Self:
        if self.group is not None and self.scope != "group":
            raise wrong("group", f"'group' belongs to scope 'group', not to {self.scope!r}")
        return self

    def request(self) -> Request:
        """Ask what the attack achieves."""
        options: dict[str, Any] = {"attack": self.attack, "scope": self.scope, "confidence": self.confidence}
        if self.group is not None:
            options["group"] = self.group
        return Request.of(self.metric, **options)

    def who(self) -> str:
        """Return whom the number speaks about."""
        return WHO[self.scope]

    def what(self) -> str:
        """Return which attacks the number speaks about."""
        return "any attack that was run" if self.attack == "any" else f"the attack {self.attack!r}"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what would settle or lower the number."""
        if measurement.problem:
            return "pass candidates=(X, y), people from the same population who were not trained on; see the message"
        if outcome is Outcome.FAILED:
            return "regularize, stop earlier, use more data, or train with differential privacy; then check again"
        return "more candidates or more shadow models narrow the interval"

    def cannot_conclude(self, facts: dict[str, Any]) -> str:
        """Say that without people who were not trained on no attack can be judged."""
        if facts.get("candidates", 0) > 0:
            return ""
        return (
            f"rule {self.name!r} can never pass here: there are no candidates to tell members from; pass "
            "TrainingData(..., candidates=(X, y)), people from the same population who were not trained on"
        )


def least_non_members(fpr: float, confidence: float) -> int:
    """Return how many non-members resolve a false-positive rate: ln(a/2) / ln(1 - fpr), a = 1 - confidence.

    References
    ----------
    Section 9.2 of docs/mathematics.md.

    Examples
    --------
    >>> least_non_members(0.01, 0.95), least_non_members(0.001, 0.95)
    (368, 3688)
    """
    return math.ceil(math.log((1 - confidence) / 2) / math.log(1 - fpr))
