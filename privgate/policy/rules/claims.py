"""The rules about differential privacy: epsilon, its audit, what attacks could reach at best, and who can be erased."""

import math
from functools import partial
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from privgate.evidence import BehindClaim, Measurement
from privgate.evidence.figures import fold, percent
from privgate.evidence.verdict import Finding, Outcome
from privgate.policy.rules.attacks import Confidence
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import STEPS, Facts, OpenFraction, Rule, explain_reach, wrong
from privgate.run.needs import Need

_claim = partial(Metric, question="claim", answers=ANY_ANSWERS, needs=frozenset({Need.CLAIM, Need.RERUNS}))


def _way(measurement: Measurement) -> str:
    """Return what a guarantee counts."""
    library = BehindClaim.read(measurement.behind).library
    return "what the budget accountant counted" if library == "diffprivlib" else "optimizer steps only"


#: a delta at which everything about everybody may be published half of the time
HOPELESS_DELTA = 0.5


def _delta_reach(delta: float | None, facts: Facts) -> str:
    """Return why a delta lets anything happen; empty if it does not, or if the number of people is unknown.

    Publishing one random record breaks no (0, 1/n) guarantee, and all of them with probability delta no (0, delta) one.
    """
    value, people = delta or 0.0, int(facts.get("n_units") or 0)
    if value >= HOPELESS_DELTA:
        return f"with delta {value:g} all data may be published with that probability"
    if people and value * people >= 1:
        return f"with delta {value:g} one of {people} people may be published whole; delta must be below 1/{people}"
    return ""


class GuaranteeRule(Rule):
    """A limit on something that follows from the recipe's differential-privacy guarantee.

    The guarantee is recomputed from the parameters that a rerun of the recipe was seen to use. A claim that is only
    declared is inconclusive.
    """

    accept_declared_claims: Literal[False] = Field(
        default=False, description="A guarantee that nobody observed does not count."
    )

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        if not measurement.applicable:
            return STEPS["claim"]
        if measurement.problem:
            return STEPS["guarantee"]
        if self.broken(measurement):  # a rule that only warns warns of the same
            return "add noise, sample smaller batches or train fewer steps; then check again"
        return "let the check observe a rerun of the recipe, so that the guarantee can be recomputed"


class DpEpsilon(GuaranteeRule):
    """The guarantee must be at least this strong.

    Limit ``max`` on epsilon in nats at ``delta``, for one person, whose records are a group where there are several. An
    independent accountant recomputes epsilon from the sampling, clipping, noise and steps of a rerun.

        - metric: dp_epsilon
          max: 8
          delta: 1e-5
    """

    tightens = {"delta": "down"}  # noqa: RUF012  declared ClassVar in the base class
    about = _claim(
        "dp_epsilon",
        "Privacy claim",
        measured_by="claims.guarantee_basis:measure_epsilon",
        reaches="0 (learns nothing) to infinity (no guarantee); nats",
        unit="nats",
        worst=math.inf,
        limits_attacks=True,
        written_as="epsilon",
    )
    metric: Literal["dp_epsilon"] = "dp_epsilon"
    max: PositiveFloat = Field(description="Largest epsilon allowed; nats.")
    delta: OpenFraction = Field(default=1e-5, description="At this delta; well below 1 / number of records.")
    adjacency: Literal["add_remove", "replace_one"] | None = Field(
        default=None, description="Which neighboring data sets the limit speaks of; the claim's own if absent."
    )

    def vacuous(self, facts: Facts) -> str:
        return super().vacuous(facts) or _delta_reach(self.delta, facts)

    def meaning(self, measurement: Measurement) -> str:
        if not np.isfinite(measurement.high):
            return "no guarantee limits what one person's data can shift"
        # a guarantee may hold at a smaller delta than the policy asks for, a pure one at none
        held = BehindClaim.read(measurement.behind).delta
        delta = self.delta if held is None else held
        but = f", except with probability about {delta:g}" if delta > 0 else ""
        whose = "the guarantee lets one person's data" if self.broken(measurement) else "one person's data can"
        times = self.deciding(measurement, fold)
        return (
            f"whatever anybody else knows, {whose} shift the odds of any guess about that person {times}{but}, as far "
            f"as training reaches people's data only through {_way(measurement)}"
        )


