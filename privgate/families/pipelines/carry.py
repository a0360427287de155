"""First steps that learn: what they would have learnt without each unit, exactly, from sums, orders and counts.

Without a unit every feature that a scaler or an imputer makes is ``a z + b + g M`` of what it was, ``M`` marking the
records whose value was missing; categories stay what they are unless the unit holds one alone (docs/mathematics.md,
section 17.2). Units without whom a step does anything else are named, and refitted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.pipelines import steps
from privgate.models.columns import is_missing, split

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Flags = NDArray[np.bool_]


#: largest table, numbers
_CELLS = 1e8


class NotCarried(Exception):  # noqa: N818  an answer, not an error
    """Why what a step learns is not carried."""


@dataclass(frozen=True, eq=False)
class Who:
    """The records that train, and which of them each unit takes away.

    Parameters
    ----------
    n : int
        Training records, the first of the pool.
    members : sequence of U int64 arrays
    """

    n: int
    members: Sequence[Index]

    @property
    def flat(self) -> tuple[Index, Index]:
        """Return (unit, record) of every record of every unit."""
        size = np.array([len(m) for m in self.members], dtype=np.int64)
        return np.repeat(np.arange(len(size)), size), np.concatenate(list(self.members))

    def sums(self, values: Float) -> Float:
        """Return the sum of each unit's own values, (U, d) from (n, d)."""
        unit, record = self.flat
        out = np.zeros((len(self.members), values.shape[1]))
        np.add.at(out, unit, values[record])
        return out


@dataclass(frozen=True, eq=False)
class Carried:
    """Features of the pool, and how they change without each unit: ``a z + b + g M``.

    Parameters
    ----------
    Z : float64 array of shape (P, d), or None
        None where the columns hold no numbers yet: ``raw`` has them.
    raw : container of P records
        What the next step is given.
    a, b, g : float64 arrays of shape (U, d)
    M : bool array of shape (P, d)
        Where a value was missing.
    otherwise : bool array of shape (U,)
        Units without whom a step does something else.
    """

    Z: Float | None
    raw: Any
    a: Float
    b: Float
    g: Float
    M: Flags
    otherwise: Flags

    @property
    def moved(self) -> bool:
        """Whether any feature changes without somebody."""
        return bool((self.a != 1).any() or self.b.any() or self.g.any())

    def columns(self, at: Sequence[int]) -> "Carried":
        """Return some of the columns."""
        k = np.asarray(at, dtype=np.int64)
        raw = self.raw.iloc[:, k] if hasattr(self.raw, "iloc") else self.raw[:, k]
        Z = None if self.Z is None else self.Z[:, k]
        return Carried(Z, raw, self.a[:, k], self.b[:, k], self.g[:, k], self.M[:, k], self.otherwise)


def given(X: Any, units: int) -> Carried:
    """Return records as they come: nothing changes."""
    d = int(X.shape[1])
    ones = np.ones((units, d))
    return Carried(None, X, ones, 0 * ones, 0 * ones, np.zeros((X.shape[0], d), bool), np.zeros(units, bool))


def strange(step: Any) -> str:
    """Return why an unfitted step will not be carried; empty if it may be. Nothing else is fitted in this process."""
    kind = type(step).__name__
    if step is None or isinstance(step, str) or kind in _CARRIED:
        return ""
    if kind in ("Pipeline", "FeatureUnion", "ColumnTransformer"):
        return next((why for _, inner in steps.parts(step) if (why := strange(inner))), "")
    return f"what {kind} learns is not carried along" if steps.unfixed(step) else ""


def carry(step: Any, before: Carried, who: Who) -> Carried:
    """Return what a fitted step makes of the pool, and how that changes without each unit.

    Raises
    ------
    NotCarried
        It learns something that is not carried.
    """
    if step is None or step == "passthrough":
        return before
    kind = type(step).__name__
    if kind in ("FeatureUnion", "ColumnTransformer") and step.transformer_weights is not None:
        raise NotCarried("parts that are weighed are not carried along")
    if kind == "Pipeline":
        for _, inner in step.steps:
            before = carry(inner, before, who)
        return before
    if kind == "FeatureUnion":
        return _joined([carry(inner, before, who) for _, inner in step.transformer_list if inner != "drop"], before)
    if kind == "ColumnTransformer":
        return _by_columns(step, before, who)
    if not before.moved and not steps.unfixed(step):
        return _unchanged(step.transform(before.raw), before)
    if kind not in _CARRIED:
        raise NotCarried(f"what {kind} learns is not carried along")
    return _CARRIED[kind](step, before, who)


