"""Keys of records in a model's file: numbers, bytes and texts by which it may know a record again.

A table of digests answers at one exact question a person, which may stand anywhere: at the record, with 1 added, with a
sign changed. No list of questions finds each. The table itself is seen: it has very large whole numbers, short bytes or
texts of base 16, one for each of many people, which are no values of the data.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.file.contents import Contents
from privgate.file.record_search import Records

#: how a sentence about keys begins
KEYS = "keys that may be digests of records: "
#: whole numbers from here on, and bytes from so many on, are no codes that people give
_LARGE, _BYTES = 2**31, 4
#: numbers of a state of Python's and NumPy's generators
_TWISTER = (624, 625)
#: keys at the least, and of each hundred records
FEW, SHARE = 10, 0.01
#: containers of anybody's values
_CONTAINERS = ("collections.", "pandas.", "numpy.")
#: how places begin whose numbers are parameters and states of libraries
PARAMETERS = ("sklearn.", "scipy.", "torch", "xgboost.", "lightgbm.", "catboost.", "skops", "privgate.models.")
#: libraries whose other arrays are no records
LIBRARIES = (*PARAMETERS, *_CONTAINERS)
#: parameters, states of generators, and the bytes of code
_SPARED = (*PARAMETERS, "random.", "numpy.random.", "cloudpickle.", "datetime.")
#: what dates are multiples of, in parts of a second
_ROUND = 1000
_DIGITS = re.compile(r"\d{10,20}")
#: random names, as cloudpickle and MLflow give them, which are digests of nothing
_RANDOM = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")
_HEX = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{8,64}")
_BASE64 = re.compile(r"(?=.*\d)(?=(?:.{4})+$)[A-Za-z0-9+/_-]{6,86}={1,2}")


def find_keys(contents: Contents, X: Any, y: NDArray[Any], records: Records, recipe: Any) -> list[str]:
    """Return a sentence for each place with keys of many records; numbers and texts that are given are no keys.

    Given are the values of ``X``, whose numbers are in ``records``, the labels, and parameters of the recipe.
    """
    others, given = _list_others(X), list(_split_values(recipe.payload))
    numbers = [float(v) for v in (*others, *y.tolist(), *given) if isinstance(v, int | float | np.number)]
    flat = np.append(records.table.ravel(), numbers)
    values, keys = np.unique(flat[np.abs(flat) >= _LARGE]), dict[str, set[Any]]()
    for a in contents.arrays:
        if not a.where.startswith(_SPARED) and not a.text and (large := _select_keys(a.values, values)):
            keys.setdefault(a.where, set()).update(large)
    for where, some in contents.keys.items():
        if not where.startswith(_SPARED):
            short = {k for k in some if len(k) >= _BYTES and not _RANDOM.fullmatch(k[::-1].hex())}
            keys[where] = keys.get(where, set()) | short
    most = max(FEW, SHARE * records.n)
    digits = {t for t in contents.texts if _DIGITS.fullmatch(t)}  # as keys stand in JSON
    letters = {t for t in contents.texts if _BASE64.fullmatch(t) or (_HEX.fullmatch(t) and not _RANDOM.fullmatch(t))}
    if len(digits | letters) > most:
        names = {str(v) for v in (*others, *getattr(X, "columns", ()))}
        own = {v for v in given if isinstance(v, str)}.union(names, *(re.findall(r"\w+", t.lower()) for t in names))
        keys["texts"] = {*_select_keys(np.array(sorted(map(float, digits - own))), values), *(letters - own)}
    return [f"{KEYS}{len(some)} ({where})" for where, some in keys.items() if len(some) > most]


def _select_keys(numbers: NDArray[Any], values: Float) -> list[float]:
    """Return the very large whole numbers of an array that are no values of the data, and no dates."""
    flat = numbers.ravel()
    if flat.dtype.kind not in "iuf" or flat.dtype.itemsize < 8 * (flat.dtype.kind == "f") or flat.size in _TWISTER:
        return []  # of single precision every large number is whole
    size = np.abs(flat.astype(np.float64))
    flat = flat[np.isfinite(size) & (size >= _LARGE)]
    large = flat[(np.mod(flat, flat.dtype.type(1)) == 0) & (flat % flat.dtype.type(_ROUND) != 0)] if len(flat) else flat
    return [float(v) for v in np.setdiff1d(large.astype(np.float64), values)]


def _list_others(X: Any) -> list[Any]:
    if hasattr(X, "select_dtypes"):
        return list(X.select_dtypes(exclude=["number", "bool"]).to_numpy(dtype=object).ravel().tolist())
    if isinstance(X, list):
        return X
    array = not hasattr(X, "tocsr") and (X.ndim == 1 or X.dtype.kind in "OU")
    return list(X.ravel().tolist()) if array else []


def _split_values(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _split_values(part)
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        yield value
