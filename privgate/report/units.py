"""The per-unit table as a reader may see it: counts, quantiles and the worst units under keyed hashes.

Small counts are hidden as ``privgate.report.suppression`` says. No label and no feature value is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.evidence import encode
from privgate.evidence.values import SMALL_CELL, bounds, kept
from privgate.report import merging
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
    ranked = np.array([str(s) == "screened" for s in records["status"]], dtype=bool)
    top = int(np.argmax(np.where(ranked, -np.inf, np.asarray(records["dtp_lower"], dtype=float))))
    close = ~ranked & (error <= max(CLOSE, float(error[top])))
    listed = close if ranked.any() else close & _certain(records, close, top)
    told, others = _worst({c: np.asarray(v)[listed] for c, v in records.items()}, names, limits=[v for _, v in limits])
    return {
        "n": len(error),
        "close": kept(int(close.sum()), len(error)),
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
) -> Mapping[str, merging.Histogram]:
    """Return a histogram of each figure; that of the limits first, so that the others give way."""
    columns = {c: np.asarray(records[c], dtype=float) for c in reversed(_FIGURES) if c in records}
    edges = _edges(records)
    return merging.apart({
        c: merging.histogram(values, list(edges), [limit for name, limit in limits if name == c])
        for c, values in sorted(columns.items(), key=lambda given: not any(name == given[0] for name, _ in limits))
    })  # fmt: skip


def _figure(made: merging.Histogram) -> dict[str, Any]:
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


def _above(column: str, limit: float, made: merging.Histogram) -> dict[str, Any]:
    """Return how many lie above a limit: only what gives no small count away, by itself or beside the others."""
    count, n = made.above(limit), len(made.values)
    shown = count if limit in made.cuts or count in (0, n) else None
    between = bounds(count, n)
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
