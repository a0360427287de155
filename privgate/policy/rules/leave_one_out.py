"""What rules about the per-person table have in common: which number of all people's numbers is judged."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from privgate.evidence import BehindInfluence, Measurement
from privgate.evidence.figures import fold, percent, percent_at_most
from privgate.evidence.telling import sampled
from privgate.policy.policy_part import Audit, OpenFraction
from privgate.policy.rules import rule_reach
from privgate.policy.rules.rule_base import WAY_OUT, Rule, wrong
from privgate.statistics.leakage import SEEDS_FOR_A_LIMIT
from privgate.verdict import Outcome

REACHES = "0 (no influence) to infinity (an answer appears or vanishes); nats, or a share of people"
#: a rule about fewer people than this leaves out more than exceptions
ALMOST_ALL = 0.9


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
            raise wrong(
                "max", "a share of at most 1 is always reached; 'max' must be below 1 for aggregate 'share_above'"
            )
        return self

    def who(self, measurement: Measurement) -> str:
        """Return whom the judged number speaks about; where it is too large, for whom it is at least so large."""
        if self.aggregate == "quantile":
            q, least = (1 - (self.q or 0), "at least ") if self.broken(measurement) else (self.q or 0, "")
            return f"for {least}{100 * q:.4g} % of the people in the data"
        if self.broken(measurement):
            return "for a person in the data"
        if BehindInfluence.of(measurement.behind).beyond is not None and np.isfinite(measurement.high):
            return self._for_whom(measurement)
        return "for every person in the data"

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        del facts
        nats = (self.threshold or 0.0) if self.aggregate == "share_above" else self.max
        return rule_reach.nats(nats) or rule_reach.share_of_people(self.covers)

    @property
    def covers(self) -> float:
        """Share of the people whom the limit speaks about."""
        if self.aggregate == "share_above":
            return 1 - self.max
        return (self.q or 0.0) if self.aggregate == "quantile" else 1.0

    @property
    def title(self) -> str:
        """Say of whom a share is one: it is no influence of anybody."""
        return "People with high influence" if self.aggregate == "share_above" else self.about.title

    @property
    @abstractmethod
    def beyond(self) -> str:
        """Which people lie above the threshold."""

    @abstractmethod
    def change(self, measurement: Measurement) -> str:
        """Return what the number means where it is a change of probability."""

    def remarks(self, audit: Audit) -> Iterator[str]:
        """Add how many people have no limit."""
        yield from super().remarks(audit)
        if 0.5 <= self.covers < ALMOST_ALL:
            yield f"{100 * (1 - self.covers):.3g} % of the people in the data are left without any limit"

    def remark(self, measurement: Measurement, outcome: Outcome) -> str:
        """Say for whom it is shown, and how few were trained without where the verdict was decided before others."""
        behind = BehindInfluence.of(measurement.behind)
        if behind.not_computed:
            why = "no other could change the decision"
            return why if outcome is Outcome.FAILED else f"others not computed: already refused by {behind.decided_by}"
        shown = behind.beyond is not None and np.isfinite(measurement.high) and self.aggregate != "share_above"
        return self._for_whom(measurement) if shown and outcome is not Outcome.FAILED else ""

    @staticmethod
    def _for_whom(measurement: Measurement) -> str:
        beyond = BehindInfluence.of(measurement.behind).beyond
        who = f"all but {percent_at_most(beyond)} of people at most" if beyond else "everybody"
        return f"for {who} ({100 * (measurement.confidence or 0):g} % sure)"

    def meaning(self, measurement: Measurement) -> str:
        """Return the share of people, or the change of probability as a factor, and over what it is averaged."""
        stopped = BehindInfluence.of(measurement.behind).not_computed
        more = "; how far it changes without the others was not measured" if stopped else ""
        if self.aggregate != "share_above":
            return self.change(measurement) + more
        # people are trained without one after the other: where that stopped, a share is at least so large
        share = f"at least {percent(measurement.low)}" if stopped else self.deciding(measurement, percent)
        return averaged(measurement) + (
            f"{share} of the people in the data are people {self.beyond} without them "
            f"(threshold {self.threshold:g} {self.about.unit}){more}"
        )

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what usually lowers the influence of single records."""
        stopped = BehindInfluence.of(measurement.behind).not_computed
        if outcome is Outcome.FAILED:
            return f"{WAY_OUT}; the per-person table names records{' (--full all of them)' if stopped else ''}"
        if stopped:
            return "check with --full, which measures everybody"
        if measurement.problem:
            return "settle what the message names, then check again"
        seeds = BehindInfluence.of(measurement.behind).paired_seeds
        if 0 < seeds < SEEDS_FOR_A_LIMIT:
            return (
                f"training draws and records no seed, and {seeds} runs give no upper limit: record a seed, or measure "
                f"everybody on {SEEDS_FOR_A_LIMIT} (without --seeds and budget)"
            )
        if BehindInfluence.of(measurement.behind).followed:
            return (
                "with its own randomness the model is above the limit, and other randomness does not confirm it; "
                f"{WAY_OUT}, or average over more draws (more trees, several networks)"
            )
        if measurement.n < measurement.population:
            some = sampled(measurement.n, measurement.population)
            if self.aggregate == "max":
                return f"{some}, which limits nothing for the others: measure everybody, without budget"
            return f"{some}, too few for so narrow an interval: leave everybody out (a rule with aggregate max)"
        if seeds:
            return "the limit lies within the interval over runs, which more of them (--seeds) narrow"
        return "the limit lies within what is known of some people; the per-person table names their intervals"


def averaged(measurement: Measurement) -> str:
    """Return of which seed the figure speaks, as the beginning of a sentence; empty where training draws nothing."""
    behind = BehindInfluence.of(measurement.behind)
    if behind.own_coins:
        return "this code at this seed: "
    seeds = behind.paired_seeds
    return f"averaged over {seeds} runs of training, not for this very model, " if seeds else ""


def own_pair(measurement: Measurement) -> str:
    """Return what other seeds show, as the end of a sentence."""
    behind = BehindInfluence.of(measurement.behind)
    if not behind.followed:
        return ""
    return "; other seeds show it, too" if behind.shown else "; other seeds do not show it"


def folds(nats: float) -> str:
    """Return a change of log-probability as a factor, in words.

    Examples
    --------
    >>> folds(1.0), folds(float("inf"))
    ('2.72-fold', 'without any limit')
    """
    return fold(nats) if np.isfinite(nats) else "without any limit"
