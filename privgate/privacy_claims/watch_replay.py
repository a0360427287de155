"""Reruns of a watched training on other people's records, with the noised gradients of the first applied in all.

DP-SGD promises two things, and each is compared, not believed. (1) What is released is post-processing of the noised
gradients: with these fixed, nothing in the object that training returns may depend on the records. (2) A gradient that
is clipped is that of one person: replacing others may not change it, and one person has as many as are accounted for.
Whatever fails here by the training's own randomness is no proof of a leak, and ends inconclusive.
How many records there are is looked for where a claim keeps it secret, by ``watch_coupled``.
"""

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.evidence import Observation
from privgate.privacy_claims import watch_coupled, watch_opacus, watch_transcript
from privgate.privacy_claims.watch_coupled import MIXING, OWN_RANDOMNESS, Train
from privgate.privacy_claims.watch_sampling import Used
from privgate.privacy_claims.watch_transcript import MIXED, NOBODY, UNCLEAR, DivergedError, Transcript
from privgate.subject.containers import take

# Other records in the place of some people's, for reruns that must not show it.


def replaced(X: Any, y: NDArray[Any], rows: NDArray[np.bool_], rng: Generator) -> tuple[Any, NDArray[Any]]:
    """Return data in which ``rows`` have the features of other people and another label.

    Parameters
    ----------
    X, y : the records
    rows : bool array of shape (n,)
    rng : Generator
    """
    index = np.arange(len(y), dtype=np.int64)
    others = index[~rows] if (~rows).any() else index
    index[rows] = rng.choice(others, int(rows.sum()))
    return _taken(X, index), relabelled(y, rows)


def same_for_all(X: Any, y: NDArray[Any], row: int) -> tuple[Any, NDArray[Any]]:
    """Return data in which everybody has the features of ``row``: nothing can be read off their distribution."""
    everybody = np.ones(len(y), dtype=bool)
    return _taken(X, np.full(len(y), row, dtype=np.int64)), relabelled(y, everybody, by=-1)


