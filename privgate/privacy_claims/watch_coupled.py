"""Neighbours that follow a watched training: one person other or gone, the same parameters, draws and noise.

Trained freely, neighbours drift apart in nearly every honest step. Set to the first run's noised gradients, or to what
its mechanisms released, they differ in one person's part and in nothing else. What else differs is refused; where it is
only the scale of the noise, it is charged. How many records there are is looked at where a claim keeps it secret.
"""

import math
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.evidence import Observation
from privgate.privacy_claims.accountant import scale_epsilon
from privgate.privacy_claims.watch_noise import BudgetWatch
from privgate.privacy_claims.watch_opacus import DIVISOR, NOISE
from privgate.privacy_claims.watch_sampling import Used
from privgate.subject.containers import take

#: train on (X, y) under a watch with these options: (watch, leaves of what came back)
Train = Callable[..., tuple[Any, dict[str, str]]]

OWN_RANDOMNESS = "random beyond torch's, numpy's and Python's global generators, so that reruns cannot be compared"
MIXING = "the gradient that is clipped for one record depends on other people's records"
#: until somebody is
NOBODY_LEFT = "nobody was left out of a rerun, since the claim declares the number of records public"
FOLLOWS = "follows how many records there are"
RANDOM = "gradients that dropout or augmentation makes random cannot be compared where somebody is left out"
OTHER_DRAWS = "batches that are not Poisson batches are others for everybody when one person joins or leaves"


BETWEEN = "a mechanism chooses between the records' own values, as for a quantile, so that reruns cannot be compared"
#: docs/privacy-claims.md says what is not compared
PARTITION = f"which tree of a forest gets whose records {FOLLOWS}"


def remarkable(X: Any, y: NDArray[Any], units: Index, rng: Generator) -> list[int]:
    """Return people whose leaving shows most: by label, as somebody's twin, by size; and anybody.

    Parameters
    ----------
    X, y : the records
    units : int array of shape (n,)
    rng : Generator
    """
    holders = [np.unique(units[y == label]) for label in np.unique(y)]
    found = [int(who[0]) for count in (1, 2) for who in holders if len(who) == count]
    sizes, names = _sizes_and_names(X, len(y))
    _, first, times = np.unique(names, return_index=True, return_counts=True)
    found += [int(units[first[np.argmax(times)]])] if times.max() > 1 else []
    found += [int(units[np.argmax(sizes)]), int(units[np.argmin(sizes)]), int(rng.integers(units.max() + 1))]
    return list(dict.fromkeys(found))


def _sizes_and_names(X: Any, n: int) -> tuple[NDArray[np.float64], list[int]]:
    """Return each record's length, and a number that only equal records share."""
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf":
        rows = [take(X, np.array([i])) for i in range(n)]
        plain = [r.toarray() if hasattr(r, "toarray") else getattr(r, "to_numpy", lambda r=r: r)() for r in rows]
        values = [np.asarray(p, dtype=object).reshape(-1).tolist() for p in plain]
        numbers = [[float(v) for v in row if isinstance(v, int | float) and not math.isnan(v)] for row in values]
        return np.array([math.hypot(*row) for row in numbers]), [hash(repr(row)) for row in values]
    flat = np.ascontiguousarray(X.reshape(n, -1))
    return np.linalg.norm(np.nan_to_num(flat.astype(np.float64)), axis=1), [hash(row.tobytes()) for row in flat]


