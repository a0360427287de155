"""The per-person table as a reader may see it: counts, quantiles and the worst people under keyed hashes.

No name, no label and no feature value is written; the key of the hashes stays with the controller. From the histograms
no small count of people follows: bins are joined until each holds none or ten.
"""

import hashlib
import hmac
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.errors import UsageError
from privgate.evidence import Count, encode
from privgate.evidence.figures import fold, number
from privgate.evidence.telling import SMALL_CELL
from privgate.report.schema import AboveLimit, FigureName, FigureSummary, ReportDocument, UnitsSummary, WorstUnit
from privgate.report.text import plain, shown

Records = Mapping[str, NDArray[Any]]

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
    """Keyed hashes in place of the names of people, wherever a text of ours may quote them.

    ``key`` has at least 16 bytes, else ``UsageError``: only its holder can find a person's row again.
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

    def hash_name(self, name: Any) -> str:
        """Return the keyed hash of one name: HMAC-SHA256, 16 hexadecimal digits."""
        return hmac.new(self._key, str(name).encode(errors="surrogatepass"), hashlib.sha256).hexdigest()[:_DIGITS]

    def column(self, names: NDArray[Any]) -> NDArray[Any]:
        """Return the keyed hashes of a column of names, shape (n_units,)."""
        return np.array([self.hash_name(n) for n in names], dtype=object)

    def text(self, text: str, also: str = "") -> str:
        """Return ``text`` with every name in it replaced; ``also`` is the worst one's, which rules put in brackets."""
        if also in self._names:
            text = text.replace(f"({also})", f"(record {self.hash_name(also)})")
        for first in {"", *_TOKEN.findall(text)} if self._phrases else ():
            for name in self._phrases.get(first, ()):
                if name.strip():
                    text = text.replace(name, f"record {self.hash_name(name)}")
        text = _TOKEN.sub(
            lambda m: f"record {self.hash_name(m.group())}" if m.group() in self._spoken else m.group(), text
        )
        return _NUMBERED.sub(lambda m: f"{m[1]} {self.hash_name(m[2])}" if m[2] in self._names else m[0], text)

    def scrub(self, value: Any, also: str = "") -> Any:
        """Return a JSON value without names, and without keys that hold queries or positions of rows."""
        if isinstance(value, Mapping):
            return {k: self._field(k, v, also) for k, v in value.items() if k not in _WITHHELD}
        if isinstance(value, list | tuple):
            return [self.scrub(v, also) for v in value]
        return self.text(value, also) if isinstance(value, str) else value

    def _field(self, key: str, value: Any, also: str) -> Any:
        if key in ("unit", "where") and isinstance(value, str) and value in self._names:
            return f"record {self.hash_name(value)}"
        return value if key in _OURS and isinstance(value, str) else self.scrub(value, also)


# What the document holds of the table.

#: worst people listed
WORST = 10
#: nats; a figure known less closely than this is a bound, not a measurement
CLOSE = 1e-3
#: bins of a histogram before they are joined
_BINS = 24
#: figures of the per-person table, in words; the direct one first
NAMES: Mapping[FigureName, str] = {
    "pdtp": "PDTP, direct queries",
    "dtp_lower": "DTP, largest change seen",
    "dtp_upper": "DTP, upper limit by theorem",
}
_FIGURES = tuple(NAMES)
_QUANTILES = (0.5, 0.9, 0.99, 1.0)
_ROW = (*_FIGURES, "error", "noise_floor", "seeds", "engine", "status")


def summary(
    records: Records, names: Pseudonyms, limits: Iterable[tuple[str, float]] = (), *, everybody: bool = True
) -> dict[str, Any] | None:
    """Return what charts and tables need of the per-person table, as ``UnitsSummary`` holds it; None if there is none.

    ``records`` are those of ``Evidence``, nats. For each of ``limits``, (figure, nats), how many people lie above is
    counted. ``everybody`` is off where some people were only bounded or ranked: their values make no distribution, and
    only those are listed who were measured closely and certainly matter more than all others.
    """
    if not records or len(records["unit"]) == 0 or records.get("pdtp") is None:
        return None  # a regressor's table is in other units, and has a section of its own
    limits = tuple(dict.fromkeys(limits))
    shown: dict[str, Any] = {"n": len(records["unit"]), "key_id": names.key_id, "small_cell": SMALL_CELL}
    if everybody:
        shown |= _summarise(records, limits)
        by, listed = _decides(records, limits), np.ones(shown["n"], dtype=bool)
    else:
        error = np.nan_to_num(np.asarray(records["error"], dtype=float), nan=np.inf)
        low, high, seen = (np.asarray(records[c], dtype=float) for c in ("pdtp_low", "pdtp_high", "dtp_lower"))
        top = int(np.argmax(seen))
        close = error <= max(CLOSE, float(error[top]))
        by, listed = "dtp_lower", close & (low >= high[~close].max(initial=0.0))
        listed[top] = True
        shown |= {"close": Count(int(close.sum()), len(error)).shown, "everybody": False, "figures": {}, "above": []}
    some = {c: np.asarray(v)[listed] for c, v in records.items()}
    shown["worst"], shown["next_worst"] = _worst(some, names, by, [v for _, v in limits])
    return shown