def far_away(X: Any, rows: NDArray[np.bool_], times: float) -> Any:
    """Return the records with the numbers in ``rows`` multiplied, whole ones as far as their type holds them.

    ``times`` that are not a number make missing values, and negative ones turn every other sign as well.
    """
    if hasattr(X, "select_dtypes"):
        made = X.copy()
        for at in np.flatnonzero([d.kind in "iuf" for d in map(_plain, X.dtypes)]):
            column = X.iloc[:, at].to_numpy()
            made.isetitem(at, far_away(column, rows, times))
        return made
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "iuf" or not len(X):
        return X
    size = abs(times)
    if X.dtype.kind != "f":
        if np.isnan(size):
            return X
        size = max(1, min(int(size), int(np.iinfo(X.dtype).max) // max(1, abs(int(X.max())), abs(int(X.min())))))
    made = X.copy()
    made[rows] *= X.dtype.type(size)
    if times < 0 and X.dtype.kind != "u":
        turned = made[rows]
        turned[np.indices(turned.shape).sum(axis=0) % 2 == 0] *= X.dtype.type(-1)
        made[rows] = turned
    return made


def _plain(dtype: Any) -> Any:
    return dtype if isinstance(dtype, np.dtype) else np.dtype(object)


def relabelled(y: NDArray[Any], rows: NDArray[np.bool_], *, by: int = 1) -> NDArray[Any]:
    """Return ``y`` with the next label in ``rows``; every label stays in use, so that a model has its shape."""
    classes, own = np.unique(y, return_inverse=True)
    new = own.copy()
    new[rows] = (own[rows] + by) % len(classes)
    for lost in np.setdiff1d(np.arange(len(classes)), new):
        counts = np.bincount(new, minlength=len(classes))
        free = np.flatnonzero(rows & (own != lost) & (counts[new] > 1))
        if len(free):
            new[free[0]] = lost
        else:
            new[np.flatnonzero(own == lost)[0]] = lost
    return np.asarray(classes[new])


def half(units: NDArray[np.int64], y: NDArray[Any], rng: Generator) -> NDArray[np.bool_]:
    """Return the rows of a random half of the units; relabelling them changes how often labels occur, if it can."""
    count = int(units.max()) + 1
    before = np.unique(y, return_counts=True)[1]
    rows = np.zeros(len(y), dtype=bool)
    for _ in range(50):
        chosen = np.zeros(count, dtype=bool)
        chosen[rng.permutation(count)[: (count + 1) // 2]] = True
        rows = chosen[units]
        after = np.unique(relabelled(y, rows), return_counts=True)[1]
        if len(after) == len(before) and (after != before).any():
            break
    return rows


def other_data(
    X: Any, y: NDArray[Any], units: Index, rng: Generator
) -> Iterator[tuple[NDArray[np.bool_], tuple[Any, NDArray[Any]]]]:
    """Yield (rows that are replaced, the data): halves, other labels for a few, all alike."""
    rows, everybody = half(units, y, rng), np.ones(len(y), dtype=bool)
    yield rows, replaced(X, y, rows, rng)
    yield ~rows, replaced(X, y, ~rows, rng)
    few = np.arange(len(y)) % ONE_IN == 0
    yield few, (X, relabelled(y, few))
    yield everybody, same_for_all(X, y, int(rng.integers(len(y))))


def _by_others(X: Any, y: NDArray[Any], rows: NDArray[np.bool_], rng: Generator) -> tuple[Any, NDArray[Any]]:
    """Return data in which others' records stand in the place of some, with their labels."""
    index = np.arange(len(y), dtype=np.int64)
    index[rows] = rng.choice(index[~rows] if (~rows).any() else index, int(rows.sum()))
    return _taken(X, index), y[index]


def _taken(X: Any, index: Index) -> Any:
    made = take(X, index)
    if hasattr(made, "iloc"):
        made = made.set_axis(X.index, axis=0)
    return made


#: reruns to the end, four of them where the number of records is secret
REPLAYS = 9
#: how far beyond anybody's the features of one record in so many are, in reruns that look for what such records cause
FAR, ONE_IN = 1e6, 20
#: a gradient has changed if it moved by more than this, as a share of its norm and of the largest in its step
MOVED, MOVED_OF_LARGEST = 1e-4, 1e-6

#: random gradients in half a batch: as many are compared at least; a log ratio that is none, and in deviations
LEAST, SCALED, CHANCE = 20, 0.02, 5.0

LENGTH = "how many records batches are drawn from depends on the records"
SETTING = "the model's shape or a setting depends on the records"
MADE_UP = "seen with made-up values: doubled, a million times as large, or missing"
SUMS = "how many gradients a step sums depends on the records"

Bools = NDArray[np.bool_]
Rows = NDArray[np.float32]


@dataclass
class First:
    """The watched training that others are compared with."""

    watch: Any
    leaves: dict[str, str]
    transcript: Transcript


def checked(seen: Observation, replays: "Replays") -> Observation:
    """Return ``seen``, of Opacus at work and so far without fault, with what reruns on other records show."""
    replays.run()
    return replace(
        seen,
        leaks=tuple(dict.fromkeys(replays.leaks)),
        problem="" if replays.leaks else "; ".join(replays.doubts),
        rows=replays.rows,
        copies=replays.copies,
        replays=replays.runs,
        by_number=replays.by_number,
        scales=replays.scales,
        # updates by plain optimizers that no record changes are public
        bypassed_updates=seen.bypassed_updates + (len(replays.first.watch.plain) if replays.plain else 0),
    )


@dataclass
class Replays:
    """Reruns of one training on other records, and what they showed.

    Parameters
    ----------
    first : First
    train : callable
    X, y : the training records
    units : int array of shape (n,)
        Which person each record belongs to.
    secret : bool
        Whether the number of records is: then people are left out, too.
    """

    first: First
    train: Train
    X: Any
    y: NDArray[Any]
    units: NDArray[np.int64]
    leaks: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    rows: int = 0
    copies: int = 0
    runs: int = 0
    plain: bool = False
    secret: bool = False
    people: list[int] = field(default_factory=list)
    by_number: str = watch_coupled.NOBODY_LEFT
    scales: tuple[tuple[int, int, float, float], ...] = ()

    def settled(self) -> bool:
        """Whether no further rerun can better the verdict."""
        return bool(self.leaks or self.doubts)

    def run(self) -> None:
        """Rerun until something is found, or to the end."""
        rng = np.random.default_rng(0)
        used = self.first.watch.sampling(len(self.y))
        if used.entries is None:
            self.doubts.append("the records in the batches could not be traced to a sampler")
            return
        owner = self._owners(rng, used.number)
        if not self.settled():
            self._count(owner, used)
        if not self.settled():
            self._look_at_implausible(used, owner)
        self.people = watch_coupled.remarkable(self.X, self.y, self.units, np.random.default_rng(0))
        known = np.isin(self.units, self.people)
        last = (known, _by_others(self.X, self.y, known, rng))
        for number, (rows, (X, y)) in enumerate(chain(other_data(self.X, self.y, self.units, rng), [last])):
            if self.settled():
                return
            # the second also shows whether a gradient depends on how many others are in the batch, which tells who was
            # drawn; the third, whether a record can end the training that is far from all others
            tried = [far_away(X, rows, times) for times in (-FAR, FAR)] if number == 2 else []
            found = self.rerun(*tried, X, y=y, drop="first" if number == 1 else "")
            if found is None:
                return
            watch, leaves = found
            self.plain |= watch.plain != self.first.watch.plain
            fault = self.compare(watch, used, owner, rows)
            if fault == MIXING and number == 1 and self.is_random(used, owner):
                fault = self._other_sizes(used) or self._whole_batches(X, y, used, owner, rows)
            differing = {p for p in {*leaves, *self.first.leaves} if leaves.get(p) != self.first.leaves.get(p)}
            if fault or differing:
                self._attribute(fault, differing, used, owner)
        if self.secret and not self.settled():
            watch_coupled.without(self, used, owner, self.people)

    def rerun(self, X: Any, *instead: Any, y: NDArray[Any], **options: Any) -> tuple[Any, dict[str, str]] | None:
        """Train on X, or what is there instead where training refuses it, and on y."""
        self.runs += not options.get("stop", False)
        try:
            return self.train(X, y, replay=self.first.transcript, **options)
        except DivergedError as exc:
            self.leaks.append(str(exc))
        except Exception as exc:  # noqa: BLE001  the user's code
            if instead:  # it may say that no such record exists
                return self.rerun(*instead, y=y, **options)
            traceback.print_exception(exc)
            self.doubts.append(f"training fails on other records ({type(exc).__name__})")
        return None

    def _owners(self, rng: Generator, number: int) -> NDArray[np.int64]:
        """Return whose each entry of the sampled population is, from reruns that end before the first step."""
        nobody = np.zeros(0, dtype=np.int64)
        if number < 0:
            return self.units  # all records in every step, by hand
        at = self.first.watch.population(number)
        base = None if at is None else self.first.watch.populations[at].entries
        if base is None or at is None:
            self.doubts.append("what the batches are drawn from cannot be read")
            return nobody
        if self.first.watch.populations[at].changed:
            self.doubts.append("what the batches are drawn from changes during the training")
            return nobody
        words = watch_transcript.codes(int(self.units.max()) + 1)
        changed = np.zeros((len(base), words.shape[1]), dtype=bool)
        for bit in range(words.shape[1]):
            X, y = replaced(self.X, self.y, words[self.units, bit], rng)
            found = self.rerun(X, y=y, stop=True)
            if found is None:
                return nobody
            others = found[0].populations
            entries = others[at].entries if at < len(others) else None
            if entries is None or len(entries) != len(base):
                self.leaks.append(LENGTH)
                return nobody
            if told := _told_otherwise(self.first.watch, found[0]):
                self._attribute(told, set(), self.first.watch.sampling(len(self.y)), np.zeros(len(base), np.int64))
                return nobody
            changed[:, bit] = [a != b for a, b in zip(entries, base, strict=True)]
        return watch_transcript.owners(changed, words)

    def _look_at_implausible(self, used: Used, owner: NDArray[np.int64]) -> None:
        """Compare what is settled before the first step where records are larger, far from all others, or missing."""
        first, rows = self.first.watch, np.arange(len(self.y))
        at = first.population(used.number)
        for times, one_in in ((2.0, 1), (-FAR, ONE_IN), (np.nan, ONE_IN)):
            changed = far_away(self.X, rows % one_in == 0, times)
            found = self.rerun(changed, self.X, y=self.y, stop=True)
            if found is None:
                return  # why is noted
            if at is not None and len({_length(w.populations[at : at + 1]) for w in (first, found[0])}) > 1:
                self.leaks.append(f"{LENGTH} ({MADE_UP})")
            elif told := _told_otherwise(first, found[0]):
                self._attribute(f"{told} ({MADE_UP})", set(), used, owner)
            if self.settled():
                return

    def _count(self, owner: NDArray[np.int64], used: Used) -> None:
        mixed = int((owner == MIXED).sum())
        if mixed:
            self.leaks.append(f"{mixed} of {len(owner)} entries that batches are drawn from depend on several people")
            return
        if (owner == UNCLEAR).any():
            self.doubts.append("what batches are drawn from could not be traced to single records")
            return
        if used.together == 1 and any(len(set(e.tolist())) != len(e) for e in used.entries or ()):
            self.leaks.append("one record can be drawn several times into a step")
            return
        own, held = owner[owner >= 0], np.bincount(self.units)
        rows = np.bincount(own, minlength=len(held))
        self.rows = int(max(1, rows.max()))
        self.copies = int(max(1, np.ceil(rows / held).max()))

    def compare(self, watch: Any, used: Used, owner: NDArray[np.int64], rows: Bools, stay: Index | None = None) -> str:
        """Return what is wrong with the steps of one rerun: constants, parameters, gradients of people not replaced.

        ``stay`` says which entries are left where somebody left; what scales the noise may be another there.
        """
        first = self.first.watch
        compared = slice(2 if stay is None else 1)
        if [c[compared] for c in watch.constants] != [c[compared] for c in first.constants]:
            return "the clipping norm or the noise depends on the records"
        if told := _told_otherwise(first, watch, charged=stay is not None):
            return told
        entries = used.entries if used.number < 0 else watch.entries(used.number)
        if entries is None or used.entries is None:
            return SUMS
        if stay is not None:
            if any(e.astype(np.int64).max(initial=-1) >= len(stay) for e in entries):
                return SUMS  # what batches are drawn from does not shrink
            entries = [stay] * len(entries) if used.number < 0 else [stay[e.astype(np.int64)] for e in entries]
            if [len(e) for e in entries] != [int(np.isin(e.astype(np.int64), stay).sum()) for e in used.entries]:
                return SUMS
        touched = np.zeros(int(self.units.max()) + 1, dtype=bool)
        touched[self.units[rows]] = True
        for t, (before, after) in enumerate(zip(first.steps, watch.steps, strict=True)):
            if before.parameters != after.parameters:
                return f"the parameters depend on the records beyond the noised gradients before step {t + 1}"
            kept = _kept(used.entries[t].tolist(), entries[t].tolist())
            if kept is None or len(kept) != after.batch:
                return SUMS
            whose = owner[entries[t].astype(np.int64)]
            moved = _moved(before.rows[kept], after.rows, before.norm)
            if (moved & (whose == NOBODY)).any():
                self.doubts.append("gradients could not be traced to the records that batches are drawn from")
                return ""
            if (moved & ~touched[whose]).any():
                return MIXING
        return ""

    def is_random(self, used: Used, owner: NDArray[np.int64]) -> bool:
        """Whether gradients of the same records are others by what is random for each, dropout or augmentation."""
        found = self.rerun(self.X, y=self.y, shake=True)
        return found is not None and bool(self.compare(found[0], used, owner, np.zeros(len(self.y), dtype=bool)))

    def _other_sizes(self, used: Used) -> str:
        """Return that random gradients are larger or smaller in half a batch; empty where that is chance.

        The first half stays: what is drawn first at random for each record is the same, and hides less.
        """
        rerun = self.rerun(self.X, y=self.y, drop="last")
        if rerun is None:
            return ""  # why is noted
        entries = rerun[0].entries(used.number)
        if entries is None or used.entries is None:
            return SUMS
        ratios = [np.zeros(0)]
        for before, after, were, are in zip(self.first.watch.steps, rerun[0].steps, used.entries, entries, strict=True):
            kept = _kept(were.tolist(), are.tolist())
            if kept is None or len(kept) != len(after.rows):
                return SUMS
            both = np.stack([before.rows[kept, 0], after.rows[:, 0]])
            ratios.append(np.diff(np.log(both[:, (both > 0).all(axis=0)]), axis=0)[0])
        found = np.concatenate(ratios)
        if len(found) < LEAST:
            self.doubts.append(f"{len(found)} random gradients are too few to see whether they tell how many are drawn")
            return ""
        middle = float(np.median(found))  # some gradients all but vanish: their logarithms have no mean to speak of
        spread = 1.86 * float(np.median(np.abs(found - middle))) / len(found) ** 0.5  # a median's, of normal numbers
        return MIXING if abs(middle) > max(SCALED, CHANCE * spread) else ""

    def _whole_batches(self, X: Any, y: NDArray[Any], used: Used, owner: NDArray[np.int64], rows: Bools) -> str:
        """Return what is wrong where the same people are replaced and no batch is shorter."""
        found = self.rerun(X, y=y)
        return "" if found is None else self.compare(found[0], used, owner, rows)

    def _attribute(self, fault: str, differing: set[str], used: Used, owner: NDArray[np.int64]) -> None:
        """Tell a leak from randomness that a replay cannot repeat, by one rerun on the same records."""
        nobody = np.zeros(len(self.y), dtype=bool)
        found = self.rerun(self.X, y=self.y)
        if found is None or (fault and self.compare(found[0], used, owner, nobody)):
            self.leaks.clear()
            self.doubts.append(f"training does not repeat itself: it is {OWN_RANDOMNESS}")
            return
        random = {p for p in differing if found[1].get(p) != self.first.leaves.get(p)}
        sure = sorted(differing - random, key=lambda p: (len(p), p))
        named = ", ".join(p.lstrip(".") or "the object itself" for p in sure[:3])
        if fault:
            self.leaks.append(fault)
        elif sure:
            self.leaks.append(
                f"the object that training returns depends on the records beyond the noised gradients ({named}"
                f"{', …' if len(sure) > 3 else ''})"
            )
        else:
            some = ", ".join(p.lstrip(".") for p in sorted(random)[:3])
            self.doubts.append(f"the object that training returns ({some}) is {OWN_RANDOMNESS}")


def _told_otherwise(first: Any, watch: Any, *, charged: bool = False) -> str:
    """Return which setting, divisor or rate is another; those that scale the noise may be, where that is charged."""
    free = {watch_opacus.NOISE, watch_opacus.DIVISOR} if charged else set()
    found = [name for name in first.settings if name not in free and watch.settings.get(name) != first.settings[name]]
    if not charged and any(a.divisor != b.divisor for a, b in zip(first.steps, watch.steps, strict=False)):
        found.append(watch_opacus.DIVISOR)
    drawn = [{rate for d in w.draws.values() for rate in d.rates} for w in (first, watch)]
    found += ["the rate of sampling"] if not drawn[1] <= drawn[0] else []
    return f"{SETTING}: {found[0]}" if found else ""


def _length(population: list[watch_transcript.Population]) -> int:
    return sum(len(p.entries or ()) for p in population)


def _moved(old: Rows, new: Rows, norm: float) -> Bools:
    """Return which gradients changed by more than rounding, bool array of shape (records,)."""
    if not len(old):
        return np.zeros(0, dtype=bool)
    allowed = MOVED * old[:, 0] + MOVED_OF_LARGEST * (old[:, 0].max() + norm)
    return np.asarray(~(np.abs(new - old).max(axis=1) <= allowed))


def _kept(were: list[Any], are: list[Any]) -> list[int] | None:
    """Return where in ``were`` each of ``are`` is, in order; None if something is new."""
    places, at = [], 0
    for entry in are:
        while at < len(were) and were[at] != entry:
            at += 1
        if at == len(were):
            return None
        places.append(at)
        at += 1
    return places
