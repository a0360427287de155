"""Ensembles of trees without each person: trained by the recipe itself, read into arrays and kept as such.

``covered_trees`` says which recipes these are. Every training is a call of the fleet, so it is remembered, limited and
counted like any other; a worker reads the trees of the model that it trained.
"""

import io
import zlib
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import VANISHED
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, Declined, Engine
from privgate.families.listed import made_like
from privgate.families.retrained import Retrained, Seeds
from privgate.families.trees import reading
from privgate.families.trees.covered_trees import missing, unfit
from privgate.families.trees.ensemble import Ensemble
from privgate.subject.containers import take
from privgate.subject.subject import Subject
from privgate.training.fit import MOST_READ, Answer, Fit
from privgate.training.fleet import Fleet
from privgate.training.payload import Opened, packed, unpacked

#: names in ``Retrained.changes``: object arrays of shape (S, U)
WITH, WITHOUT = "trees_with", "trees"
#: share of a probability by which a model's own answer may differ from that of its trees as read
AGREE = 1e-4
#: fields of an ensemble that are arrays, of whole numbers or not
_ARRAYS = dict(zip(("start", "feature", "cut", "left", "right", "value", "group", "base"), "iifiifif", strict=True))
#: bytes of trees at most, before they are made smaller
_MOST = 4 * MOST_READ
_NOBODY: Index = np.zeros(0, dtype=np.int64)


