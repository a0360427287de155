"""Changed training data: what a control hands to a recipe to see whether, and on what, its model depends."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Index
from privgate.subject.containers import take
from privgate.subject.subject import Subject
from privgate.training.fit import Fit

#: records relabelled together, as the design demands
RELABELLED = 20
#: stretches of neighbouring records, each relabelled by itself: an ignored half is four of them
BLOCKS = 8
#: single records relabelled one at a time where one of the first seems ignored, and so many more where several do
SINGLES, MORE = 40, 70
#: people left out before the rest is changed; a recipe that reuses weights for half of all such trainings, whichever
#: half it is, is seen with probability 1 - 2^-10
PEOPLE = 10
#: exchanges that each label's features get, and how many are added at most so that all labels have them
EXCHANGES, ADDED = 2, 40
#: records of a label from which on an exchange of half of them must move predictions
JUDGED = 5
#: exchanged records that are compared with the one in their place, to see whether anything changes
COPIES = 1_000

NOBODY: Index = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Probe:
    """A change to the training data that must move predictions.

    Parameters
    ----------
    what : str
        In words, for the report.
    fit : Fit
    against : Fit, optional
        The training that it is compared with, asked about the whole pool; the one on all data if absent.
    """

    what: str
    fit: Fit
    against: Fit | None = None


def pool(subject: Subject) -> Index:
    """Return all rows of the pool: training records, then candidates."""
    return _rows(subject.data.pool_size)


@lru_cache(maxsize=2)
def _rows(size: int) -> Index:
    """Return so many rows, once: dozens of calls ask about all of them."""
    made = np.arange(size, dtype=np.int64)
    made.setflags(write=False)
    return made


def full(subject: Subject, *, repeat: int = 0) -> Fit:
    """Return the call on everything, as the engines make it, so that both share one training."""
    return Fit(subject.recipe.seed, pool(subject), left_out=NOBODY, repeat=repeat)


def people(subject: Subject) -> list[int]:
    """Return the units that controls leave out: drawn by digest, none that takes the last record of a label along.

    Labels take turns: features of a label are exchanged where people of another are left out, and two of those must be
    among them, or a recipe that ignores the features of one label is not seen.
    """
    codes, members = subject.label_codes, subject.data.units
    if subject.task == "regression":
        drawn = subject.generator("people left out by controls").permutation(len(members)).tolist()
        return [u for u in drawn if len(members[u]) < subject.data.n - 1][:PEOPLE]
    counts = np.bincount(codes, minlength=len(subject.classes))
    found: list[int] = []
    drawn = subject.generator("people left out by controls").permutation(len(members))
    label = codes[members.first[drawn]]
    for u in drawn[np.argsort(_rank(label), kind="stable")].tolist():
        left = counts - np.bincount(codes[members[u]], minlength=len(counts))
        if left[counts > 0].all() and left.sum() > 1:  # a declared label may have no record to begin with
            found.append(u)
        if len(found) == PEOPLE:
            break
    return found


def without(subject: Subject, unit: int, *, repeat: int = 0) -> Fit:
    """Return the call without one unit, asked about the whole pool; controls and the choice of seeds share it."""
    return Fit(subject.recipe.seed, pool(subject), left_out=subject.data.units[unit], repeat=repeat)


def whole(subject: Subject, rng: Generator, queries: Index) -> list[Probe]:
    """Return the changes that no honest recipe can miss: a half gone, 20 records relabelled, and both."""
    seed = subject.recipe.seed
    gone = half(subject, rng)
    left = Fit(seed, pool(subject), left_out=gone)
    made = [Probe("leaving out a random half", left)]
    if relabel := relabelled(subject, rng.permutation(subject.data.n)[:RELABELLED], rng):
        made.append(Probe(f"relabelling {len(relabel)} records", _asked(subject, relabel, queries)))
    rest = np.setdiff1d(np.arange(subject.data.n), gone)
    if relabel := relabelled(subject, rng.permutation(rest)[:RELABELLED], rng, gone=gone):
        fit = Fit(seed, pool(subject), left_out=gone, relabel=relabel)
        made.append(Probe(f"relabelling {len(relabel)} records of the other half", fit, left))
    return made


def one_out(subject: Subject, rng: Generator) -> list[Probe]:
    """Return changes of what is left when one unit is left out: labels for every other one, else features.

    A checkpoint that is reused whenever one unit is missing moves at none of them, one that is found by labels alone
    not at exchanged features, one that is found by features alone not at labels; and a label whose records are ignored
    shows where their features are exchanged.
    """
    made, donors = list[Probe](), list[int]()
    drawn = np.array(people(subject), dtype=np.int64)
    label = subject.label_codes[subject.data.units.first[drawn]]
    label *= subject.task != "regression"  # numbers take no turns
    # labels take turns, and of each every other person is for features
    for k, u in enumerate(drawn[np.lexsort((label, _rank(label)))].tolist()):
        gone, plain = subject.data.units[u], without(subject, u)
        rest = np.setdiff1d(np.arange(subject.data.n), gone).astype(np.int64)
        if k % 4 in (1, 2):
            donors.append(u)
            made += _exchange(subject, u, rng)
        elif relabel := relabelled(subject, rng.permutation(rest)[:RELABELLED], rng, gone=gone):
            fit = Fit(subject.recipe.seed, pool(subject), left_out=gone, relabel=relabel)
            made.append(Probe(f"relabelling {len(relabel)} of the others", fit, plain))
    return made if subject.task == "regression" else made + _of_every_label(subject, donors, made, rng)


def _of_every_label(subject: Subject, donors: list[int], made: list[Probe], rng: Generator) -> list[Probe]:
    """Return exchanges of the features of labels that ``made`` exchanges too rarely, largest labels first.

    The donors of ``made`` serve again, so that no further training on unchanged data is needed.
    """
    totals, more = np.bincount(subject.label_codes), list[Probe]()
    had = {(p.fit.relabel[0][1], p.against.key) for p in made if p.fit.members is not None and p.against is not None}
    for label in np.flatnonzero(totals >= JUDGED)[np.argsort(-totals[totals >= JUDGED], kind="stable")].tolist():
        missing = EXCHANGES - sum(c == label for c, _ in had)
        others = [u for u in donors if subject.label_codes[subject.data.units[u][0]] != label]
        others = [u for u in others if (label, without(subject, u).key) not in had]
        # one of each other label first: a stump may tell this label from one of them alone
        codes = subject.label_codes[subject.data.units.first[np.array(others, dtype=np.int64)]]
        for k in np.argsort(_rank(codes), kind="stable")[: max(0, min(missing, ADDED - len(more)))]:
            more += _exchange(subject, others[k], rng, label=label)
    return more


def _exchange(subject: Subject, donor: int, rng: Generator, *, label: int | None = None) -> list[Probe]:
    """Return the probe that exchanges features where a person is left out; empty where nothing would change."""
    gone = subject.data.units[donor]
    rest = np.setdiff1d(np.arange(subject.data.n), gone).astype(np.int64)
    if (found := exchanged(subject, rest, int(gone[0]), rng, label=label)) is None:
        return []
    fit = Fit(subject.recipe.seed, pool(subject), members=found[0], relabel=found[1])
    return [Probe("exchanging features among the others", fit, without(subject, donor))]


def blocks(subject: Subject, rng: Generator, queries: Index) -> list[Probe]:
    """Return one relabelled stretch of neighbouring records each."""
    n = subject.data.n
    stretches = [rows for rows in np.array_split(np.arange(n), min(BLOCKS, n)) if len(rows)]
    labels = [relabelled(subject, rng.permutation(rows)[:RELABELLED], rng) for rows in stretches]
    return [
        Probe(f"the records in rows {rows[0]} to {rows[-1]}", _asked(subject, relabel, queries))
        for rows, relabel in zip(stretches, labels, strict=True)
        if relabel
    ]


def singles(subject: Subject, rng: Generator, queries: Index) -> list[Probe]:
    """Return one relabelled record each, at most ``SINGLES + MORE``, in the order in which they are to be tried."""
    made = []
    for row in rng.permutation(subject.data.n).tolist():
        if relabel := relabelled(subject, np.array([row]), rng):
            made.append(Probe(f"row {row}", _asked(subject, relabel, queries)))
        if len(made) == SINGLES + MORE:
            break
    return made


def half(subject: Subject, rng: Generator) -> Index:
    """Return half of the records, leaving two of each label where there are two: validation splits need them.

    Shares of labels change where they can: a model that follows nothing else must not seem to ignore its data.
    """
    codes = subject.label_codes
    if subject.task == "regression":
        return np.sort(rng.permutation(len(codes))[: len(codes) // 2]).astype(np.int64)
    shares = np.bincount(codes) / len(codes)
    for _ in range(20):
        order = rng.permutation(len(codes))
        rank = _rank(codes[order])
        free = order[rank >= 2]
        if len(free) < len(codes) // 4:
            free = order[rank >= 1]
        gone = np.sort(free[: len(codes) // 2]).astype(np.int64)
        kept = np.bincount(np.delete(codes, gone), minlength=len(shares))
        if not np.allclose(kept / kept.sum(), shares):
            break
    return gone


def _rank(codes: Index) -> Index:
    """Return how often each entry's value came before it."""
    order = np.argsort(codes, kind="stable")
    first = np.searchsorted(codes[order], codes[order])
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) - first
    return rank


