"""What a rule is, and the whole policy of doubt: every limit is judged against release."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from pydantic_core import PydanticCustomError

from privgate.evidence import Measurement, Request, figures
from privgate.evidence.telling import sampled
from privgate.evidence.verdict import Finding, Outcome
from privgate.policy.rules.metric import Metric
from privgate.run.needs import Need

#: what is known of a subject, see ``Rule.vacuous`` and ``Rule.cannot_conclude``
Facts = Mapping[str, Any]
#: people alive, rounded down: nobody can be one of more
PEOPLE = 8.0e9
#: a change of odds by this much turns one in all people alive into an even chance; nats (22.8)
NATS = math.log(PEOPLE)


def explain_reach(limit: float, most: float = math.inf) -> str:
    """Return why a limit protects no person: no measurement or no guess is beyond it; empty if it protects.

    A limit leaves a guess a certain sureness, ``most`` at most, which must not pick one person out of everybody alive.
    """
    if math.isinf(most):
        whole = f"a change of {limit:g} nats turns one in all people alive ({NATS:.1f} nats) into an even chance"
        return "" if limit < NATS else whole
    if limit >= most:
        return f"{most:g} is the most that can be reached at all"
    return "" if most - limit >= 1 / PEOPLE else f"{limit:.12g} is {most:g} but for less than one in all people alive"


Fraction = Annotated[float, Field(ge=0, le=1)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]


class Part(BaseModel):
    """A closed, frozen part of a policy: unknown keys, text for numbers, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


#: what may have kept training code from the host, least first
Isolation = Literal["none", "bubblewrap with network", "bubblewrap"]
ISOLATIONS: tuple[str, ...] = get_args(Isolation)


class Audit(Part):
    """The least effort that counts; less is inconclusive, however good the numbers look."""

    min_coverage: Fraction = Field(default=0.0, description="Share of people that leave-one-out must have measured.")
    min_units: PositiveInt = Field(default=1, description="People that leave-one-out must have measured.")
    min_seeds: PositiveInt = Field(default=1, description="Seeds compared, where training draws.")
    min_shadow_models: PositiveInt = Field(default=1, description="Shadow models behind every attack rule.")
    min_candidates: PositiveInt = Field(default=1, description="Candidates behind every attack rule.")
    min_isolation: Isolation = Field(
        default="none",
        description="What must have kept training code from the host: bubblewrap is a box without the network, "
        "bubblewrap with network one in which the recipe may declare that it needs it.",
    )


def wrong(key: str, text: str) -> PydanticCustomError:
    """Return the error to raise in a validator that looks at several keys; ``key`` is the one to point at."""
    return PydanticCustomError("privgate", "{text}", {"key": key, "text": text})


#: what a failed rule advises that has no number of its own: the one place that searches has them
WAY_OUT = "run `privgate advise URI`: it measures which changes are approved, and what they cost in usefulness"
_AGAIN = "log the model again (privgate.log_model) and check that version"
#: what stands in the way -> one step that can succeed; a person is named where no command of the model's owner can
STEPS: Mapping[str, str] = {
    "people": f"pass more people of the same population who were not trained on, candidates=(X, y); {_AGAIN}",
    "data": f"mend the data as the message says; {_AGAIN}",
    "recipe": f"let fit(X, y, *, seed) use the records that it is given, and nothing else; {_AGAIN}",
    "seed": f"let fit(X, y, *, seed) draw from its seed alone, and record one, Recipe(..., seed=7); {_AGAIN}",
    "file": f"train a model that keeps no records; {_AGAIN}",
    "influence": WAY_OUT,
    "claim": "claim differential privacy, dp=Claim(...), and train by Opacus or diffprivlib, which reruns show; "
    f"{_AGAIN}",
    "guarantee": f"mend what the message names, in the training or in its Claim(...); {_AGAIN}",
    "isolation": "ask whoever runs this host to let bubblewrap make namespaces: `privgate guard doctor --config FILE` "
    "says how",
    "error": f"provide what the message names here, pass it in params=…, or declare network=True; {_AGAIN}",
    "place": "ask whoever runs this host to mend what the message names; then check again",
}


#: words that change no judgement
_PROSE = frozenset({"id", "reason", "source"})
#: what says how a number is judged, not which one
_JUDGED = _PROSE | {"metric", "mode", "bound", "required", "when", "either", "sample", "up_to"}
#: what a model may be: (what holds of it, why a rule about it is not asked of others)
CONDITIONS: Mapping[str, str] = {
    "classifier": "the model is no classifier",
    "regressor": "the model is no regressor",
    "theorem": "no certificate of data and recipe alone limits every answer of this model",
    "claim": "the recipe claims no differential privacy",
}
Condition = Literal["classifier", "regressor", "theorem", "claim"]
#: fields with two values each -> the weaker one
_STRICTER = {"mode": "warn", "bound": "lower", "required": False}


