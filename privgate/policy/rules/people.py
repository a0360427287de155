"""The rules about how much depends on one person: any answer, the one about that person, or a regressor's numbers."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from privgate.evidence import BehindInfluence, Measurement
from privgate.evidence.figures import fold, percent, percent_at_most
from privgate.evidence.telling import sampled
from privgate.evidence.verdict import Outcome
from privgate.policy.rules.metric import Metric
from privgate.policy.rules.rule_base import WAY_OUT, Facts, OpenFraction, Rule, explain_reach, wrong
from privgate.run.needs import Need
from privgate.statistics.leakage import SEEDS_FOR_A_LIMIT

_influence = partial(Metric, question="influence", worst=math.inf, per_unit=True)
_nats = partial(
    _influence,
    reaches="0 (no influence) to infinity (an answer appears or vanishes); nats, or a share of people",
    unit="nats",
    answers=frozenset({"probabilities", "noisy numbers"}),  # a regressor's answers have a density where noise is added
)


class LeaveOneOutRule(Rule):
    """A limit on the largest value of all units, on a quantile of them, or on the share of units above a threshold."""

    max: NonNegativeFloat = Field(description="Largest value allowed; nats, or a fraction for share_above.")
    aggregate: Literal["max", "quantile", "share_above"] = Field(
        default="max", description="Which number of all people's numbers is judged."
    )
    q: OpenFraction | None = Field(default=None, description="Which quantile, for aggregate quantile.")
    threshold: NonNegativeFloat | None = Field(default=None, description="In nats, for aggregate share_above.")

    sample: PositiveInt | None = Field(default=None, description="Without effect: the sizes of samples are planned.")
    up_to: PositiveInt | None = Field(default=None, description="Without effect: the sizes of samples are planned.")

    @model_validator(mode="after")
    def _one_aggregate(self) -> Self:
        for key, wanted in (("q", "quantile"), ("threshold", "share_above")):
            given = getattr(self, key) is not None
            if given and self.aggregate != wanted:
                raise wrong(key, f"{key!r} belongs to aggregate {wanted!r}, not to {self.aggregate!r}")
            if not given and self.aggregate == wanted:
                raise wrong("aggregate", f"aggregate {wanted!r} needs the key {key!r}")
        if self.aggregate == "share_above" and self.max >= 1:
            text = "a share of at most 1 is always reached; 'max' must be below 1 for aggregate 'share_above'"
            raise wrong("max", text)
        return self

    @property
    @abstractmethod
    def beyond(self) -> str:
        """Which people lie above the threshold."""

    @abstractmethod
    def change(self, measurement: Measurement) -> str:
        """Return what the number means where it is a change of an answer."""

    def who(self, measurement: Measurement) -> str:
        """Return the people that the number speaks about; of a broken limit, those that it is shown for."""
        if self.aggregate == "quantile":
            q, least = (1 - (self.q or 0), "at least ") if self.broken(measurement) else (self.q or 0, "")
            return f"for {least}{100 * q:.4g} % of the people in the data"
        if self.broken(measurement):
            return "for a person in the data"
        return _for_whom(measurement) or "for every person in the data"

    @property
    def judged_at(self) -> float:
        """The limit on one person's number."""
        return (self.threshold or 0.0) if self.aggregate == "share_above" else self.max

    def vacuous(self, facts: Facts) -> str:
        if (why := self.explain_limit()) or self.spares <= 0.5:
            return why
        share = f"{100 * (1 - self.spares):.3g} % of the people and leaves the other {100 * self.spares:.3g} %"
        return f"it limits {share} without any"

    def explain_limit(self) -> str:
        """Return why the limit on one person's number protects no person; empty if it protects."""
        return explain_reach(self.judged_at)

    @property
    def spares(self) -> float:
        """Share of the people that may be above the limit."""
        if self.aggregate == "share_above":
            return self.max
        return round(1.0 - (self.q or 0.0), 9) if self.aggregate == "quantile" else 0.0

    @property
    def title(self) -> str:
        """Name of what is judged: a share of people is no influence."""
        return "People with high influence" if self.aggregate == "share_above" else self.about.title

    def remark(self, measurement: Measurement, outcome: Outcome) -> str:
        """Return for which people it is shown, and how few were left out where others could not change the verdict."""
        behind = BehindInfluence.read(measurement.behind)
        if behind.not_computed:
            own = outcome is Outcome.FAILED or behind.decided_by == self.name
            why = "no other could change the decision"
            return why if own else f"others not computed: {behind.decided_by} was decided before"
        return "" if self.aggregate == "share_above" or outcome is Outcome.FAILED else _for_whom(measurement)

    def meaning(self, measurement: Measurement) -> str:
        stopped = BehindInfluence.read(measurement.behind).not_computed
        more = "; how far it changes without the others was not measured" if stopped else ""
        if self.aggregate != "share_above":
            return self.change(measurement) + more
        # people are trained without one after the other: where that stopped, a share is at least so large
        share = f"at least {percent(measurement.low)}" if stopped else self.deciding(measurement, percent)
        return (
            f"{_averaged(measurement)}{share} of the people in the data are people {self.beyond} without them "
            f"(threshold {self.threshold:g} {self.about.unit}){more}"
        )

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        behind = BehindInfluence.read(measurement.behind)
        stopped, seeds, n, population = behind.not_computed, behind.paired_seeds, measurement.n, measurement.population
        few, failed = f"{sampled(n, population)}, " if n < population else "", outcome is Outcome.FAILED
        all_few = few and self.aggregate == "max"
        steps = {  # the first whose condition holds
            f"{WAY_OUT}; the per-person table names records{' (--full all of them)' if stopped else ''}": failed,
            "check with --full, which measures everybody": stopped,
            "settle what the message names, then check again": measurement.problem,
            f"training draws and records no seed, and {seeds} runs give no upper limit: record a seed, or measure "
            f"everybody on {SEEDS_FOR_A_LIMIT} (without --seeds and budget)": 0 < seeds < SEEDS_FOR_A_LIMIT,
            "with its own randomness the model is above the limit, and other randomness does not confirm it; "
            f"{WAY_OUT}, or average over more draws (more trees, several networks)": behind.followed,
            f"{few}which limits nothing for the others: measure everybody, without budget": all_few,
            f"{few}too few for so narrow an interval: leave everybody out (a rule with aggregate max)": few,
            "the limit lies within the interval over runs, which more of them (--seeds) narrow": seeds,
            "the limit lies within what is known of some people; the per-person table names their intervals": True,
        }
        return next(step for step, fits in steps.items() if fits)


