"""What was asked, what was measured, and what must hold before any number counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from numpy.typing import NDArray
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from privgate.evidence.facts import (
    ArtifactPart,
    AttributesPart,
    AuditRuns,
    ClaimsPart,
    InfluencePart,
    MembershipPart,
    RobustPart,
    RunPart,
)
from privgate.evidence.telling import (
    Count,
    EvidenceModel,
    Json,
    Known,
    Number,
    OfNoTotal,
    Part,
    Sample,
    encode,
    share,
    tell_count,
    widen_interval,
)


class Behind(EvidenceModel):
    """What stands behind a measurement, by question; every field may be absent, and no absence makes a pass."""

    whole: ClassVar[bool] = False

    @classmethod
    def read(cls, detail: "Behind | None") -> Self:
        """Return ``detail`` if it speaks of this question, else one that says nothing."""
        return detail if isinstance(detail, cls) else cls()


@dataclass(frozen=True, slots=True)
class Expectation:
    """What became of one expectation, by its type and column or its author's name; ``met`` is False for an error too.

    ``unexpected`` and ``percent``: records that violate it, and their percentage of those it speaks of.
    """

    name: str
    met: bool
    error: str = ""
    severity: str = "critical"
    unexpected: Part = 0
    percent: Number = 0.0

    def __str__(self) -> str:
        """Return its name, with why it could not be evaluated, or how many records violate it."""
        if self.error or not self.unexpected:
            return f"{self.name}: {self.error}" if self.error else self.name
        count = Count(self.unexpected)
        share = "" if count.hidden else f" ({self.percent:.3g} %)"  # the same count as a share
        return f"{self.name}: {count} records{share}"


class BehindInfluence(Behind):
    """Behind a number about the per-person table."""

    earlier = frozenset({"registered_worst", "registered_above", "violated", "expectations", "over_limit"})
    claim: str = Field(default="", description="What a sample says about all people, one sentence.")
    beyond: Number | None = Field(
        default=None, description="Share of people, at most, only ranked, who may exceed the upper limit; null: nobody."
    )
    paired_seeds: int = Field(default=0, description="Runs averaged over, of a recipe that records no seed; else 0.")
    own_coins: bool = Field(default=False, description="Training draws: about this code at this seed alone.")
    followed: bool = Field(default=False, description="People above a limit were refitted at other seeds.")
    shown: bool = Field(default=False, description="Other seeds show a person's influence, too.")
    unseen: Number | None = Field(default=None, description="Share of trainings that no limit covers.")
    why_no_certificate: tuple[str, ...] = Field(default=(), description="Why no theorem bounds every answer.")
    not_computed: int = Field(default=0, description="People not left out, the verdict being decided.")
    decided_by: str = Field(default="", description="The rule that decided it by refusing; empty if all were measured.")


class BehindMembership(Behind):
    """Behind a number about attacks."""

    earlier = frozenset({"targets", "training_loss"})
    searched: int | None = Field(default=None, description="Attacks x thresholds x cells, all corrected for.")
    cells: int | None = Field(default=None, description="Classes or groups looked at.")
    cells_too_small_to_show: int | None = Field(default=None, description="Of these, judged and never named.")
    did_not_run: Mapping[str, str] = Field(default_factory=dict, description="Attack to why it did not run.")
    removed_candidates: Mapping[str, OfNoTotal] = Field(default_factory=dict, description="Why no part in trials.")
    members: Sample | None = Field(default=None, description="Training people of the trials.")
    candidates: Sample | None = Field(default=None, description="Other people of the trials.")
    shadow_models: int = Field(default=0, description="Models on random halves behind the attacks.")


class BehindClaim(Behind):
    """Behind a number about differential privacy."""

    earlier = frozenset({"replays", "rdp_epsilon", "sentence", "reruns", "declared_only"})
    claimed_epsilon: Number | None = Field(default=None, description="The claim's own epsilon, nats.")
    library: str = Field(default="", description="Library seen at work; empty if none.")
    group: int | None = Field(default=None, description="Entries of one person that the guarantee covers together.")
    delta: Number | None = Field(default=None, description="Delta that the guarantee really has; 0 for pure ones.")
    accountant: str = Field(default="", description="How epsilon was recomputed.")
    epsilon: Number | None = Field(default=None, description="Epsilon behind a deletion capacity, nats.")
    failure: Number | None = Field(default=None, description="Chance that a capacity may not hold.")
    audit: AuditRuns | None = Field(default=None, description="The audit behind a lower bound on epsilon.")


#: how an interval is meant; a "point" estimate neither approves nor blocks, what a "search" did not find is not certain
Kind = Literal["exact", "bound", "confidence", "point", "search"]


Option = str | float | int | bool | None | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A measurement that a rule asks for: a metric's key, and options by name; equal requests are measured once."""

    metric: str
    options: tuple[tuple[str, Option], ...] = ()

    @classmethod
    def build(cls, metric: str, **options: Option) -> Self:
        """Return a request with its options in canonical order."""
        return cls(metric, tuple(sorted(options.items())))

    def option(self, name: str, default: Option = None) -> Any:
        """Return one option's value."""
        return dict(self.options).get(name, default)

    @property
    def key(self) -> str:
        """A text that is the same for equal requests: ``metric(name=value, …)``."""
        return f"{self.metric}({', '.join(f'{k}={v}' for k, v in self.options)})"

    def payload(self) -> dict[str, Json]:
        """Return JSON values."""
        return {"metric": self.metric, "options": dict(self.options), "key": self.key}

    @classmethod
    def from_payload(cls, payload: Any) -> Any:
        """Return the request that JSON values describe, or what is one; ``ValueError``: they describe none."""
        if not isinstance(payload, Mapping):
            return payload
        stated, metric = payload.get("options"), payload.get("metric")
        if not isinstance(stated, Mapping) or not isinstance(metric, str):
            raise ValueError("a request names its metric and its options")  # noqa: TRY004  what pydantic tells
        options = ((str(k), tuple(v) if isinstance(v, list) else v) for k, v in stated.items())
        return cls(metric, tuple(sorted(options, key=lambda option: option[0])))


