"""What is claimed of whom: a case, the limits that the kernel gives for it, and how it refuses.

A case is all that a limit rests on: what was trained, on which records, who they belong to, which questions are
accepted, and the certificate. It is a family's name, plain settings and arrays, so that it can be kept in one file and
judged again elsewhere. It tells the data: whoever keeps it keeps personal data.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Index = NDArray[np.int64]


class Refused(ValueError):  # noqa: N818  no error: the certificate shows nothing, and the message says why
    """The certificate shows nothing about this case."""


@dataclass(frozen=True, eq=False)
class Case:
    """What limits are asked for."""

    #: whose theorem it is; a key of ``judge.FAMILIES``
    family: str
    #: one of {"own", "any"}: about which questions: each person's own records, or any question that the model accepts
    scope: Literal["own", "any"]
    #: JSON values: parameters of the training, and of what it releases
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: records, labels, the person of each record, accepted questions, and the certificate
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def array(self, name: str, ndim: int, kinds: str = "f") -> NDArray[Any]:
        """Return an array of the case, float64 or int64, of so many axes, without NaN; else ``Refused``."""
        array = self.arrays.get(name)
        if not isinstance(array, np.ndarray) or array.ndim != ndim:
            raise Refused(f"the case needs an array {name!r} of {ndim} axes")
        wanted = np.dtype(np.int64 if kinds == "i" else np.float64)
        if array.dtype != wanted:
            raise Refused(f"array {name!r} is {array.dtype}, and {wanted} is needed")
        if kinds == "f" and np.isnan(array).any():
            raise Refused(f"array {name!r} holds NaN")
        return array

    def certificate(self, name: str, shape: tuple[int, ...]) -> Float:
        """Return a float64 array of this shape; NaN spoils one person's limits and nobody else's. Else ``Refused``."""
        array = self.arrays.get(name)
        if array is None or array.shape != shape or array.dtype != np.float64:
            raise Refused(f"the case needs an array {name!r} of float64, of shape {shape}")
        return array

    def setting(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a finite setting of this type; ``Refused``: it is another, or missing without a default."""
        value: Any = self.settings.get(name, default)
        if kind is float and type(value) is int and abs(value) < 2**1000:
            value = float(value)
        if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
            raise Refused(f"the case needs a setting {name!r} of type {kind.__name__}")
        return value

    def person(self, n: int) -> tuple[Index, int]:
        """Return whose each of ``n`` records is, int64 from 0, and how many people there are; each holds a record."""
        if "person" not in self.arrays:
            return np.arange(n, dtype=np.int64), n
        person = self.array("person", 1, "i")
        if len(person) != n or (n and (person.min() < 0 or person.max() >= n or not np.bincount(person).all())):
            raise Refused("array 'person' does not give every record to one of the people 0, 1, …")
        return person, int(person.max(initial=-1)) + 1

    def digest(self) -> str:
        """Return SHA-256 over family, settings and the bytes of all arrays, as hexadecimal digits."""
        digest = hashlib.sha256()
        head = {"family": self.family, "asked": self.scope, "settings": dict(self.settings)}
        digest.update(json.dumps(head, sort_keys=True, allow_nan=False).encode())
        for name in sorted(self.arrays):
            array = np.ascontiguousarray(self.arrays[name])
            digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Limits:
    """How far each person's absence can move an answer."""

    #: shape (U,): some accepted question's answer moves at least so far; nats, or the case's unit; 0 where nothing is
    #: shown
    low: Float
    #: shape (U,): no accepted question's answer moves farther; infinite where nothing is shown. Larger is worse
    high: Float

    @classmethod
    def from_ends(cls, low: Float, high: Float) -> "Limits":
        """Return limits that are none where a number is not one, and where the lower exceeds the upper."""
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        odd = np.isnan(low) | np.isnan(high) | (high < low) | (high < 0)
        return cls(np.where(odd, 0.0, np.maximum(low, 0.0)), np.where(odd, np.inf, high))


def every(*conditions: tuple[bool, str]) -> None:
    """Raise ``Refused`` with the text of the first condition that does not hold."""
    for holds, otherwise in conditions:
        if not holds:
            raise Refused(otherwise)