def _for_whom(measurement: Measurement) -> str:
    """Return for which share of people a limit is shown, and how surely; empty where it is a limit on no share."""
    beyond = BehindInfluence.read(measurement.behind).beyond
    if beyond is None or not np.isfinite(measurement.high):
        return ""
    who = f"all but {percent_at_most(beyond)} of people at most" if beyond else "everybody"
    return f"for {who} ({100 * (measurement.confidence or 0):g} % sure)"


def _averaged(measurement: Measurement) -> str:
    """Return of which seed the figure speaks, as the beginning of a sentence; empty where training draws nothing."""
    behind = BehindInfluence.read(measurement.behind)
    averaged = f"averaged over {behind.paired_seeds} runs of training, not for this very model, "
    return "this code at this seed: " if behind.own_coins else averaged if behind.paired_seeds else ""


def _own_pair(measurement: Measurement) -> str:
    """Return what other seeds show, as the end of a sentence."""
    behind = BehindInfluence.read(measurement.behind)
    shown = "; other seeds show it, too" if behind.shown else "; other seeds do not show it"
    return shown if behind.followed else ""


def _folds(nats: float) -> str:
    return fold(nats) if np.isfinite(nats) else "without any limit"


_BESIDE = ", asked at or beside their record,"
#: which questions -> whose answers change, and what changes for one person
_ASKED: Mapping[str, tuple[str, str]] = {
    "own": ("whose own answer", "the answer about them"),
    "beside": (f"whose answer{_BESIDE}", f"the answer about them{_BESIDE}"),
    "domain": ("for whom some answer", "an answer to a declared question"),
}