class TreeEnsembles(Engine):
    """Trains the recipe again without each person, and keeps the trees for the theorem about cells.

    Exact: it is the training function. Nothing is read off a structure that might stay as it is: a removal moves leaf
    values of every later tree.
    """

    name = "tree_ensembles"
    version = 2
    hands_on = "training without them failed, or the verdict was decided without them"
    trains = True
    certain = True
    real = True

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data are not covered; empty if they are."""
        return unfit(subject)

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the number of trainings; their time is unknown until one was made."""
        size = getattr(subject.data.X, "nbytes", 0)
        return Cost(fits=len(seeds) * (len(units) + 1), cpu_seconds=float("nan"), memory_bytes=2 * int(size))

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return models with and without each unit; a unit whose training failed is handed on to refits."""
        subject, units, seeds = asked.subject, asked.units, asked.seeds
        if asked.mode == "screen":
            raise Declined("every person costs a training, and the mode screen trains the top of a ranking only")
        members, (row_unit, row_query) = subject.data.units, asked.rows
        bounds = np.searchsorted(row_unit, np.arange(len(units) + 1))
        gone = vanishing(subject, units)
        tried = np.flatnonzero(~gone)
        reads = (f"{__name__}:trees", "".join("01"[int(m)] for m in missing(subject))) if asked.changes else ()
        pool = np.arange(subject.data.pool_size, dtype=np.int64)  # as refits ask the model with everybody
        whole = asked.fleet.fits(
            subject, [Fit(s, pool, left_out=_NOBODY, reads=reads) for s in seeds], label="training on all records"
        )
        if problem := next((t.problem for t in whole if t.problem), ""):
            raise Declined(problem)
        calls = [
            Fit(s, row_query[bounds[u] : bounds[u + 1]], left_out=members[units[u]], reads=reads)
            for s in seeds
            for u in tried
        ]
        less = asked.fleet.fits(subject, calls, label="retraining without single people")
        K, bad = len(subject.classes), set[int]()
        log_without = np.full((len(seeds), len(row_query), K), -np.inf)
        without = np.empty((len(seeds), len(units)), dtype=object)
        for i, made in enumerate(less):
            s, k = divmod(i, len(tried))
            u = int(tried[k])
            without[s, u] = ensemble(made.read) if reads and not made.problem else None
            if made.problem or (reads and without[s, u] is None):
                bad.add(u)
                continue
            log_without[s, bounds[u] : bounds[u + 1]] = made.log_p
        with_ = np.empty_like(without)
        for s, made in enumerate(whole):
            with_[s] = ensemble(made.read) if reads else None
            if reads and with_[s, :1].tolist() == [None]:
                raise Declined("what was read of the model with everybody holds no trees")
        answer = Retrained.of(
            self.name,
            units,
            seeds,
            asked.rows,
            np.stack([t.log_p[row_query] for t in whole]),
            log_without,
            undefined={int(u): VANISHED for u in np.flatnonzero(gone)},
            changes={WITH: with_, WITHOUT: without} if asked.changes else {},
        )
        covers = np.array([u not in bad for u in range(len(units))], dtype=bool)
        return answer.select(covers), units[~covers]


def trees(opened: Opened, model: Any, fit: Fit, log_p: Float) -> bytes:
    """Return the trees of a model that a worker trained.

    Raises
    ------
    UnreadableError
        They hold what no theorem covers, or do not give what the model answers.
    """
    queries = fit.queries[:: max(1, len(fit.queries) // 16)]
    X = designs.table(take(opened.X, queries))
    if X is None:
        raise reading.UnreadableError("records are no two-dimensional array of numbers")
    if hasattr(opened.X, "iloc") and type(model).__name__ == "LGBMClassifier":
        # of whole numbers in a frame it makes what holds them, of those in an array single precision
        X = X.astype(np.result_type(X.dtype, np.float32), copy=False)
    made = reading.read(model, X=X, missing=np.array([m == "1" for m in fit.reads[1]]))
    ours, theirs = np.exp(made.log_probabilities(X.astype(np.float64))), np.exp(log_p[:: max(1, len(log_p) // 16)])
    if not (np.abs(ours - theirs) <= AGREE * ours + 1e-6).all():
        raise reading.UnreadableError("the trees as read do not give what the model answers")
    told = {f.name: getattr(made, f.name) for f in fields(made) if f.name not in {*_ARRAYS, "lost"}}
    whole = packed({name: getattr(made, name) for name in _ARRAYS}, told).tobytes()
    if len(whole) > _MOST:
        raise reading.UnreadableError(f"the trees are too large: {len(whole)} bytes")
    return zlib.compress(whole, 1)


def ensemble(body: bytes) -> Ensemble | None:
    """Return what ``trees`` gave, None where it is nothing of the kind; nothing in it is executed."""
    try:
        raw = zlib.decompressobj()
        arrays, told = unpacked(np.frombuffer(raw.decompress(body, _MOST), "<f8"))
        made = Ensemble(**{**arrays, **told})
        every = {name: getattr(made, name).dtype.kind for name in _ARRAYS}
    except Exception:  # noqa: BLE001  readers of files raise all kinds
        return None
    return made if raw.eof and every == _ARRAYS else None


def asked_at(fleet: Fleet, subject: Subject, seed: int | None, asks: list[tuple[Index, NDArray[Any]]]) -> list[Answer]:
    """Return what models without some records answer at questions of no pool: log-probabilities (Q, K) in ``log_p``.

    Parameters
    ----------
    asks : list of (rows left out, questions of shape (Q, d))
    """
    fits = []
    for left_out, questions in asks:
        body = io.BytesIO()
        np.save(body, questions, allow_pickle=False)
        reads = (f"{__name__}:at_questions", body.getvalue().hex())
        fits.append(Fit(seed, np.zeros(1, dtype=np.int64), left_out=left_out, reads=reads))
    made = fleet.fits(subject, fits, label="asking models without a person")
    return [a if a.problem else _told(a, (len(q), len(subject.classes))) for a, (_, q) in zip(made, asks, strict=True)]


def _told(answer: Answer, shape: tuple[int, int]) -> Answer:
    """Return the answer whose log-probabilities were read, of this shape."""
    if len(answer.read) == 8 * shape[0] * shape[1]:
        log_p = np.frombuffer(answer.read, "<f8").reshape(shape)
        if (log_p < np.inf).all():  # NaN is not, either
            return Answer(log_p)
    return Answer(answer.log_p[:0], problem="what was read of a model is no answer to the questions", lasting=False)


def at_questions(opened: Opened, model: Any, fit: Fit, log_p: Float) -> bytes:
    """Return a model's log-probabilities at the questions that came with the call."""
    del log_p
    rows = np.load(io.BytesIO(bytes.fromhex(fit.reads[1])), allow_pickle=False)
    if hasattr(opened.X, "iloc") and np.isfinite(rows).all():  # a column of whole numbers holds nothing missing
        rows = made_like(rows, opened.X)
    p = opened.recipe.probabilities(model, rows, opened.classes)
    with np.errstate(divide="ignore"):
        return np.log(p).astype("<f8").tobytes()


ENGINE = TreeEnsembles()