class DpAttackAccuracyBound(GuaranteeRule):
    """The guarantee must keep every possible attack below this accuracy.

    Limit ``max`` in [0.5, 1] on the accuracy of any adversary whose prior probability that the person is a member is
    ``prior``; max(sigma(eps), p, 1-p) for pure guarantees and the forms of (eps, delta) and Gaussian guarantees
    otherwise (Thudi et al., 2022, theorem 1 and corollary 1; docs/mathematics.md, section 7.2). Unlike the attack rules
    this speaks of every attack, and says nothing about attacks actually succeeding. It follows from the noised steps
    that were seen; that training reaches its records by no other way is not looked at.

        - metric: dp_attack_accuracy_bound
          max: 0.75
          prior: 0.5
    """

    about = _claim(
        "dp_attack_accuracy_bound",
        "Best accuracy that any attack can have",
        measured_by="claims.guarantee_basis:measure_attack_accuracy",
        reaches="the likelier answer at this prior (guessing) to 1 (no guarantee)",
        unit="fraction",
        worst=1.0,
        limits_attacks=True,
    )
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
        beyond = f"the guarantee lets an attack be right in {percent(measurement.low)} of cases"
        within = f"no attack of any kind is right in more than {percent(measurement.high)} of cases"
        return (
            f"{beyond if self.broken(measurement) else within}, if it starts from a {100 * self.prior:g} % suspicion "
            "and knows who else is in the data independently of this person, as far as training reaches its data only "
            f"through {_way(measurement)}"
        )


class DpEpsilonLowerBound(Rule):
    """No audit may contradict the guarantee.

    An audit gives a lower bound on epsilon at ``confidence``. **Fails** if it exceeds the limit: the claim is broken.
    An audit can never show that a guarantee holds, so passing means "not contradicted". ``max`` is a number in nats, or
    ``claim`` (the default): the epsilon that the recipe claims, at the claim's own delta.

        - metric: dp_epsilon_lower_bound
          max: claim
    """

    about = _claim(
        "dp_epsilon_lower_bound",
        "Audit of the guarantee",
        measured_by="claims.audit:measure_lower_bound",
        reaches="0 (nothing found) to about the logarithm of the number of audited models; nats",
        unit="nats",
        worst=math.inf,
        needs=frozenset({Need.CLAIM, Need.AUDIT}),
        shows_leaks_only=True,
        written_as="epsilon",
    )
    metric: Literal["dp_epsilon_lower_bound"] = "dp_epsilon_lower_bound"
    max: NonNegativeFloat | Literal["claim"] = Field(
        default="claim", description="Largest lower bound allowed, nats; claim: the epsilon that the recipe claims."
    )
    confidence: Confidence = Field(default=0.999, description="Of the lower bound; a false alarm has the rest.")
    delta: OpenFraction | None = Field(default=None, description="Of the audited guarantee; the claim's own if absent.")
    bound: Literal["lower"] = Field(default="lower", description="An audit gives lower bounds only.")

    @model_validator(mode="after")
    def _one_guarantee(self) -> Self:
        if self.max == "claim" and self.delta is not None:
            raise wrong("delta", "'delta' belongs to a numeric max; max 'claim' is judged at the claim's own delta")
        if self.max != "claim" and self.delta is None:
            raise wrong("max", "a numeric max needs the key 'delta'")
        return self

    @property
    def limit(self) -> float:
        """The number, or NaN where it is the claim, which only the measurement knows."""
        return float("nan") if self.max == "claim" else float(self.max)

    def loosened(self, parent: Rule) -> dict[str, str]:
        """Return what is weaker than in ``parent``; a number and a claim cannot be compared."""
        if isinstance(parent, DpEpsilonLowerBound) and (self.max == "claim") == (parent.max == "claim"):
            return super().loosened(parent)
        return {"max": f"is another question: the parent has {getattr(parent, 'max', None)!r}"}

    def against_limit(self, measurement: Measurement) -> Finding:
        """Return FAILED iff the lower bound exceeds the limit; PASSED iff it does not and both are known."""
        if measurement.problem:
            return self.finding(Outcome.INCONCLUSIVE, measurement.problem, measurement)
        claimed = BehindClaim.read(measurement.behind).claimed_epsilon
        limit = float("nan" if claimed is None else claimed) if self.max == "claim" else float(self.max)
        low = measurement.low
        if np.isnan(low) or np.isnan(limit):
            text = "neither the audit's bound nor the claim may be missing"
            return self.finding(Outcome.INCONCLUSIVE, text, measurement)
        judged = self.model_copy(update={"max": limit})
        if low <= limit and (why := explain_reach(limit)):
            text = f"the claim of epsilon {limit:.4g} cannot be contradicted by any audit: {why}"
            return judged.finding(Outcome.INCONCLUSIVE, text, measurement)
        outcome = Outcome.FAILED if low > limit else Outcome.PASSED
        return judged.finding(outcome, judged.sentence(measurement, outcome), measurement)

    def remark(self, measurement: Measurement, outcome: Outcome) -> str:
        return "not contradicted, which shows no guarantee" if outcome is Outcome.PASSED else "the claim does not hold"

    def vacuous(self, facts: Facts) -> str:
        if self.max == "claim":
            return ""  # the claim is judged where it is known
        return super().vacuous(facts) or _delta_reach(self.delta, facts)

    def meaning(self, measurement: Measurement) -> str:
        return (
            f"attacks prove a leak of at least epsilon {measurement.low:.3g} (confidence {self.confidence:g}); "
            "no audit can prove that a guarantee holds"
        )

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        if outcome is Outcome.FAILED and not measurement.problem:
            return "look for gradients that are not clipped per record, noise that is not added, and reused seeds"
        if BehindClaim.read(measurement.behind).claimed_epsilon is not None:
            return "claim an epsilon so small that an audit can contradict it"
        return "state the claim with the recipe and give the audit models to look at"

    def lacks(self, facts: Facts) -> str:
        return super().lacks(facts) if self.max == "claim" else ""

    def outcomes(self) -> str:
        return "refuses if the audit's lower bound exceeds the limit; otherwise the guarantee is not contradicted"