class Dtp(LeaveOneOutRule):
    """No answer to any question may depend much on one person; only a certificate can show it.

    Limit ``max`` in nats; 1 is DTP-1 of Long et al. (2017): no answer's probability changes more than e-fold (2.7) when
    one person is left out. **Fails** if some unit's lower bound exceeds the limit, **passes** if every unit's upper
    bound (a certificate) is within it, else **inconclusive**. Values at the records themselves (PDTP) never satisfy
    this rule. DTP stops no attack by itself: a temperature, or clipping one model, lowers it and leaves every attack as
    it was (section 12.4 of docs/mathematics.md); dtp-1-attacks judges the attacks beside it.

        - metric: dtp
          max: 1.0
    """

    about = _nats(
        "dtp",
        "Influence of one person on any answer",
        measured_by="influence.measures:measure_dtp",
        needs=frozenset({Need.LEAVE_ONE_OUT, Need.EVERY_QUERY}),
        columns=("dtp_lower", "dtp_upper"),
    )
    metric: Literal["dtp"] = "dtp"

    @property
    def beyond(self) -> str:
        return f"for whom some answer changes more than {_folds(self.judged_at)}"

    def change(self, measurement: Measurement) -> str:
        who, other_seeds = self.who(measurement), _own_pair(measurement)
        if self.broken(measurement):
            said = f"without this person, an answer's probability changes {self.deciding(measurement, _folds)}"
            return f"{_averaged(measurement)}{who}: {said}{other_seeds}"
        bound, attacks = "no limit on the change of answers is known", ""
        if np.isfinite(measurement.high):
            bound = f"no answer's probability changes more than {_folds(measurement.high)}"
            # a temperature or a clipped model lowers DTP as far as one likes, and attacks lose nothing (section 12.4)
            attacks = "; this stops no attack by itself"
        seen = f"the largest change seen is {_folds(measurement.low)}"
        if seeds := BehindInfluence.read(measurement.behind).paired_seeds:
            seen += f", averaged over {seeds} runs of training, not of this very model"
        return f"{who}: without this person, {bound}; {seen}{other_seeds}{attacks}"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        if outcome is Outcome.INCONCLUSIVE and np.isinf(measurement.high) and not measurement.problem:
            if why := "; ".join(BehindInfluence.read(measurement.behind).why_no_certificate):
                return f"no certificate limits every answer here: {why}; or judge by pdtp-1 (direct queries only)"
            if measurement.n < measurement.population:
                return "of whoever was not left out nothing is known here: check without --budget"
            return (
                "no certificate limits every answer of this model for every person: declare the domain, take a model "
                "that a certificate covers (`privgate explain --list --all`), train in `privgate.models.Sharded`, or "
                "judge by share-1 or release-1"
            )
        return super().advice(measurement, outcome)

    def lacks(self, facts: Facts) -> str:
        if facts.get("certificates"):
            return ""
        none = "no certificate bounds this kind of model over all questions (networks and forests have none)"
        why = "; ".join(facts.get("why_no_certificate", ())) or none
        return (
            f"{why}; so DTP may be shown to exceed the limit but never to be within it; policy pdtp-1 judges direct "
            "queries only"
        )


class Pdtp(LeaveOneOutRule):
    """The answer about a person may not depend much on that person's own record; direct queries only.

    Limit ``max`` in nats. The paper's practice where no certificate exists (Long et al., 2017, section 5): only the
    questions at people's own features are judged: an approval is one "for direct queries only" and carries no level.

    With ``over: beside`` each person is asked about at the own record and beside it: moved by steps that are small
    against each column's spread. Some models answer at exactly a training record as if it was not there. Where one rule
    of a policy asks so, the others about people are measured on the same questions, which can only tell more.

    Where training draws, the figure is about this code at this seed: the registered model's own pair. Above the limit
    is never met later; five other seeds refuse, or leave it open. Without a recorded seed the mean over runs is judged.

        - metric: pdtp
          max: 1.0
    """

    about = _nats(
        "pdtp",
        "Influence of one person on the answer about that person",
        measured_by="influence.measures:measure_pdtp",
        needs=frozenset({Need.LEAVE_ONE_OUT}),
        columns=("pdtp",),
    )
    metric: Literal["pdtp"] = "pdtp"
    over: Literal["own", "beside"] | None = Field(
        default=None, description="own: asked at each person's own features. beside: asked at or beside them."
    )

    @property
    def beyond(self) -> str:
        return f"{_ASKED[self.over or 'own'][0]} changes more than {_folds(self.judged_at)}"

    def change(self, measurement: Measurement) -> str:
        bound = self.deciding(measurement, _folds)
        if not np.isfinite(measurement.high) and not self.broken(measurement):
            bound = f"by an amount that is not limited from above; seen is {_folds(measurement.low)}"
        place = ", asked at or beside the record," if self.over == "beside" else ""
        return (
            f"{_averaged(measurement)}{self.who(measurement)}: without this person, the probability of an answer about "
            f"this person{place} changes {bound}; other questions were not judged{_own_pair(measurement)}"
        )

    def remark(self, measurement: Measurement, outcome: Outcome) -> str:
        only = "questions at or beside the record" if self.over == "beside" else "direct queries"
        more = f"approved for {only} only" if outcome is Outcome.PASSED else ""
        return "; ".join(filter(None, [super().remark(measurement, outcome), more]))


