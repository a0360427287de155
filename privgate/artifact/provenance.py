"""What training is given beside its records, and whether it was computed from them.

A table made of everybody and passed as a parameter, or written into the source, stays as it is when a person is left
out: whatever it tells about them, no retraining shows. Parameters and constants are held against what could have been
computed: means, deviations and extremes of columns, frequencies and means of the labels by category, words that one
person alone uses. Files are searched for records elsewhere (``look``); this is about statistics of them.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.artifact.given_values import CELLS, Given, given, odd, of_modules
from privgate.evidence import Precondition
from privgate.models.columns import split
from privgate.run.run import Run
from privgate.subject.containers import take

#: what is called in a worker, by name
_SEARCH = "privgate.artifact.provenance:searched"
#: so many values and more are said to come from somewhere, also where nothing of the data is found in them
MANY = 100
#: relative difference at which two numbers are one, and at which one of them may have been rounded
_SAME, _ROUNDED = 1e-9, 1e-6
#: rounding of a table of means, in deviations of it
_WRITTEN = 0.03
#: standard errors by which a table follows members' labels better than candidates', or words of members are known
_SURE = 5.0
#: keys that a table has in common with a column, and words that one person alone has, at the least
_KEYS = 10
#: what others' data may share with these; of no matter in what is larger than so many numbers
_SHARED, _FEW = "value", 50
#: columns that are looked at, and values of a column from which on it has no categories
_COLUMNS, _CATEGORIES = 200, 5_000


def searched(opened: Any) -> dict[str, Any]:
    """Return what each parameter and constant holds that was computed from the training data; in a worker."""
    n, size = opened.n, len(opened.y)
    mine, others = (take(opened.X, np.arange(*ends, dtype=np.int64)) for ends in ((0, n), (n, size)))
    regression = opened.recipe.task == "regression"
    sides = [_Side.of(X, y, None if regression else opened.classes) for X, y in
             ((mine, opened.y[:n]), (others, opened.y[n:]))]  # fmt: skip
    known = sides[0].statistics()
    found = []
    for g in (g for g in (*given(opened.recipe), *of_modules(opened.recipe)) if g.size):
        why = _exact(g, known) or _means(g, sides[0]) or _follows(g, *sides) or _people(g, *sides) or _knows(g, *sides)
        found.append({"name": g.name, "size": g.size, "why": why})
    return {"given": found}


@dataclass(frozen=True)
class _Side:
    """Members or candidates: columns by name, and one column of numbers a label (or the targets)."""

    columns: dict[Any, NDArray[Any]]
    targets: dict[str, Float]
    words: Counter[str]

    @classmethod
    def of(cls, X: Any, y: NDArray[Any], classes: NDArray[Any] | None) -> "_Side":
        columns, words = {}, Counter[str]()
        if isinstance(X, list) and all(isinstance(v, str) for v in X):
            words = Counter(w for text in X for w in set(_words(text)))
        elif len(getattr(X, "shape", ())) == 2 and len(y):
            names, values = split(X[:, :_COLUMNS] if not hasattr(X, "iloc") else X.iloc[:, :_COLUMNS])
            columns = dict(zip(names, values, strict=True))
            for column in values:
                if column.dtype.kind == "O":
                    words.update(v for v in column.tolist() if isinstance(v, str))
        if classes is None:
            return cls(columns, {"the target": y.astype(np.float64)}, words)
        return cls(columns, {f"label {c}": (y == c).astype(np.float64) for c in classes.tolist()}, words)

    @cached_property
    def groups(self) -> dict[Any, dict[Any, list[int]]]:
        """Rows by value of each column of categories."""
        return {name: _groups(column) for name, column in self.columns.items()}

    def statistics(self) -> list[tuple[float, str]]:
        """Return (number, what it is) of everything that a table could have been made of, in ascending order."""
        found = list[tuple[float, str]]()
        numeric = {n: c.astype(np.float64) for n, c in self.columns.items() if c.dtype.kind in "iuf"}
        for what, v in [*self.targets.items(), *((f"column {n!r}", c) for n, c in numeric.items())]:
            held = v[np.isfinite(v)]
            if len(held) > 1:
                made = {"mean": held.mean(), f"median {_SHARED}": np.median(held), f"smallest {_SHARED}": held.min()}
                made |= {f"largest {_SHARED}": held.max(), "variance": held.var(), "sample variance": held.var(ddof=1)}
                made |= {"deviation": held.std(), "sample deviation": held.std(ddof=1)}
                found += [(float(number), f"the {name} of {what}") for name, number in made.items()]
        return sorted((v, what) for v, what in found if odd(v))


def _words(text: str) -> list[str]:
    return "".join(c.lower() if c.isalnum() else " " for c in text).split()


def _groups(column: NDArray[Any]) -> dict[Any, list[int]]:
    """Return rows by value of a column of categories; nothing of any other."""
    found: dict[Any, list[int]] = {}
    if column.dtype.kind == "f" and not (np.isfinite(column) & (column == np.floor(column))).all():
        return found
    for i, v in enumerate(column.tolist()):
        if isinstance(v, str | int | float):
            found.setdefault(v, []).append(i)
        if len(found) > _CATEGORIES:
            return {}
    return found


def _exact(g: Given, known: list[tuple[float, str]]) -> str:
    """Return which statistics of the training data a parameter's numbers are, digit for digit."""
    if not known:
        return ""
    values, hits, near = np.array([v for v, _ in known]), Counter[str](), 0
    for v in g.numbers:
        k = int(np.searchsorted(values, v))
        apart, j = min((abs(values[j] - v), j) for j in (k - 1, k) if 0 <= j < len(values))
        if odd(v) and apart <= _ROUNDED * abs(v) and (g.size <= _FEW or _SHARED not in known[j][1]):
            hits[known[j][1]] += 1
            near += apart > _SAME * abs(v) and v != float(np.float32(values[j]))
    few = near == hits.total() < _KEYS  # rounded numbers meet by chance
    return "" if few else ", ".join(what for what, _ in hits.most_common(3))