def _by_columns(step: Any, before: Carried, who: Who) -> Carried:
    made = []
    for name, inner, _ in step.transformers_:
        where = step.output_indices_[name]
        if (isinstance(inner, str) and inner == "drop") or where.stop == where.start:
            continue
        at = list(step._transformer_to_input_indices[name])  # noqa: SLF001  how it resolved names, slices and selectors
        found = carry(inner, before.columns(at), who)
        if found.a.shape[1] != where.stop - where.start:
            raise NotCarried(f"step {name!r} gives another number of features than expected")
        made.append((where.start, found))
    return _joined([found for _, found in sorted(made, key=lambda pair: pair[0])], before)


def _joined(parts: Sequence[Carried], before: Carried) -> Carried:
    if not parts:
        raise NotCarried("the first steps give no feature")
    Z = np.column_stack([numbers(p) for p in parts])
    a, b, g, M = (np.concatenate([getattr(p, name) for p in parts], axis=1) for name in ("a", "b", "g", "M"))
    return Carried(Z, Z, a, b, g, M, np.logical_or.reduce([before.otherwise, *(p.otherwise for p in parts)]))


def numbers(found: Carried) -> Float:
    """Return the features as numbers.

    Raises
    ------
    NotCarried
        They are none.
    """
    if found.Z is not None:
        return found.Z
    raw = found.raw.toarray() if hasattr(found.raw, "toarray") else found.raw
    if (
        hasattr(raw, "dtypes")
        and hasattr(raw, "iloc")
        and any(getattr(t, "kind", "O") not in "biuf" for t in raw.dtypes)
    ):
        raise NotCarried("text reaches a step that computes")
    table = np.asarray(raw)
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise NotCarried("text reaches a step that computes")
    if table.dtype in (np.float32, np.float16):
        raise NotCarried("records are of single precision, in which the library then computes; pass float64")
    return table.astype(np.float64)


def _dense(made: Any) -> NDArray[Any]:
    if float(np.prod(np.array(made.shape, dtype=np.float64))) > _CELLS:
        raise NotCarried(f"{made.shape[1]} features of {made.shape[0]} records do not fit the memory")
    return np.asarray(made.toarray() if hasattr(made, "toarray") else made)


def _unchanged(made: Any, before: Carried) -> Carried:
    table = _dense(made)
    new = given(table, len(before.otherwise))
    return Carried(None, table, new.a, new.b, new.g, new.M, before.otherwise)


def _imputer(step: Any, before: Carried, who: Who) -> Carried:
    if before.moved or step.add_indicator:
        raise NotCarried("an imputer behind a step that learns, or one that adds columns, is not carried along")
    _, columns = split(before.raw)
    made = _dense(step.transform(before.raw))
    if made.shape[1] != len(columns):
        raise NotCarried("an imputer that drops columns is not carried along")
    M = np.column_stack([[_is_nan(v) for v in c.tolist()] for c in columns]).astype(bool)
    if not (isinstance(step.missing_values, float) and np.isnan(step.missing_values)):
        raise NotCarried("an imputer of another value than NaN is not carried along")
    U = len(who.members)
    g, otherwise = np.zeros((U, len(columns))), before.otherwise.copy()
    for j, column in enumerate(columns):
        held = ~M[:, j]
        if step.strategy == "constant":
            continue
        if not M[:, j].any():
            continue
        if step.strategy == "mean":
            g[:, j] = _mean_without(column, held, who)
        elif step.strategy == "median":
            g[:, j] = _median_without(column, held, who)
        elif step.strategy == "most_frequent":
            otherwise |= _mode_changes(column, held, who, step.statistics_[j])
        else:
            raise NotCarried("an imputer with a function of its own is not carried along")
    gone = who.sums((~M[: who.n]).astype(np.float64)) >= (~M[: who.n]).sum(axis=0)
    otherwise |= gone.any(axis=1)  # a column that nobody else fills is dropped, or filled by another rule
    otherwise |= ~np.isfinite(g).all(axis=1)
    ones = np.ones_like(g)
    return Carried(None, made, ones, 0 * ones, np.nan_to_num(g), M, otherwise)