def _summarise(records: Records, limits: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Return the histogram and quantiles of each figure, and how many people lie above each limit."""
    columns = {c: np.asarray(records[c], dtype=float) for c in reversed(_FIGURES) if c in records}
    values = np.concatenate([*columns.values()])
    edges = list(np.linspace(0.0, float(values[np.isfinite(values)].max(initial=0.0)) or 1.0, _BINS + 1))
    histograms = apart({  # that of the limits first, so that the others give way
        c: histogram(values, edges, [limit for name, limit in limits if name == c])
        for c, values in sorted(columns.items(), key=lambda given: not any(name == given[0] for name, _ in limits))
    })  # fmt: skip
    figures = {c: histograms[c].payload() for c in _FIGURES if c in histograms}
    return {"figures": figures, "above": [_above(c, limit, histograms[c]) for c, limit in limits if c in histograms]}


def _above(column: str, limit: float, histogram: "Histogram") -> dict[str, Any]:
    """Return how many lie above a limit: only what gives no small count away, by itself or beside the others."""
    count, n = histogram.above(limit), len(histogram.values)
    shown = count if limit in histogram.cuts or count in (0, n) else None
    low, high = Count(count, n).ends
    between = [low, high] if shown is None and low < high else None
    return {"figure": column, "limit": limit, "count": shown, "between": between}


def _worst(
    records: Records, names: Pseudonyms, by: str, limits: Sequence[float]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the worst people in the order of what is drawn, by one figure, then by the others; none is the worst.

    Where the figures of these few would tell how many lie above a limit, or have none, only the first has figures; the
    names of the others follow in no order.
    """
    order = dict.fromkeys((by, "dtp_upper", "dtp_lower", "pdtp"))
    figures = [np.nan_to_num(np.asarray(records[c], dtype=float), nan=np.inf, posinf=np.inf) for c in order]
    # ties by name's hash: the order must not tell the row number
    hashes = names.column(np.asarray(records["unit"]))
    ranked = np.lexsort((hashes, *(-values for values in reversed(figures))))[:WORST]
    rows = [{"unit": str(hashes[i]), **{c: encode(records[c][i]) for c in _ROW if c in records}} for i in ranked]
    split = [(values[ranked] > limit).sum() for values in figures for limit in (*limits, np.finfo(float).max)]
    if all(count in (0, len(ranked)) for count in split):
        return rows, []
    return rows[:1], sorted(str(hashes[i]) for i in ranked[1:])


def _decides(records: Records, limits: Sequence[tuple[str, float]]) -> str:
    """Return the figure that a limit on people is held against last; the largest change seen where none is bounded."""
    columns = [c for c, _ in limits if c in records and np.isfinite(np.asarray(records[c], dtype=float)).any()]
    if len(set(columns)) == 1:
        return columns[0]
    return "dtp_upper" if "dtp_upper" in columns else "dtp_lower"


# Histograms from which no small count follows.


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of people in bins ``(edge, next edge]``, the first with its lower edge.

    Counts above the limits of rules are sums of the same bins, so that no difference of two of them is small either.
    Where a few people have no finite figure, the highest bin that holds people is hidden with them, and holds enough
    that any number of them from 1 to 9 is possible.
    """

    #: everybody's figure, nats; what is not finite lies above everything
    values: Float
    #: ascending
    edges: tuple[float, ...]
    #: limits at which the count above may be told
    cuts: frozenset[float]
    #: how many have no finite figure is hidden, whatever it is: that of another figure differs by a few
    open_end: bool = False

    def above(self, edge: float) -> int:
        """Return how many lie above ``edge``; NaN lies above everything."""
        return int((~(self.values <= edge)).sum())

    def payload(self) -> dict[str, Any]:
        """Return what the document holds of it, with the quantiles that count no few people."""
        counts, unbounded = self.counts()
        n = len(self.values)
        ranked = np.sort(np.where(np.isnan(self.values), np.inf, self.values))
        at = {q: min(n, int(np.ceil(q * n))) - 1 for q in _QUANTILES}
        # beyond a quantile lie so many people: a few of them would be counted by it
        shown = {q: float(ranked[i]) if q in (0.5, 1.0) or n - 1 - i >= SMALL_CELL else np.nan for q, i in at.items()}
        quantiles = {str(q): encode(v) for q, v in shown.items()}
        return {"edges": [*self.edges], "counts": counts, "unbounded": unbounded, "quantiles": quantiles}

    @property
    def unbounded(self) -> int:
        """How many have no finite figure."""
        return int((~np.isfinite(self.values)).sum())

    def counts(self) -> tuple[list[int | None], int | None]:
        """Return the count of each bin and of people without a finite figure; None where the two would tell a few."""
        over = [len(self.values), *(self.above(e) for e in self.edges[1:-1]), self.unbounded]
        counts: list[int | None] = [a - b for a, b in pairwise(over)]
        finite = len(self.values) - self.unbounded
        hide = self.open_end or _few(self.unbounded) or (_few(finite) and self.unbounded)
        if not hide or not finite:
            return counts, self.unbounded
        top = max(i for i, c in enumerate(counts) if c)
        return [None if i == top else c for i, c in enumerate(counts)], None

    def without(self, edges: Iterable[float]) -> "Histogram":
        """Return it with the bins beside each of ``edges`` joined; its two ends stay."""
        gone = set(edges)
        inner = (e for e in self.edges[1:-1] if e not in gone)
        return replace(self, edges=(self.edges[0], *inner, self.edges[-1]), cuts=self.cuts - gone)


def _few(count: int) -> bool:
    return 0 < count < SMALL_CELL


def histogram(values: Float, edges: Sequence[float], limits: Iterable[float]) -> Histogram:
    """Return the histogram of one figure, its bins joined."""
    whole = Histogram(values, tuple(edges), frozenset())
    unbounded = whole.unbounded
    #: so many in the bin hidden beside a few without a finite figure that they may be any number of a few
    least = 2 * SMALL_CELL - 1 if _few(unbounded) else SMALL_CELL
    cuts: list[float] = []
    for cut in sorted(set(limits), reverse=True):
        here = whole.above(cut) - (whole.above(cuts[-1]) if cuts else unbounded)
        if here >= (SMALL_CELL if cuts else least) or (here == 0 and (cuts or not _few(unbounded))):
            cuts.append(cut)
    while cuts and _few(len(values) - whole.above(cuts[-1])):
        cuts.pop()
    kept, need = [edges[-1]], least
    inner = sorted({*edges[1:-1], *(c for c in cuts if edges[0] < c < edges[-1])}, reverse=True)
    last = unbounded  # how many lie above the edge kept last
    ends = [c for c in cuts if edges[0] < c < edges[-1]] + [edges[0]]
    for edge in inner:
        here = whole.above(edge) - last
        end = next(e for e in ends if e <= edge)  # where this stretch between two limits ends
        rest = (whole.above(end) if end > edges[0] else len(values)) - whole.above(edge)
        if edge in ends or ((here == 0 or here >= need) and not _few(rest)):
            kept.append(edge)
            need, last = (SMALL_CELL if here else need), whole.above(edge)
    return Histogram(values, tuple(float(e) for e in [*kept, edges[0]][::-1]), frozenset(cuts))


def apart(figures: Mapping[str, Histogram]) -> dict[str, Histogram]:
    """Return histograms of several figures of the same people, of which no two differ by a few at an edge of both."""
    histograms: dict[str, Histogram] = {}
    for name, mine in figures.items():
        close = {e for other in histograms.values() for e in {*mine.edges, *mine.cuts} & {*other.edges, *other.cuts}
                 if _few(abs(mine.above(e) - other.above(e)))}  # fmt: skip
        few = any(_few(abs(mine.unbounded - other.unbounded)) for other in histograms.values())
        histograms[name] = replace(mine.without(close), open_end=few)
    return histograms


# What the page shows of it.


def section(doc: ReportDocument) -> dict[str, Any]:
    """Return the distribution over people, the worst of them under keyed hashes, and a regressor's sensitivity."""
    units, influence = doc.units, doc.evidence.influence
    figures, above = (units.figures, units.above) if units else ({}, ())
    return {
        "units": units,
        "numbers": influence and influence.sensitivity,
        "coverage": influence and influence.coverage,
        "figures": [(NAMES[name], figure.quantiles, _distribution(figure)) for name, figure in figures.items()],
        "above": [(f"{NAMES[row.figure]}: above {fold(row.limit)}", _lie_above(row)) for row in above],
        "worst": _listed(units) if units and units.worst else None,
    }


def _lie_above(row: AboveLimit) -> str:
    """Return how many lie above a limit, in words; a hidden count as its range."""
    ends = (row.between or ()) if row.count is None else (row.count,)
    return " to ".join(map(number, ends)) or "suppressed"


def _distribution(figure: FigureSummary) -> list[tuple[str, str]]:
    """Return how many people have which figure; ranges were joined until none tells a small count."""
    spans = [f"{number(a)} to {number(b)}" for a, b in pairwise(figure.edges)]
    every = zip([*spans, "no upper limit known"], [*figure.counts, figure.unbounded], strict=True)
    return [(span, shown(count)) for span, count in every if count != 0]


def _listed(units: UnitsSummary) -> dict[str, Any]:
    """Return the worst with their figures, or the worst one and the names of the next."""
    # what has no figure is the worst, never 0
    rows = [w.model_copy(update={c: math.inf for c in _FIGURES if math.isnan(getattr(w, c))}) for w in units.worst]
    several = f"The {len(rows)} people whose records matter most"
    return {
        "title": several if len(rows) > 1 else "The person whose record matters most",
        "people": rows,
        "most": max(r.pdtp for r in rows),
        "endless": all(math.isinf(r.dtp_lower) for r in rows),
        "noisy": all(r.pdtp <= r.noise_floor for r in rows),
        "rows": [[getattr(w, key) for key in WorstUnit.model_fields] for w in units.worst],
        "next": ", ".join(plain(name, 20) for name in units.next_worst),
    }