class Sensitivity(LeaveOneOutRule):
    """No answer of a regressor may move far when one person is left out, measured in its own usual error.

    Limit ``max`` in residual deviations: the change of the answer, divided by the root mean square of what the model
    misses records by that it was trained without. 0.5 means that the change hides in half of the model's usual error;
    somebody who sees the answer blurred by that error tells "with" from "without" with advantage ``2 Phi(0.25) - 1``,
    20 %. Nobody is promised such a blur: who knows all other records and sees exact answers tells any change at all.
    Sensitivity is not DTP.

    ``over: own`` asks at each person's own features, ``over: beside`` at or beside them, moved by steps that are small
    against each column's spread; where one rule asks so, all rules about people are measured so. ``over: domain`` asks
    at every question of the declared domain, which only a theorem can bound (least squares and ridge: the change is
    linear in the question). **Passes** if the upper limit is within ``max``, **fails** if a change that was seen
    exceeds it, else **inconclusive**. A policy that enforces it refuses a classifier before anything is trained.

        - metric: sensitivity
          max: 0.5
    """

    about = _influence(
        "sensitivity",
        "How far one person moves a regressor's answer",
        measured_by="influence.measures:measure_sensitivity",
        reaches="0 (no influence) to infinity; residual deviations, or a share of people",
        unit="residual deviations",
        needs=frozenset({Need.LEAVE_ONE_OUT}),
        columns=("moved",),
        answers=frozenset({"numbers", "noisy numbers"}),
    )
    metric: Literal["sensitivity"] = "sensitivity"
    max: NonNegativeFloat = Field(description="Largest value allowed; residual deviations, or a fraction.")
    threshold: NonNegativeFloat | None = Field(default=None, description="Residual deviations, for share_above.")
    over: Literal["own", "beside", "domain"] = Field(
        default="own",
        description="own: asked at each person's own features. beside: at or beside them. domain: at every declared "
        "question.",
    )

    def explain_limit(self) -> str:
        why = explain_reach(self.judged_at**2 / 2)  # so large a shift is beyond doubt even behind the error
        return why and f"behind normal errors a shift of {self.judged_at:g} deviations is {why}"

    @property
    def beyond(self) -> str:
        return f"{_ASKED[self.over][0]} moves by over {self.judged_at:g} times the usual error"

    def change(self, measurement: Measurement) -> str:
        limit = (
            f"{self.deciding(measurement, '{:.3g}'.format)} times the model's usual error"
            if math.isfinite(measurement.high) or self.broken(measurement)
            else f"by an amount that is not limited from above; seen is {measurement.low:.3g} times the usual error"
        )
        whom = f"{_averaged(measurement)}{self.who(measurement)}"
        return f"{whom}: without them, {_ASKED[self.over][1]} moves {limit}; this is not DTP and stops no attack"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        if outcome is Outcome.FAILED:
            return f"{WAY_OUT}; the per-person table names the records that move answers most"
        if self.over == "domain" and math.isinf(measurement.high) and not measurement.problem:
            return (
                "only least squares and ridge on a declared domain of numbers are bounded at every question: declare "
                "TrainingData(..., domain=...), or judge over: own"
            )
        return super().advice(measurement, outcome)

    def lacks(self, facts: Facts) -> str:
        why = facts.get("why_no_sensitivity_bound") if self.over == "domain" else ""
        return str(why) if why else super().lacks(facts)
