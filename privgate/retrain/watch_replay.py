"""Reruns of a watched training on other people's records, with the noised gradients of the first applied in all.

DP-SGD promises two things, and each is compared, not believed. (1) What is released is post-processing of the noised
gradients: with these fixed, nothing in the object that training returns may depend on the records. (2) A gradient that
is clipped is that of one person: replacing others may not change it, and one person has as many as are accounted for.
Whatever fails here by the training's own randomness is no proof of a leak, and ends inconclusive.
"""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.retrain import watch_people, watch_population
from privgate.retrain.observation import Observation
from privgate.retrain.watch_population import MIXED, NOBODY, UNCLEAR
from privgate.retrain.watch_sampling import Used
from privgate.retrain.watch_transcript import DivergedError, Transcript

#: reruns to the end
REPLAYS = 4
#: a gradient has changed if it moved by more than this, as a share of its norm and of the largest in its step
MOVED, MOVED_OF_LARGEST = 1e-4, 1e-6

Bools = NDArray[np.bool_]
#: train on (X, y) under a watch with these options: (watch, leaves of what came back)
Train = Callable[..., tuple[Any, dict[str, str]]]


@dataclass
class First:
    """The watched training that others are compared with."""

    watch: Any
    leaves: dict[str, str]
    transcript: Transcript


@dataclass
class Findings:
    """What the reruns showed."""

    leaks: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    rows: int = 0
    copies: int = 0
    runs: int = 0
    plain: bool = False

    @property
    def settled(self) -> bool:
        """Whether no further rerun can better the verdict."""
        return bool(self.leaks or self.doubts)


def checked(seen: Observation, first: First, train: Train, X: Any, y: NDArray[Any], units: NDArray[Any]) -> Observation:
    """Return ``seen`` with what reruns on other records show.

    Parameters
    ----------
    seen : Observation
        Of Opacus at work, so far without fault.
    first : First
    train : callable
    X, y : the training records
    units : int array of shape (n,)
        Which person each record belongs to.
    """
    found = Findings()
    used = first.watch.sampling(len(y))
    if used.entries is None:
        found.doubts.append("the records in the batches could not be traced to a sampler")
    if not found.settled:
        _trace(found, first, train, X, y, units, used)
    return replace(
        seen,
        leaks=tuple(dict.fromkeys(found.leaks)),
        problem="" if found.leaks else "; ".join(found.doubts),
        rows=found.rows,
        copies=found.copies,
        replays=found.runs,
        # updates by plain optimizers that no record changes are public
        bypassed_updates=seen.bypassed_updates + (len(first.watch.plain) if found.plain else 0),
    )


def _trace(found: Findings, first: First, train: Train, X: Any, y: Any, units: Any, used: Used) -> None:
    rng = np.random.default_rng(0)
    owner = _owners(found, first, train, X, y, units, rng, used.number)
    if found.settled:
        return
    _count(found, owner, units, used)
    if found.settled:
        return
    for number, (rows, (other_X, other_y)) in enumerate(_other_data(X, y, units, rng)):
        found.runs += 1
        try:
            # the second half also shows whether a gradient depends on how many others are in the batch
            watch, leaves = train(other_X, other_y, replay=first.transcript, drop=number == 1)
        except DivergedError as exc:
            found.leaks.append(str(exc))
            return
        except Exception as exc:  # noqa: BLE001  the user's code
            traceback.print_exception(exc)
            found.doubts.append(f"training fails on other records ({type(exc).__name__})")
            return
        _compare(found, first, watch, used, owner, rows, units)
        differing = {p for p in {*leaves, *first.leaves} if leaves.get(p) != first.leaves.get(p)}
        if differing and not found.leaks:
            _attribute(found, first, train, X, y, differing)
        if found.settled:
            return


def _owners(found: Findings, first: First, train: Train, X: Any, y: Any, units: Any, rng: Any, number: int) -> NDArray[np.int64]:
    """Return whose each entry of the sampled population is, from reruns that end before the first step."""
    if number < 0:
        return np.asarray(units)  # all records in every step, by hand
    at = first.watch.population(number)
    base = None if at is None else first.watch.populations[at].entries
    if base is None or at is None:
        found.doubts.append("what the batches are drawn from cannot be read")
        return np.asarray(units)
    if first.watch.populations[at].changed:
        found.doubts.append("what the batches are drawn from changes during the training")
    words = watch_population.codes(int(units.max()) + 1)
    changed = np.zeros((len(base), words.shape[1]), dtype=bool)
    for bit in range(words.shape[1]):
        other_X, other_y = watch_people.replaced(X, y, words[units, bit], rng)
        try:
            watch, _ = train(other_X, other_y, replay=first.transcript, stop=True)
        except (Exception, DivergedError) as exc:  # noqa: BLE001  the user's code
            traceback.print_exception(exc)
            found.doubts.append(f"training fails on other records ({type(exc).__name__})")
            return units
        entries = watch.populations[at].entries if at < len(watch.populations) else None
        if entries is None or len(entries) != len(base):
            found.leaks.append("how many records batches are drawn from depends on the records")
            return units
        changed[:, bit] = [a != b for a, b in zip(entries, base, strict=True)]
    return watch_population.owners(changed, words)


