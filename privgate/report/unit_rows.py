"""The per-person table as a reader may see it: counts, quantiles and the worst units under keyed hashes."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from privgate.errors import UsageError
from privgate.evidence import Count, encode
from privgate.evidence.telling import SMALL_CELL, EvidenceModel, Number, Part
from privgate.report import histograms

# The per-person table as a reader may see it: a part of the report document.

FigureName = Literal["pdtp", "dtp_lower", "dtp_upper"]
Quantile = Literal["0.5", "0.9", "0.99", "1.0"]


def _all_quantiles(found: Mapping[Quantile, float]) -> Mapping[Quantile, float]:
    if len(found) != len(get_args(Quantile)):
        raise ValueError(f"needs the quantiles {', '.join(get_args(Quantile))}")
    return found


Quantiles = Annotated[Mapping[Quantile, Number], AfterValidator(_all_quantiles)]


class FigureSummary(EvidenceModel):
    """One figure over all people."""

    edges: tuple[Number, ...] = Field(description="Edges of the bins, nats; one more than counts.")
    counts: tuple[Part, ...] = Field(description="People in each bin; null where suppressed.")
    unbounded: Part = Field(description="People without a finite figure; null where suppressed.")
    quantiles: Quantiles

    @model_validator(mode="after")
    def _one_count_a_bin(self) -> Self:
        if len(self.edges) < 2 or len(self.edges) != len(self.counts) + 1:
            raise ValueError("needs one count a bin and one edge more")
        return self


class AboveLimit(EvidenceModel):
    """How many units lie above a limit of the policy."""

    figure: FigureName
    limit: Number = Field(description="Nats.")
    count: Part
    between: tuple[int, int] | None = Field(default=None, description="Range of a count that is small or nearly all.")


class WorstUnit(EvidenceModel):
    """One of the units with the largest figures, under its keyed hash (HMAC-SHA256); nats."""

    unit: str
    pdtp: Number
    dtp_lower: Number
    dtp_upper: Number
    error: Number
    noise_floor: Number
    seeds: int
    engine: str
    status: str


class UnitsSummary(EvidenceModel):
    """The per-person table as a reader may see it."""

    n: int = Field(description="People in the table.")
    key_id: str = Field(description="Which key made the hashes; tells nothing about the key.")
    small_cell: int = Field(description="Counts from 1 to one less are suppressed.")
    figures: Mapping[FigureName, FigureSummary] = Field(description="Per figure; empty unless everybody was measured.")
    above: tuple[AboveLimit, ...]
    worst: tuple[WorstUnit, ...]
    next_worst: tuple[str, ...] = Field(
        default=(), description="Others of the worst, in no order: their figures would tell a small count."
    )
    close: Part = Field(default=None, description="People measured closely, where not all were.")
    everybody: bool = Field(default=True, description="Everybody was measured closely: there is a distribution.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.everybody and (not self.worst or set(self.figures) != set(get_args(FigureName))):
            raise ValueError("needs every figure and the worst people where everybody was measured")
        return self


# Keyed hashes in place of the names of records and people: the key stays with the controller.

#: hexadecimal digits shown; 64 bits keep 50,000 names apart with probability above 1 - 1e-10
_DIGITS = 16
_TOKEN = re.compile(r"[^\s()\[\]{}'\",;:=|]+")
# fields whose text is ours, not found in the data
_OURS = frozenset({"rule", "outcome", "metric", "direction", "unit", "mode", "kind", "name", "request", "status"})
# where a feature vector or a row of the data could stand: left out of every report
_WITHHELD = frozenset({"query", "queries", "position", "positions", "features", "rows"})
# a row number is too common a word to be replaced wherever it stands; these phrases name one
_NUMBERED = re.compile(r"\b(unit|record|person|row)s? (\d+)\b")


class Pseudonyms:
    """Keyed hashes of unit names.

    Parameters
    ----------
    key : bytes
        At least 16 bytes; whoever holds it can find a person's row again, nobody else can.
    names : iterable of str
        Names of all units.

    Raises
    ------
    UsageError
        The key is too short to withstand guessing.
    """

    def __init__(self, key: bytes, names: Iterable[Any] = ()) -> None:
        if len(key) < 16:
            raise UsageError(f"the key for record names has {len(key)} bytes; pass at least 16 random ones")
        self._key = key
        self._names = {str(n) for n in names}
        self._spoken = {n for n in self._names if not n.isdigit()}
        # names of several words, by their first: a text is searched for those only whose first word it holds
        self._phrases: dict[str, list[str]] = {}
        for name in sorted((n for n in self._spoken if _TOKEN.fullmatch(n) is None), key=len, reverse=True):
            self._phrases.setdefault(next(iter(_TOKEN.findall(name)), ""), []).append(name)

    @property
    def key_id(self) -> str:
        """Which key it was, without telling the key: 8 hexadecimal digits."""
        return hmac.new(self._key, b"privgate record names", hashlib.sha256).hexdigest()[:8]

    def of(self, name: Any) -> str:
        """Return the keyed hash of one name: HMAC-SHA256, 16 hexadecimal digits."""
        return hmac.new(self._key, str(name).encode(errors="surrogatepass"), hashlib.sha256).hexdigest()[:_DIGITS]

    def column(self, names: NDArray[Any]) -> NDArray[Any]:
        """Return the keyed hashes of a column of names, shape (n_units,)."""
        return np.array([self.of(n) for n in names], dtype=object)

    def text(self, text: str, also: str = "") -> str:
        """Return ``text`` with every unit name in it replaced.

        Parameters
        ----------
        text : str
            A sentence.
        also : str
            The worst unit's name, which rules put in brackets.
        """
        if also in self._names:
            text = text.replace(f"({also})", f"(record {self.of(also)})")
        if self._phrases:
            for first in {"", *_TOKEN.findall(text)}:
                for name in self._phrases.get(first, ()):
                    if name.strip():
                        text = text.replace(name, f"record {self.of(name)}")
        text = _TOKEN.sub(lambda m: f"record {self.of(m.group())}" if m.group() in self._spoken else m.group(), text)
        return _NUMBERED.sub(self._numbered, text)

    def _numbered(self, match: re.Match[str]) -> str:
        return f"{match[1]} {self.of(match[2])}" if match[2] in self._names else match[0]

    def scrub(self, value: Any, also: str = "") -> Any:
        """Return a JSON value without unit names: replaced in every text that may quote the data.

        Keys that hold queries or positions of rows are left out: a query may be a person's own features.
        """
        if isinstance(value, Mapping):
            return {k: self._field(k, v, also) for k, v in value.items() if k not in _WITHHELD}
        if isinstance(value, list | tuple):
            return [self.scrub(v, also) for v in value]
        return self.text(value, also) if isinstance(value, str) else value

    def _field(self, key: str, value: Any, also: str) -> Any:
        if key in ("unit", "where") and isinstance(value, str) and value in self._names:
            return f"record {self.of(value)}"
        return value if key in _OURS and isinstance(value, str) else self.scrub(value, also)


# The per-person table as a reader may see it: counts, quantiles and the worst units under keyed hashes.
#
# No label and no feature value is written.

#: worst units listed
WORST = 10
#: nats; a figure known less closely than this is a bound, not a measurement
CLOSE = 1e-3
_BINS = 24
_FIGURES = ("pdtp", "dtp_lower", "dtp_upper")
_QUANTILES = (0.5, 0.9, 0.99, 1.0)
_ROW = ("pdtp", "dtp_lower", "dtp_upper", "error", "noise_floor", "seeds", "engine", "status")


def summary(
    records: Mapping[str, NDArray[Any]],
    names: Pseudonyms,
    limits: Iterable[tuple[str, float]] = (),
    *,
    everybody: bool = True,
) -> dict[str, Any] | None:
    """Return what charts and tables need of the per-person table; None if there is none.

    Parameters
    ----------
    records : mapping column -> array of shape (n_units,)
        ``Evidence.records``; values in nats.
    names : Pseudonyms
        Turns unit names into keyed hashes.
    limits : iterable of (figure, nats)
        For each, how many units lie above is counted.
    everybody : bool
        Off where some units were only bounded or ranked: their values make no distribution and no ranking.
    """
    if not records or len(records["unit"]) == 0 or records.get("pdtp") is None:
        return None  # a regressor's table is in other units, and has a section of its own
    if not everybody:
        return _of_some(records, names, limits)
    limits = tuple(limits)
    made = _histograms(records, limits)
    listed, others = _worst(records, names, _decides(records, limits), [v for _, v in limits])
    return {
        "n": len(records["unit"]),
        "key_id": names.key_id,
        "small_cell": SMALL_CELL,
        "figures": {c: _figure(made[c]) for c in _FIGURES if c in made},
        "above": [_above(c, limit, made[c]) for c, limit in dict.fromkeys(limits) if c in made],
        "worst": listed,
        "next_worst": others,
    }


def _of_some(
    records: Mapping[str, NDArray[Any]], names: Pseudonyms, limits: Iterable[tuple[str, float]]
) -> dict[str, Any]:
    """Return the worst units among those measured closely, and nothing about the others but how many there are."""
    error = np.nan_to_num(np.asarray(records["error"], dtype=float), nan=np.inf)
    top = int(np.argmax(np.asarray(records["dtp_lower"], dtype=float)))
    close = error <= max(CLOSE, float(error[top]))
    listed = close & _certain(records, close, top)
    told, others = _worst({c: np.asarray(v)[listed] for c, v in records.items()}, names, limits=[v for _, v in limits])
    return {
        "n": len(error),
        "close": Count(int(close.sum()), len(error)).told,
        "everybody": False,
        "key_id": names.key_id,
        "small_cell": SMALL_CELL,
        "figures": {},
        "above": [],
        "worst": told,
        "next_worst": others,
    }


def _certain(records: Mapping[str, NDArray[Any]], close: NDArray[np.bool_], top: int) -> NDArray[np.bool_]:
    """Return who certainly matters more than everybody who was only bounded; the worst always does."""
    low, high = (np.asarray(records[c], dtype=float) for c in ("pdtp_low", "pdtp_high"))
    made = np.asarray(low >= high[~close].max(initial=0.0))
    made[top] = True
    return made


def _edges(records: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    values = np.concatenate([np.asarray(records[c], dtype=float) for c in _FIGURES if c in records])
    finite = values[np.isfinite(values)]
    top = float(finite.max()) if len(finite) else 0.0
    return np.linspace(0.0, top if top > 0 else 1.0, _BINS + 1)


def _histograms(
    records: Mapping[str, NDArray[Any]], limits: Sequence[tuple[str, float]]
) -> Mapping[str, histograms.Histogram]:
    """Return a histogram of each figure; that of the limits first, so that the others give way."""
    columns = {c: np.asarray(records[c], dtype=float) for c in reversed(_FIGURES) if c in records}
    edges = _edges(records)
    return histograms.apart({
        c: histograms.histogram(values, list(edges), [limit for name, limit in limits if name == c])
        for c, values in sorted(columns.items(), key=lambda given: not any(name == given[0] for name, _ in limits))
    })  # fmt: skip


def _figure(made: histograms.Histogram) -> dict[str, Any]:
    counts, unbounded = made.counts()
    n = len(made.values)
    ranked = np.sort(np.where(np.isnan(made.values), np.inf, made.values))
    at = {q: min(n, int(np.ceil(q * n))) - 1 for q in _QUANTILES}
    # beyond a quantile lie so many people: a few of them would be counted by it
    told = {q: float(ranked[i]) if q in (0.5, 1.0) or n - 1 - i >= SMALL_CELL else np.nan for q, i in at.items()}
    return {
        "edges": [float(e) for e in made.edges],
        "counts": counts,
        "unbounded": unbounded,
        "quantiles": {str(q): encode(v) for q, v in told.items()},
    }


def _above(column: str, limit: float, made: histograms.Histogram) -> dict[str, Any]:
    """Return how many lie above a limit: only what gives no small count away, by itself or beside the others."""
    count, n = made.above(limit), len(made.values)
    shown = count if limit in made.cuts or count in (0, n) else None
    between = Count(count, n).ends
    return {
        "figure": column, "limit": limit, "count": shown,
        "between": None if shown is not None or between[0] == between[1] else list(between),
    }  # fmt: skip


def _worst(
    records: Mapping[str, NDArray[Any]], names: Pseudonyms, by: str = "dtp_lower", limits: Iterable[float] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the worst units in the order of what is drawn, by one figure, then by the others; none is the worst.

    Where the figures of these few would tell how many lie above a limit, or have none, only the first has figures; the
    names of the others follow in no order.
    """
    order = dict.fromkeys((by, "dtp_upper", "dtp_lower", "pdtp"))
    shown = [np.nan_to_num(np.asarray(records[c], dtype=float), nan=np.inf, posinf=np.inf) for c in order]
    # ties by name's hash: the order must not tell the row number
    hashes = names.column(np.asarray(records["unit"]))
    ranked = np.lexsort((hashes, *(-values for values in reversed(shown))))[:WORST]
    rows = [
        {"unit": str(hashes[i]), **{c: encode(_scalar(records[c][i])) for c in _ROW if c in records}} for i in ranked
    ]
    split = [(values[ranked] > limit).sum() for values in shown for limit in (*limits, np.finfo(float).max)]
    if all(count in (0, len(ranked)) for count in split):
        return rows, []
    return rows[:1], sorted(str(hashes[i]) for i in ranked[1:])


def _decides(records: Mapping[str, NDArray[Any]], limits: Sequence[tuple[str, float]]) -> str:
    """Return the figure that a limit on units is held against last; the largest change seen where none is bounded."""
    columns = [c for c, _ in limits if c in records and np.isfinite(np.asarray(records[c], dtype=float)).any()]
    return (
        columns[0]
        if columns and not (set(columns) - {columns[0]})
        else ("dtp_upper" if "dtp_upper" in columns else "dtp_lower")
    )


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else (str(value) if isinstance(value, str) else value)