def _means(g: Given, members: _Side) -> str:
    """Return which column's categories a table gives the means of a label by, smoothed or not; or labels' shares.

    Means of n records with sum s are ``(s + a m) / (n + a)``, in whatever unit: of three numbers and a, which a table
    of independent origin does not follow.
    """
    shares = [float(v.mean()) for v in members.targets.values()]
    for table in (t for t in g.tables if len(set(t.values())) > 1):
        if len(table) >= CELLS and np.ptp(steps := np.diff(list(table.values()))) <= _ROUNDED * np.abs(steps).max():
            continue  # evenly spaced: edges of bins, places; a line in whatever a target is a line in
        told = [table.get(k, np.nan) for k in range(len(shares))]
        written = all(abs(20 * v - round(20 * v)) < _SAME for v in shares)  # a half, a quarter: anybody's
        if len(shares) > 1 and len(table) == len(shares) and not written and np.allclose(told, shares, atol=_ROUNDED):
            return "shares of the labels"
        for name, groups in members.groups.items():
            by_place = list(table) == list(range(len(groups))) and not groups.keys() & table.keys()
            values = dict(zip(sorted(groups, key=str), table.values(), strict=True)) if by_place else table
            rows = {k: groups[k] for k in groups if _key(values, k) in values}
            for what, v in members.targets.items() if len(rows) >= CELLS else ():
                t, n, s = np.array([(values[_key(values, k)], len(r), v[r].sum()) for k, r in rows.items()]).T
                if np.ptp(t) > 0 and any(_smoothed(u, n, s) for u in (t, 1 / (1 + np.exp(-np.clip(t, -500, 500))))):
                    return f"means of {what} by {name!r}"
    return ""


def _key(table: Mapping[Any, float], value: Any) -> Any:
    """Return a value as a table may name it."""
    return value if value in table else str(value)


def _smoothed(t: Float, n: Float, s: Float) -> bool:
    """Whether a table is ``c (s + a m) / (n + a) + d`` for some a, c, m and d, but for rounding and a few cells."""
    for a in (0.0, *np.geomspace(0.25, 200, 24)):
        design = np.column_stack([s / (n + a), 1 / (n + a), np.ones(len(t))])
        off = np.abs(t - design @ np.linalg.lstsq(design, t, rcond=None)[0])
        if (off <= _WRITTEN * t.std()).mean() >= 0.9:
            return True
    return False


def _people(g: Given, members: _Side, others: _Side) -> str:
    """Return that a table has keys that are single people's, and nobody else's."""
    for table in (t for t in g.tables if len(t) >= _KEYS and list(t) != list(range(len(t)))):  # places are nobody's
        for name, column in members.columns.items():
            values = [v for v in column.tolist() if isinstance(v, str | int | float)]
            own = Counter(v for v in values if _key(table, v) in table)
            theirs = others.columns.get(name, column[:0]).tolist()
            apart = sum(1 for v in theirs if isinstance(v, str | int | float) and _key(table, v) in table)
            single = sum(n == 1 for n in own.values())
            alone = len(set(values)) > 0.9 * len(values)
            if single >= max(_KEYS, 0.5 * len(table)) and alone and apart < 0.2 * own.total():
                return f"values of {name!r} that single people alone have"
    return ""


