"""What a run to be signed trains although it is remembered, and what that says about the ledger.

Whoever can write to a ledger could say what training gave. So in such a run re-checks and controls are trained afresh,
and so is a random sample of everything else that was remembered; each is compared with what was remembered.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privgate.evidence import Remembered
from privgate.subject.subject import Subject
from privgate.training.fit import TOLERANCE, Answer, Block, Call

#: remembered answers that are trained afresh: if all agree, with 95 % confidence fewer than 5 % are wrong
SAMPLE = 59


@dataclass(frozen=True, eq=False)
class Recalled:
    """An answer that was remembered, and what would give it afresh."""

    subject: Subject
    key: bytes
    fit: Call
    answer: Answer


@dataclass
class Freshness:
    """What one fleet remembered and what it trained.

    Parameters
    ----------
    recalled : int
        Answers that were remembered and used.
    compared : int
        Remembered answers that were trained afresh all the same.
    different : int
        Of them, those that training gives otherwise.
    noisy : int
        Of them, those that training gives otherwise each time, so that nothing follows.
    """

    recalled: int = 0
    compared: int = 0
    different: int = 0
    noisy: int = 0
    #: models that this very process trained
    trained: int = 0
    #: keys of calls that were made by this very process
    fresh: set[bytes] = field(default_factory=set)
    #: name of a model that this process trained -> digest of what came back of it
    models: dict[bytes, bytes] = field(default_factory=dict)
    #: what this process was given where something else is remembered
    instead: dict[bytes, Answer] = field(default_factory=dict)
    _sample: list[Recalled] = field(default_factory=list)
    _seen: int = 0
    #: nobody who writes entries may know which of them will be trained afresh
    _chance: random.SystemRandom = field(default_factory=random.SystemRandom, repr=False)

    def note(
        self, subject: Subject, keys: Sequence[bytes], fits: Sequence[Call], known: Sequence[Answer | None]
    ) -> None:
        """Count what was remembered, and keep a uniform sample of it (reservoir sampling)."""
        for key, fit, answer in zip(keys, fits, known, strict=True):
            if answer is None or key in self.fresh:
                continue
            self.recalled += fit.trainings
            for one in range(fit.trainings):
                self._seen += 1
                at = self._seen - 1 if self._seen <= SAMPLE else self._chance.randrange(self._seen)
                if at < SAMPLE:
                    self._sample[at : at + 1] = [_one_of(Recalled(subject, key, fit, answer), one)]

    def sample(self) -> list[Recalled]:
        """Return what is to be trained afresh, once: what was trained meanwhile is left out."""
        chosen, self._sample, self._seen = self._sample, [], 0
        return [r for r in chosen if r.key not in self.fresh]

    def told(self, *, signable: bool) -> Remembered:
        """Return what the report says of it."""
        return Remembered(
            signable=signable or not self.recalled,
            trained=self.trained,
            remembered=self.recalled,
            compared=self.compared,
            different=self.different,
            noisy=self.noisy,
        )


def _one_of(recalled: Recalled, position: int) -> Recalled:
    """Return one of the models that were remembered: a block is compared model by model, each trained by itself."""
    block = recalled.fit
    if not isinstance(block, Block) or block.trainings == 1:
        return recalled
    key = hashlib.sha256(recalled.key + b"alone" + str(position).encode()).digest()
    begin = sum(fit.rows for fit in block.fits[:position])
    answer = recalled.answer
    if not answer.problem:
        answer = replace(answer, log_p=answer.log_p[begin : begin + block.fits[position].rows])
    return Recalled(recalled.subject, key, block.alone(position), answer)


def same(one: Answer, other: Answer, tolerance: float = TOLERANCE) -> bool:
    """Whether two answers to one call agree."""
    if one.problem or other.problem:
        return bool(one.problem) and bool(other.problem)
    if one.log_p.shape != other.log_p.shape:
        return False
    with np.errstate(invalid="ignore"):
        gap = np.where(one.log_p == other.log_p, 0.0, np.abs(one.log_p - other.log_p))
    return bool((gap <= tolerance).all())
