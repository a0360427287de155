"""In a worker: a fitted model walked and compared with its training records; what comes out holds counts alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.artifact import keepers
from privgate.artifact import keepers as owned
from privgate.artifact import traces as leaves
from privgate.artifact import traces as rows
from privgate.artifact import traces as values
from privgate.artifact import walk as files
from privgate.artifact.keepers import Carried, Context, total
from privgate.artifact.walk import Held, walk
from privgate.subject.containers import take

# What each part of a model was fitted to: training records carried through the steps before it.

#: what holds estimators that are fitted to the same records as their holder
_WRAPPED = ("estimator", "estimator_", "best_estimator_", "base_estimator_", "regressor_", "estimators_", "models_",
            "calibrated_classifiers_", "predictor_", "model_", "_Booster")  # fmt: skip


def of(model: Any, X: Any) -> dict[int, Any]:
    """Return id of each estimator -> the records that reach it; those that cannot be told are left out."""
    found: dict[int, Any] = {}
    _feed(model, X, found, 0)
    return found


def _feed(thing: Any, X: Any, found: dict[int, Any], depth: int) -> None:
    if id(thing) in found or depth > 12 or not hasattr(thing, "__dict__"):
        return
    found[id(thing)] = X
    if isinstance(getattr(thing, "steps", None), list):
        _pipeline(thing, X, found, depth)
        return
    if hasattr(thing, "transformers_"):
        _columns(thing, X, found, depth)
        return
    if hasattr(thing, "transformer_list"):
        for _, part in thing.transformer_list:
            _feed(part, X, found, depth + 1)
        return
    subsets = getattr(thing, "estimators_features_", None)
    for name in _WRAPPED:
        inner = vars(thing).get(name)
        parts = list(inner) if isinstance(inner, list | tuple) else [inner]
        if isinstance(inner, np.ndarray) and inner.dtype == object:
            parts = list(inner.ravel())
        for k, part in enumerate(parts):
            if part is None or isinstance(part, str | int | float):
                continue
            own = X
            if subsets is not None and name == "estimators_":
                own = np.asarray(X)[:, subsets[k]] if getattr(X, "ndim", 0) == 2 else None
            if own is not None:
                _feed(part, own, found, depth + 1)


def _pipeline(thing: Any, X: Any, found: dict[int, Any], depth: int) -> None:
    for name, step in thing.steps:
        del name
        if step is None or step == "passthrough":
            continue
        _feed(step, X, found, depth + 1)
        if step is thing.steps[-1][1]:
            return
        try:
            X = step.transform(X)
        except Exception:  # noqa: BLE001  stored code: what comes behind it is told of nothing, and stays uncertain
            return


def _columns(thing: Any, X: Any, found: dict[int, Any], depth: int) -> None:
    for _, part, columns in thing.transformers_:
        own = None if isinstance(part, str) else _chosen(X, columns)
        if own is not None:
            _feed(part, own, found, depth + 1)


def _chosen(X: Any, columns: Any) -> Any:
    from sklearn.utils import _safe_indexing

    try:
        return _safe_indexing(X, columns, axis=1)
    except Exception:  # noqa: BLE001  ditto
        return None


#: of the bytes of the files that a model was made of, a share that the walk must have met
MET = 0.4
_SLACK = 1 << 16  # bytes of a file beside its arrays


def examine(opened: Any) -> dict[str, Any]:
    """Return what a stored model carries, or where there is none, what the model carries that the recipe trains.

    Parameters
    ----------
    opened : training.payload.Opened
    """
    everybody = np.arange(opened.n, dtype=np.int64)
    X, y = take(opened.X, everybody), np.asarray(opened.y[: opened.n])
    if (opened.root / "model.pkl").is_file():
        root, native, made_of, others = opened.stored.held()
        return {"judged": "file", **found(root, native, X, y, made_of=made_of, others=others)}
    model = opened.recipe.train(X, y.copy(), seed=opened.recipe.seed)
    return {"judged": "model", **found(model, model, X, y)}


def found(
    root: Any,
    native: Any,
    X: Any,
    y: NDArray[Any],
    *,
    made_of: tuple[tuple[str, Path], ...] = (),
    others: tuple[tuple[str, Path], ...] = (),
) -> dict[str, Any]:
    """Return what a model and the files beside it carry of single records, as JSON.

    Parameters
    ----------
    root : any
        Whatever was opened.
    native : any
        The fitted model in it.
    X : container of n records
    y : array of shape (n,)
    made_of : tuple of (name, path)
        Files that it was made of.
    others : tuple of (name, path)
        Files that it was not made of.
    """
    held = walk([root, native])
    size = sum(files.raw(path, name, held) for name, path in made_of)
    if size > held.size / MET + _SLACK:
        held.unknown.append(f"the files hold {size} bytes, and the model that they make {held.size}")
    for name, path in others:
        files.read(path, name, held)
    held.unknown += owned.unexplained([root, native], _allowed(X, y))
    about = Context(len(y), y, of(native, X))
    traces = list(_traces(held, about, X, y))
    least, most = total(traces, held.unknown, about.n)
    return {
        "n": about.n,
        "least": least,
        "most": most,
        "carried": [
            {
                "kind": c.kind,
                "where": c.where[:80],
                "least": c.count[0],
                "most": min(about.n, c.count[1]),
                "beside": c.beside,
            }
            for c in _merged(traces, about.n)
        ],
        "unknown": [text[:200] for text in dict.fromkeys(held.unknown)][:20],
        "walked": len(held.objects),
    }


def _allowed(X: Any, y: NDArray[Any]) -> int:
    """Return how many numbers a class of nobody's library may keep: weights a label, and scales."""
    columns = int(X.shape[1]) if getattr(X, "ndim", 0) > 1 else 1
    labels = min(owned.LABELS, len(set(y.tolist())))
    return owned.PLAIN + columns * (labels + owned.SCALES)


