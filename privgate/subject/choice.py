"""Choices that are fixed before anything is looked at: drawn from the digest of recipe and data, not from a clock."""

import hashlib

import numpy as np
from numpy.random import Generator

from privgate.subject.subject import Subject


def generator(subject: Subject, purpose: str) -> Generator:
    """Return a generator that is the same for the same recipe, data and purpose, on every machine."""
    seed = hashlib.sha256(f"{subject.training_digest}:{purpose}".encode()).digest()
    return np.random.default_rng(int.from_bytes(seed[:16], "big"))