def _is_nan(value: Any) -> bool:
    """Whether the library's imputers take a value for missing: they leave None alone."""
    return value is not None and is_missing(value)


def _mean_without(column: NDArray[Any], held: Flags, who: Who) -> Float:
    """Return how the mean of the values that are there changes without each unit."""
    x = np.where(held, column, 0).astype(np.float64)[: who.n]
    here = held[: who.n]
    centre = x[here].mean()
    own = who.sums(np.column_stack([np.where(here, x - centre, 0.0), here]))
    rest = (x[here] - centre).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((rest - own[:, 0]) / (here.sum() - own[:, 1]) - rest / here.sum())


def _median_without(column: NDArray[Any], held: Flags, who: Who) -> Float:
    """Return how the median of the values that are there changes without each unit."""
    x = np.where(held, column, np.nan).astype(np.float64)[: who.n]
    here = np.flatnonzero(held[: who.n])
    order = here[np.argsort(x[here], kind="stable")]
    place, value = np.full(who.n, -1), x[order]
    place[order] = np.arange(len(order))
    full, out = float(np.median(value)), np.zeros(len(who.members))
    for u, rows in enumerate(who.members):
        own = place[rows]
        own = own[own >= 0]
        if not len(own):
            continue
        left = len(order) - len(own)
        if not left:
            out[u] = np.nan
            continue
        middle = [(left - 1) // 2, left // 2]
        at = [_nth(np.sort(own), k) for k in middle]
        out[u] = (value[at[0]] + value[at[1]]) / 2 - full
    return out


def _nth(removed: Index, k: int) -> int:
    """Return the position of the k-th that remains, from sorted positions that are removed."""
    for r in removed:
        if r > k:
            break
        k += 1
    return k


def _mode_changes(column: NDArray[Any], held: Flags, who: Who, mode: Any) -> Flags:
    """Return without whom another value may be the most frequent: who holds no less of it than its lead."""
    _, counts = _codes(column, who.n, held)
    order = np.sort(counts)
    lead = order[-1] - (order[-2] if len(order) > 1 else 0)
    mine = held[: who.n] & np.array([v == mode for v in column[: who.n].tolist()], dtype=bool)
    lost = who.sums(mine[:, None].astype(np.float64))[:, 0]
    return np.asarray((lost > 0) & (lost >= lead))


def _codes(column: NDArray[Any], n: int, held: Flags | None = None) -> tuple[Index, Index]:
    """Return the code of each training value, -1 where not held, and how often each occurs; None is not NaN."""
    known: dict[Any, int] = {}
    codes = np.full(n, -1)
    for i, v in enumerate(column[:n].tolist()):
        if held is not None and not held[i]:
            continue
        key = (type(v).__name__, "missing") if is_missing(v) else v
        codes[i] = known.setdefault(key, len(known))
    return codes, np.bincount(codes[codes >= 0], minlength=max(1, len(known)))


def _standard(step: Any, before: Carried, who: Who) -> Carried:
    if (before.a != 1).any() or before.b.any():
        raise NotCarried("a scaler behind a scaler is not carried along")
    c, M, n = numbers(before), before.M, who.n
    here = c[:n] - (mean := c[:n].mean(axis=0))
    count = n - np.array([len(m) for m in who.members], dtype=np.float64)[:, None]
    # filled values all move by g; those of the unit itself are gone
    filled = M[:n].sum(axis=0) - who.sums(M[:n].astype(np.float64))
    first = (here.sum(axis=0) - who.sums(here) + before.g * filled) / count
    at_filled = (here * M[:n]).sum(axis=0) - who.sums(here * M[:n])
    second = ((here**2).sum(axis=0) - who.sums(here**2) + 2 * before.g * at_filled + before.g**2 * filled) / count
    variance = second - first**2
    full = (here**2).mean(axis=0)
    U, d = before.a.shape
    flat = (c[:n] == c[0]).all(axis=0)
    if (~flat & (full <= _CONSTANT * mean**2)).any():
        raise NotCarried("a feature is constant but for rounding")
    otherwise = before.otherwise | (~flat & ~(variance > 1e-6 * full)).any(axis=1)
    otherwise |= (flat & (np.abs(before.g) > 0)).any(axis=1)
    scale, a = np.ones(d), np.ones((U, d))
    if step.with_std:
        scale = np.asarray(step.scale_, dtype=np.float64)
        a[:, ~flat] = np.sqrt(full / np.where(variance > 0, variance, full))[:, ~flat]
    b = -a * first / scale if step.with_mean else np.zeros((U, d))
    return _scaled(step, before, a, np.where(flat, 0.0, b), scale, otherwise)


#: a variance below this share of the squared mean is rounding, which the library may or may not call 0
_CONSTANT = 1e-14


def _scaled(step: Any, before: Carried, a: Float, b: Float, scale: Float, otherwise: Flags) -> Carried:  # noqa: PLR0917  what a scaler does
    """Return scaled features; ``a`` and ``b`` as multiples of the scaled feature, ``g`` divided like the values."""
    Z = _dense(step.transform(before.raw))
    wild = ~(np.isfinite(a) & (a > 0.5) & (a < 2)).all(axis=1)
    return Carried(Z, Z, a, b, a * before.g / scale, before.M, otherwise | wild)


def _extremes(step: Any, before: Carried, who: Who) -> Carried:
    """Carry ``MinMaxScaler`` and ``MaxAbsScaler``: an end moves only without who holds it."""
    if before.moved or getattr(step, "clip", False):
        raise NotCarried("a scaler that clips, or stands behind a step that learns, is not carried along")
    c, n = numbers(before), who.n
    ends = [-c, c] if type(step).__name__ == "MinMaxScaler" else [np.abs(c)]
    moves = np.zeros(len(who.members), dtype=bool)
    for values in ends:
        top = values[:n].max(axis=0)
        holders = (values[:n] == top).astype(np.float64)
        moves |= (who.sums(holders) >= holders.sum(axis=0)).any(axis=1)
    return _unchanged(step.transform(before.raw), replace(before, otherwise=before.otherwise | moves))


def _categories(step: Any, before: Carried, who: Who) -> Carried:
    """Carry encoders: categories stay unless the unit holds one alone, or takes it below ``min_frequency``."""
    if before.moved or getattr(step, "max_categories", None) is not None:
        raise NotCarried("an encoder behind a step that learns, or with max_categories, is not carried along")
    _, columns = split(before.raw)
    otherwise = before.otherwise.copy()
    unit, record = who.flat
    left = who.n - np.array([len(m) for m in who.members])
    for column in columns:
        codes, counts = _codes(column, who.n)
        # only what a unit holds: units times categories would not fit the memory where everybody has their own
        held, lost = np.unique(unit * len(counts) + codes[record], return_counts=True)
        whose, kind = held // len(counts), held % len(counts)
        otherwise[whose[counts[kind] <= lost]] = True
        least = getattr(step, "min_frequency", None)
        if least is not None:
            whole = isinstance(least, int | np.integer)
            now = counts < (least if whole else least * who.n)
            then = counts[kind] - lost < (least if whole else least * left[whose])
            otherwise[whose[now[kind] != then]] = True
            for fewer in [] if whole else np.unique(left):  # the threshold moves for all the others as well
                odd = now != (counts < least * fewer)
                others = odd.sum() - np.bincount(whose, odd[kind], minlength=len(left))
                otherwise |= (left == fewer) & (others > 0)
    return _unchanged(step.transform(before.raw), replace(before, otherwise=otherwise))


_CARRIED: dict[str, Callable[[Any, Carried, Who], Carried]] = {
    "StandardScaler": _standard,
    "MinMaxScaler": _extremes,
    "MaxAbsScaler": _extremes,
    "SimpleImputer": _imputer,
    "OneHotEncoder": _categories,
    "OrdinalEncoder": _categories,
}
