"""The rule ``dp_attack_accuracy_bound`` limits what every attack could achieve under the observed guarantee.

Limit ``max`` in [0.5, 1] on the accuracy of any adversary whose prior probability that the person is a member is
``prior``; max(sigma(eps), p, 1-p) for pure guarantees and the forms of (eps, delta) and Gaussian guarantees otherwise
(Thudi et al., 2022, theorem 1 and corollary 1; docs/mathematics.md, section 7.2). Unlike the attack rules this
speaks of every attack, and says nothing about attacks actually succeeding. It follows from the noised steps that were
seen; that training reaches its records by no other way is not looked at.

Request: ``dp_attack_accuracy_bound(prior=0.5, accept_declared_claims=False)``. Fraction; kind "bound".

    - metric: dp_attack_accuracy_bound
      max: 0.75
      prior: 0.5
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from privgate.evidence import Measurement
from privgate.evidence.figures import percent
from privgate.policy.policy_part import OpenFraction
from privgate.policy.rules.guarantee import GUARANTEED, GuaranteeRule, way
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import wrong

METRIC = Metric(
    "dp_attack_accuracy_bound",
    "Best accuracy that any attack can have",
    measured_by="claims.epsilon:measure_attack_accuracy",
    question="claim",
    reaches="the likelier answer at this prior (guessing) to 1 (no guarantee)",
    unit="fraction",
    answers=ANY_ANSWERS,
    worst=1.0,
    needs=GUARANTEED,
    limits_attacks=True,
)


class DpAttackAccuracyBound(GuaranteeRule):
    """The guarantee must keep every possible attack below this accuracy."""

    about = METRIC
    metric: Literal["dp_attack_accuracy_bound"] = "dp_attack_accuracy_bound"
    max: Annotated[float, Field(ge=0.5, le=1)] = Field(description="Largest accuracy allowed; 0.5 is guessing.")
    prior: OpenFraction = Field(default=0.5, description="The adversary's prior probability of membership.")

    @model_validator(mode="after")
    def _above_guessing(self) -> Self:
        blind = max(self.prior, 1 - self.prior)
        if self.max < blind:
            raise wrong("max", f"always guessing the likelier answer is right with probability {blind:g} at this prior")
        return self

    def meaning(self, measurement: Measurement) -> str:
        """Return the bound in words, with its prior."""
        most = (
            f"the guarantee lets an attack be right in {percent(measurement.low)} of cases"
            if self.broken(measurement)
            else f"no attack of any kind is right in more than {percent(measurement.high)} of cases"
        )
        return (
            f"{most}, if it starts from a "
            f"{100 * self.prior:g} % suspicion and knows who else is in the data independently of this person, as far "
            f"as training reaches its data only through {way(measurement)}"
        )