#: what a rule may need and a model may lack, as a fact before training -> what is missing and what to do
LACKING = {
    (Need.CANDIDATES, "candidates"): (
        "there are no candidates to tell members from; pass TrainingData(..., candidates=(X, y)), people from the same "
        "population who were not trained on"
    ),
    (Need.CLAIM, "dp"): (
        "the recipe states no differential-privacy claim; train with differential privacy and pass "
        "Recipe(..., dp=Claim(...)), or use a policy without this rule"
    ),
}


class Rule(Part, ABC):
    """One line of a policy: asks for a measurement and later judges it. Pure.

    Equality passes. NaN, a missing number, an interval on both sides of the limit: never an approval.
    """

    #: the number that is limited
    about: ClassVar[Metric]
    #: fields, beside the limit, that a policy which extends another may raise ("up") or lower ("down");
    #: a field that is not listed belongs to the question and must stay as it is
    tightens: ClassVar[Mapping[str, Literal["up", "down"]]] = {}

    metric: str
    id: str = Field(default="", description="Name of the rule in findings and waivers; the metric if empty.")
    mode: Literal["enforce", "warn"] = Field(default="enforce", description="A warn rule can at worst warn.")
    bound: Literal["upper", "lower"] = Field(
        default="upper",
        description="upper: only a whole interval within the limit approves. lower: only a whole interval beyond the "
        "limit refuses, and doubt is a warning.",
    )
    required: bool = Field(
        default=True,
        description="false: where the measurement does not apply to a model, the rule is shown as not applicable "
        "(a warning, never an approval) instead of undecided.",
    )
    when: tuple[Condition, ...] = Field(
        default=(), description="The rule is asked of models of which all of this holds; of others it is not needed."
    )
    either: str = Field(
        default="", description="Name of a question that several rules ask: one of them that approves is enough."
    )
    reason: str = Field(default="", description="Why this limit.")
    source: str = Field(default="", description="Where the limit comes from.")

    @property
    def name(self) -> str:
        """The rule's id."""
        return self.id or self.metric

    @classmethod
    def purpose(cls) -> str:
        """Return what the rule demands, the first sentence of its page."""
        return " ".join((cls.__doc__ or "").split("\n\n", maxsplit=1)[0].split())

    @property
    def title(self) -> str:
        """Plain name of what is judged, for the report."""
        return self.about.title

    @property
    def direction(self) -> Literal["max", "min"]:
        """What the limit is: the largest or the smallest value allowed."""
        return self.about.direction

    @property
    def binding(self) -> bool:
        """Whether this rule can block a release."""
        return self.mode == "enforce" and self.required

    @property
    def limit(self) -> float:
        """The number that the measurement is compared with: the field that is named like the direction."""
        return float(getattr(self, self.direction))

    def unasked(self, holds: Collection[str]) -> str:
        """Return why this rule is not asked of a model of which ``holds`` holds; empty if it is."""
        return next((CONDITIONS[c] for c in self.when if c not in holds), "")

    def request(self) -> Request:
        """Return what this rule needs to know: its metric, and every field that belongs to the question."""
        options = {n: getattr(self, n) for n in type(self).model_fields if n not in (*_JUDGED, self.direction)}
        return Request.build(self.metric, **{n: v for n, v in options.items() if v is not None})

    @abstractmethod
    def meaning(self, measurement: Measurement) -> str:
        """Return what the number means for one person, in plain words."""

    def vacuous(self, facts: Facts) -> str:
        """Return why no measurement could break this rule, so that it protects no person; empty if one could."""
        return explain_reach(self.limit, self.about.worst)

    def with_limit(self, limit: float) -> Self:
        """Return the same rule with another limit, as a waiver's ceiling needs it."""
        return self.model_copy(update={self.direction: limit})

    def judge(self, measurement: Measurement) -> Finding:
        """Return the finding; see ``against_limit``."""
        if measurement.request != self.request():
            text = f"measured was {measurement.request.key}, asked was {self.request().key}"
            return self.finding(Outcome.INCONCLUSIVE, text, measurement)
        if not self.required and not measurement.applicable:
            said = f"not applicable: {measurement.problem or 'no reason given'}"
            return replace(self.finding(Outcome.WARNED, said, measurement), applies=False)
        return self.against_limit(measurement.against(self.limit))

    def against_limit(self, measurement: Measurement) -> Finding:
        """Return PASSED iff the whole interval is good, FAILED iff all of it is bad, else INCONCLUSIVE.

        A point estimate is never conclusive by itself; ``problem`` is always inconclusive.
        """
        if measurement.problem:
            return self.finding(Outcome.INCONCLUSIVE, measurement.problem, measurement)
        low, high = measurement.low, measurement.high
        good = low >= self.limit if self.direction == "min" else high <= self.limit
        outcome = Outcome.INCONCLUSIVE
        if not (np.isnan(low) or np.isnan(high) or measurement.kind == "point"):
            doubt = Outcome.WARNED if self.bound == "lower" else Outcome.INCONCLUSIVE
            outcome = Outcome.PASSED if good else (Outcome.FAILED if self.broken(measurement) else doubt)
        return self.finding(outcome, self.sentence(measurement.shown, outcome), measurement)

    def sentence(self, measurement: Measurement, outcome: Outcome) -> str:
        """Return the assertion: what was measured, how surely and of how many, what is allowed, how it ended."""
        m, more = measurement, self.remark(measurement, outcome)
        unit = self.about.written_as or m.unit
        value = figures.interval(m.value, m.low, m.high, limit=self.limit, unit_name=unit, direction=self.direction)
        behind = [figures.sure(m), sampled(m.n, m.population) if self.about.per_unit and m.population else ""]
        limit = figures.threshold(self.limit, unit_name=unit, direction=self.direction)
        sentence = f"{value} ({'; '.join(filter(None, behind))}); {limit} is allowed: {outcome.word}"
        return f"{sentence}{more and f' ({more})'}{m.where and f' ({m.where})'}"

    def remark(self, measurement: Measurement, outcome: Outcome) -> str:
        """Return what belongs to the assertion and is none of its figures; usually nothing."""
        return ""

    def broken(self, measurement: Measurement) -> bool:
        """Whether all of the interval lies beyond the limit: then its lower end is what is known."""
        return measurement.high < self.limit if self.direction == "min" else measurement.low > self.limit

    def deciding(self, measurement: Measurement, write: Callable[[float], str]) -> str:
        """Return the end of the interval that decides, in words: no upper limit is quoted for a failure."""
        if self.broken(measurement):
            return ("" if math.isinf(measurement.low) else "at least ") + write(measurement.low)
        return f"at most {write(measurement.high)}"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Return what would change the outcome; empty if it passed."""
        return ""

    def finding(self, outcome: Outcome, message: str, measurement: Measurement) -> Finding:
        """Return a finding of this rule, its mode applied."""
        if self.mode == "warn" and outcome.rank > Outcome.WARNED.rank:
            outcome = Outcome.WARNED
        # where a precondition stopped the run, its own message says what to do
        advice = "" if outcome is Outcome.PASSED or measurement.stopped_by else self.advice(measurement, outcome)
        meaning = "" if measurement.problem else self.meaning(measurement.shown)
        own = {key: getattr(self, key) for key in ("title", "metric", "limit", "direction", "mode")}
        measured = {key: getattr(measurement, key) for key in ("value", "low", "high", "unit")}
        told: dict[str, Any] = own | measured | {"meaning": meaning, "advice": advice}
        return Finding(rule=self.name, outcome=outcome, message=message, **told, request=measurement.request.key)

    def loosened(self, parent: "Rule") -> dict[str, str]:
        """Return ``field -> why it is not a tightening`` for all in which this rule is weaker than ``parent``."""
        other = "is another question: the parent has {!r}; give a new rule an id of its own"
        if type(self) is not type(parent):
            return {"metric": other.format(parent.metric)}
        weaker: dict[str, str] = {}
        for name in type(parent).model_fields:
            old, new = getattr(parent, name), getattr(self, name)
            if old == new or name in _PROSE:
                continue
            allowed = None if None in (old, new) else self._direction_of(name)
            if allowed == "down" and new > old:
                weaker[name] = f"may only be lowered: the parent has {old!r}"
            elif allowed == "up" and new < old:
                weaker[name] = f"may only be raised: the parent has {old!r}"
            elif name in _STRICTER and new == _STRICTER[name]:
                weaker[name] = f"may not be weakened: the parent has {old!r}"
            elif allowed is None:
                weaker[name] = other.format(old)
        return weaker

    def _direction_of(self, name: str) -> str | None:
        if name == self.direction:
            return "down" if self.direction == "max" else "up"
        if name in ("confidence", "level"):
            # a wider interval passes less; but where only a proof blocks, it also blocks less
            return "up" if (name == "confidence") == (self.bound == "upper") else "down"
        return "strict" if name in _STRICTER else self.tightens.get(name)

    def cannot_conclude(self, facts: Facts) -> str:
        """Return why this rule can never approve for a subject, before anything is trained; empty if it can.

        ``facts`` is what is known before training: ``certificates`` (names that apply), ``n_units``, ``candidates``
        (count), ``dp`` (whether there is a claim), ``probabilities`` (whether the model gives any).
        """
        why = self.lacks(facts)
        return why and f"rule {self.name!r} can never approve here: {why}"

    def lacks(self, facts: Facts) -> str:
        """Return what a subject lacks for an approval by this rule; empty if nothing."""
        lacking = (text for (need, fact), text in LACKING.items() if need in self.about.needs and not facts.get(fact))
        return next(lacking, "")

    def outcomes(self) -> str:
        """Return what passes, what blocks and what happens in between, one sentence."""
        side, beyond = ("at most", "above") if self.direction == "max" else ("at least", "below")
        doubt = "a warning" if self.bound == "lower" else "undecided, which releases nothing"
        effect = "warns" if self.mode == "warn" else "refuses"
        return (
            f"approves if the whole interval is {side} {self.limit:g}, {effect} if all of it is {beyond}; anything "
            f"else is {'a warning' if self.mode == 'warn' else doubt}"
        )