def _count(found: Findings, owner: NDArray[np.int64], units: NDArray[Any], used: Used) -> None:
    if (owner == MIXED).any():
        found.leaks.append(
            f"{int((owner == MIXED).sum())} of {len(owner)} entries that batches are drawn from depend on several people"
        )
        return
    if (owner == UNCLEAR).any():
        found.doubts.append("what batches are drawn from could not be traced to single records")
        return
    if used.together == 1 and any(len(set(e.tolist())) != len(e) for e in used.entries or ()):
        found.leaks.append("one record can be drawn several times into a step")
        return
    own = owner[owner >= 0]
    held = np.bincount(units)
    rows = np.bincount(own, minlength=len(held)) if len(own) else np.zeros(len(held), dtype=np.int64)
    found.rows = int(max(1, rows.max()))
    found.copies = int(max(1, np.ceil(rows / held).max()))


def _other_data(X: Any, y: Any, units: Any, rng: Any) -> Iterator[tuple[Bools, tuple[Any, Any]]]:
    """Yield (rows that are replaced, the data): one half, the other half, labels alone, all alike."""
    rows = watch_people.half(units, y, rng)
    everybody = np.ones(len(y), dtype=bool)
    yield rows, watch_people.replaced(X, y, rows, rng)
    yield ~rows, watch_people.replaced(X, y, ~rows, rng)
    yield everybody, (X, watch_people.relabelled(y, everybody))
    yield everybody, watch_people.same_for_all(X, y, int(rng.integers(len(y))))


def _compare(
    found: Findings, first: First, watch: Any, used: Used, owner: NDArray[np.int64], rows: Bools, units: Any
) -> None:
    """Judge the steps of one rerun: constants, plain updates, and gradients of people who were not replaced."""
    found.plain |= watch.plain != first.watch.plain
    if watch.constants != first.watch.constants:
        found.leaks.append("the clipping norm or the noise depends on the records")
        return
    entries = used.entries if used.number < 0 else watch.entries(used.number)
    if entries is None or used.entries is None or len(watch.steps) != len(first.watch.steps):
        found.leaks.append("how many gradients a step sums depends on the records")
        return
    moved_at = next(
        (t for t, (b, a) in enumerate(zip(first.watch.steps, watch.steps, strict=True)) if b.parameters != a.parameters),
        None,
    )
    if moved_at is not None:
        found.leaks.append(
            f"the parameters depend on the records beyond the noised gradients already before step {moved_at + 1}"
        )
        return
    touched = np.zeros(int(units.max()) + 1, dtype=bool)
    touched[units[rows]] = True
    for before, after, were, are in zip(first.watch.steps, watch.steps, used.entries, entries, strict=True):
        kept = _kept(were.tolist(), are.tolist())
        if kept is None or len(kept) != after.batch:
            found.leaks.append("how many gradients a step sums depends on the records")
            return
        if not kept:
            continue
        old, new = before.rows[kept], after.rows
        gap = np.abs(new - old).max(axis=1)
        allowed = MOVED * old[:, 0] + MOVED_OF_LARGEST * (old[:, 0].max() + before.norm)
        moved = ~(gap <= allowed)
        whose = owner[are.astype(np.int64)]
        if (moved & (whose == NOBODY)).any():
            found.doubts.append("gradients could not be traced to the records that batches are drawn from")
            return
        if (moved & ~touched[whose]).any():
            found.leaks.append("the gradient that is clipped for one record depends on other people's records")
            return


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


def _attribute(found: Findings, first: First, train: Train, X: Any, y: Any, differing: set[str]) -> None:
    """Tell a leak from randomness that a replay cannot repeat, by one rerun on the same records."""
    found.runs += 1
    try:
        _, leaves = train(X, y, replay=first.transcript)
    except (Exception, DivergedError) as exc:  # noqa: BLE001  the user's code
        traceback.print_exception(exc)
        found.doubts.append(f"training does not repeat itself ({type(exc).__name__})")
        return
    random = {p for p in differing if leaves.get(p) != first.leaves.get(p)}
    sure = sorted(differing - random, key=lambda p: (len(p), p))
    named = ", ".join(p.lstrip(".") or "the object itself" for p in sure[:3])
    if sure:
        found.leaks.append(
            f"the object that training returns depends on the records beyond the noised gradients ({named}"
            f"{', …' if len(sure) > 3 else ''})"
        )
    else:
        some = ", ".join(p.lstrip(".") for p in sorted(random)[:3])
        found.doubts.append(
            f"the object that training returns is random beyond torch's, numpy's and Python's generators ({some}), so "
            "that reruns cannot be compared"
        )

