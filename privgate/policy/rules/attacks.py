"""The rules that limit what attacks achieve: on membership, and on sensitive features."""

import math
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from privgate.evidence import Measurement
from privgate.evidence.figures import percent
from privgate.evidence.measurement import BehindMembership
from privgate.evidence.verdict import Finding, Outcome
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import STEPS, Facts, Fraction, OpenFraction, Rule, wrong
from privgate.run.needs import Need
from privgate.statistics.roc import APPROVING, least_nonmembers

Confidence = Annotated[float, Field(gt=0.5, lt=1)]

WHO = {"model": "over all people in the data", "class": "for the worst label", "group": "for the worst group"}
#: a false-positive rate that multiplies the odds of an accusation at most twofold, even if every member is found
BLIND_RATE = 0.5


def points(share: float) -> str:
    """Return a difference of shares."""
    return f"{100 * share:.1f} percentage points"


#: times as many candidates as there are, above which the model must change instead
MOST_WORTH = 10


class CandidatesRule(Rule):
    """A limit on how differently the model treats its training data and candidates, people it was not trained on."""

    #: what a measurement lacks, what would lower the number, what would narrow its interval
    lacking: ClassVar[str] = STEPS["people"]
    lower_it: ClassVar[str] = STEPS["influence"]
    narrow_it: ClassVar[str] = "more candidates narrow the interval"

    confidence: Confidence = Field(default=0.95, description="Of the limits that are compared with max.")

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        return self.lacking if measurement.problem else self.lower_it if outcome is Outcome.FAILED else self.narrow_it


def _count_needed(given: int, times: float) -> int:
    """Return how many candidates make an interval narrower by a factor: it narrows with their root."""
    return math.ceil(given * max(1.0, times) ** 2 / 100) * 100


class MembershipRule(CandidatesRule):
    """A limit on how well a membership attack does against this model.

    ``scope`` says against whom: ``model`` is the registered model, trials over its records and the candidates;
    ``class`` and ``group`` the worst of them. **Blocks** if the lower confidence limit exceeds ``max`` (Holm over all
    that was searched), **passes** if the upper limit is within it, else **inconclusive**. A fraction.
    """

    narrow_it = "more candidates or more shadow models narrow the interval"

    attack: str = Field(default="any", description="Catalogue key of the attack, or any: the best of all that apply.")
    scope: Literal["model", "class", "group"] = Field(default="model", description="Against whom.")
    group: str | None = Field(default=None, description="One sensitive column, for scope group; all of them if absent.")
    level: Annotated[float, Field(gt=0, lt=0.5)] | None = Field(
        default=None,
        description="Probability of a wrong verdict, either way, over all looks: at 4, 8, 16, 32 and 64 shadow models, "
        "until the rule is decided; one look at all of them if absent. It is 1 - confidence.",
    )

    @model_validator(mode="after")
    def _level_and_group_fit(self) -> Self:
        if self.group is not None and self.scope != "group":
            raise wrong("group", f"'group' belongs to scope 'group', not to {self.scope!r}")
        if self.level is not None and not math.isclose(self.level, 1 - self.confidence):
            raise wrong("level", f"level {self.level:g} is not 1 - confidence {self.confidence:g}: they are one number")
        return self

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        said, behind = super().advice(measurement, outcome), BehindMembership.read(measurement.behind)
        early = self.level is not None and behind.shadow_models < min(APPROVING)
        if outcome is not Outcome.INCONCLUSIVE or measurement.problem or early:  # another rule was broken before
            return said
        room, wide = self.limit - measurement.value, measurement.high - measurement.value
        if behind.candidates is None or not room > 0:
            return f"{said}; at this figure none are enough: {self.lower_it}"
        if self.is_open(measurement):
            return "no upper limit was found: let every attack run and, at a level, every shadow model be trained"
        given = behind.candidates + sum(
            v or 0 for k, v in behind.removed_candidates.items() if not k.startswith("members")
        )
        needed = _count_needed(given, wide / room)
        if needed > MOST_WORTH * given:
            near = "so near to the limit no number that can be had decides it, and the model must change"
            return f"{said}; {near}: {self.lower_it}"
        drawn = measurement.n < measurement.population
        more = "; only a larger audit.min_candidates of the policy has more of them tried" if drawn else ""
        return f"{said}: about {needed:,} candidates decide it if all are tried and the figure stays as it is{more}"

    def bring_more(self, given: int, high: float) -> str:
        """Return how many candidates even an attack that guesses needs, the end of a sentence; empty if it has them."""
        guess = float(self.request().option("at_fpr", 0.0)) or self.about.guessing or 0.0
        if high < self.limit or guess >= self.limit:
            return ""
        needed = _count_needed(given, (high - guess) / (self.limit - guess))
        return f": give more candidates, {needed:,} or more instead of {given:,}"

    def who(self) -> str:
        """Return the people that the number speaks about."""
        return WHO[self.scope]

    def is_open(self, measurement: Measurement) -> bool:
        """Whether no upper limit was found, which is no figure."""
        return measurement.high >= self.about.worst

    def finding(self, outcome: Outcome, message: str, measurement: Measurement) -> Finding:
        finding = super().finding(outcome, message, measurement)
        decided = measurement.problem or outcome in (Outcome.PASSED, Outcome.FAILED)
        if decided or not self.is_open(measurement):
            return finding
        said = f"{self.who()}, how well {self.what()} tells members from others was not decided"
        return replace(finding, meaning=f"{said}: no upper limit was found")

    def what(self) -> str:
        """Return which attacks the number speaks about."""
        return "any attack that was run" if self.attack == "any" else f"the attack {self.attack!r}"


