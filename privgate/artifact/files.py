"""Files of a stored model that nothing served was made of: read as numbers and words, or named as unread."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.artifact.walk import Held

_TEXT = {".json", ".csv", ".tsv", ".txt", ".yaml", ".yml", ".py", ".md", ".toml", ".cfg", ".ini", ""}
_NUMBER = re.compile(
    r"(?<![\w.])(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|null|NaN|nan|true|True|false|False)(?![\w])"
)
#: what stands for numbers in JSON and CSV
_NAMED = {"null": float("nan"), "true": 1.0, "True": 1.0, "false": 0.0, "False": 0.0}
_QUOTED = re.compile(r"\"[^\"\n]*\"")
_CELL = re.compile(r"\"([^\"\n]{2,200})\"|'([^'\n]{2,200})'|([^,;\t\n\"'{}\[\]]{2,200})")
#: bytes that are read of one file; larger ones are unread
_LARGEST = 1 << 28
#: bytes of a model's own file that are read as numbers; of larger ones the walk alone speaks
_SCANNED = 1 << 22


def read(path: Path, name: str, held: Held) -> None:
    """Add a file's numbers and texts to what a walk has met, or its name to what nobody could read."""
    size = path.stat().st_size
    if size > _LARGEST:
        held.unknown.append(f"file {name} of {size} bytes is too large to be read")
        return
    try:
        if path.suffix in _TEXT:
            _text(path.read_text(encoding="utf-8"), name, held)
        elif path.suffix == ".npy":
            held.arrays.append((name, np.load(path, allow_pickle=False)))
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as several:
                held.arrays += [(name, several[key]) for key in several.files]
        elif path.suffix == ".parquet":
            _frame(path, name, held)
        elif size:
            held.unknown.append(f"file {name} is none that the served model is made of, and cannot be read here")
    except Exception as exc:  # noqa: BLE001  whatever is wrong with a stored file, it was not read
        held.unknown.append(f"file {name} cannot be read ({type(exc).__name__})")


def raw(path: Path, name: str, held: Held) -> int:
    """Add the bytes of a file that a model was made of, as numbers wherever one may begin; return how many they are.

    What a file holds beside the model that it makes, behind its end for example, no walk of the model would meet.
    """
    total = 0
    for data in _unpacked(path):
        total += len(data)
        if len(data) <= _SCANNED:
            parts = [data[k : k + (len(data) - k) // 8 * 8] for k in range(8)]
            held.arrays += [(name, Running(np.frombuffer(p, dtype=np.float64))) for p in parts]
    return total


def _unpacked(path: Path) -> Iterator[bytes]:
    """Give the content of a file, or of each file in it where it is a zip file."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            for one in packed.infolist():
                if one.file_size > _LARGEST:
                    raise ValueError(f"{one.filename} is too large to be unpacked")
                yield packed.read(one)
    else:
        yield path.read_bytes()


def _text(text: str, name: str, held: Held) -> None:
    # a record goes on behind its texts, in which there may be numbers too
    for scanned in dict.fromkeys((text, _QUOTED.sub("", text))):
        found = [_NAMED[v] if v in _NAMED else float(v) for v in _NUMBER.findall(scanned)]
        held.arrays.append((name, Running(np.array(found))))
    for found in _CELL.findall(text):
        held.texts.setdefault(next(t for t in found if t).strip(), name)


def _frame(path: Path, name: str, held: Held) -> None:
    import pandas as pd

    frame = pd.read_parquet(path)
    held.arrays.append((name, frame.select_dtypes("number").to_numpy()))
    for column in frame.columns:
        if frame[column].dtype.kind not in "biuf":
            for value in frame[column].astype(str):
                held.texts.setdefault(value, name)


class Running:
    """Numbers of a text one after another: a record may begin at each of them."""

    def __init__(self, numbers: NDArray[np.float64]) -> None:
        self.numbers = numbers

    def rows(self, columns: int) -> Any:
        """Return every run of so many numbers."""
        if len(self.numbers) < columns:
            return np.zeros((0, columns))
        return np.lib.stride_tricks.sliding_window_view(self.numbers, columns)