class DeletionCapacity(GuaranteeRule):
    """The model must be able to forget at least this many people without being trained again.

    Limit ``min`` in people, each with all records. Two questions:

    With ``epsilon`` and ``delta`` (Sekhari et al., 2021; docs/mathematics.md, section 7.3a): after ``min`` deletions
    the model is still (epsilon, delta)-close to one trained without these people, whoever was drawn.

    With ``rho`` and ``prior`` (Thudi et al., 2022, corollary 2; section 7.3): everybody must still believe with
    probability at least ``rho`` that the erased people were never used. ``prior`` is the largest probability with which
    they were. It counts only where the recipe is seen to draw its training set with at most that probability.

        - metric: deletion_capacity
          min: 5
          epsilon: 4
          delta: 1.0e-5
    """

    about = _claim(
        "deletion_capacity",
        "People who can be erased without retraining",
        measured_by="claims.capacity:count_deletions",
        reaches="0 (no guarantee) to unlimited (learns nothing); people",
        unit="people",
        direction="min",
        worst=0.0,
    )
    metric: Literal["deletion_capacity"] = "deletion_capacity"
    min: PositiveInt = Field(description="Least number of people.")
    epsilon: PositiveFloat | None = Field(
        default=None, description="How close the model is to one trained without the erased people; nats."
    )
    delta: OpenFraction | None = Field(default=None, description="At this delta; well below 1 / number of records.")
    rho: OpenFraction | None = Field(default=None, description="Least chance that the erased were never in the data.")
    prior: OpenFraction | None = Field(default=None, description="Largest inclusion probability among the erased.")

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        given = {name for name in ("epsilon", "delta", "rho", "prior") if getattr(self, name) is not None}
        if given not in ({"epsilon", "delta"}, {"rho", "prior"}):
            either = "'epsilon' and 'delta' (no prior), or 'rho' and 'prior' (a drawn training set)"
            raise wrong(min(given, default="min"), f"deletion_capacity needs {either}")
        return self

    def vacuous(self, facts: Facts) -> str:
        if self.min < 1:
            return "no capacity is below 0"
        if self.epsilon is not None:  # the weakest guarantee that still covers so many
            return explain_reach(self.epsilon / self.min) or _delta_reach(self.delta, facts)
        # m ln(1 + e^eps odds) = ln(1/rho)
        rho, prior = self.rho or 0.5, self.prior or 0.5
        needed = math.expm1(-math.log(rho) / self.min) / (prior / (1 - prior))
        return explain_reach(math.log(needed)) if needed > 0 else ""

    def meaning(self, measurement: Measurement) -> str:
        if self.prior is None:
            return (
                f"after {measurement.low:.0f} people are erased, the model is within epsilon {self.epsilon:g} at delta "
                f"{self.delta:g} of one that never saw them, if requests do not depend on the model"
            )
        failure = BehindClaim.read(measurement.behind).failure
        but = f" (except with probability {failure:g})" if failure else ""
        return (
            f"{measurement.low:.0f} people can be erased before a full retrain is due, at the stated rho {self.rho:g} "
            f"and the stated prior {self.prior:g}, with which the recipe draws its training set{but}, if requests do "
            "not depend on membership or model"
        )
