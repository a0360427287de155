"""The per-unit table as a reader may see it: counts, quantiles and the worst units under keyed hashes.

Small counts are hidden as ``privgate.report.suppression`` says. No label and no feature value is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.evidence import encode
from privgate.evidence.values import SMALL_CELL
from privgate.report import suppression
from privgate.report.pseudonyms import Pseudonyms

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
    """Return what charts and tables need of the per-unit table; None if there is none.

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
        return _of_some(records, names)
    edges, limits = _edges(records), tuple(limits)
    return {
        "n": len(records["unit"]),
        "key_id": names.key_id,
        "small_cell": SMALL_CELL,
        "figures": {c: _figure(np.asarray(records[c], dtype=float), edges) for c in _FIGURES if c in records},
        "above": _above(records, edges, [(c, limit) for c, limit in limits if c in records]),
        "worst": _worst(records, names, _decides(records, limits)),
    }


def _of_some(records: Mapping[str, NDArray[Any]], names: Pseudonyms) -> dict[str, Any]:
    """Return the worst units among those measured closely, and nothing about the others but how many there are."""
    error = np.nan_to_num(np.asarray(records["error"], dtype=float), nan=np.inf)
    ranked = np.array([str(s) == "screened" for s in records["status"]], dtype=bool)
    top = int(np.argmax(np.where(ranked, -np.inf, np.asarray(records["dtp_lower"], dtype=float))))
    close = ~ranked & (error <= max(CLOSE, float(error[top])))
    listed = close if ranked.any() else close & _certain(records, close, top)
    return {
        "n": len(error),
        "close": suppression.kept(int(close.sum()), len(error)),
        "everybody": False,
        "key_id": names.key_id,
        "small_cell": SMALL_CELL,
        "figures": {},
        "above": [],
        "worst": _worst({c: np.asarray(v)[listed] for c, v in records.items()}, names),
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


def _figure(values: NDArray[np.float64], edges: NDArray[np.float64]) -> dict[str, Any]:
    cells = suppression.cells(_counts(values, edges))
    ranked = np.sort(np.where(np.isnan(values), np.inf, values))
    at = [min(len(ranked) - 1, int(np.ceil(q * len(ranked))) - 1) for q in _QUANTILES]
    return {
        "edges": [float(e) for e in edges],
        "counts": cells[:-1],
        "unbounded": cells[-1],
        "quantiles": {str(q): encode(float(ranked[i])) for q, i in zip(_QUANTILES, at, strict=True)},
    }


def _counts(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many lie in each bin, and last how many have no finite figure: NaN never counts as small."""
    finite = values[np.isfinite(values)]
    return np.append(np.histogram(finite, bins=edges)[0], len(values) - len(finite)).astype(np.int64)


def _above(
    records: Mapping[str, NDArray[Any]], edges: NDArray[np.float64], limits: Sequence[tuple[str, float]]
) -> list[dict[str, Any]]:
    """Return how many lie above each limit: only what gives no small count away, by itself or beside the others."""
    rows = []
    for column in dict.fromkeys(c for c, _ in limits):
        values = np.asarray(records[column], dtype=float)
        asked = [limit for c, limit in limits if c == column]
        # no figure lies above every limit
        counts = [int((~(values <= limit)).sum()) for limit in asked]
        cells = _counts(values, edges)
        for limit, count, told in zip(asked, counts, suppression.nested(counts, len(values)), strict=True):
            shown = told if told in (None, 0, len(values)) or not _singles_out(cells, edges, limit) else None
            between = suppression.bounds(count, len(values))
            rows.append({
                "figure": column, "limit": limit, "count": shown,
                "between": None if shown is not None or between[0] == between[1] else list(between),
            })  # fmt: skip
    return rows


def _singles_out(cells: NDArray[np.int64], edges: NDArray[np.float64], limit: float) -> bool:
    """Whether a count above the limit would leave one hidden cell of the histogram alone on a side of it."""
    hidden = np.array([c is None for c in suppression.cells(cells)])
    below = np.append(edges[1:] <= limit, False)
    above = np.append(edges[:-1] >= limit, True)
    if cells[~below & ~above].any():
        return False  # the limit cuts a cell: how many of it lie above stays unknown
    return bool(hidden[below].sum() == 1 or hidden[above].sum() == 1)


def _worst(records: Mapping[str, NDArray[Any]], names: Pseudonyms, by: str = "dtp_lower") -> list[dict[str, Any]]:
    """Return the worst units, in the order of what is drawn: by one figure, then by the others; none is the worst."""
    order = dict.fromkeys((by, "dtp_upper", "dtp_lower", "pdtp"))
    shown = [np.nan_to_num(np.asarray(records[c], dtype=float), nan=np.inf, posinf=np.inf) for c in order]
    # ties by name's hash: the order must not tell the row number
    hashes = names.column(np.asarray(records["unit"]))
    ranked = np.lexsort((hashes, *(-values for values in reversed(shown))))[:WORST]
    return [
        {"unit": str(hashes[i]), **{c: encode(_scalar(records[c][i])) for c in _ROW if c in records}} for i in ranked
    ]


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
