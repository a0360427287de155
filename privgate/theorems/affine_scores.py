"""What each choice of each column adds to a fitted model's scores: coefficients are read, first steps are asked.

A feature must depend on one column, and be affine on a range. That is known by type: a subclass may serve something
else, so types are compared exactly. What was read is compared with what the model answers.
"""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.kernel.linear import DOUBLE, RELEASES
from privgate.subject.domain import Domain

HEAD = 4  # numbers of a table before what choices add: whether it was read, release, scores, features
SCALERS = ("StandardScaler", "RobustScaler", "MaxAbsScaler", "MinMaxScaler")
ENCODERS = ("OneHotEncoder", "OrdinalEncoder")
LOGISTIC = ("LogisticRegression", "LogisticRegressionCV", "LinearDiscriminantAnalysis", "SGDClassifier")
COUNTS = ("MultinomialNB", "ComplementNB")
NUMBERS = ("Ridge", "RidgeCV", "LinearRegression", "ElasticNet", "Lasso", "BayesianRidge", "HuberRegressor",
           "SGDRegressor", "LinearSVR", "PLSRegression")  # fmt: skip
_QUESTIONS = 256  # questions at which a table is compared with the model's answers
_ROUNDOFF, _TINY = DOUBLE[:2]

#: of each column its choices, and whether it is a range
Columns = list[tuple[list[Any], bool]]


class Unread(Exception):  # noqa: N818  no error: the theorem is silent
    """The fitted model is not known to compute what the theorem is about; the message says why."""


class Scores(NamedTuple):
    """Scores are ``weights`` (S, d) times the features less ``centre``, plus ``bias`` (S,), a sum of such ``size``."""

    kind: str
    weights: NDArray[Any]
    bias: Float
    size: Float
    centre: Any = 0.0


def name_class(thing: Any) -> str:
    """Return the name of scikit-learn's own class, or a text that names none: of others, or with a method replaced."""
    kind = type(thing)
    replaced = any(callable(v) and hasattr(kind, k) for k, v in getattr(thing, "__dict__", {}).items())
    own = kind.__module__.startswith("sklearn.") and not replaced
    return kind.__name__ if own else f"{kind.__module__}.{kind.__name__}"


def split_last(model: Any) -> tuple[Any, Any]:
    """Return (first steps or None, last step) of a model, fitted or not."""
    return (model[:-1], model[-1]) if name_class(model) == "Pipeline" else (None, model)


def refuse_model(model: Any, labels: int) -> str:
    """Return what a recipe holds whose scores are not known to be sums over columns; ``labels`` is 0 of a regressor."""
    first, end = split_last(model)
    name = name_class(end)
    if name not in (NUMBERS if not labels else (*LOGISTIC, *COUNTS)):
        return f"the recipe is not known to release sums over columns: its last step is {name}"
    if getattr(end, "loss", "log_loss") != "log_loss" and labels:
        return f"{name}(loss={end.loss!r}) releases no sigmoid"
    if labels > 2 and name in LOGISTIC and getattr(end, "solver", "") == "liblinear":
        return f"{name}(solver='liblinear') of several labels is not known"
    return refuse_step(first)


def refuse_step(step: Any) -> str:
    """Return why a first step is not known to be affine in single columns; empty if it is."""
    if step is None or isinstance(step, str):
        return ""
    name = name_class(step)
    if name in ("Pipeline", "ColumnTransformer"):
        if getattr(step, "transformer_weights", None):
            return "ColumnTransformer(transformer_weights=…) multiplies features"
        parts = step.steps if name == "Pipeline" else [("", step.remainder), *step.transformers]
        return next((why for part in parts if (why := refuse_step(part[1]))), "")
    plain = name == "FunctionTransformer" and step.func is None
    if not plain and name not in (*SCALERS, *ENCODERS, "SimpleImputer"):
        return f"its first step {name} is not known to be affine in single columns"
    if getattr(step, "clip", False) or not getattr(step, "copy", True):
        return f"{name} with clip=True, or copy=False, changes more than it adds"
    return ""


def list_columns(domain: Mapping[str, Any]) -> Columns:
    """Return the choices of each column of a declared domain, as JSON values, and whether it is a range."""
    columns = Domain.from_payload(domain).list_columns()
    return [
        ([*(c.ends or c.values or ()), *([None, np.nan] if c.missing else ())], c.ends is not None) for c in columns
    ]


def table(opened: Any, model: Any, rows: int) -> Float:
    """Return a fitted model's table as rows of an answer: ``HEAD`` numbers, then what ``read`` says; else why not."""
    width = 1 if opened.recipe.task == "regression" else len(opened.classes)
    answer = np.full(rows * width, -np.inf)
    try:
        head, body = read(model, opened.domain or {}, opened.X)
        answer[:HEAD], answer[HEAD : HEAD + body.size] = head, body.ravel()
    except (Unread, AttributeError, TypeError, ValueError, LookupError) as exc:
        why = str(exc) if isinstance(exc, Unread) else f"reading it raised {type(exc).__name__}"
        text = [0.0, *map(ord, why)][: len(answer)]
        answer[: len(text)] = text
    return answer.reshape(rows, width)


