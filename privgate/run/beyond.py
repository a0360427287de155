"""Questions that nobody's record is, put to the stored model too: it must be the recipe's there as well.

A stored model that is the recipe's on every record in the data, and another one elsewhere, would pass a comparison on
these records alone. In a run that is to be signed nobody can know the questions before: who writes a model could else
prepare it for them.
"""

import secrets
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.families import questions
from privgate.families.over_all_queries import applies
from privgate.subject.containers import stack, take
from privgate.subject.subject import Subject

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: how many times as much may lie between two models at a question as on the records, however far out it lies
FARTHEST = 100.0
#: nobody outside of this process knows it
_UNKNOWN = secrets.token_hex(16)


def drawn(subject: Subject, purpose: str, *, signable: bool) -> Generator:
    """Return randomness that is the same in every run; in one that is to be signed, that nobody knows before."""
    return subject.generator(f"{purpose}:{_UNKNOWN}" if signable else purpose)


def asked(subject: Subject, *, signable: bool) -> tuple[Subject, Index]:
    """Return the subject, stored model included, with questions as further candidates, and their rows of the pool.

    Values of people's columns mixed, and where a domain is declared its corners and random points; no rows where
    records are no tables.
    """
    made = _questions(subject, drawn(subject, "beyond", signable=signable))
    size = len(subject.data.pool()[1])
    if made is None:
        return subject, np.arange(0, dtype=np.int64)
    container, count = made
    label, known = np.full(count, subject.data.y[0]), subject.data.candidates
    both = (container, label) if known is None else (stack(known[0], container), np.concatenate([known[1], label]))
    wide = replace(subject, data=replace(subject.data, candidates=both))
    return wide, size + np.arange(count, dtype=np.int64)


def _questions(subject: Subject, rng: Generator) -> tuple[Any, int] | None:
    X = subject.data.X
    rows = questions.shared(subject, rng)
    if rows.size:
        container, kept = questions.asked(subject, rows)
        return (container, int(kept.sum())) if kept.any() else None
    if not hasattr(X, "columns"):
        return None
    places = rng.integers(0, subject.data.n, (len(X.columns), questions.RANDOM))
    made = take(X, places[0]).copy()  # of which pandas 2 would warn that it is part of another frame
    for j, column in enumerate(X.columns):
        made[column] = X[column].take(places[j]).set_axis(made.index)
    return made, questions.RANDOM


def stretch(subject: Subject, wide: Subject, rows: Index) -> Float:
    """Return how far out each question lies, shape (Q,): 1 within the records' own ranges, at most ``FARTHEST``.

    Two trainings on different machines differ in the last digits of a model, and what follows grows with the question.
    """
    X = applies.dense(subject.data.X)
    if X is None:
        return np.ones(len(rows))
    middle, half = (X.max(axis=0) + X.min(axis=0)) / 2, np.ptp(X, axis=0) / 2
    asked_rows = applies.dense(take(wide.data.pool()[0], rows))
    if asked_rows is None:
        return np.ones(len(rows))
    off = np.abs(asked_rows - middle)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.where(off <= half, 1.0, off / half)
    return np.asarray(np.clip(out.max(axis=1, initial=1.0), 1.0, FARTHEST))