def without(replays: Any, used: Used, owner: Index, people: list[int]) -> None:
    """Leave people out, and note what of it shows beside their clipped gradients.

    Parameters
    ----------
    replays : watch_replay.Replays
        Of the first run; what is found is noted there.
    used : Used
    owner : int array
        Whose each entry that batches are drawn from is.
    people : list of int
        Who leaves first.
    """
    replays.by_number = "" if used.kind == "poisson" else OTHER_DRAWS
    if replays.by_number:
        return
    count = int(replays.units.max()) + 1
    order = [*people, *(u for u in np.random.default_rng(1).permutation(count).tolist() if u not in people)]
    changed = _next_change(replays, order)
    for many in sorted({1, changed or 0, min(len(people), count // 2), count // 2} - {0}):
        if replays.by_number:
            return
        _compared(replays, used, owner, np.array(order[:many]), charge=many in (1, changed) or not changed)


def _rerun(replays: Any, keep: NDArray[np.bool_], **options: Any) -> tuple[Any, dict[str, str]] | None:
    """Train without some people; what goes wrong is something that follows how many there are."""
    found: tuple[Any, dict[str, str]] | None = replays.rerun(
        take(replays.X, np.flatnonzero(keep)), y=replays.y[keep], **options
    )
    if found is None:
        said = replays.leaks.pop() if replays.leaks else replays.doubts.pop()
        replays.by_number = f"{said}, of whom some are left out"
    return found


def _next_change(replays: Any, order: list[int]) -> int | None:
    """Return how many people leave until the divisor or the noise changes; None if it does not, or more does."""
    first = replays.first.watch.settings

    def differing(many: int) -> set[str]:
        found = _rerun(replays, ~np.isin(replays.units, order[:many]), stop=True)
        now = {} if found is None else found[0].settings
        return {name for name in first if now.get(name) != first[name]}

    last, change, many = 0, None, 1
    while many <= len(order) // 2:
        differ = differing(many)
        worse = [name for name in first if name in differ - {NOISE, DIVISOR}]
        if replays.by_number or worse:
            replays.by_number = replays.by_number or f"{worse[0]} {FOLLOWS} (seen with {many} people left out)"
            return None
        change = change or (many if differ else None)
        last, many = (last if change else many), 2 * many
    while change and change - last > 1:
        middle = (last + change) // 2
        last, change = (last, middle) if differing(middle) else (middle, change)
    return change


def _compared(replays: Any, used: Used, owner: Index, gone: Index, *, charge: bool) -> None:
    """Compare a training without some people with the first, and note what its other scale tells."""
    first, gone_entries = replays.first, np.isin(owner, gone)
    place = np.where(gone_entries, -1, np.cumsum(~gone_entries) - 1)
    found = _rerun(replays, ~np.isin(replays.units, gone), place=place)
    if found is None:
        return
    watch, leaves = found
    at = first.watch.population(used.number)
    fault = replays.compare(watch, used, owner, np.zeros(len(replays.y), dtype=bool), np.flatnonzero(~gone_entries))
    if at is not None:
        base, now = first.watch.populations[at].entries, watch.populations[at].entries
        if now != [entry for entry, out in zip(base, gone_entries, strict=True) if not out]:
            fault = "what batches are drawn from is another for people who stay"
    if fault == MIXING and replays.is_random(used, owner):
        fault = RANDOM
    differing = sorted((p for p in {*leaves, *first.leaves} if leaves.get(p) != first.leaves.get(p)), key=len)
    if fault:
        replays.by_number = f"{fault} (with people left out)"
    elif differing:
        named = ", ".join(p.lstrip(".") or "the object itself" for p in differing[:3])
        replays.by_number = f"what training returns ({named}) {FOLLOWS}"
    elif charge:
        _charge(replays, watch)


def _charge(replays: Any, watch: Any) -> None:
    """Note how the scale of each step's noise changes, and how far the sum of all moves with its divisor."""
    found: dict[tuple[int, float, float], int] = {}
    for before, after in zip(replays.first.watch.steps, watch.steps, strict=True):
        if not before.divisor > 0 or not after.divisor > 0:
            replays.by_number = f"{DIVISOR} is 0 for so few records"
            return
        shift = abs(1 - before.divisor / after.divisor)
        ratio = after.noise.stated * before.divisor / (before.noise.stated * after.divisor)
        moved = max(s.batch for s in replays.first.watch.steps) * shift / before.noise.stated
        if ratio != 1 or moved:
            key = (int(before.noise.counts.sum()), ratio, moved)
            found[key] = found.get(key, 0) + 1
    held = {replays.scales, tuple((steps, *key) for key, steps in found.items())}
    worst = {max((scale_epsilon(scales, delta), scales) for scales in held)[1] for delta in (1e-3, 1e-7, 1e-12)}
    replays.scales = max(worst)
    if len(worst) > 1:
        replays.by_number = f"the noise {FOLLOWS} in several ways, none of which is the worst at every delta"


# What diffprivlib's mechanisms were given, and what one person changes of it.


def entered(
    seen: Observation,
    first: tuple[BudgetWatch, dict[str, str]],
    train: Train,
    data: tuple[Any, NDArray[Any]],
    others: Iterable[tuple[Any, NDArray[Any]]],
    *,
    secret: bool,
) -> Observation:
    """Return the observation of a budget accountant with what neighbours show, the mechanisms' outputs as in ``first``.

    Parameters
    ----------
    seen : Observation
    first : (the watch of the first run, leaves of what training returned)
    train : callable
        Train on (X, y) with the outputs of ``replay``.
    data : (X, y)
        The training records.
    others : iterable of (X, y)
        As many records, many of them other people's: nothing beside what enters the mechanisms may show it.
    secret : bool
        Whether the number of records is; then people are left out, or else replaced.
    """
    (X, y), (watched, leaves), rows = data, first, np.arange(len(data[1]))
    if watched.between:
        return replace(seen, problem=BETWEEN)
    people = remarkable(X, y, rows, np.random.default_rng(0))
    cases = [*others, (take(X, _by_another(y, np.isin(rows, _extremes(X)))), y)]  # every label stays in use
    many = len(cases)
    if not (watched.forests and secret):
        alone = [rows == who for who in (0, next((u for u in people if u != 0), 0))]
        index = [np.flatnonzero(~who) if secret else _by_another(y, who) for who in alone]
        cases += [(take(X, kept), y[kept]) for kept in index]
    spent, worst = math.fsum(e for e, _ in seen.spends), seen.entered
    for runs, (other_X, other_y) in enumerate(cases, 1):
        try:
            watch, now = train(other_X, other_y, replay=watched)
        except Exception as exc:  # noqa: BLE001  the user's code
            traceback.print_exception(exc)
            return replace(seen, replays=runs, problem=f"training fails on other records ({type(exc).__name__})")
        fault = watch.fault() or ("what training returns" if now != leaves else "")
        if fault:
            again, same = train(X, y, replay=watched)
            if again.fault() or same != leaves:
                text = f"training does not repeat itself: it is {OWN_RANDOMNESS}"
                return replace(seen, replays=runs + 1, problem=text)
            if secret and runs > many:
                return replace(seen, replays=runs + 1, by_number=f"{fault} {FOLLOWS}")
            return replace(seen, replays=runs + 1, leaks=(f"{fault} depends on the records beside the mechanisms",))
        if runs > many:
            worst = max(worst, watch.entered + watch.unseen)
    return replace(seen, replays=len(cases), by_number=PARTITION if watched.forests and secret else "",
                   entered=worst if worst > spent * (1 + 1e-9) else 0.0)  # fmt: skip


def _extremes(X: Any) -> Index:
    """Return rows that hold the least or the largest number of a column."""
    values = np.asarray(X)
    if values.dtype.kind not in "biuf" or not values.size:
        return np.zeros(1, dtype=np.int64)
    flat = values.reshape(len(values), -1)
    return np.concatenate([flat.argmin(axis=0), flat.argmax(axis=0)])


def _by_another(y: NDArray[Any], rows: NDArray[np.bool_]) -> Index:
    """Return the rows with some replaced by those of a person with another label, if there is one."""
    index = np.arange(len(y))
    others = index[~rows & (y != y[rows][0])]
    index[rows] = (others if len(others) else index[~rows] if (~rows).any() else index)[-1]
    return index
