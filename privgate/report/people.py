"""The per-person table as a reader may see it: counts, quantiles and the worst people under keyed hashes.

No name, no label and no feature value is written; the key of the hashes stays with the controller.
"""

import hashlib
import hmac
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from privgate.errors import UsageError
from privgate.evidence import Count, encode
from privgate.evidence.telling import SMALL_CELL
from privgate.report.schema import FigureName, Quantile, ReportDocument, UnitsSummary, WorstUnit
from privgate.report.text import plain

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
#: figures of the per-person table, in words; the direct one first
NAMES: Mapping[FigureName, str] = {
    "pdtp": "PDTP, direct queries",
    "dtp_lower": "DTP, largest change seen",
    "dtp_upper": "DTP, upper limit by theorem",
}
_FIGURES = tuple(NAMES)
_ROW = (*_FIGURES, "error", "noise_floor", "seeds", "engine", "status")


def summary(
    records: Records, names: Pseudonyms, limits: Iterable[tuple[str, float]] = (), *, everybody: bool = True
) -> dict[str, Any] | None:
    """Return what charts and tables need of the per-person table, as ``UnitsSummary`` holds it; None if there is none.

    ``records`` are those of ``Evidence``, nats; ``limits`` are (figure, nats) of rules. ``everybody`` is off where some
    people were only bounded or ranked: their values make no distribution, and only those are listed who were measured
    closely and certainly matter more than all others.
    """
    if not records or len(records["unit"]) == 0 or records.get("pdtp") is None:
        return None  # a regressor's table is in other units, and has a section of its own
    limits = tuple(dict.fromkeys(limits))
    shown: dict[str, Any] = {"n": len(records["unit"]), "key_id": names.key_id, "small_cell": SMALL_CELL}
    if everybody:
        shown["figures"] = {c: {"quantiles": _rank(records[c])} for c in _FIGURES if c in records}
        by, listed = _decides(records, limits), np.ones(shown["n"], dtype=bool)
    else:
        error = np.nan_to_num(np.asarray(records["error"], dtype=float), nan=np.inf)
        low, high, seen = (np.asarray(records[c], dtype=float) for c in ("pdtp_low", "pdtp_high", "dtp_lower"))
        top = int(np.argmax(seen))
        close = error <= max(CLOSE, float(error[top]))
        by, listed = "dtp_lower", close & (low >= high[~close].max(initial=0.0))
        listed[top] = True
        shown |= {"close": Count(int(close.sum()), len(error)).shown, "everybody": False, "figures": {}}
    some = {c: np.asarray(v)[listed] for c, v in records.items()}
    shown["worst"], shown["next_worst"] = _worst(some, names, by, [v for _, v in limits])
    return shown


def _rank(column: NDArray[Any]) -> dict[str, Any]:
    """Return quantiles of a figure; one on either side of which a few people lie would count them, and is not told."""
    values = np.asarray(column, dtype=float)
    ranked, n = np.sort(np.where(np.isnan(values), np.inf, values)), len(values)
    at = {q: min(n, math.ceil(float(q) * n)) - 1 for q in get_args(Quantile)}
    few = {q for q, i in at.items() if min(i + 1, n - 1 - i) < SMALL_CELL} - {"0.5", "1.0"}
    return {q: encode(math.nan if q in few else float(ranked[i])) for q, i in at.items()}


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


# What the page shows of it.


def section(doc: ReportDocument) -> dict[str, Any]:
    """Return the distribution over people, the worst of them under keyed hashes, and a regressor's sensitivity."""
    units, influence = doc.units, doc.evidence.influence
    return {
        "units": units,
        "numbers": influence and influence.sensitivity,
        "coverage": influence and influence.coverage,
        "figures": [(NAMES[name], figure.quantiles) for name, figure in (units.figures if units else {}).items()],
        "worst": _listed(units) if units and units.worst else None,
    }


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
