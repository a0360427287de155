"""Which questions to ask next about a unit: others' records and the domain first, then around the best so far."""

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.subject.containers import stack, take
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject

Float = NDArray[np.float64]
Index = NDArray[np.int64]
#: domains of at most so many queries are asked completely
EXHAUSTIVE = 4_096


def first(
    subject: Subject, domain: Domain | None, units: Index, records: int, rng: Generator
) -> tuple[Any, NDArray[Any], bool]:
    """Return (queries, how each was come by, whether the domain is asked completely) of the first round."""
    X, numbers = subject.data.X, table(subject.data.X)
    own = np.concatenate([subject.data.units[int(u)] for u in units])
    count = min(subject.data.n, records)
    others = take(X, np.sort(rng.choice(subject.data.n, size=count, replace=False)).astype(np.int64))
    if numbers is None or domain is None:
        return others, np.full(count, "record", dtype=object), False
    if domain.categories is not None and np.prod(np.array(domain.categories, dtype=np.float64)) <= EXHAUSTIVE:
        grid = np.indices(domain.categories).reshape(len(domain.categories), -1).T.astype(np.float64)
        return (
            as_container(_inside(grid, domain), X),
            np.full(len(_inside(grid, domain)), "domain", dtype=object),
            True,
        )
    low, high, whole = _sides(domain, numbers.shape[1], numbers[0])
    ends = np.where(rng.random((count, numbers.shape[1])) < 0.5, low, high)
    # between units asked about and anybody else, towards the ends of the domain
    pairs = numbers[rng.choice(own, size=count)], numbers[rng.integers(len(numbers), size=count)]
    t = rng.random((count, 1))
    between = t * pairs[0] + (1 - t) * pairs[1]
    if whole:
        between = np.where(rng.random(between.shape) < t, pairs[0], pairs[1])
    parts = [_inside(v, domain) for v in (ends, between)]
    kinds = np.repeat(["record", "domain", "between"], [count, len(parts[0]), len(parts[1])]).astype(object)
    return stack(others, as_container(np.concatenate(parts), X)), kinds, False


def slope(points: Float, value: Float) -> Float:
    """Return the direction in which the change grows, shape (d,): least squares around the best point.

    Nearby answers count most, so that for differentiable models this is their gradient, without asking how they work.
    """
    good = np.isfinite(value)
    if good.sum() < 3:
        return np.zeros(points.shape[1])
    points, value = points[good], value[good]
    offset = points - points[int(value.argmax())]
    spread = np.maximum(np.abs(offset).max(axis=0), 1e-12)
    distance = (np.abs(offset) / spread).sum(axis=1)
    weight = 1.0 / (1e-2 + distance / max(float(distance.max()), 1e-12))
    A, b = (offset / spread) * weight[:, None], (value - value.max()) * weight
    return np.asarray(np.linalg.solve(A.T @ A + 1e-6 * np.eye(A.shape[1]), A.T @ b))


def neighbours(
    best: Float, own: Float, domain: Domain, count: int, rng: Generator, *, uphill: Float | None = None
) -> Float:
    """Return up to ``count`` queries around ``best``, inside the domain, shape (Q, d).

    Categories: every change of one feature, then random changes of several. Boxes: one feature moved to either end, to
    the unit's own value or by a random step, points between the best query and the unit's records, steps of several
    lengths ``uphill`` (ascent by estimated gradient), and random steps of everything.
    """
    d = len(best)
    low, high, whole = _sides(domain, d, best)
    made: list[Float] = []
    if whole:
        for j in rng.permutation(d)[: max(1, count // 2)]:
            values = np.arange(low[j], high[j] + 1)
            values = values[values != best[j]]
            rows = np.repeat(best[None], len(values), axis=0)
            rows[:, j] = values
            made.append(rows)
    else:
        for j in rng.permutation(d)[: max(1, count // 8)]:
            rows = np.repeat(best[None], 4, axis=0)
            rows[:, j] = low[j], high[j], own[0, j], best[j] + rng.normal() * (high[j] - low[j]) / 10
            made.append(rows)
        if uphill is not None and np.abs(uphill).max(initial=0.0) > 0:
            length = np.geomspace(0.01, 2.0, 12)[:, None]
            made.append(best + length * (high - low) * uphill / np.abs(uphill).max())
            made.append(best + length * (high - low) * np.sign(uphill))
        t = rng.random((max(1, count // 8), 1)) * 1.5
        made.append(best + t * (own[rng.integers(len(own), size=len(t))] - best))
    rest = max(1, count - sum(len(m) for m in made))
    random = low + (high - low) * rng.random((rest, d))
    random = np.floor(random + rng.random((rest, d))) if whole else random
    # few features at a time: a change of everything forgets what made the best query good
    swap = rng.random((rest, d)) < np.minimum(1.0, rng.integers(1, 4, (rest, 1)) / d)
    step = best + (random - best) * (1.0 if whole else rng.random((rest, 1)))
    made.append(np.where(swap, step, best))
    rows = np.clip(np.concatenate(made)[:count], low, high)
    return _inside(np.floor(rows + 0.5) if whole else rows, domain)


def _sides(domain: Domain, d: int, like: Float) -> tuple[Float, Float, bool]:
    """Return (low, high, whole numbers only) of each feature."""
    if domain.categories is not None:
        return np.zeros(d), np.array(domain.categories, dtype=np.float64) - 1, True
    if domain.box is not None:
        low, high = np.array(domain.box, dtype=np.float64).T
        return low, high, False
    top = domain.max_length if domain.max_length is not None else domain.norm
    return np.zeros(d), np.full(d, float(top or 0.0)), bool((like == np.floor(like)).all()) and domain.norm is None


def _inside(rows: Float, domain: Domain) -> Float:
    """Return the rows shrunk into a declared length or norm."""
    for limit, size in ((domain.max_length, rows.sum(axis=1)), (domain.norm, np.sqrt((rows**2).sum(axis=1)))):
        if limit is not None:
            factor = np.minimum(1.0, limit / np.maximum(size, 1e-300))[:, None]
            rows = np.where(factor < 1, rows * factor, rows)
            if limit == domain.max_length:
                rows = np.where(factor < 1, np.floor(rows), rows)
    return rows


def table(X: Any) -> Float | None:
    """Return a dense numeric table, or None where queries cannot be made up."""
    if hasattr(X, "toarray"):
        X = X.toarray()
    if not hasattr(X, "shape") or len(X.shape) != 2:
        return None
    array = np.asarray(X)
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None


def as_container(rows: Float, like: Any) -> Any:
    """Return rows in the kind of container, and of the types, that the recipe was given."""
    if type(like).__module__.startswith("pandas"):
        import pandas as pd

        return pd.DataFrame(rows, columns=like.columns).astype(like.dtypes.to_dict())
    if hasattr(like, "tocsr"):
        import scipy.sparse as sp

        return sp.csr_matrix(rows.astype(like.dtype))
    return rows.astype(np.asarray(like).dtype)