def read(model: Any, domain: Mapping[str, Any], X: Any) -> tuple[tuple[float, ...], Float]:
    """Return (head, table) of a fitted model over a domain, asked away from the first record of ``X``.

    The table is (3, C + 1, S): what each choice, and last what none moves, adds to each score; the sizes of what is
    summed; how far that may be off the exact sum. A choice that the model refuses is -inf. Raises ``Unread``.
    """
    from sklearn import get_config

    if get_config()["assume_finite"] or get_config()["array_api_dispatch"]:
        raise Unread("scikit-learn's assume_finite or array_api_dispatch is on")
    base = X.iloc[:1] if hasattr(X, "iloc") else X[:1]
    base = base.toarray() if hasattr(base, "toarray") else base
    columns = list_columns(domain)
    if len(columns) != base.shape[1]:
        raise Unread("the domain has other columns than the data")
    first, scores = read_last_step(model)
    column = np.repeat(np.arange(len(columns)), [len(c[0]) for c in columns])
    picks = np.full((len(column) + 1, len(columns)), -1)  # the last row is the record itself
    picks[np.arange(len(column)), column] = np.concatenate([np.arange(len(c[0])) for c in columns])
    ranges = np.array([c[1] for c in columns])
    Z, R = _transform(first, make_questions(columns, picks, base), ranges, scores.weights.shape[1])
    _refuse_precision(Z, scores.weights)
    W, Z = scores.weights, Z - scores.centre
    R = R + 2 * _ROUNDOFF * np.abs(Z) + _TINY
    refused: NDArray[np.bool_] = np.asarray(~np.isfinite(Z).all(axis=1))
    if refused[-1]:
        raise Unread("it does not answer its first training record")
    Z, R = np.where(refused[:, None], 0.0, Z), np.where(refused[:, None], 0.0, R)
    moves = ((Z[-1] != Z) & ~refused[:, None])[:-1]
    moved = np.array([moves[column == j].any(axis=0) for j in range(len(columns))])
    if (moved.sum(axis=0) > 1).any():
        raise Unread("a feature depends on two columns")
    mine = np.concatenate([moved[column], np.atleast_2d(~moved.any(axis=0))])
    parts = [(Z * mine) @ W.T, (np.abs(Z) * mine) @ np.abs(W).T, (R * mine) @ np.abs(W).T]
    body: Float = np.where(refused[None, :, None], -np.inf, np.stack(parts))
    body[:2, -1] += scores.bias, scores.size
    if not (body < np.inf).all():
        raise Unread("its scores are too large")
    _compare(model, columns, picks, base, (body, scores.kind))
    return (1.0, float(RELEASES.index(scores.kind)), float(len(W)), float(W.shape[1])), body


def _refuse_precision(*arrays: NDArray[Any]) -> None:
    if any(a.dtype != np.float64 for a in arrays):
        raise Unread("it computes in another precision than float64")


def make_questions(columns: Columns, picks: NDArray[Any], base: Any) -> Any:
    """Return questions like ``base``, one a row of ``picks``: a choice of each column, or -1 for the record's value.

    They keep the record's type only where that holds every choice: whole numbers would cut 0.5, as "abc" cuts "abcd".
    """
    framed = hasattr(base, "columns")
    own = base.iloc[0].tolist() if framed else base[0].tolist()
    values = [[own[j] if i < 0 else c[0][i] for i in picks[:, j]] for j, c in enumerate(columns)]
    try:
        if not framed:
            return np.array(values, dtype=base.dtype if base.dtype.kind in "fO" else None).T
        import pandas as pd

        kinds = [
            object if not c[1] else t if isinstance(t, np.dtype) and t.kind == "f" else None
            for t, c in zip(base.dtypes, columns, strict=True)
        ]
        return pd.DataFrame({n: pd.Series(v, dtype=t) for n, t, v in zip(base.columns, kinds, values, strict=True)})
    except (TypeError, ValueError) as exc:
        raise Unread("a column of the data does not hold the domain's values") from exc


