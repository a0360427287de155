"""Removing records until what is left may be released: the unit that tells most goes first, everything is recomputed.

Removing one unit changes what every other unit tells, so the maximum may rise again (Long et al. 2017, Figure 6, the
sawtooth). The result is therefore the best set seen, never the last one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from privgate.arrays import Float, Index
from privgate.errors import MeasurementError
from privgate.families import answering as families
from privgate.families import bound as bounds
from privgate.families.engine import Asked
from privgate.families.retrained import Status
from privgate.statistics import leakage
from privgate.subject.containers import take
from privgate.subject.data import TrainingData
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: subject -> (lower, upper) of every unit of its data, nats
Values = Callable[[Subject], tuple[Float, Float]]
Progress = Callable[[int, float], None]


@dataclass(frozen=True, eq=False)
class RiskyRemoval:
    """What removing the riskiest units one after another achieved.

    Parameters
    ----------
    order : int64 array of shape (S,)
        Units removed (positions in the original data's units), first to last.
    lower, upper : float64 array of shape (S + 1,)
        Bounds of the largest value over all units left, after 0 .. S removals; nats.
    best : int
        How many removals give the smallest ``upper``; the fewest of them.
    stopped : str
        Why no more were removed.
    meaning : str
        What the numbers are: certified DTP, or PDTP of direct queries.
    """

    order: Index
    lower: Float
    upper: Float
    best: int
    stopped: str
    meaning: str

    @property
    def removed(self) -> Index:
        """Units to leave out for the best set seen."""
        return self.order[: self.best]

    def data(self, original: TrainingData) -> TrainingData:
        """Return the best set seen."""
        return without(original, self.removed)


def without(data: TrainingData, units: Index) -> TrainingData:
    """Return the training data without some units, everything else as it was."""
    gone = np.zeros(data.n, dtype=bool)
    for u in units:
        gone[data.units[int(u)]] = True
    rows = np.flatnonzero(~gone)
    ids, groups = (None if v is None else v[rows] for v in (data.ids, data.groups))
    # what is left is no longer what lies where the whole came from
    return replace(data, X=take(data.X, rows), y=data.y[rows], ids=ids, groups=groups, source=None, loader=None)


def remove_risky(
    subject: Subject,
    *,
    limit: float,
    budget: int | None = None,
    patience: int | None = None,
    values: Values | None = None,
    fleet: Fleet | None = None,
    progress: Progress | None = None,
) -> RiskyRemoval:
    """Return which units to remove so that the largest value falls to ``limit``, or as far as it falls.

    Parameters
    ----------
    subject : Subject
    limit : float
        The policy's limit, nats.
    budget : int, optional
        Most units to remove; a tenth of them if absent.
    patience : int, optional
        Stop after so many removals in a row without a new best; 1 stops at the first tooth of the saw, absent never.
    values : callable, optional
        ``values(subject) -> (lower, upper)``; certified DTP where a certificate needs no retraining, else PDTP.
    fleet : Fleet, optional
        Runs the training function where neither certificate nor closed form answers.
    progress : callable, optional
        ``progress(units removed, largest upper)``.

    Raises
    ------
    MeasurementError
        Neither a certificate nor a fleet can tell anything, or the model is a regressor.
    """
    if subject.task == "regression":
        raise MeasurementError(
            "a regressor has no DTP to lower by removals; the per-person table of its check names the records that "
            "move answers most"
        )
    budget = max(1, len(subject.data.units) // 10) if budget is None else budget
    values, meaning = (values, "as given") if values is not None else _default(subject, fleet, limit)
    return _greedy(
        _by_values(subject, values), meaning, limit=limit, budget=budget, patience=patience, progress=progress
    )


def _greedy(
    steps: Iterator[tuple[int, float, float]],
    meaning: str,
    *,
    limit: float,
    budget: int,
    patience: int | None,
    progress: Progress | None,
) -> RiskyRemoval:
    """Take steps until a rule stops; each yields (the unit that goes next, largest lower, largest upper)."""
    order, lower, upper = list[int](), list[float](), list[float]()
    best, stopped = 0, "nobody is left to remove"
    for unit, low, high in steps:
        lower.append(low)
        upper.append(high)
        done = len(upper) - 1
        if progress is not None:
            progress(done, high)
        if high < upper[best]:
            best = done
        if high <= limit:
            stopped = f"the limit of {limit:g} is kept"
            break
        if done >= budget:
            stopped = f"the budget is spent: {budget} removals"
            break
        if patience is not None and done - best >= patience:
            stopped = f"{patience} removals in a row brought nothing better"
            break
        order.append(unit)
    return RiskyRemoval(np.array(order, dtype=np.int64), np.array(lower), np.array(upper), best, stopped, meaning)


def _by_values(subject: Subject, values: Values) -> Iterator[tuple[int, float, float]]:
    kept = np.arange(len(subject.data.units))
    gone: list[int] = []
    current = subject
    while len(kept) > 1:
        low, high = values(current)
        worst = int(np.lexsort((-low, -high))[0])
        yield int(kept[worst]), float(low.max()), float(high.max())
        gone.append(int(kept[worst]))
        kept = np.delete(kept, worst)
        left = without(subject.data, np.array(gone))
        if len(np.unique(left.y)) < 2:
            return
        current = subject.with_data(left)


def _default(subject: Subject, fleet: Fleet | None, limit: float) -> tuple[Values, str]:
    if any(not c.needs_retrained for c in bounds.applicable(subject)[0]):
        return lambda current: _certified(current, limit), "certified DTP over the whole domain"
    if fleet is None:
        raise MeasurementError(
            "no certificate speaks about this recipe without retraining; pass a fleet to measure direct queries"
        )
    return lambda current: _direct(current, fleet), "PDTP of direct queries, no bound on indirect ones"


def _certified(subject: Subject, limit: float | None = None) -> tuple[Float, Float]:
    found, _, _ = bounds.bound(subject, np.arange(len(subject.data.units)), None, limit=limit)
    return found.lower, found.upper


def _direct(subject: Subject, fleet: Fleet) -> tuple[Float, Float]:
    units = np.arange(len(subject.data.units))
    found = families.answer(Asked(subject, units, (subject.recipe.seed,), fleet)).retrained
    lost = np.array([s in (Status.FAILED, Status.UNDEFINED) for s in found.status], dtype=bool)
    live = ~lost[found.row_unit]
    per_row = leakage.largest_change(found.log_with[0, live], found.log_without[0, live])
    value = np.where(lost, np.inf, 0.0)
    np.maximum.at(value, found.row_unit[live], per_row)
    error = np.where(lost, 0.0, np.nan_to_num(found.error, nan=np.inf))
    return np.maximum(value - error, 0.0), value + error


def picture(found: RiskyRemoval, *, limit: float, width: int = 640, height: int = 280) -> str:
    """Return the largest value against units removed as a self-contained SVG; infinite values are cut at the top.

    The dot is the best set seen, the dashed line the limit.
    """
    finite = found.upper[np.isfinite(found.upper)]
    top = 1.05 * max([limit, *finite.tolist()]) or 1.0
    left, right, above, below = 56, 16, 16, 40
    last = max(1, len(found.upper) - 1)

    def x(step: float) -> float:
        return left + (width - left - right) * step / last

    def y(value: float) -> float:
        return above + (height - above - below) * (1 - min(value, top) / top)

    points = " ".join(f"{x(k):.1f},{y(v):.1f}" for k, v in enumerate(found.upper.tolist()))
    marks = "".join(
        f'<text x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>' for v in (0.0, top / 2, top)
    ) + "".join(
        f'<text x="{x(k):.1f}" y="{height - 20}" text-anchor="middle">{k}</text>' for k in sorted({0, last // 2, last})
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" '
        f'font-size="12" fill="#333"><title>Largest value against people removed</title>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>{marks}'
        f'<line x1="{left}" x2="{width - right}" y1="{y(limit):.1f}" y2="{y(limit):.1f}" stroke="#a33" '
        f'stroke-dasharray="5 4"/><text x="{width - right}" y="{y(limit) - 4:.1f}" text-anchor="end" fill="#a33">limit '
        f'{limit:g}</text><polyline points="{points}" fill="none" stroke="#246" stroke-width="1.5"/>'
        f'<circle cx="{x(found.best):.1f}" cy="{y(float(found.upper[found.best])):.1f}" r="4" fill="#246"/>'
        f'<text x="{(left + width - right) / 2:.1f}" y="{height - 4}" text-anchor="middle">people removed</text></svg>'
    )