def _follows(g: Given, members: _Side, others: _Side) -> str:
    """Return which column's table follows the labels of members better than those of candidates."""
    for table in (t for t in g.tables if len(t) >= _KEYS and len(set(t.values())) > 2):
        for name in members.columns.keys() & others.columns.keys():
            sides = []
            for side in (members, others):
                column = side.columns[name].tolist()
                rows = [i for i, v in enumerate(column) if isinstance(v, str | int | float) and v in table]
                shown = np.array([table[column[i]] for i in rows])
                if len({column[i] for i in rows}) < _KEYS or len(rows) < 20 or not shown.std() > 0:
                    break
                sides.append((len(rows), {w: _correlation(shown, v[rows]) for w, v in side.targets.items()}))
            if len(sides) < 2:
                continue
            error = sum(1 / (n - 3) for n, _ in sides) ** 0.5
            for what, r in sides[0][1].items():
                gap = (np.arctanh(r) - np.arctanh(sides[1][1][what])) * np.sign(r)
                if gap > _SURE * error:
                    return f"values by {name!r} that follow {what} of these people closer than of others"
    return ""


def _correlation(a: Float, b: Float) -> float:
    return float(np.clip(np.corrcoef(a, b)[0, 1], -0.999999, 0.999999)) if b.std() > 0 else 0.0


def _knows(g: Given, members: _Side, others: _Side) -> str:
    """Return that a list of words knows those of single people in the data far more often than of others'."""
    texts = {t.lower() for t in g.texts}
    rates = []
    for side, other in ((members, others), (others, members)):
        single = [w for w, n in side.words.items() if n == 1 and not other.words[w]]
        if len(single) < _KEYS:
            return ""
        rates.append((sum(w.lower() in texts for w in single), len(single)))
    (a, n), (b, m) = rates
    pooled = (a + b) / (n + m)
    error = (pooled * (1 - pooled) * (1 / n + 1 / m)) ** 0.5
    return f"{a} of {n} words that one person alone uses" if error > 0 and a / n - b / m > _SURE * error else ""


def provenance(run: Run) -> Precondition | None:
    """Return what training is given beside its records, and whether that was made of them; None where nothing is."""
    said = run.fleet.examined(run.subject, _SEARCH)
    public = dict(run.subject.recipe.payload.get("public", {}))
    try:
        parts = [(str(g["name"]), int(g["size"]), str(g["why"])[:160]) for g in said["given"]]
    except (KeyError, TypeError, ValueError):
        why = str(said.get("problem", "its worker said nothing"))[:160]
        return Precondition("provenance", "inconclusive", f"parameters and constants could not be looked at: {why}")
    told = [(g.name, g.size) for g in given(run.subject.recipe)]
    ours = [(n, s) for n, s in told if s]
    if [(n, s) for n, s, _ in parts[: len(ours)]] != ours:  # what modules hold stands behind
        return Precondition("provenance", "inconclusive", "the worker's answer about parameters and constants is none")
    declared = {n: public.get(n, public.get(n.partition(" of ")[0], "")) for n, _, _ in parts}
    made = [(n, w) for n, _, w in parts if w and not declared[n]]
    many = [n for n, s, w in parts if s >= MANY and not w and not declared[n]]
    short = {n: "".join(c for c in n if c.isprintable())[:80] for n, _, _ in parts}
    detail = {"parts": [{"name": short[n], "values": s, "found": w, "public": declared[n]} for n, s, w in parts]}
    if made:
        what = "; ".join(f"{short[n]}: {w}" for n, w in made[:3])
        text = (
            f"training is given what was computed from its data ({what}), and leaving somebody out does not change "
            "that; compute it in the training function, give Recipe(made_by=…), or declare it: Recipe(public=…)"
        )
        return Precondition("provenance", "inconclusive", text, detail)
    doubts, named = list[str](), {k for n in (*dict(told), *declared) for k in (n, n.partition(" of ")[0])}
    if lost := sorted(public.keys() - named):
        which = ", ".join("".join(c for c in k if c.isprintable())[:80] for k in lost[:3])
        doubts.append(f"declared public, but nothing that training is given has that name: {which}")
    if kept := [f"{short[n]} ({declared[n]}): {w}" for n, _, w in parts if w]:
        doubts.append(f"declared public, but made of these data as it seems: {'; '.join(kept[:3])}")
    if many:
        doubts.append(
            f"training is given {', '.join(short[n] for n in many[:3])}, and nobody said where from; what is made "
            "of the data stays when somebody is left out: Recipe(made_by=…) or Recipe(public=…) says which"
        )
    if doubts:
        return Precondition("provenance", "warned", ". ".join(doubts), detail)
    if not any(declared.values()):
        return None
    return Precondition("provenance", "passed", "nothing that training is given was computed from its data", detail)
