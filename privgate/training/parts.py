"""Parts of long work that trains nothing, as calls of the fleet: what runs where no code of the user's was ever loaded.

A closed form or a theorem reads the subject alone, so a worker is handed the subject, and gives back arrays.
"""

import importlib
import io
import json
import pickle
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Float
from privgate.training.payload import Payload, pickled

_FILE = "subject.pkl"


@dataclass(frozen=True, eq=False)
class Part:
    """Part of the work of an engine that trains nothing, or of a theorem.

    Parameters
    ----------
    by : str
        ``"module:function"`` below ``privgate.families``. ``function(subject, asks, kept)`` returns (arrays, JSON
        values); ``kept`` is a dictionary in which it keeps what parts have in common.
    asks : tuple
        What it is told, of plain values and arrays.
    encoding : bytes
        Names the part among everything that could be asked about the subject.
    units : int
        People that it is about.
    """

    by: str
    asks: tuple[Any, ...]
    encoding: bytes
    units: int

    @property
    def trainings(self) -> int:
        """Return how much of the work it is, for whoever draws the progress; nothing is trained."""
        return self.units


class Worked:
    """The subject of some parts, and what its parts have in common, in the process that works on them."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.kept: dict[Any, Any] = {}

    def answer(self, part: Part) -> Answer:
        """Return a part's result as an answer that the ledger keeps like any other."""
        started = time.perf_counter()
        module, _, name = part.by.partition(":")
        if not module.startswith("privgate.families."):
            raise SubjectError(f"{module} is no engine's")
        arrays, told = getattr(importlib.import_module(module), name)(self.subject, part.asks, self.kept)
        return Answer(packed(arrays, told), time.perf_counter() - started)


_WORKED: dict[str, Worked] = {}


def lay_out(subject: Subject, folder: Path, name: str) -> Payload:
    """Lay out a subject without its stored model, for workers that open no code of the user's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).write_bytes(pickled(replace(subject, model=None)))
    return Payload(f"parts:{name}", str(folder))


def run(payload: Payload, parts: Sequence[Part]) -> list[Answer]:
    """Return the answers of a chunk of parts, in a worker; what fails says so, and is computed by whoever asked."""
    found = []
    for part in parts:
        try:
            if payload.digest not in _WORKED:
                _WORKED.clear()  # one subject at a time: data may be large
                _WORKED[payload.digest] = Worked(_opened(payload))
            found.append(_WORKED[payload.digest].answer(part))
        except Exception as exc:  # noqa: BLE001  memory above all; the parent tries the same, and raises it
            traceback.print_exception(exc)
            found.append(Answer(np.zeros((0, 0)), problem=f"a part raised {type(exc).__name__}", lasting=False))
    return found


def _opened(payload: Payload) -> Subject:
    with TemporaryDirectory(prefix="privgate-") as own:
        path = Path(payload.unpack(Path(own)).folder, _FILE)
        made: Subject = pickle.loads(path.read_bytes())  # noqa: S301  written by our own parent
    return made


def packed(arrays: Mapping[str, NDArray[Any]], told: Mapping[str, Any]) -> Float:
    """Return arrays and JSON values as the bits of one row of numbers, which is what an answer holds."""
    body = io.BytesIO()
    named: dict[str, Any] = {"told": np.array(json.dumps(told)), **arrays}
    np.savez(body, **named)
    raw = body.getvalue()
    return np.frombuffer(len(raw).to_bytes(8, "little") + raw + bytes(-len(raw) % 8), "<f8")[None]


def unpacked(row: Float) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return what ``packed`` was given; nothing in it is executed."""
    raw = np.ascontiguousarray(row, dtype="<f8").tobytes()
    size = int.from_bytes(raw[:8], "little")
    with np.load(io.BytesIO(raw[8 : 8 + size]), allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    return arrays, json.loads(str(arrays.pop("told")))
