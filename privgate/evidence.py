"""What was measured: requests, measurements, the per-unit table, and what a judge or a reader needs beside them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Json = Any
Option = str | float | int | bool | None | tuple[str, ...]

#: columns of the per-unit table that always exist, with their meaning
COLUMNS: Mapping[str, str] = {
    "unit": "name of the unit (a record, or a person with several)",
    "label": "its label; text, 'mixed' if its records differ",
    "pdtp": "largest change of any label's log-probability at the unit's own features, nats; larger is worse",
    "dtp_lower": "the same at the worst query actually evaluated, nats",
    "dtp_upper": "certificate: the same over all queries of the domain, nats; inf where none applies",
    "error": "bound on the numerical error of pdtp, nats; 0 where exact",
    "noise_floor": "change seen between seeds with nobody removed, nats; 0 for training without randomness",
    "seeds": "number of paired seeds behind the figures",
    "engine": "how the retrained model was obtained",
    "status": "exact, converged, screened, failed or undefined; the last two mean infinite leakage",
}


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
    detail : mapping
        JSON values for the report.
    """

    request: Request
    value: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    unit: str = ""
    kind: str = "exact"
    confidence: float | None = None
    n: int = 0
    population: int = 0
    where: str = ""
    problem: str = ""
    assumptions: tuple[str, ...] = ()
    detail: Mapping[str, Json] = field(default_factory=dict)

    def payload(self) -> dict[str, Json]:
        """Return JSON values; infinities and NaN become text."""
        raw = asdict(self)
        raw["request"] = {"metric": self.request.metric, "options": dict(self.request.options), "key": self.request.key}
        raw["detail"] = dict(self.detail)
        return {k: encode(v) for k, v in raw.items()}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Json]) -> Self:
        """Return the measurement that ``payload`` describes."""
        raw = {k: v for k, v in payload.items() if k != "request"}
        for name in ("value", "low", "high", "confidence"):
            raw[name] = decode(raw[name])
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in payload["request"]["options"].items()}
        raw["assumptions"] = tuple(raw["assumptions"])
        return cls(request=Request.of(payload["request"]["metric"], **options), **raw)


def encode(value: Any) -> Any:
    """Return ``value`` with non-finite floats as the words "inf", "-inf", "nan", and arrays as lists."""
    if isinstance(value, np.ndarray):
        return [encode(v) for v in value.tolist()]
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return "nan" if np.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v) for v in value]
    return value


def decode(value: Any) -> Any:
    """Return the float that ``encode`` wrote as a word; anything else unchanged."""
    return float(value) if isinstance(value, str) else value


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
    outcome: str
    message: str
    detail: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that was found out about one subject; judging needs nothing else.

    Parameters
    ----------
    subject : mapping
        Name, version, uri and digests of model, recipe and data; counts (n_records, n_units, n_classes).
    preconditions : tuple of Precondition
        In the order in which they were checked.
    measurements : mapping Request -> Measurement
        One for each request, no exceptions.
    records : mapping column -> array of shape (n_units,)
        Columns of ``COLUMNS`` and possibly more; empty when no rule needed leave-one-out.
    detail : mapping
        JSON values: plan, re-checks, environment, timings, curves for the report's charts.
    """

    subject: Mapping[str, Json]
    preconditions: tuple[Precondition, ...]
    measurements: Mapping[Request, Measurement]
    records: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    detail: Mapping[str, Json] = field(default_factory=dict)

    def payload(self) -> dict[str, Json]:
        """Return JSON values, without the per-unit table (that is ``records.parquet``)."""
        return {
            "subject": encode(self.subject),
            "preconditions": [encode(asdict(p)) for p in self.preconditions],
            "measurements": [m.payload() for m in self.measurements.values()],
            "detail": encode(self.detail),
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, Json]) -> Self:
        """Return evidence without its per-unit table."""
        measurements = [Measurement.from_payload(m) for m in payload["measurements"]]
        return cls(
            subject=payload["subject"],
            preconditions=tuple(Precondition(**p) for p in payload["preconditions"]),
            measurements={m.request: m for m in measurements},
            detail=payload["detail"],
        )
