"""The truth about a subject by the slow way: train again without each person, ask, compare.

Nothing of the product is used here: neither its engines nor its certificates, releases, attacks or accountant.
"""

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Fit = Callable[[Any, Any], Any]
Ask = Callable[[Any, Any], Float]


def trainer(estimator: Any) -> Fit:
    """Return a function that trains a fresh copy of a scikit-learn estimator."""
    from sklearn.base import clone

    return lambda X, y: clone(estimator).fit(X, y)


def ask(model: Any, X: Any) -> Float:
    """Return a model's probabilities."""
    return np.asarray(model.predict_proba(X), dtype=np.float64)


def exact(p: Float) -> Float:
    """Release probabilities as they are."""
    return p


def labels(p: Float) -> Float:
    """Release the most probable label alone: 1 for it and 0 for the others."""
    return np.eye(p.shape[1])[p.argmax(axis=1)]


def rounded(step: float) -> Callable[[Float], Float]:
    """Release numpy's rounding, which goes to the even neighbour at a half."""
    return lambda p: np.round(p / step) * step


def binned(width: float) -> Callable[[Float], Float]:
    """Release the middle of the bin that holds the probability."""
    return lambda p: (np.minimum(np.floor(p / width), np.ceil(1 / width) - 1) + 0.5) * width


def heated(temperature: float) -> Callable[[Float], Float]:
    """Release probabilities whose logarithms were divided by a temperature."""

    def form(p: Float) -> Float:
        with np.errstate(divide="ignore"):
            z = np.log(p) / temperature
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(z / z.sum(axis=1, keepdims=True))

    return form


def change(p: Float, q: Float) -> Float:
    """Return the largest change of a log-probability at each question, nats.

    Infinite where only one side answers 0, or where a library answers with something that is no number.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.abs(np.log(p) - np.log(q))
    each = np.where((p == 0) & (q == 0), 0.0, each)
    return np.asarray(np.nan_to_num(each, nan=np.inf, posinf=np.inf).max(axis=1))


def take(X: Any, rows: Any) -> Any:
    """Return rows of an array, a sparse matrix, a DataFrame or a list."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "shape") else [X[int(i)] for i in rows]


def size(X: Any) -> int:
    """Return the number of records."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def columns(model: Any, p: Float, classes: NDArray[Any]) -> Float:
    """Return probabilities with a column for every class; one that the model has never seen gets 0."""
    own = getattr(model, "classes_", classes)
    if len(own) == len(classes):
        return p
    full = np.zeros((len(p), len(classes)))
    full[:, np.searchsorted(classes, own)] = p
    return full


def leave_one_out(
    fit: Fit,
    X: Any,
    y: NDArray[Any],
    questions: Any = None,
    *,
    people: Sequence[Any] | None = None,
    only: Sequence[int] | None = None,
    release: Callable[[Float], Float] = exact,
    asked: Ask = ask,
) -> Float:
    """Return the largest change that each person makes, nats, by training again without the person.

    Everybody is asked at the own records, and at ``questions``; ``release`` makes of probabilities what is handed out.
    """
    n, classes = size(X), np.unique(y)
    people = [np.array([i]) for i in range(n)] if people is None else people
    whole = fit(X, y)

    def answers(model: Any, which: Any) -> Float:
        return release(columns(model, asked(model, which), classes))

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        general = None if questions is None else answers(whole, questions)
        for k in range(len(people)) if only is None else only:
            keep = np.setdiff1d(np.arange(n), people[k])
            try:
                without = fit(take(X, keep), y[keep])
            except (ValueError, IndexError):
                found.append(np.inf)
                continue
            own = take(X, people[k])
            worst = float(change(answers(whole, own), answers(without, own)).max())
            if general is not None:
                worst = max(worst, float(change(general, answers(without, questions)).max()))
            found.append(worst)
    return np.array(found)


def enumerated(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return every question of a categorical domain."""
    return np.array(list(itertools.product(*(range(v) for v in sizes))))


def grid(box: Sequence[tuple[float, float]], points: int) -> Float:
    """Return a grid over a box, its corners included."""
    return np.array(list(itertools.product(*(np.linspace(a, b, points) for a, b in box))))


def corners(box: Sequence[tuple[float, float]]) -> Float:
    """Return the corners of a box."""
    return grid(box, 2)


def held_out_accuracy(inside: Float, outside: Float) -> float:
    """Return the balanced accuracy on odd people of the threshold that is best on even ones."""
    edges = np.unique(np.concatenate([inside[::2], outside[::2]]))
    scores = [((inside[::2] >= e).mean() + (outside[::2] < e).mean()) / 2 for e in edges]
    edge = edges[int(np.argmax(scores))]
    return float(((inside[1::2] >= edge).mean() + (outside[1::2] < edge).mean()) / 2)


def own_probability(model: Any, X: Any, y: NDArray[Any]) -> Float:
    """Return the probability of each record's own label."""
    p = ask(model, X)
    return np.asarray(p[np.arange(len(y)), np.searchsorted(model.classes_, y)])


def lira(fit: Callable[[Any, Any, int], Any], X: Float, y: NDArray[Any], n: int, models: int, fpr: float) -> float:
    """Return the share of members that a likelihood-ratio attack finds at a false-positive rate, target included.

    Records 0 .. n - 1 trained the target. Confidences are clipped at the smallest that the shadow models show,
    variances shrunk towards the mean one (weight 8); Carlini et al. (2022), algorithm 1 with those two changes.
    """
    rng = np.random.default_rng(0)
    halves = np.stack([rng.permutation(len(y)) < len(y) // 2 for _ in range(models)])
    own = np.stack([own_probability(fit(X[h], y[h], k), X, y) for k, h in enumerate(halves)])
    target = own_probability(fit(X[:n], y[:n], 999), X, y)
    rest = np.minimum(own, 1 - own)
    floor = max(float(rest[rest > 1e-12].min()), 1e-12)

    def logit(p: Float) -> Float:
        clipped = np.clip(p, floor, 1 - floor)
        return np.asarray(np.log(clipped) - np.log1p(-clipped))

    F, t = logit(own), logit(target)
    sides = []
    for w in (halves, ~halves):
        count = w.sum(axis=0)
        mean = (F * w).sum(axis=0) / count
        var = (((F - mean) ** 2) * w).sum(axis=0) / count
        var = (count * var + 8 * var.mean()) / (count + 8)
        sides.append(-0.5 * (np.log(var) + (t - mean) ** 2 / var))
    score = sides[0] - sides[1]
    edge = np.sort(score[n:])[::-1][int(fpr * len(score[n:]))]
    return float((score[:n] > edge).mean())
