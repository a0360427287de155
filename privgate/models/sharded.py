"""Any learner, trained once a shard: one person reaches one member's answers, and those are clipped.

A person's shard is a keyed hash of their own id (or own features) and nothing else: nobody else's absence moves them.
What a member answers is cut to a range that the wanted DTP allows; the theorem then holds whatever the learner does.
"""

import contextlib
import copy
import hashlib
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from privgate.models.classifier import Wrapping
from privgate.models.member_answers import answers, clipped, log_pool_bound, normalised, voted, votes_bound
from privgate.models.member_records import joined, names, own_categories, take, text

Float = NDArray[np.float64]
Index = NDArray[np.int64]
#: nats that float64 may move an answer by; the ranges below leave this much of ``dtp`` unused
_SPARE = 1e-9
#: clipping further than this cannot be told from not clipping
_LONGEST = 300.0


class Sharded(Wrapping):
    """A classifier of members that are strangers to one another, each trained on the records of its own shard.

    Parameters
    ----------
    base : estimator
        Any classifier with ``fit`` and ``predict_proba``: a Pipeline, so that every scaler, encoder, tuning and early
        stopping happens inside a member, on that member's records alone.
    shards : int
        k, members. Fewer than 4 is mere clipping, whose certificate counts only beside an attack rule.
    dtp : float
        What one person in one shard may change any label's log-probability by, nats; decides how far answers are cut.
    classes : sequence
        Every label there can be, declared before the data are seen.
    combine : {"log_pool", "mean", "votes"}
        Average of clipped log-probabilities, of probabilities, or of votes, the latter two smoothed. The log pool suits
        shards with enough records, the mean weak members.
    ids : str or int, optional
        Column of X that names the person; members do not see it. Without it a record's own features name it, and a
        person with several different records is in several shards, which the certificate counts.
    public : tuple (X, y), optional
        Records of nobody in the training data; every member gets them, without the column ``ids``. Whose record is
        among them counts as being in every shard.
    key : str
        Key of the hash; declared, never chosen by looking at the data.
    random_state : int
        Each member draws its own seed from this and its number.

    Raises
    ------
    ValueError
        No classes are declared, labels are not among them, a parameter is out of range, or a record has no id.

    Notes
    -----
    ``docs/mathematics.md``, section 12. The bound is about answers: whoever gets the file sees every member.
    """

    __module__ = "privgate.models"  # the name that recipes and stored models keep

    def __init__(  # noqa: PLR0917  scikit-learn clones by keyword
        self,
        base: Any = None,
        shards: int = 10,
        dtp: float = 1.0,
        classes: Any = None,
        combine: Literal["log_pool", "mean", "votes"] = "log_pool",
        ids: str | int | None = None,
        public: Any = None,
        key: str = "privgate",
        random_state: int = 0,
    ) -> None:
        self.base = base
        self.shards = shards
        self.dtp = dtp
        self.classes = classes
        self.combine = combine
        self.ids = ids
        self.public = public
        self.key = key
        self.random_state = random_state

    @property
    def clip(self) -> float:
        """R, nats: the largest range with ``log_pool_bound`` at most ``dtp``, rounded down."""
        low, high, K = 0.0, _LONGEST, len(np.unique(np.asarray(self.classes)))
        allowed = float(self.dtp) - _SPARE  # numpy's short floats would round what is spare away
        for _ in range(100):
            middle = (low + high) / 2
            if log_pool_bound(middle, 1 / self.shards, K) <= allowed:
                low = middle
            else:
                high = middle
        return low

    @property
    def alpha(self) -> float:
        """Smoothing of votes and averaged probabilities with ``votes_bound`` at most ``dtp``, rounded up."""
        return float(1 / np.expm1(float(self.dtp) - _SPARE)) * (1 + 1e-12)

    def bound(self, n_shards: Index) -> Float:
        """Return the largest change, nats, that somebody in each number of shards can make; for every data set."""
        if self.combine == "log_pool":
            K, R = len(np.unique(np.asarray(self.classes))), self.clip
            return np.array([log_pool_bound(R, s / self.shards, K) for s in n_shards]) + _SPARE
        return np.array([votes_bound(self.alpha, int(s)) for s in n_shards]) + _SPARE

    def fit(self, X: Any, y: Any) -> Self:
        """Train every member on its shard and the public records; one that cannot be trained answers nothing."""
        return self.refit(X, y, {})

    def refit(self, X: Any, y: Any, kept: Mapping[int, Any]) -> Self:
        """Train every member but those that are kept, which were trained on the very records of their shards.

        Parameters
        ----------
        X, y : as in ``fit``
            What is left, for example, when somebody has left.
        kept : mapping of number to trained member
            Of another ``Sharded`` with these parameters; nothing of ``X`` is looked at for them.
        """
        self._check()
        self._labels(y)
        shard = self.shard_of(X)
        features, labels = self._features(X), np.asarray(y)
        self.members_ = [
            kept[m] if m in kept else self._member(m, take(features, rows), labels[rows])
            for m, rows in ((m, np.flatnonzero(shard == m)) for m in range(int(self.shards)))
        ]
        return self

    def _check(self) -> None:
        if self.classes is None:
            raise ValueError("Sharded needs classes=[…], every label there can be: labels read off the data can leave")
        if float(self.shards) % 1 or self.shards < 1:
            raise ValueError(f"shards must be a whole number from 1, not {self.shards!r}")
        if not (np.isfinite(self.dtp) and self.dtp > 2 * _SPARE):
            raise ValueError(f"dtp must be a positive number of nats, not {self.dtp!r}")
        state: Any = self.random_state
        if not (state is None or isinstance(state, int | np.integer)):
            raise ValueError(f"random_state must be a whole number, not {state!r}: members draw from it")
        if self.combine not in ("log_pool", "mean", "votes"):
            raise ValueError(f"combine must be 'log_pool', 'mean' or 'votes', not {self.combine!r}")
        if not (hasattr(self.base, "fit") and hasattr(self.base, "predict_proba")):
            raise ValueError("base must be an estimator with fit and predict_proba, the learner of every member")
        if self.public is not None and not np.isin(np.asarray(self.public[1]), np.asarray(self.classes)).all():
            raise ValueError("public records have labels that classes= does not declare")

    def _member(self, number: int, X: Any, y: NDArray[Any]) -> Any:
        """Return the trained member, or None where training it is not possible: its records alone decide that."""
        from sklearn.base import clone

        if self.public is not None:
            # a copy each: a learner may write into its records
            X, y = joined(copy.deepcopy(self.public[0]), X), np.concatenate([np.asarray(self.public[1]), y])
        if not len(y):
            return None
        member = clone(self.base)
        seed = int.from_bytes(self._hash(f"seed {self.random_state} of member {number}".encode()), "big") % 2**31
        states = [n for n in member.get_params(deep=True) if n == "random_state" or n.endswith("__random_state")]
        member.set_params(**dict.fromkeys(states, seed))
        try:
            with _randomness_of_its_own(seed):
                return member.fit(own_categories(X), y)
        except MemoryError:
            raise  # what is left depends on everybody's records, not on this member's
        except Exception:  # noqa: BLE001  a learner may refuse its records in any way; the theorem covers it
            return None

    def shard_of(self, X: Any) -> Index:
        """Return each record's shard, shape (n,): a keyed hash of its id, or of its own features, and nothing else."""
        hashes = (int.from_bytes(self._hash(own), "big") for own in names(X, self.ids))
        return np.fromiter((h % int(self.shards) for h in hashes), dtype=np.int64)

    def names_of(self, X: Any) -> list[bytes]:
        """Return what names the person of each record: the column ``ids``, or the record's own features."""
        return list(names(X, self.ids))

    def published(self, X: Any, y: Any) -> NDArray[np.bool_]:
        """Return which records, features and label, are among the public ones too, shape (n,): every member has them.

        Equal by chance or put there: nothing tells these apart.
        """
        labels = [text(v) for v in np.asarray(y).tolist()]
        if self.public is None:
            return np.zeros(len(labels), dtype=bool)
        features, theirs = self._features(X), self.public[0]
        if hasattr(features, "columns") and set(getattr(theirs, "columns", ())) == set(features.columns):
            theirs = theirs[list(features.columns)]  # joined by name
        out = zip(names(theirs, None), (text(v) for v in np.asarray(self.public[1]).tolist()), strict=True)
        known, own = set(out), zip(names(features, None), labels, strict=True)
        return np.fromiter((record in known for record in own), dtype=bool, count=len(labels))

    def _hash(self, what: bytes) -> bytes:
        return hashlib.blake2b(what, key=hashlib.sha256(self.key.encode()).digest(), digest_size=8).digest()

    def _features(self, X: Any) -> Any:
        """Return X without the column of ids."""
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
        n = features.shape[0] if hasattr(features, "shape") else len(features)
        # a step with copy=False writes into what it is asked about: the next member must not read that
        each = []
        for number, member in enumerate(self.members_):
            with _randomness_of_its_own(number):  # nor does it go on in a stream where another stopped
                each.append(answers(member, copy.deepcopy(features), n, self.classes_))
        if self.combine == "log_pool":
            pooled = np.mean([clipped(z, self.clip) for z in each], axis=0)
            p = np.exp(pooled - pooled.max(axis=1, keepdims=True))
            return np.asarray(p / p.sum(axis=1, keepdims=True))
        q = [voted(z) if self.combine == "votes" else normalised(z) for z in each]
        return np.asarray((np.sum(q, axis=0) + self.alpha) / (self.shards + K * self.alpha))


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