_share = partial(Metric, unit="fraction", worst=1.0)
_attack = partial(
    _share,
    question="membership",
    needs=frozenset({Need.SHADOWS, Need.CANDIDATES}),
    answers=ANY_ANSWERS,
    limits_attacks=True,
)


class AttackAccuracy(MembershipRule):
    """No attack may be right much more often than guessing.

    Limit ``max`` in [0.5, 1], the balanced accuracy (TPR + TNR) / 2; see ``MembershipRule``.

        - metric: attack_accuracy
          max: 0.6
          attack: any
          scope: model
    """

    about = _attack(
        "attack_accuracy",
        "Attack accuracy",
        measured_by="membership.attack_measures:accuracy",
        reaches="0.5 (guessing) to 1 (always right)",
        guessing=0.5,
        figure="balanced accuracy",
    )
    metric: Literal["attack_accuracy"] = "attack_accuracy"
    max: Annotated[float, Field(ge=0.5, le=1)] = Field(description="Largest balanced accuracy; 0.5 is guessing.")

    def meaning(self, measurement: Measurement) -> str:
        return (
            f"{self.who()}, {self.what()} tells members from others in {self.deciding(measurement, percent)} of "
            "cases; tossing a coin is right in 50 %"
        )


class AttackAdvantage(MembershipRule):
    """No attack may flag members much more often than others.

    Limit ``max`` in [0, 1] on 2 x balanced accuracy - 1 (Yeom et al., 2020, definition 4); see ``MembershipRule``.

        - metric: attack_advantage
          max: 0.2
    """

    about = _attack(
        "attack_advantage",
        "Attack advantage (guessing: 0)",
        measured_by="membership.attack_measures:advantage",
        reaches="0 (guessing) to 1 (all members flagged, nobody else)",
        guessing=0.0,
        figure="TPR less FPR",
    )
    metric: Literal["attack_advantage"] = "attack_advantage"
    max: Fraction = Field(description="Largest TPR - FPR allowed; 0 is guessing.")

    def meaning(self, measurement: Measurement) -> str:
        more = self.deciding(measurement, points)
        return f"{self.who()}, {self.what()} flags members {more} more often than people who were not in the data"


class AttackTpr(MembershipRule):
    """No attack may find many members at a low rate of false accusations.

    Limit ``max`` in [0, 1] on the true-positive rate at a false-positive rate of at most ``at_fpr`` (fractions). Two
    thresholds, one for blocking and one for approving; a false-positive rate that the sample cannot resolve is
    inconclusive; see ``MembershipRule``.

        - metric: attack_tpr
          at_fpr: 0.01
          max: 0.05
    """

    about = _attack(
        "attack_tpr",
        "Members found at a low rate of false accusations",
        measured_by="membership.attack_measures:members_found",
        reaches="at_fpr (guessing) to 1 (all members found)",
        figure="TPR at an FPR",
    )
    metric: Literal["attack_tpr"] = "attack_tpr"
    at_fpr: OpenFraction = Field(description="False-positive rate allowed to the attack; a fraction, 0.01 is 1 %.")
    max: Fraction = Field(description="Largest true-positive rate allowed; guessing reaches at_fpr.")

    @property
    def title(self) -> str:
        """Name the rate of false accusations."""
        return f"Members found at {percent(self.at_fpr)} false accusations"

    def meaning(self, measurement: Measurement) -> str:
        return (
            f"{self.who()}, {self.what()} finds {self.deciding(measurement, percent)} of the members while wrongly "
            f"accusing {100 * self.at_fpr:g} % of everybody else"
        )

    @property
    def least(self) -> int:
        """Candidates without which no sample resolves the false-positive rate."""
        looks = 1 if self.level is None else len(APPROVING)
        return least_nonmembers(self.at_fpr, alpha=(1 - self.confidence) / (2 * looks))

    def vacuous(self, facts: Facts) -> str:
        if self.at_fpr >= BLIND_RATE:
            return (
                f"whoever may accuse {100 * self.at_fpr:g} % of outsiders at most doubles the odds of an accusation, "
                "even if every member is found"
            )
        return super().vacuous(facts)

    def lacks(self, facts: Facts) -> str:
        count = facts.get("candidates", 0)
        if not count or count >= self.least:
            return super().lacks(facts)
        return (
            f"{count} candidates cannot resolve a false-positive rate of {self.at_fpr:g} at confidence "
            f"{self.confidence:g}; at least {self.least} are needed"
        )


