"""Words, names, categories and rows of weights that one record alone brought into a model."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.artifact.carried import Carried, Context
from privgate.artifact.walk import Held

Mask = NDArray[np.bool_]
#: shorter texts are in every file
_SHORT = 2
_WORD = re.compile(r"\w+")


def singles(columns: list[NDArray[Any]]) -> dict[str, int]:
    """Return text -> record, of cells, whole documents and words that one record alone has."""
    seen: dict[str, int] = {}
    often: Counter[str] = Counter()
    for column in columns:
        for row, value in enumerate(column.tolist()):
            if isinstance(value, str):
                for text in {value, value.lower(), *(w.lower() for w in _WORD.findall(value))}:
                    if len(text) >= _SHORT and seen.get(text) != row:
                        often[text] += 1
                        seen[text] = row
    return {text: row for text, row in seen.items() if often[text] == 1}


def texts(held: Held, known: dict[str, int], n: int) -> Iterator[Carried]:
    """Give texts of the walk that one record alone has, by where they were met."""
    by_place: dict[str, Mask] = {}
    for text, where in held.texts.items():
        row = known.get(text)
        if row is not None:
            by_place.setdefault(where, np.zeros(n, dtype=bool))[row] = True
    for where, rows in by_place.items():
        yield Carried("single_text", where, rows)


def of(thing: Any, about: Context) -> Iterator[Carried]:
    """Give categories and words of one encoder or vectorizer that one record alone has."""
    own, name = getattr(thing, "__dict__", None), type(thing).__name__
    if not isinstance(own, dict):
        return
    if isinstance(own.get("categories_"), list) and (X := about.given(thing)) is not None:
        rows = np.zeros(about.n, dtype=bool)
        for column in _columns(X):
            _, inverse, counts = _different(column)
            rows |= counts[inverse] == 1
        if rows.any():
            yield Carried("single_text", f"{name}.categories_", rows)
    elif isinstance(own.get("categories_"), list):
        most = sum(len(c) for c in own["categories_"])
        yield Carried("single_text", f"{name}.categories_", most=min(about.n, most))
    if isinstance(own.get("vocabulary_"), dict) and hasattr(thing, "transform"):
        yield from _vocabulary(thing, name, about)


def _vocabulary(thing: Any, name: str, about: Context) -> Iterator[Carried]:
    X = about.given(thing)
    if X is None:
        yield Carried("single_text", f"{name}.vocabulary_", most=about.n)
        return
    made = thing.transform(X).tocsc()
    once = np.flatnonzero(np.diff(made.indptr) == 1)
    rows = np.zeros(about.n, dtype=bool)
    rows[made.indices[made.indptr[once]]] = True
    if rows.any():
        yield Carried("single_text", f"{name}.vocabulary_", rows)


def embeddings(objects: Iterable[Any], columns: list[NDArray[Any]], n: int) -> Iterator[Carried]:
    """Give rows of embeddings for values that one record alone has.

    An embedding of m rows is taken for one of every column of whole numbers from 0 to m - 1 at most that uses half of
    them: whose column it is stands in code that nobody reads. Where no column fits, its rows may be anybody's.
    """
    for thing in objects:
        if not type(thing).__name__.startswith("Embedding") or not type(thing).__module__.startswith("torch.nn"):
            continue
        size = int(thing.num_embeddings)
        rows, fits = np.zeros(n, dtype=bool), False
        for column in columns:
            if column.dtype.kind not in "iuf" or not np.isfinite(column.astype(np.float64)).all():
                continue
            whole = column.astype(np.int64)
            if (whole != column).any() or whole.min() < 0 or whole.max() >= size:
                continue
            values, inverse, counts = np.unique(whole, return_inverse=True, return_counts=True)
            if len(values) > size // 2:
                fits = True
                rows |= counts[inverse] == 1
        if rows.any():
            yield Carried("embedding", type(thing).__name__, rows)
        elif not fits:
            yield Carried("embedding", type(thing).__name__, most=min(n, size))


def _columns(X: Any) -> list[NDArray[Any]]:
    if hasattr(X, "iloc"):
        return [np.asarray(X[c]) for c in X.columns]
    made = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return [made[:, j] for j in range(made.shape[1])] if made.ndim == 2 else []


def _different(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    if column.dtype.kind == "O":
        column = np.array([f"{type(v).__name__}:{v}" for v in column.tolist()])
    return np.unique(column, return_inverse=True, return_counts=True)