def _traces(held: Held, about: Context, X: Any, y: NDArray[Any]) -> Iterator[Carried]:
    forests = {id(t): (f, bag) for f in held.objects for t, bag in _bags(f, about)}
    for thing in held.objects:
        yield from keepers.of(thing, about)
        yield from values.of(thing, about)
        if id(thing) in forests:
            yield from leaves.in_bag(thing, about, forests[id(thing)][1])
        else:
            yield from leaves.leaves_of(thing, about)
    columns = _examine_columns(X)
    texts = [c for c in [*columns, y] if c.dtype.kind in "OU"]
    yield from values.texts(held, values.singles(texts), about.n)
    yield from values.embeddings(held.objects, columns, about.n)
    yield from _arrays(held, about, [*columns, y], X)


def _bags(thing: Any, about: Context) -> Iterator[tuple[Any, Any]]:
    forest = isinstance(getattr(thing, "estimators_", None), list) and hasattr(thing, "estimators_samples_")
    if forest and about.given(thing) is not None:
        yield from leaves.inside(thing, about)


def _arrays(held: Held, about: Context, columns: list[NDArray[Any]], X: Any) -> Iterator[Carried]:
    """Give arrays that hold rows or columns of the data, or have an entry a record."""
    given = {id(v): v for v in about.inputs.values()}
    made = [rows.table(v if hasattr(v, "tocsr") else _numbers(v)) for v in [X, *given.values()]]
    tables = list({(t.columns, t.double[0].tobytes()): t for t in made if t is not None}.values())
    everybody = np.ones(about.n, dtype=bool)
    for where, array in held.arrays:
        for own in tables:
            running = isinstance(array, files.Running)
            sure, perhaps = rows.found(array.rows(own.columns) if running else array, own)
            if sure.any():
                yield Carried("exact_rows", where, sure)
            elif perhaps.any():
                yield Carried("exact_rows", where, most=int(perhaps.sum()))
        if isinstance(array, files.Running):
            continue
        if rows.sequence(array, columns):
            yield Carried("column", where, everybody)
        elif about.n in array.shape and _different(array):
            yield Carried("maybe_per_record", where, most=about.n)
    for where, length in held.lengths:
        if length == about.n:
            yield Carried("maybe_per_record", where, most=about.n)


def _different(array: Any) -> bool:
    """Whether an array holds more than one value over and over."""
    if hasattr(array, "tocsr") or array.dtype.kind not in "biuf":
        return True
    return bool(array.size and (array != array.flat[0]).any())


def _numbers(X: Any) -> Any:
    if hasattr(X, "select_dtypes"):
        return X.select_dtypes(["number", "bool"]).to_numpy(dtype=np.float64, na_value=np.nan)
    return np.zeros((0, 0)) if isinstance(X, list) else X


def _examine_columns(X: Any) -> list[NDArray[Any]]:
    if hasattr(X, "iloc"):
        return [np.asarray(X[c]) if X[c].dtype.kind in "biuf" else np.asarray(X[c], dtype=object) for c in X.columns]
    if isinstance(X, list):
        return [np.array([v if isinstance(v, str) else str(v) for v in X], dtype=object)]
    if hasattr(X, "tocsr"):
        return []
    made = np.asarray(X)
    return [made] if made.ndim == 1 else list(made.reshape(len(made), -1).T[:2000])


def _merged(traces: list[Carried], n: int) -> list[Carried]:
    """Return one trace a kind and place: many trees are one line."""
    made: dict[tuple[str, str], list[Carried]] = {}
    for c in traces:
        made.setdefault((c.kind, c.where), []).append(c)
    out = []
    for (kind, where), several in made.items():
        least, most = total(several, [], n)
        union = np.zeros(n, dtype=bool)
        for c in several:
            union |= False if c.rows is None else c.rows
        beside = max(c.beside for c in several)
        out.append(Carried(kind, where, union if union.any() else None, least, most, beside))
    return sorted(out, key=lambda c: (-c.count[0], -c.count[1], c.kind, c.where))
