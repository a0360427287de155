"""What an answer depends on beside the call itself, and what a run to be signed trains although it is remembered."""

import hashlib
import platform
import random
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata

import numpy as np

from privgate import digest
from privgate.evidence import Remembered
from privgate.subject import estimators
from privgate.subject.libraries import providing
from privgate.subject.subject import Subject
from privgate.training.fit import TOLERANCE, Answer, Fit
from privgate.training.storage import LARGE

# What an answer depends on beside the call itself: data, recipe, sources, versions.

#: raised whenever the same call could give another number because privgate changed
VERSION = 3

_HEAD = struct.Struct("<cIIdI")
_NUMERIC = ("numpy", "scipy", "scikit-learn", "pandas")


def of(subject: Subject) -> bytes:
    """Return the digest of everything beside the ``Fit`` that could change its answer, 32 bytes."""
    from privgate.training import payload

    recipe = subject.recipe
    source = ""
    if recipe.recorded is None and not recipe.snapshot and not recipe.is_estimator:
        # typed into a notebook: no file holds its source, so its code is hashed; a miss is harmless, a stale hit not
        source = digest.of_bytes(payload.pickled(recipe.training), payload.pickled(recipe.predict))
    parts = {
        "version": VERSION,
        # what one model's runs remembered is nothing to another's
        "owner": subject.name,
        "training": subject.training_digest,
        "source": source,
        "libraries": libraries_of(subject),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    return hashlib.sha256(digest.canonical_json(parts)).digest()


def key(context: bytes, encoding: bytes) -> bytes:
    """Return the ledger key of one call."""
    return hashlib.sha256(context + encoding).digest()


def libraries_of(subject: Subject) -> dict[str, str]:
    """Return ``distribution -> version`` of everything that a recipe needs and that is installed here."""
    return libraries(_roots(subject))


def others(wanted: Mapping[str, str]) -> list[str]:
    """Return where this process has another version, as ``name 1.2 (not 1.3)``."""
    found = []
    for name, version in wanted.items():
        try:
            here = metadata.version(name)
        except metadata.PackageNotFoundError:
            here = "absent"
        if here != version:
            found.append(f"{name} {here} (not {version})")
    return found


def _roots(subject: Subject) -> tuple[str, ...]:
    """Return the top-level modules that the recipe names or imports."""
    payload = subject.recipe.payload
    named = [r for r in (payload.get("fit"), payload["predict"]) if r]
    named += estimators.references(payload.get("estimator")) + estimators.references(list(payload["params"].values()))
    tops = {re.split(r"[.:]", r)[0] for r in named}
    for content in subject.recipe.snapshot.values():
        found = re.findall(rb"^\s*(?:import|from)\s+(\w+)", content, re.MULTILINE)
        tops |= {name.decode() for name in found}
    return tuple(sorted(tops))


@cache
def libraries(modules: tuple[str, ...]) -> dict[str, str]:
    """Return ``distribution -> version`` behind these modules and everything that they require."""
    todo = [*providing(modules), *_NUMERIC]
    found: dict[str, str] = {}
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        try:
            dist = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = dist.version
        required = (r for r in dist.requires or () if "extra ==" not in r)
        todo += [m.group() for r in required if (m := re.match(r"[\w.-]+", r))]
    return dict(sorted(found.items()))


def encode(answer: Answer) -> bytes:
    """Return an answer as the body of a ledger entry."""
    text = answer.problem.encode()
    rows, columns = answer.log_p.shape
    head = _HEAD.pack(b"A", rows, columns, answer.seconds, len(text))
    return b"".join((head, text, np.ascontiguousarray(answer.log_p, dtype="<f8").data))


def decode(body: bytes | memoryview) -> tuple[Answer, float]:
    """Return the answer and the seconds that it once took.

    Raises
    ------
    ValueError
        Not an answer.
    """
    kind, rows, columns, seconds, size = _HEAD.unpack(body[: _HEAD.size])
    end = _HEAD.size + size + 8 * rows * columns
    if kind != b"A" or len(body) != end:
        raise ValueError("a ledger entry is not an answer")
    text = bytes(body[_HEAD.size : _HEAD.size + size]).decode() if size else ""
    log_p = np.frombuffer(body, "<f8", rows * columns, _HEAD.size + size).reshape(rows, columns)
    return Answer(log_p, problem=text), seconds


def told(answer: Answer) -> bytes:
    """Return a digest of what an answer says, whatever time it took."""
    made = hashlib.sha256(repr((answer.log_p.shape, answer.problem)).encode())
    made.update(np.ascontiguousarray(answer.log_p, dtype="<f8").data)
    return made.digest()


# What a run to be signed trains although it is remembered, and what that says about the ledger.
#
# Whoever can write to a ledger could say what training gave. So in such a run re-checks and controls are trained
# afresh, and so is a random sample of everything else that was remembered; each is compared with what was remembered.

#: remembered answers that are trained afresh: if all agree, with 95 % confidence fewer than 5 % are wrong
SAMPLE = 59


@dataclass(frozen=True, eq=False)
class Recalled:
    """An answer that was remembered, None where it is large and the ledger's, and what would give it afresh."""

    subject: Subject
    key: bytes
    fit: Fit
    answer: Answer | None
    digest: bytes = b""


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
    broken : list of str
        Problem of each of them that ``different`` counts because training fails now.
    """

    recalled: int = 0
    compared: int = 0
    different: int = 0
    noisy: int = 0
    broken: list[str] = field(default_factory=list)
    #: models that this very process trained
    trained: int = 0
    #: key of a call that this very process made -> digest of what came back
    fresh: dict[bytes, bytes] = field(default_factory=dict)
    #: key of a call -> digest of what this process trained of it, or read first
    said: dict[bytes, bytes] = field(default_factory=dict)
    #: name of a model that this process trained -> digest of what came back of it
    models: dict[bytes, bytes] = field(default_factory=dict)
    #: what this process was given where something else is remembered, or nothing because it failed
    instead: dict[bytes, Answer] = field(default_factory=dict)
    _sample: list[Recalled] = field(default_factory=list)
    _seen: int = 0
    #: nobody who writes entries may know which of them will be trained afresh
    _chance: random.SystemRandom = field(default_factory=random.SystemRandom, repr=False)

    def note(
        self, subject: Subject, keys: Sequence[bytes], fits: Sequence[Fit], known: Sequence[Answer | None]
    ) -> None:
        """Count what was remembered, and keep a uniform sample of it (reservoir sampling)."""
        for key, fit, answer in zip(keys, fits, known, strict=True):
            if answer is None or key in self.fresh:
                continue
            self.recalled += 1
            self._seen += 1
            at = self._seen - 1 if self._seen <= SAMPLE else self._chance.randrange(self._seen)
            if at < SAMPLE:
                small = answer.log_p.nbytes < LARGE
                recalled = Recalled(subject, key, fit, answer if small else None, self.said.get(key, b""))
                self._sample[at : at + 1] = [recalled]

    def sample(self) -> list[Recalled]:
        """Return what is to be trained afresh, once; not what was trained meanwhile and came back the same."""
        chosen, self._sample, self._seen = self._sample, [], 0
        return [r for r in chosen if self.fresh.get(r.key) != r.digest]

    def first(self, key: bytes, answer: Answer, *, signable: bool) -> bool:
        """Whether this is what this process trained or read first; one put in the place of what it read is counted."""
        digest = told(answer)
        if self.said.setdefault(key, digest) == digest:
            return True
        if signable and key not in self.fresh:
            self.compared += 1
            self.different += 1
        return False

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


def same(one: Answer, other: Answer, tolerance: float = TOLERANCE) -> bool:
    """Whether two answers to one call agree."""
    if one.problem or other.problem:
        return bool(one.problem) and bool(other.problem)
    if one.log_p.shape != other.log_p.shape:
        return False
    with np.errstate(invalid="ignore"):
        gap = np.where(one.log_p == other.log_p, 0.0, np.abs(one.log_p - other.log_p))
    return bool((gap <= tolerance).all())
