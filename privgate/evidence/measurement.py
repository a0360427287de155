"""What was asked, what was measured, and what must hold before any number counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, WithJsonSchema

from privgate.evidence.behind import BehindClaim, BehindInfluence, BehindMembership
from privgate.evidence.values import Json, Number, Option, encode

#: how an interval is meant; a "point" estimate alone neither approves nor blocks
Kind = Literal["exact", "bound", "confidence", "point"]


@dataclass(frozen=True, slots=True)
class Request:
    """A measurement that a rule asks for; equal requests are measured once.

    Parameters
    ----------
    metric : str
        Catalogue key, for example ``"dtp"``.
    options : tuple of (name, value)
        Sorted by name; what makes this number another number.
    """

    metric: str
    options: tuple[tuple[str, Option], ...] = ()

    @classmethod
    def of(cls, metric: str, **options: Option) -> Self:
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
    def from_payload(cls, payload: Mapping[str, Json]) -> Self:
        """Return the request that ``payload`` describes.

        Raises
        ------
        ValueError
            It describes none.
        """
        stated, metric = payload.get("options"), payload.get("metric")
        if not isinstance(stated, Mapping) or not isinstance(metric, str):
            raise ValueError("a request names its metric and its options")  # noqa: TRY004  what pydantic tells
        made = ((str(k), tuple(v) if isinstance(v, list) else v) for k, v in stated.items())
        return cls(metric, tuple(sorted(made, key=lambda option: option[0])))


def _request(value: Any) -> Any:
    return Request.from_payload(value) if isinstance(value, Mapping) else value


_REQUEST = {
    "type": "object",
    "description": "What was asked.",
    "properties": {"metric": {"type": "string"}, "options": {"type": "object"}, "key": {"type": "string"}},
    "required": ["metric", "options", "key"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """A number, the interval that is certain or confident around it, and where it comes from.

    Parameters
    ----------
    request : Request
        What was asked.
    value : float
        Best single figure; NaN when ``problem`` is set.
    low, high : float
        The truth lies within, for certain (certificates, error bounds) or at ``confidence``. ``inf`` means no bound.
    unit : str
        "nats", "fraction", "records", …
    kind : str
        "exact", "bound", "confidence" or "point"; a "point" estimate alone neither approves nor blocks.
    confidence : float or None
        Of the interval; None where it is certain.
    n : int
        Units or trials behind the number.
    population : int
        Units or trials there are; ``n < population`` limits what can be claimed.
    where : str
        Name of the worst unit, class or attack, if the number belongs to one.
    problem : str
        Why the measurement could not be taken; never a pass.
    assumptions : tuple of str
        Hypotheses in words.
    applicable : bool
        False where the question has no sense for such a model; ``problem`` then says why.
    stopped_by : str
        Name of the precondition that ended the run before this was measured; empty if none did.
    behind : Behind or None
        What stands behind the number, by question.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    request: Annotated[Request, BeforeValidator(_request), WithJsonSchema(_REQUEST)]
    value: Number = float("nan")
    low: Annotated[Number, Field(description="The truth is at least this; inf or -inf: no bound.")] = float("nan")
    high: Annotated[Number, Field(description="The truth is at most this; inf: no bound.")] = float("nan")
    unit: str = ""
    kind: Kind = "exact"
    confidence: Annotated[Number | None, Field(description="Of the interval; null where it is certain.")] = None
    n: Annotated[int, Field(description="Units or trials behind the number.")] = 0
    population: Annotated[int, Field(description="Units or trials there are.")] = 0
    where: str = ""
    problem: Annotated[str, Field(description="Why there is no number; never a pass.")] = ""
    assumptions: tuple[str, ...] = ()
    applicable: Annotated[bool, Field(description="false: the question has no sense for such a model.")] = True
    stopped_by: Annotated[str, Field(description="Precondition that ended the run before this was measured.")] = ""
    behind: BehindInfluence | BehindMembership | BehindClaim | None = None

    def payload(self) -> dict[str, Json]:
        """Return JSON values; infinities and NaN become text."""
        raw = {name: encode(getattr(self, name)) for name in self.__slots__}
        raw["request"] = self.request.payload()
        raw["behind"] = None if self.behind is None else self.behind.payload()
        return raw

    @classmethod
    def from_payload(cls, payload: Mapping[str, Json]) -> Self:
        """Return the measurement that ``payload`` describes.

        Raises
        ------
        ValueError
            A key is unknown, missing or of the wrong kind.
        """
        return TypeAdapter(cls).validate_python(payload)


@dataclass(frozen=True, slots=True)
class Precondition:
    """One thing that must hold before any number counts: a control, a digest, a data check.

    Parameters
    ----------
    name : str
        For example ``"reproduces"``, ``"depends_on_data"``.
    outcome : {"passed", "warned", "inconclusive", "failed"}
        What it means for the verdict.
    message : str
        One sentence.
    detail : mapping
        JSON values.
    """

    name: str
    outcome: Annotated[str, Field(pattern="^(passed|warned|inconclusive|failed)$")]
    message: str
    detail: Mapping[str, Json] = field(default_factory=dict)

    def figure(self, name: str) -> float | None:
        """Return one number of the detail; None where it has none of that name."""
        found = self.detail.get(name)
        return None if found is None else float(found)
