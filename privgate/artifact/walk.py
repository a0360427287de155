"""Everything that a stored model holds: objects as pickling would write them, and files read as numbers and words."""

import re
import threading
import types
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

# Everything that a fitted model holds: what pickling it would write, seen object by object, and written nowhere.
#
# A pickle reaches what a stored file reaches: attributes, closures, caches, state of compiled parts. What cannot be
# pickled, or hides in bytes that nobody here can read, is named as unknown and never taken for nothing.

#: bytes of an object that nobody can read, below which it is taken for a name, a key or a state
OPAQUE = 64
#: libraries of whose boosters a room's own detector reads the trees
BOOSTERS = ("xgboost.core.Booster", "lightgbm.basic.Booster")
#: kinds of objects that hold nothing of anybody, and need not or cannot be opened
_NOTHING = (np.dtype, np.random.Generator, np.random.RandomState, type(threading.Lock()), type(threading.RLock()))
#: kinds of objects that pickling names or takes apart by itself
_NAMED = (types.ModuleType, type, types.BuiltinFunctionType)


@dataclass(eq=False)
class Held:
    """What a walk has met.

    Parameters
    ----------
    arrays : list of (where, array)
        Tables and vectors of numbers or texts, sparse ones as they are.
    texts : dict of text -> where
    objects : list of objects
        Whatever has attributes.
    unknown : list of str
        Parts that could not be walked, one sentence each.
    lengths : list of (where, int)
        Of lists, sets and mappings.
    size : int
        Bytes of all that was met.
    """

    lengths: list[tuple[str, int]] = field(default_factory=list)
    arrays: list[tuple[str, Any]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    objects: list[Any] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    size: int = 0


def walk(thing: Any) -> Held:
    """Return everything that a fitted model holds."""
    reader = _Reader()
    reader.later.append(thing)
    seen = 0
    while len(reader.later) > seen:
        part = reader.later[seen]
        seen += 1
        try:
            reader.dump(part)
        except Exception as exc:  # noqa: BLE001  stored code runs here; whatever it raises, this part was not walked
            reader.held.unknown.append(f"a {type(part).__name__} cannot be walked ({type(exc).__name__})")
    reader.held.size += reader.sink.size
    return reader.held


class _Sink:
    """A file that counts and keeps nothing."""

    size = 0

    def write(self, data: Any) -> int:
        """Count."""
        self.size += len(data)
        return len(data)


class _Reader(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    """Sees each object before it would be pickled; a number stands in for what was noted and need not be opened."""

    def __init__(self) -> None:
        self.sink, self.held = _Sink(), Held()
        #: parts that are walked by themselves, and what nothing else may take the place of in memory meanwhile
        self.later: list[Any] = []
        self._kept: list[Any] = []
        self._names: dict[int, str] = {}
        self._seen: set[int] = set()
        super().__init__(self.sink, protocol=5)

    def persistent_id(self, thing: Any) -> Any:
        """Note an object; None to go on into it."""
        kind = type(thing)
        if isinstance(thing, _NOTHING):
            return 0
        if thing is None or kind in (int, float, bool, complex) or isinstance(thing, _NAMED):
            return None
        if isinstance(thing, str):
            return self._text(thing)
        if isinstance(thing, bytes | bytearray | memoryview):
            return self._bytes(thing)
        if isinstance(thing, types.CodeType):
            self.later.append(list(thing.co_consts))
            return 0
        where = self._names.get(id(thing), kind.__name__)
        if (found := _array(thing)) is not None:
            return self._array(where, found, thing)
        if isinstance(thing, list | tuple | set | frozenset):
            return self._listed(where, thing)
        if isinstance(thing, dict):
            return self._dict(where, thing)
        return self._object(thing)

    def _text(self, text: str) -> None:
        self.held.texts.setdefault(text, self._names.get(id(text), "text"))

    def _bytes(self, data: Any) -> None:
        if len(data) > OPAQUE:
            where = self._names.get(id(data), "")
            self.held.unknown.append(f"{len(data)} bytes{f' of {where}' if where else ''} that nobody here can read")

    def _array(self, where: str, found: Any, thing: Any) -> Any:
        if id(thing) in self._seen:
            return 0
        self._seen.add(id(thing))
        self._kept.append(thing)
        if hasattr(found, "columns"):
            self.held.arrays.append((where, found.select_dtypes("number").to_numpy(np.float64, na_value=np.nan)))
            parts = [np.asarray(found[c]) for c in found.columns if found[c].dtype.kind not in "biuf"]
            self.later += [found.columns.tolist(), found.index.to_numpy(), dict(found.attrs), *parts]
            return 0
        self.held.arrays.append((where, found))
        self.held.size += int(found.data.nbytes if hasattr(found, "tocsr") else found.nbytes)
        dtype = getattr(found, "dtype", None)
        if dtype is not None and dtype.names:
            numbers = [np.asarray(found[f], dtype=np.float64) for f in dtype.names if dtype[f].kind in "biuf"]
            self.later += [np.asarray(found[f]) for f in dtype.names if dtype[f].kind not in "biuf"]
            if numbers and found.ndim == 1 and all(v.ndim == 1 for v in numbers):
                self.held.arrays.append((where, np.column_stack(numbers)))
        elif dtype is not None and dtype.hasobject:
            self.later.append(found.tolist())
        elif dtype is not None and dtype.kind == "U":
            for text in np.unique(found):
                self.held.texts.setdefault(str(text), where)
        return 0

    def _listed(self, where: str, items: Any) -> Any:
        table = _table(items)
        if table is None:
            self.held.lengths.append((where, len(items)))
            for item in items:
                self._names.setdefault(id(item), where)
            return None
        self.held.arrays.append((where, table))
        self.held.size += table.nbytes
        return 0

    def _dict(self, where: str, items: dict[Any, Any]) -> None:
        self.held.lengths.append((where, len(items)))
        for key, value in items.items():
            # a key may be somebody's name: only where it names one of a few parts of a state
            named = isinstance(key, str) and key.isidentifier() and len(items) < 40
            self._names.setdefault(id(value), f"{where}.{key}" if named and where == "dict" else where)
        for side in (items.keys(), items.values()):
            table = _table(list(side))
            if table is not None:
                self.held.arrays.append((where, table))

    def _object(self, thing: Any) -> Any:
        if id(thing) not in self._seen:
            self._seen.add(id(thing))
            self.held.objects.append(thing)
        name = type(thing).__name__
        own = getattr(thing, "__dict__", None)
        for key, value in own.items() if isinstance(own, dict) else ():
            self._names[id(value)] = f"{name}.{key}"
        if isinstance(own, dict):
            self._names[id(own)] = name
        if f"{type(thing).__module__}.{name}" in BOOSTERS:
            self.held.size += len(thing.save_raw() if hasattr(thing, "save_raw") else thing.model_to_string())
            self.later.append({k: v for k, v in (own or {}).items() if type(v).__module__ != "ctypes"})
            return 0
        return None


def _array(thing: Any) -> Any:
    """Return an array, a sparse matrix, a frame or a tensor in a form that numpy reads; None for anything else."""
    if isinstance(thing, np.ndarray):
        return thing
    home = type(thing).__module__.partition(".")[0]
    if home == "scipy" and hasattr(thing, "tocsr") and hasattr(thing, "dtype"):
        return thing.tocsr()
    if home == "pandas" and hasattr(thing, "columns") and hasattr(thing, "iloc"):
        return thing
    if home == "pandas" and hasattr(thing, "to_numpy"):
        return np.asarray(thing)
    if home == "torch" and hasattr(thing, "detach"):
        return thing.detach().cpu().to_dense().float().numpy() if thing.is_floating_point() else thing.cpu().numpy()
    return None


def _table(items: Any) -> NDArray[Any] | None:
    """Return numbers in a list, or lists of as many numbers each, as an array; None for anything else."""
    if not isinstance(items, list | tuple) or len(items) < 2:
        return None
    numbers = (int, float, np.number, bool)
    if all(isinstance(v, numbers) for v in items):
        return np.asarray(items, dtype=np.float64)
    if all(isinstance(v, list | tuple) and len(v) == len(items[0]) and v for v in items) and all(
        isinstance(v, numbers) for row in items for v in row
    ):
        return np.asarray(items, dtype=np.float64)
    return None


# Files of a stored model that nothing served was made of: read as numbers and words, or named as unread.

_TEXT = {".json", ".csv", ".tsv", ".txt", ".yaml", ".yml", ".py", ".md", ".toml", ".cfg", ".ini", ""}
_NUMBER = re.compile(
    r"(?<![\w.])(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|null|NaN|nan|true|True|false|False)(?![\w])"
)
#: what stands for numbers in JSON and CSV
_FILES_NAMED = {"null": float("nan"), "true": 1.0, "True": 1.0, "false": 0.0, "False": 0.0}
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
        found = [_FILES_NAMED[v] if v in _FILES_NAMED else float(v) for v in _NUMBER.findall(scanned)]
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