def _transform(first: Any, X: Any, ranges: NDArray[np.bool_], width: int) -> tuple[NDArray[Any], Float]:
    """Return the features (n, d) of questions and how far each is off; NaN in a row that a step refuses."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            Z, R, _ = _walk(first, X, np.zeros((len(X), len(ranges))), ranges)
        Z = np.asarray(Z)
        return (Z if Z.dtype.kind == "f" else Z.astype(np.float64)), R
    except (ValueError, TypeError):
        if len(X) == 1:
            return np.full((1, width), np.nan), np.zeros((1, width))
    # some choice is refused: each is asked alone
    rows = (X[k : k + 1] if isinstance(X, np.ndarray) else X.iloc[k : k + 1] for k in range(len(X)))
    alone = [_transform(first, row, ranges, width) for row in rows]
    return np.concatenate([z for z, _ in alone]), np.concatenate([r for _, r in alone])


def _walk(step: Any, X: Any, r: Float, ranges: NDArray[np.bool_]) -> tuple[Any, Float, NDArray[np.bool_]]:
    """Return (features, how far each is off the exact map, which are ranges) of questions behind a fitted step."""
    name = name_class(step)
    if step is None or isinstance(step, str) or name == "FunctionTransformer":
        return X, r, ranges
    if name == "Pipeline":
        for _, inner in step.steps:
            X, r, ranges = _walk(inner, X, r, ranges)
        return X, r, ranges
    if name == "ColumnTransformer":
        return _walk_columns(step, X, r, ranges)
    if name in ENCODERS and (ranges.any() or r.any()):
        raise Unread("an encoder reads a column that is a range")
    Z = step.transform(X)
    Z = np.asarray(Z.toarray() if hasattr(Z, "toarray") else Z)
    if name in ENCODERS:
        return Z, np.zeros(Z.shape), np.zeros(Z.shape[1], dtype=bool)
    if name == "SimpleImputer":
        if ranges.any() and not (isinstance(step.missing_values, float) and np.isnan(step.missing_values)):
            raise Unread("a number within a range stands for a missing value")
        lost = [isinstance(s, float) and np.isnan(s) for s in step.statistics_.tolist()]
        kept = np.array([step.keep_empty_features or not gone for gone in lost])
        R, line = np.zeros(Z.shape), np.zeros(Z.shape[1], dtype=bool)
        R[:, : kept.sum()], line[: kept.sum()] = np.nan_to_num(r[:, kept]), ranges[kept]  # indicators come last
        return Z, R, line
    _refuse_precision(Z)
    if name == "MinMaxScaler":  # x times the scale plus the least cancels
        return Z, r * np.abs(step.scale_) + 4 * _ROUNDOFF * (np.abs(Z) + np.abs(step.min_)) + _TINY, ranges
    scale = 1.0 if step.scale_ is None else np.abs(step.scale_)
    return Z, r / scale + 4 * _ROUNDOFF * np.abs(Z) + _TINY, ranges


def _walk_columns(step: Any, X: Any, r: Float, ranges: NDArray[np.bool_]) -> tuple[Any, Float, NDArray[np.bool_]]:
    named = hasattr(X, "columns") and hasattr(step, "feature_names_in_")
    if named and list(step.feature_names_in_) != list(X.columns):
        raise Unread("columns are named in another order than its first step was fitted on")
    parts = []
    for name, inner, _ in step.transformers_:
        at = np.asarray(step._transformer_to_input_indices[name], dtype=int)  # noqa: SLF001  how it resolved names
        if len(at) and not (isinstance(inner, str) and inner == "drop"):
            part = X.iloc[:, at] if hasattr(X, "iloc") else X[:, at]
            parts.append(_walk(inner, part, r[:, at], ranges[at]))
    Z, R, lines = (np.hstack([np.asarray(p[k]) for p in parts]) for k in range(3))
    return Z, R, lines


def read_last_step(model: Any) -> tuple[Any, Scores]:
    """Return (first steps, the last step's scores) of a fitted model."""
    first, end = split_last(model)
    name, labels = name_class(end), len(getattr(end, "classes_", ()))
    if name in COUNTS:
        b = end.class_log_prior_ if name == "MultinomialNB" else np.zeros(labels)
        return first, Scores("softmax", end.feature_log_prob_, b, np.abs(b))
    several = "ovr" if name == "SGDClassifier" else "softmax"
    kind, W = "number" if name in NUMBERS else "sigmoid" if labels == 2 else several, np.atleast_2d(end.coef_)
    b = np.broadcast_to(np.atleast_1d(end.intercept_).astype(np.float64), len(W))
    return first, Scores(kind, W, b, np.abs(b), getattr(end, "_x_mean", 0.0))


def _compare(model: Any, columns: Columns, picks: NDArray[Any], base: Any, read: tuple[Float, str]) -> None:
    """Ask the model random questions made of choices; refuse where it answers otherwise than the table says."""
    body, kind = read
    rng, known = np.random.default_rng(0), np.isfinite(body[0]).all(axis=1)[:-1]
    places = [np.flatnonzero(known & (picks[:-1, j] >= 0)) for j in range(len(columns))]
    if not all(map(len, places)):
        return  # nothing is answered
    drawn = np.column_stack([rng.choice(p, _QUESTIONS) for p in places])
    added, size, apart = body[:, drawn].sum(axis=2) + body[:, -1][:, None]
    X = make_questions(columns, np.column_stack([picks[drawn[:, j], j] for j in range(len(columns))]), base)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        answers = np.asarray(model.predict(X) if kind == "number" else model.predict_proba(X), dtype=np.float64)
        p = np.exp(-np.logaddexp(0.0, -added))
        expected = {
            "number": added,
            "sigmoid": np.concatenate([1 - p, p], axis=1),
            "ovr": p / p.sum(axis=1, keepdims=True),
            "softmax": np.exp(added - np.logaddexp.reduce(added, axis=1, keepdims=True)),
        }[kind]
    off = 2 * apart + 8 * (len(columns) + 64) * _ROUNDOFF * (size + 1)
    if not (np.abs(answers.reshape(expected.shape) - expected) <= off.max(axis=1, keepdims=True)).all():
        raise Unread("its answers are not those of its coefficients")
