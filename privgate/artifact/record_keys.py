"""Keys of records in a model's file: numbers, bytes and texts by which it may know a record again.

A table of digests answers at one exact question a person, which may stand anywhere: at the record, with 1 added, with a
sign changed. No list of questions finds each. The table itself is seen: it has very large whole numbers, short bytes or
texts of base 16, one for each of many people, which are no values of the data.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from privgate.arrays import Float
from privgate.artifact.file_parts import Found, Read
from privgate.artifact.given_values import Given, given

#: how a sentence about keys begins
KEYS = "keys that may be digests of records: "
#: whole numbers from here on, and bytes from so many on, are no codes that people give
_LARGE, _BYTES = 2**31, 4
#: keys at the least, and of each hundred records
FEW, SHARE = 10, 0.01
#: states of generators, and the bytes of code
_STATES = ("random.", "cloudpickle.")
#: what dates are multiples of, in parts of a second
_ROUND = 1000
_DIGITS = re.compile(r"\d{10,20}")
#: random names, as cloudpickle and MLflow give them, which are digests of nothing
_RANDOM = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")
_HEX, _BASE64 = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{8,64}"), re.compile(r"[A-Za-z0-9+/_-]{6,86}={1,2}")


def found(seen: Read, X: Any, table: Float, recipe: Any, libraries: tuple[str, ...]) -> list[str]:
    """Return a sentence for each place with keys of many records.

    Parameters
    ----------
    seen : Read
    X : container of n records
    table : float64 array of shape (n, d)
        Its columns of numbers.
    recipe : Recipe
        Numbers and texts that it is given are looked at by themselves.
    libraries : tuple of str
        How places begin whose numbers are parameters and states of libraries.
    """
    most, parts = max(FEW, SHARE * len(table)), list(given(recipe))
    values = np.unique(np.concatenate([table.ravel(), [*_told(parts)]]))
    counts: dict[str, set[Any]] = {}
    for a in seen.arrays:
        if not a.text and not a.where.startswith((*libraries, *_STATES)):
            counts.setdefault(a.where, set()).update(_numbers(a, values))
    for where, keys in seen.keys.items():
        if not where.startswith((*libraries, *_STATES)):
            counts.setdefault(where, set()).update(k for k in keys if len(k) >= _BYTES)
    digits = {t for t in seen.texts if _DIGITS.fullmatch(t)}  # as keys stand in JSON
    told = np.array(sorted(map(float, digits)))
    counts["texts"] = set(_numbers(Found("", told), values))
    letters = {t for t in seen.texts if (_HEX.fullmatch(t) and not _RANDOM.fullmatch(t)) or _BASE64.fullmatch(t)}
    if len(letters) > most:
        counts["texts"] |= letters - digits - _texts(X).union(*(g.texts for g in parts))
    return [f"{KEYS}{len(keys)} ({where})" for where, keys in counts.items() if len(keys) > most]


def _numbers(a: Found, values: Float) -> list[float]:
    """Return the very large whole numbers of an array that are no values of the data, and no dates."""
    flat = a.values.ravel()
    if flat.dtype.kind not in "iuf":
        return []
    size = np.abs(flat if flat.dtype.kind == "f" else flat.astype(np.float64))
    large = flat[np.isfinite(size) & (size >= _LARGE)]
    large = large[(np.mod(large, 1) == 0) & (np.mod(large, _ROUND) != 0)].astype(np.float64)
    return [float(v) for v in np.setdiff1d(large, values)]


def _told(parts: list[Given]) -> Iterator[float]:
    """Yield the numbers that the recipe is given, and the numbers by which its tables name what they hold."""
    for g in parts:
        yield from g.numbers
        yield from (float(k) for table in g.tables for k in table if isinstance(k, int | float))


def _texts(X: Any) -> set[str]:
    """Return the values of texts that the data have, and their words."""
    if hasattr(X, "select_dtypes"):
        columns = X.select_dtypes(exclude=["number", "bool"])
        return {str(v) for c in columns for v in columns[c].unique()} | set(map(str, X.columns))
    told = X if isinstance(X, list) else X.ravel().tolist() if getattr(X, "dtype", np.dtype(int)).kind in "OU" else []
    texts = {str(v) for v in told}
    return texts | {w for t in texts for w in re.findall(r"\w+", t.lower())}