def _unstated(value: Any) -> Any:
    raise ValueError(f"{value!r}: what is told of a number is decided where it is made, no report states it")


_REQUEST = {
    "type": "object",
    "description": "What was asked.",
    "properties": {"metric": {"type": "string"}, "options": {"type": "object"}, "key": {"type": "string"}},
    "required": ["metric", "options", "key"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """A number, the interval that is certain or confident around it, and where it comes from."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    request: Annotated[Request, BeforeValidator(Request.from_payload), WithJsonSchema(_REQUEST)]
    value: Annotated[Number, Field(description="Best single figure; NaN where there is a problem.")] = float("nan")
    low: Annotated[Number, Field(description="The truth is at least this; inf or -inf: no bound.")] = float("nan")
    high: Annotated[Number, Field(description="The truth is at most this; inf: no bound.")] = float("nan")
    unit: str = ""
    kind: Kind = "exact"
    confidence: Annotated[Number | None, Field(description="Of the interval; null where it is certain.")] = None
    n: Annotated[int, Field(description="People or trials behind the number.")] = 0
    population: Annotated[int, Field(description="People or trials there are.")] = 0
    where: Annotated[str, Field(description="The worst person, class or attack, if it belongs to one.")] = ""
    problem: Annotated[str, Field(description="Why there is no number; never an approval.")] = ""
    assumptions: Annotated[tuple[str, ...], Field(description="Hypotheses in words.")] = ()
    applicable: Annotated[bool, Field(description="false: the question has no sense for such a model.")] = True
    stopped_by: Annotated[str, Field(description="Condition that ended the run before this was measured.")] = ""
    behind: BehindInfluence | BehindMembership | BehindClaim | None = None
    #: what is told of an interval from which a small count follows in a way that only its question knows
    told_as: Annotated[tuple[float, float] | None, Field(exclude=True), BeforeValidator(_unstated)] = None
    #: of the rules that judge it: what is told of it lies on the same side of each
    limits: Annotated[tuple[float, ...], Field(exclude=True), BeforeValidator(_unstated)] = ()

    def payload(self, known: Known | None = None) -> dict[str, Json]:
        """Return JSON values as they may be told; infinities and NaN become text."""
        known = known or Known()
        said, n, population = self.against(*known.limits.get(self.request.key, ())).shown, self.n, self.population
        if self.unit not in ("people", "records"):
            n, population = known.sample(n), known.sample(n) if n == population else population
        behind = None if self.behind is None else self.behind.payload(known)
        if isinstance(self.behind, BehindMembership) and behind:
            both = (self.behind.members or 0) + (self.behind.candidates or 0)
            least = (behind.get("members") or 0) + (behind.get("candidates") or 0)
            # what is rounded in one place is not told by the sum of both
            n, population = (least if v == both else v for v in (n, population))
        raw = {name: encode(getattr(said, name)) for name in self.__slots__ if name not in ("told_as", "limits")}
        return raw | {"request": self.request.payload(), "n": n, "population": population, "behind": behind}

    def against(self, *limits: float) -> Self:
        """Return the same, told on the same side of these limits of rules."""
        return replace(self, limits=(*self.limits, *limits))

    @property
    def shown(self) -> Self:
        """The same, its figures as they may be told: a share of a known number of people is a count."""
        value, true = self.value, (self.low, self.high)
        if self.told_as is not None:
            low, high = widen_interval(self.limits, true, self.told_as)
            value = high
        elif self.request.option("at_fpr") is not None:  # the value alone: its limits are no count
            low, high = true
            value = share(value, value, BehindMembership.read(self.behind).members or 0)[1]
        else:
            per = self.population if self.unit == "records" else 1
            counts = per != 1 or self.request.option("of") == "share"
            people = self.population if counts or self.request.option("aggregate") == "share_above" else 0
            of_all = (self.low / (per or 1), self.high / (per or 1))
            shown = share(*of_all, people, [v / (per or 1) for v in self.limits])
            low, high = true if shown == of_all else (per * shown[0], per * shown[1])
            if len({value / (per or 1), *share(value / (per or 1), value / (per or 1), people)}) > 1:
                value = high  # the interval around it may hide nothing
        return replace(self, value=value if (low, high) == true else high, low=low, high=high)


#: keys of a precondition's detail that count no people of a kind: settings, totals, samples
_NOBODY = frozenset({"labels", "largest", "runs", "version", "checked", "of", "units", "measured", "units_checked",
                     "records_compared", "singles", "singles_ignored", "blocks_ignored"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Precondition:
    """One thing that must hold before any number counts: a control, a digest, a data check."""

    name: Annotated[str, Field(description="For example reproduces, or depends_on_data.")]
    outcome: Annotated[str, Field(pattern="^(passed|warned|inconclusive|failed)$", description="For the verdict.")]
    message: Annotated[str, Field(description="One sentence.")]
    detail: Mapping[str, Json] = field(default_factory=dict)

    def payload(self, known: Known | None = None) -> dict[str, Json]:
        """Return JSON values: a whole number counts people, unless its name is known to count no people."""
        known, detail = known or Known(), encode(self.detail)
        for key in ("checked", "records_compared"):
            if isinstance(detail.get(key), int):
                detail[key] = known.sample(detail[key])
        few = [k for k, v in detail.items() if k not in _NOBODY and type(v) is int and known.few(v)]
        if few:
            detail |= dict.fromkeys(few)
            detail.pop("share", None)  # the same count as a share
        for one in detail.get("expectations") or ():
            if Count(one["unexpected"] or 0).hidden:
                one |= {"unexpected": None, "percent": None}  # the same count as a share
        return {"name": self.name, "outcome": self.outcome, "message": self.message, "detail": detail}


#: columns of the per-person table that always exist, with their meaning
COLUMNS: Mapping[str, str] = {
    "unit": "name of the person (a record, or several)",
    "label": "its label; text, 'mixed' if its records differ",
    "pdtp": "largest change of any label's log-probability at the person's own features, nats; larger is worse",
    "dtp_lower": "the same at the worst query actually evaluated, nats",
    "dtp_upper": "certificate: the same over all queries of the domain, nats; inf where none applies",
    "error": "bound on the numerical error of pdtp, nats; 0 where exact",
    "noise_floor": "change seen between seeds with nobody removed, nats; 0 for training without randomness",
    "seeds": "number of paired seeds behind the figures",
    "engine": "how the retrained model was obtained",
    "status": "exact, converged, failed or undefined; the last two mean infinite leakage",
}

#: columns of a regressor's table in place of the changes in nats; with Laplace noise on the answers beside them
SENSITIVITY_COLUMNS: Mapping[str, str] = {
    "moved": "largest change of the answer at the person's own features, residual deviations; larger is worse",
    "moved_low": "the same less its error or confidence limit",
    "moved_high": "the same and its error or confidence limit",
    "moved_upper": "certificate: the same over all questions of the declared domain; inf where none applies",
}


class EvidenceDocument(EvidenceModel):
    """Evidence as a report holds it: everything but the per-person table."""

    earlier = frozenset({"collusion"})
    subject: Mapping[str, Json] = Field(description="Names, digests and counts of what was judged.")
    preconditions: tuple[Precondition, ...] = Field(description="In the order in which they were checked.")
    measurements: tuple[Measurement, ...] = Field(description="One a request, in the order of the policy.")
    run: RunPart
    influence: InfluencePart | None = Field(description="null where no rule asked, or stopped before.")
    membership: MembershipPart | None = Field(description="null where no rule asked, or stopped before.")
    claims: ClaimsPart | None = Field(description="null where no rule asked, or stopped before.")
    attributes: AttributesPart | None = Field(default=None, description="Absent if unasked, or stopped before.")
    artifact: ArtifactPart | None = Field(default=None, description="Absent if nothing is stored and unasked.")
    robust: RobustPart | None = Field(default=None, description="Absent if unasked, or stopped before.")


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that was found out about one subject; judging needs nothing else. ``EvidenceDocument`` says what is what.

    ``measurements`` has one for each request, no exceptions. ``records`` has a column of shape (n_units,) for each of
    ``COLUMNS`` and possibly more; it is empty when no rule needed leave-one-out. ``cases`` (of ``cases.Kept``) are what
    theorems' limits rest on: personal data, which stay beside the per-person table.
    """

    subject: Mapping[str, Json]
    preconditions: tuple[Precondition, ...]
    measurements: Mapping[Request, Measurement]
    records: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    cases: tuple[Any, ...] = ()
    run: RunPart = field(default_factory=RunPart)
    influence: InfluencePart | None = None
    membership: MembershipPart | None = None
    claims: ClaimsPart | None = None
    attributes: AttributesPart | None = None
    artifact: ArtifactPart | None = None
    robust: RobustPart | None = None

    def payload(
        self, floors: Sequence[int] = (), limits: Mapping[str, Sequence[float]] = MappingProxyType({})
    ) -> dict[str, Json]:
        """Return JSON values as they may be told, without the per-person table (that is ``records.parquet``).

        ``floors`` are sample sizes that the policy asks for, ``limits`` are those of a request's rules: whoever judges
        what is told comes to the same end.
        """
        known = self.known(floors, limits)
        parts = [(n, getattr(self, n), f.is_required()) for n, f in EvidenceDocument.model_fields.items()][3:]
        return {
            "subject": encode(self.subject),
            "preconditions": [p.payload(known) for p in self.preconditions],
            "measurements": [m.payload(known) for m in self.measurements.values()],
            **{name: part and part.payload(known) for name, part, required in parts if part or required},
        }

    def known(self, floors: Sequence[int], limits: Mapping[str, Sequence[float]]) -> Known:
        """Return what every reader knows.

        Who knows how many candidates there are, and how many of them were left out for one reason, knows how many were
        left out for another: what is left of a total without those whose number is told is a total too.
        """
        records, units, outside = (int(self.subject.get(k) or 0) for k in ("n_records", "n_units", "n_candidates"))
        totals = (records, units, outside, records + outside)
        trials = [BehindMembership.read(m.behind) for m in self.measurements.values()]
        removed = [[tell_count(n) or 0 for n in b.removed_candidates.values()] for b in trials]
        sums = {sum(some) for counts in removed for k in range(len(counts) + 1) for some in combinations(counts, k)}
        engines = self.influence.engines if self.influence else ()
        return Known(
            units=units or None,
            records=records or None,
            totals=tuple(dict.fromkeys([*totals, *(t - s for t in totals for s in sums if 0 < s < t)])),
            floors=tuple(floors),
            limits=limits,
            members=max((b.members or 0 for b in trials), default=0),
            candidates=max((b.candidates or 0 for b in trials), default=0),
            retrained=next((e.asked or 0 for e in engines if e.engine == "refit"), 0),
        )

    @classmethod
    def from_payload(cls, payload: Mapping[str, Json]) -> Self:
        """Return evidence without its per-person table; ``ValueError``: values are not what this version writes."""
        if "run" not in payload:
            raise ValueError("an earlier version of privgate wrote this evidence; check the model again")
        try:
            document = EvidenceDocument.model_validate(payload)
        except ValidationError as exc:
            first = exc.errors()[0]
            raise ValueError(f"evidence.{'.'.join(map(str, first['loc']))}: {first['msg']}") from exc
        return cls(**{**dict(document), "measurements": {m.request: m for m in document.measurements}})
