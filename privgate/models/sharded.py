"""What members answer, cut and combined, and how far one person can move what comes of it."""

import contextlib
import copy
import hashlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.models.classifier import Classifier
from privgate.subject.accepted_questions import is_missing
from privgate.subject.containers import length, take


def log_pool_bound(clip: float, share: float, n_classes: int) -> float:
    """Return the largest change of any label's log-probability, nats, when a share of the members changes at will.

    A member's log-probabilities lie within ``clip`` of their largest, nats; ``n_classes`` labels are declared.
    ``docs/mathematics.md``, section 12, Theorem 12.1; attained.
    """
    if n_classes < 2:
        return 0.0
    others = np.log(n_classes - 1)
    moved = clip * (1 - 2 * min(share, 1.0))
    return float(np.logaddexp(0.0, others + clip) - np.logaddexp(0.0, others + moved))


def clipped(z: Float, clip: float) -> Float:
    """Return log-probabilities less their largest, none below ``-clip``; rows without a finite largest become 0."""
    top = z.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        out = np.maximum(z - top, -clip)
    return np.where(np.isfinite(top) & ~np.isnan(z).any(axis=1, keepdims=True), out, 0.0)


def normalised(z: Float) -> Float:
    """Return probabilities that sum to 1; the same for all where there is no answer."""
    q = np.exp(clipped(z, np.inf))
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def ask_member(member: Any, X: Any, n: int, classes: NDArray[Any]) -> Float:
    """Return a member's log-probabilities of the declared labels, shape (n, K); NaN where it does not answer."""
    nothing = np.full((n, len(classes)), np.nan)
    if member is None:
        return nothing
    try:
        p = np.asarray(member.predict_proba(X), dtype=np.float64)
        out = np.full((n, len(classes)), -np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            out[:, np.searchsorted(classes, np.asarray(member.classes_))] = np.log(p)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  whatever a member does, it is one member's answer
        return nothing
    return np.where(np.isposinf(out).any(axis=1, keepdims=True), np.nan, out)


# What names a record, and the records of one member: containers of any kind, with nothing in them of others.


def names(X: Any, ids: str | int | None) -> Iterator[bytes]:
    """Yield what names each record: its id, or its own features; numbers by value, everything else as text."""
    framed = hasattr(X, "columns")
    if framed and ids is not None and ids not in X.columns:
        raise ValueError(f"X has no column {ids!r} that would name the person; its columns: {list(X.columns)[:20]}")
    if hasattr(X, "tocsr"):
        X = X.toarray() if ids is None else X.tocsr()[:, [int(ids)]].toarray()
    elif ids is not None:
        X = X[[ids]] if framed else np.asarray(X, dtype=object)[:, [int(ids)]]
    for row in X.itertuples(index=False, name=None) if framed else X:
        cells = row if isinstance(row, tuple) else np.asarray(row, dtype=object).ravel().tolist()
        if ids is not None and text(cells[0]) == "missing":
            raise ValueError(f"column {ids!r} holds no id for some record; every record belongs to one person")
        yield "\x1f".join(text(cell) for cell in cells).encode()


def text(cell: Any) -> str:
    """Return one spelling a value, whatever type a table keeps it in: 1, 1.0 and True are the same number."""
    if is_missing(cell):  # has no value to be named by
        return "missing"
    if isinstance(cell, int | float | np.number | np.bool_):
        with contextlib.suppress(OverflowError, TypeError):  # whole numbers beyond float64; complex ones
            return f"number {float(cell) + 0.0!r}"  # -0 and 0 are one number
    # numpy's text is no other text
    return f"text {str.__repr__(cell)}" if isinstance(cell, str) else f"{type(cell).__name__} {cell!r}"


def isolate(X: Any) -> Any:
    """Return records without what a frame says of others: row numbers of the whole, and everybody's categories."""
    X = X.reset_index(drop=True) if hasattr(X, "iloc") else X
    for k, dtype in enumerate(X.dtypes if hasattr(X, "iloc") and hasattr(X, "columns") else ()):
        if str(dtype) == "category":
            X.isetitem(k, X.iloc[:, k].cat.remove_unused_categories())
    return X


# Any learner, trained once a shard: one person reaches one member's answers, and those are clipped.
#
# A person's shard is a keyed hash of their own id (or own features) and nothing else: nobody else's absence moves
# them. What a member answers is cut to a range that the wanted DTP allows; the theorem then holds whatever the learner
# does.

#: nats that float64 may move an answer by; the ranges below leave this much of ``dtp`` unused
_SPARE = 1e-9
#: clipping further than this cannot be told from not clipping
_LONGEST = 300.0


@dataclass(eq=False, repr=False)
class Sharded(Classifier):
    """A classifier of members that are strangers to one another, each trained on the records of its own shard.

    The bound is about answers, docs/mathematics.md, section 12: whoever gets the file sees every member.

    Parameters
    ----------
    base : estimator
        Any classifier with ``fit`` and ``predict_proba``: a Pipeline, so that every scaler, encoder, tuning and early
        stopping happens inside a member, on that member's records alone.
    shards : int
        k, members. Fewer than 4 is mere clipping, and has no certificate.
    dtp : float
        What one person in one shard may change any label's log-probability by, nats; decides how far answers are cut.
    classes : sequence
        Every label there can be, declared before the data are seen.
    combine : {"log_pool", "mean"}
        Average of clipped log-probabilities, or of probabilities, smoothed. The log pool suits shards with enough
        records, the mean weak members.
    ids : str or int, optional
        Column of X that names the person; members do not see it. Without it a record's own features name it, and a
        person with several different records is in several shards, which the certificate counts.
    public : None
        Recorded in recipes: 0.1.0 was the last version that gave every member further records.
    key : str
        Key of the hash; declared, never chosen by looking at the data.
    random_state : int
        Each member draws its own seed from this and its number.

    Raises
    ------
    ValueError
        No classes are declared, labels are not among them, a parameter is out of range, or a record has no id.
    """

    __module__ = "privgate.models"  # the name that recipes and stored models keep

    base: Any = None
    shards: int = 10
    dtp: float = 1.0
    classes: Any = None
    combine: Literal["log_pool", "mean"] = "log_pool"
    ids: str | int | None = None
    public: Any = None
    key: str = "privgate"
    random_state: int = 0

    @property
    def clip(self) -> float:
        """R, nats: the largest range with ``log_pool_bound`` at most ``dtp``, rounded down."""
        low, high, K = 0.0, _LONGEST, len(np.unique(np.asarray(self.classes)))
        allowed = float(self.dtp) - _SPARE  # numpy's short floats would round what is spare away
        for _ in range(100):
            middle = (low + high) / 2
            fits = log_pool_bound(middle, 1 / self.shards, K) <= allowed
            low, high = (middle, high) if fits else (low, middle)
        return low

    @property
    def alpha(self) -> float:
        """Smoothing with which votes and averaged probabilities move by ``dtp`` at most (Theorem 12.2), rounded up."""
        return float(1 / np.expm1(float(self.dtp) - _SPARE)) * (1 + 1e-12)

    def fit(self, X: Any, y: Any) -> Self:
        """Train every member on its shard; one that cannot be trained answers nothing."""
        self._check()
        self._labels(y)
        shard = self.shard_of(X)
        features, labels = self._features(X), np.asarray(y)
        rows = [np.flatnonzero(shard == m) for m in range(int(self.shards))]
        self.members_ = [self._train_member(m, take(features, own), labels[own]) for m, own in enumerate(rows)]
        return self

    def _check(self) -> None:
        state: Any = self.random_state
        whole = state is None or isinstance(state, int | np.integer)
        learns = hasattr(self.base, "fit") and hasattr(self.base, "predict_proba")
        for wrong, text in (
            (self.classes is None, "classes=[…] must name every label there can be: those of the data can leave"),
            (float(self.shards) % 1 or self.shards < 1, f"shards must be a whole number from 1, not {self.shards!r}"),
            (not 2 * _SPARE < self.dtp < np.inf, f"dtp must be a positive number of nats, not {self.dtp!r}"),
            (not whole, f"random_state must be a whole number, not {state!r}: members draw from it"),
            (self.combine not in ("log_pool", "mean"), f"combine must be 'log_pool' or 'mean', not {self.combine!r}"),
            (not learns, "base must be an estimator with fit and predict_proba, the learner of every member"),
            (
                self.public is not None,
                "public= went with 0.1.0, the last version that knew it; shards are all there is",
            ),
        ):
            if wrong:
                raise ValueError(text)

    def _train_member(self, number: int, X: Any, y: NDArray[Any]) -> Any:
        """Return the trained member, or None where training it is not possible: its records alone decide that."""
        from sklearn.base import clone

        if not len(y):
            return None
        member = clone(self.base)
        seed = int.from_bytes(self._hash(f"seed {self.random_state} of member {number}".encode()), "big") % 2**31
        states = [n for n in member.get_params(deep=True) if n == "random_state" or n.endswith("__random_state")]
        member.set_params(**dict.fromkeys(states, seed))
        try:
            with _randomness_of_its_own(seed):
                return member.fit(isolate(X), y)
        except MemoryError:
            raise  # what is left depends on everybody's records, not on this member's
        except Exception:  # noqa: BLE001  a learner may refuse its records in any way; the theorem covers it
            return None

    def shard_of(self, X: Any) -> Index:
        """Return each record's shard, shape (n,): a keyed hash of its id, or of its own features, and nothing else."""
        hashes = (int.from_bytes(self._hash(own), "big") for own in names(X, self.ids))
        return np.fromiter((h % int(self.shards) for h in hashes), dtype=np.int64)

    def _hash(self, what: bytes) -> bytes:
        return hashlib.blake2b(what, key=hashlib.sha256(self.key.encode()).digest(), digest_size=8).digest()

    def _features(self, X: Any) -> Any:
        if self.ids is None:
            return X
        if hasattr(X, "columns"):
            return X.drop(columns=[self.ids], errors="ignore")
        if hasattr(X, "tocsr"):
            return X.tocsr()[:, np.delete(np.arange(X.shape[1]), int(self.ids))]
        return np.delete(np.asarray(X), int(self.ids), axis=1)

    def predict_proba(self, X: Any) -> Float:
        """Return what the members agree on, shape (n, K), in the order of ``classes_``."""
        features, K = self._features(X), len(self.classes_)
        n = length(features)
        # a step with copy=False writes into what it is asked about: the next member must not read that
        each = []
        for number, member in enumerate(self.members_):
            with _randomness_of_its_own(number):  # nor does it go on in a stream where another stopped
                each.append(ask_member(member, copy.deepcopy(features), n, self.classes_))
        if self.combine == "log_pool":
            pooled = np.mean([clipped(z, self.clip) for z in each], axis=0)
            p = np.exp(pooled - pooled.max(axis=1, keepdims=True))
            return np.asarray(p / p.sum(axis=1, keepdims=True))
        return np.asarray((np.sum([normalised(z) for z in each], axis=0) + self.alpha) / (self.shards + K * self.alpha))


@contextlib.contextmanager
def _randomness_of_its_own(seed: int) -> Iterator[None]:
    """Seed what learners draw from without being told, and put it back: members must not share a stream."""
    torch = sys.modules.get("torch")
    kept = np.random.get_state(), random.getstate(), torch.get_rng_state() if torch else None  # noqa: NPY002  theirs
    np.random.seed(seed)  # noqa: NPY002  learners draw from the old stream
    random.seed(seed)
    if torch:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        np.random.set_state(kept[0])  # noqa: NPY002  the same stream
        random.setstate(kept[1])
        if torch:
            torch.set_rng_state(kept[2])