def relabelled(subject: Subject, rows: Index, rng: Generator, *, gone: Index = NOBODY) -> tuple[tuple[int, int], ...]:
    """Return one common new label for those of ``rows`` that do not have it; empty where none can be spared.

    One label grows and the others shrink, so that the labels as a whole change: exchanged labels of two equal records
    would leave the data as they were. No label falls
    below a quarter of its records, nor below two if it had more: validation splits need them.
    """
    if subject.task == "regression":
        return _moved_targets(subject, rows, rng)
    codes = subject.label_codes
    counts = np.bincount(np.delete(codes, gone), minlength=len(subject.classes))
    own = np.bincount(codes[rows], minlength=len(counts))
    target = int(rng.choice(np.flatnonzero(own == own.min())))
    for least in (np.maximum(2, counts // 4), np.ones_like(counts)):
        left, chosen = counts.copy(), []
        for row in np.sort(rows).tolist():
            if codes[row] != target and left[codes[row]] > least[codes[row]]:
                left[codes[row]] -= 1
                chosen.append((row, target))
        if chosen:
            return tuple(chosen)
    return ()


def exchanged(
    subject: Subject, rest: Index, donor: int, rng: Generator, *, label: int | None = None
) -> tuple[Index, tuple[tuple[int, int], ...]] | None:
    """Return (rows, new label of one), half of a label's rows of ``rest`` replaced by ``donor``; None for no change.

    The label is a largest one, if none is named. The labels and their order stay: the donor, who is not in ``rest`` and
    has another label, gets the label of those whose place it takes. Copies of one record of another label move the
    bluntest learner, a stump, too.
    """
    if subject.task == "regression":
        return _exchanged_targets(subject, rest, rng)
    codes = subject.label_codes[rest]
    counts = np.bincount(codes, minlength=len(subject.classes))
    counts[subject.label_codes[donor]] = 0
    label = int(rng.choice(np.flatnonzero(counts == counts.max()))) if label is None else label
    rows = np.flatnonzero(codes == label)
    made = rest.copy()
    made[rng.permutation(rows)[: (len(rows) + 1) // 2]] = donor
    differ = np.flatnonzero(made != rest)[:COPIES]
    if _equal(take(subject.data.X, rest[differ]), take(subject.data.X, made[differ])):
        return None
    return made, ((donor, label),)


def _moved_targets(subject: Subject, rows: Index, rng: Generator) -> tuple[tuple[int, int], ...]:
    """Return targets out of the highest, or of the lowest, quarter of all for ``rows``; a single one changes sides."""
    codes, count = subject.label_codes, len(subject.classes)
    upper = codes[rows[0]] < count / 2 if len(rows) == 1 else rng.random() < 0.5
    far = rng.integers(0, max(1, count // 4), len(rows))
    moved = count - 1 - far if upper else far
    return tuple((int(row), int(to)) for row, to in zip(rows, moved, strict=True) if codes[row] != to)


def _exchanged_targets(
    subject: Subject, rest: Index, rng: Generator
) -> tuple[Index, tuple[tuple[int, int], ...]] | None:
    """Return (rows, new targets), the features of half of the others exchanged, their targets left where they were."""
    place = rng.permutation(len(rest))[: min(COPIES, len(rest) // 2)]
    made = rest.copy()
    made[place] = rest[np.roll(place, 1)]
    if len(place) < 2 or _equal(take(subject.data.X, rest[place]), take(subject.data.X, made[place])):
        return None
    codes = subject.label_codes
    return made, tuple((int(row), int(codes[old])) for row, old in zip(made[place], rest[place], strict=True))


def _equal(one: Any, other: Any) -> bool:
    """Return whether two containers certainly hold the same; what cannot be compared is taken for different."""
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if hasattr(one, "iloc"):
        return bool(one.reset_index(drop=True).equals(other.reset_index(drop=True)))
    if hasattr(one, "tocsr"):
        return bool((one != other).nnz == 0)
    return all(a is b for a, b in zip(one, other, strict=True))


def _asked(subject: Subject, relabel: tuple[tuple[int, int], ...], queries: Index) -> Fit:
    more = np.unique(np.array([row for row, _ in relabel], dtype=np.int64))
    place = np.searchsorted(queries, more)  # ascending already, and many: a set of them is made a hundred times a check
    new = place == len(queries)
    new[~new] = queries[place[~new]] != more[~new]
    asked = np.insert(queries, place[new], more[new]).astype(np.int64)
    return Fit(subject.recipe.seed, asked, left_out=NOBODY, relabel=relabel)
