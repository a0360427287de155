"""What an answer depends on beside the call itself: data, recipe, sources, versions."""

import hashlib
import platform
import re
import struct
from collections.abc import Mapping
from functools import cache
from importlib import metadata

import numpy as np

from privgate import digest
from privgate.subject import estimators
from privgate.subject.distributions import providing
from privgate.subject.subject import Subject
from privgate.training.fit import Answer

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
    if any(r.startswith("privgate.torch_recipe:") for r in named):
        tops.add("torch")  # an extra of ours, which what we require does not name
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
    return head + text + np.ascontiguousarray(answer.log_p, dtype="<f8").tobytes()


def decode(body: bytes | memoryview) -> tuple[Answer, float]:
    """Return the answer and the seconds that it once took.

    Raises
    ------
    ValueError
        Not an answer.
    """
    kind, rows, columns, seconds, size = _HEAD.unpack(body[: _HEAD.size])
    if kind != b"A" or len(body) != _HEAD.size + size + 8 * rows * columns:
        raise ValueError("a ledger entry is not an answer")
    text = bytes(body[_HEAD.size : _HEAD.size + size]).decode() if size else ""
    log_p = np.frombuffer(body, "<f8", rows * columns, _HEAD.size + size).reshape(rows, columns)
    return Answer(log_p, problem=text), seconds
