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

#: how a sentence about keys begins
KEYS = "keys that may be digests of records: "
#: whole numbers from here on, and bytes from so many on, are no codes that people give
_LARGE, _BYTES = 2**31, 4
#: numbers of a state of Python's and NumPy's generators
_TWISTER = (624, 625)
#: keys at the least, and of each hundred records
FEW, SHARE = 10, 0.01
#: states of generators, and the bytes of code
_STATES = ("random.", "numpy.random.", "cloudpickle.", "datetime.")
#: containers of anybody's values
_CONTAINERS = ("collections.", "pandas.", "numpy.")
#: what dates are multiples of, in parts of a second
_ROUND = 1000
_DIGITS = re.compile(r"\d{10,20}")
#: random names, as cloudpickle and MLflow give them, which are digests of nothing
_RANDOM = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")
_HEX, _BASE64 = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{8,64}"), re.compile(r"[A-Za-z0-9+/_-]{6,86}={1,2}")


def find_keys(
    contents: Contents, X: Any, numbers: tuple[Float, Any], recipe: Any, libraries: tuple[str, ...]
) -> list[str]:
    """Return a sentence for each place with keys of many records.

    Parameters
    ----------
    contents : Contents
    X : container of n records
    numbers : float64 array of shape (n, d), array of shape (n,)
        Its columns of numbers, and the labels.
    recipe : Recipe
        Numbers and texts that it is given are no keys.
    libraries : tuple of str
        How places begin whose numbers are parameters and states of libraries.
    """
    (table, y), given = numbers, list(_split_values(recipe.payload))
    most = max(FEW, SHARE * len(table))
    flat, spared = table.ravel(), (*(p for p in libraries if p not in _CONTAINERS), *_STATES)
    parameters = [float(v) for v in given if isinstance(v, int | float)]
    values = np.unique(np.concatenate([flat[np.abs(flat) >= _LARGE], parameters, _read_large(X), _read_large(y)]))
    counts = dict[str, set[Any]]()
    for a in contents.arrays:
        if not a.where.startswith(spared) and not a.text and (large := _select_keys(a.values, values)):
            counts.setdefault(a.where, set()).update(large)
    for where, keys in contents.keys.items():
        if not where.startswith(spared):
            counts.setdefault(where, set()).update(
                k for k in keys if len(k) >= _BYTES and not _RANDOM.fullmatch(k[::-1].hex())
            )
    digits = {t for t in contents.texts if _DIGITS.fullmatch(t)}  # as keys stand in JSON
    letters = {t for t in contents.texts if (_HEX.fullmatch(t) and not _RANDOM.fullmatch(t)) or _is_base64(t)}
    if len(digits) + len(letters) > most:
        own = _read_words(X).union(v for v in given if isinstance(v, str))
        large = _select_keys(np.array(sorted(map(float, digits - own))), values)
        counts["texts"] = {*large, *(letters - own)}
    return [f"{KEYS}{len(keys)} ({where})" for where, keys in counts.items() if len(keys) > most]


def _is_base64(text: str) -> bool:
    return len(text) % 4 == 0 and any(c.isdigit() for c in text) and bool(_BASE64.fullmatch(text))


def _select_keys(numbers: NDArray[Any], values: Float) -> list[float]:
    """Return the very large whole numbers of an array that are no values of the data, and no dates."""
    flat = numbers.ravel()
    if flat.dtype.kind not in "iuf" or flat.dtype.itemsize < 8 * (flat.dtype.kind == "f") or flat.size in _TWISTER:
        return []  # of single precision every large number is whole
    size = np.abs(flat.astype(np.float64))
    flat = flat[np.isfinite(size) & (size >= _LARGE)]
    large = flat[(np.mod(flat, flat.dtype.type(1)) == 0) & (flat % flat.dtype.type(_ROUND) != 0)] if len(flat) else flat
    return [float(v) for v in np.setdiff1d(large.astype(np.float64), values)]


def _read_large(X: Any) -> list[float]:
    """Return large numbers of labels, and of columns of categories and of objects."""
    kept = [v for v in _read_others(X) if isinstance(v, int | float | np.number)]
    return [float(v) for v in kept if abs(float(v)) >= _LARGE]


def _read_others(X: Any) -> list[Any]:
    """Return the values of columns that are no numbers, of lists, and of labels."""
    if hasattr(X, "select_dtypes"):
        columns = X.select_dtypes(exclude=["number", "bool"])
        return [v for j in range(columns.shape[1]) for v in columns.iloc[:, j].tolist()]
    if isinstance(X, list):
        return X
    kind = getattr(X, "dtype", None)
    return list(X.ravel().tolist()) if kind is not None and (X.ndim == 1 or kind.kind in "OU") else []


def _split_values(value: Any) -> Iterator[Any]:
    """Yield every number and text of JSON, the keys of its mappings as well."""
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _split_values(part)
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        yield value


def _read_words(X: Any) -> set[str]:
    """Return the values of texts that the data have, and their words."""
    texts = {str(v) for v in [*_read_others(X), *getattr(X, "columns", ())]}
    return texts | {w for t in texts for w in re.findall(r"\w+", t.lower())}
