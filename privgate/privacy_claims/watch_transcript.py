"""What one training released, written down: the batches drawn, the noised gradients applied, the random states.

Given to a second training on other records, it replaces the noised gradients there. Post-processing of them depends on
nothing else, so whatever still differs between the two trained objects came from the records by another way.
"""

import random
import tempfile
from typing import Any

import numpy as np


class DivergedError(BaseException):
    """A replay asks for what its transcript does not have; no ``Exception``, so that training does not swallow it."""


class EnoughError(BaseException):
    """The part of a training that was wanted is over."""


class Transcript:
    """Batches, noised gradients and random states of one training."""

    def __init__(self) -> None:
        self.start = states()
        self.batches: list[list[tuple[Any, Any]]] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the transcript
        self._steps: list[tuple[int, int, tuple[int, ...]]] = []

    @property
    def steps(self) -> int:
        """Updates written down."""
        return len(self._steps)

    def write(self, optimizer: int, gradients: list[Any]) -> None:
        """Append the gradients of one update."""
        raw = b"".join(g.detach().contiguous().numpy().tobytes() for g in gradients)
        self._steps.append((optimizer, self._file.seek(0, 2), tuple(g.numel() * g.element_size() for g in gradients)))
        self._file.write(raw)

    def read(self, step: int, optimizer: int, like: list[Any]) -> list[Any]:
        """Return the gradients of update ``step``, shaped as ``like``."""
        import torch

        if step >= len(self._steps):
            raise DivergedError("training takes more steps on other records")
        number, place, sizes = self._steps[step]
        if number != optimizer or sizes != tuple(g.numel() * g.element_size() for g in like):
            raise DivergedError("the shape of the model depends on the records")
        self._file.seek(place)
        parts = [bytearray(self._file.read(size)) for size in sizes]
        return [
            torch.frombuffer(raw, dtype=g.dtype).reshape(g.shape) if raw else g
            for raw, g in zip(parts, like, strict=True)
        ]


def reseed() -> None:
    """Seed the global generators from the operating system: nobody's seed is left from an earlier training."""
    import torch

    torch.seed()
    np.random.seed(None)  # noqa: NPY002  the user's
    random.seed()


def states() -> Any:
    """Return the states of the global generators of random numbers."""
    import torch

    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002  the user's


def restore(saved: Any) -> None:
    """Undo what happened to the global generators since ``states``."""
    import torch

    torch.set_rng_state(saved[0])
    np.random.set_state(saved[1])  # noqa: NPY002  the user's
    random.setstate(saved[2])