class GeneralizationGap(CandidatesRule):
    """The model may not be right much more often on its own data than on other people.

    Limit ``max`` on the error rate on candidates less that on training records, a fraction: the advantage of the attack
    that calls whom the model answers rightly a member (Yeom et al., 2020, theorem 2), a **lower bound** on the best
    attack. A small gap does not mean that attacks fail (theorem 4), so this rule never stands alone for safety.

        - metric: generalization_gap
          max: 0.05
    """

    about = _share(
        "generalization_gap",
        "Better on its training data than on candidates",
        measured_by="membership.attack_measures:measure_gap",
        question="membership",
        reaches="-1 to 1; 0 where training data are treated like others",
        guessing=0.0,
        needs=frozenset({Need.CANDIDATES}),
        shows_leaks_only=True,
    )
    metric: Literal["generalization_gap"] = "generalization_gap"
    max: Fraction = Field(description="Largest difference of error rates allowed.")

    def meaning(self, measurement: Measurement) -> str:
        by = self.deciding(measurement, points)
        return f"the model is right {by} more often on its own data than on others; a small gap is no proof of safety"


class AttributeAdvantage(CandidatesRule):
    """A sensitive feature may not be guessed much oftener of members than of other people.

    Limit ``max`` in [0, 1] on the share of members whose feature an adversary guesses, who knows all other features and
    the target, less the same share of people outside (Yeom et al., 2020, definition 5): what the model tells of its
    members *beyond* what it tells of everybody. Adversaries 4, 6 and 7 of that paper try every feature in
    ``sensitive=``; of a classifier, inversion reads every label's confidence. **Blocks** if the lower confidence limit
    exceeds the limit, **passes** if the upper limit is within it, else **inconclusive**.

        - metric: attribute_advantage
          max: 0.2
    """

    about = _share(
        "attribute_advantage",
        "A sensitive feature guessed oftener of members (no difference: 0)",
        measured_by="membership.sensitive:advantage",
        reaches="0 (members' features are guessed as often as others') to 1 (all of members, none of others)",
        guessing=0.0,
        needs=frozenset({Need.CANDIDATES}),
        answers=ANY_ANSWERS,
    )
    lacking = "pass sensitive=(column, …) and candidates=(X, y), people of the same population who were not trained on"
    metric: Literal["attribute_advantage"] = "attribute_advantage"
    max: Fraction = Field(description="Largest difference of the two shares allowed; 0 is none.")
    attribute: str | None = Field(default=None, description="One sensitive column; all of them if absent.")

    def meaning(self, measurement: Measurement) -> str:
        what = "any sensitive feature" if self.attribute is None else f"{self.attribute!r}"
        return (
            f"who knows everything else about somebody guesses {what} {self.deciding(measurement, points)} "
            "oftener if that person was in the data; what the model tells about everybody is not counted"
        )

    def lacks(self, facts: Facts) -> str:
        none = not facts.get("sensitive", True)
        return "no feature is sensitive; pass sensitive=(column, …)" if none else super().lacks(facts)


class RobustAdvantage(CandidatesRule):
    """Members may not be told from others by the distance to the nearest wrong answer.

    Training against perturbations moves the boundary away from training records. Where that does not generalize, a
    person whose record the model is wrong about only far away was probably in the data (Yeom et al., 2020, section 6).
    Measured are their Adversary 8, which calls members whom the model is right about within a ``radius`` (largest
    change of one feature; that which tells most of a shadow model if absent), and their Adversary 9, which weighs the
    distances in three norms as one shadow model's members and others have them. The advantage of Adversary 8 is the
    **robust generalization error** where the search finds every wrong answer (theorem 8).

    Distances are exact for linear models and single trees, and along random directions for anything else. The adversary
    has the model; a third of the candidates train its shadow model. ``max`` limits the larger advantage, 0 to 1,
    guessing 0: an approval needs the whole interval below. It is a lower bound on the best attack.

        - metric: robust_advantage
          max: 0.2
    """

    about = _share(
        "robust_advantage",
        "Members told by how far the nearest wrong answer is",
        measured_by="membership.distance:advantage",
        reaches="0 (members' records lie no farther from a wrong answer than others') to 1 (all of them, none of "
        "others)",
        guessing=0.0,
        needs=frozenset({Need.CANDIDATES}),
    )
    lacking = "pass candidates=(X, y), people from the same population who were not trained on"
    lower_it = "train against smaller perturbations, regularize, or stop earlier; then check again"
    metric: Literal["robust_advantage"] = "robust_advantage"
    max: Fraction = Field(description="Largest advantage allowed; 0 is none.")
    radius: PositiveFloat | None = Field(
        default=None, description="Adversary 8: change of every feature at once that answers must stand."
    )

    def meaning(self, measurement: Measurement) -> str:
        return (
            "who has the model and somebody's record, and looks how far the nearest wrong answer is, calls members "
            f"{self.deciding(measurement, points)} more of the training people than of others"
        )
