"""What is true of a subject, by the library alone: people left out in a plain loop, and attacks as plain functions."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truth import parts
from truth.catalogue import TRUTH, Known

#: people left out; of 300 of whom so many above the limit show that more than 1 % are; and models of attackers
LEFT_OUT, ENOUGH, SHADOWS = 150, 8, 24
#: so many of whoever was left out first, and no others need be
SURE = 16
#: of shadow models with and without a person, in so many pairs the former's number is larger where it tells
SURELY = 0.95
#: what a subject that does not leak stays below, to be clearly within limits of 1, .5, .6 and .1
CLEAR = {"influence": 0.01, "accuracy": 0.57, "found": 0.07}


class Plain:
    """A subject as its author would run it: nothing of the gate's."""

    def __init__(self, known: Known) -> None:
        self.known, self.recipe, self.data = known, known.recipe(), known.data()
        self.numbers = self.recipe.task == "regression"
        self.classes = np.unique(self.data.y)
        self.units = [np.asarray(u) for u in self.data.units]
        named = self.known.floor if isinstance(self.known.floor, dict) else {}
        self.floors = np.array([named.get(k, min(0.01, 0.05 / len(self.classes))) for k in self.classes.tolist()])

    def rows(self, X: Any, rows: Any) -> Any:
        """Return some rows."""
        return X.iloc[rows] if hasattr(X, "iloc") else X[rows]

    def train(self, X: Any, y: Any) -> Any:
        """Train in what is as good as a fresh process."""
        from sklearn.base import clone

        parts.CACHE.clear()
        training, seed = self.recipe.training, self.recipe.seed
        if not hasattr(training, "get_params"):
            return training(X, y, seed=seed, **self.recipe.params)
        model = clone(training)
        model.set_params(**{k: seed for k in model.get_params() if k.rpartition("__")[2] == "random_state"})
        return model.fit(X, y)

    def told(self, model: Any, X: Any) -> NDArray[Any]:
        """Return log-probabilities of all labels, shape (n, C), or numbers, shape (n, 1)."""
        if self.numbers:
            return np.asarray(model.predict(X), dtype=float)[:, None]
        predict = self.recipe.predict
        p = np.asarray(predict(model, X) if predict else model.predict_proba(X), dtype=float)
        if self.known.floor is not None:
            p = _floored(p, self.floors)
        with np.errstate(divide="ignore"):
            return np.log(p)


def _floored(p: NDArray[Any], floors: NDArray[Any]) -> NDArray[Any]:
    """Return probabilities of which none is below its floor, those above in their own ratio."""
    low = np.zeros(p.shape, dtype=bool)
    while True:
        rest = (1 - np.where(low, floors, 0).sum(axis=1)) / np.where(low, 0, p).sum(axis=1)
        below = low | (rest[:, None] * p < floors)
        if (below == low).all():
            return np.where(low, floors, rest[:, None] * p)
        low = below


def by_hand(name: str) -> dict[str, Any]:
    """Return whether what is known of one subject is confirmed, a row."""
    found = truth(next(k for k in TRUTH if k.name == name))
    told = ", ".join(f"{n} {v:.3g}" for n, v in found.items() if n != "confirmed")
    return {"verdict": "confirmed" if found["confirmed"] else "not confirmed", "said": told, "cpu": 0.0}


def truth(known: Known) -> dict[str, Any]:
    """Return what was measured of a subject by hand, and whether that confirms what is known of it.

    Keys are the share of people above the limit when one is left out and asked at or beside the own records, the best
    attack's accuracy and the members it finds at 1 % false accusations, and the rows that stand in the model's arrays.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = Plain(known)
        model = plain.train(plain.data.X, plain.data.y)
        changes = _left_out(plain, model)
        found: dict[str, Any] = {"left": len(changes), "above": int((changes > 1).sum())}
        found["median"], found["largest"] = float(np.median(changes)), float(np.minimum(changes, 99).max())
        found["rows"] = _rows(model, plain.data.X)
        if not known.leaks or found["above"] < ENOUGH or known.floor is not None:
            found |= _attacked(plain, model)
    return found | {"confirmed": _confirms(known, found)}


def _confirms(known: Known, found: Mapping[str, Any]) -> bool:
    if known.floor is not None:  # what is said of it is whether its floored answers tell anybody
        return (found["told"] >= ENOUGH) == known.leaks
    if known.leaks:
        certain = found.get("accuracy_low", 0) > 0.6 or found.get("found_low", 0) > 0.1
        return found["above"] >= ENOUGH or certain or found["rows"] > 0
    clear = found["above"] <= CLEAR["influence"] * found["left"] and found["rows"] == 0
    return clear and found["accuracy"] < CLEAR["accuracy"] and found["found"] < CLEAR["found"]


def _left_out(plain: Plain, whole: Any) -> NDArray[Any]:
    """Return how far each of some people moves the answers at and beside their records; 1 is the limit."""
    data, draw = plain.data, np.random.default_rng(12)
    chosen = draw.choice(len(plain.units), min(LEFT_OUT * (1 + plain.known.leaks), len(plain.units)), replace=False)
    changes, residuals, limit = list[float](), list[float](), 1.0
    for unit in chosen:
        own = plain.units[unit]
        kept = np.setdiff1d(np.arange(data.n), own)
        other = plain.train(plain.rows(data.X, kept), data.y[kept])
        asked = [plain.rows(data.X, own)]
        if plain.known.beside is not None:
            asked.append(plain.known.beside(asked[0]))
        with np.errstate(invalid="ignore"):
            moved = [np.abs(plain.told(whole, q) - plain.told(other, q)) for q in asked]
        changes.append(max(float(np.nan_to_num(m, nan=0.0, posinf=np.inf).max()) for m in moved))
        if plain.numbers:
            residuals += list(data.y[own] - plain.told(other, asked[0])[:, 0])
            limit = 0.5 * float(np.std(residuals))  # half of the usual error
        if plain.known.leaks and len(changes) >= 2 * SURE and (np.array(changes) > limit).sum() >= SURE:
            break
    return np.array(changes) / limit


def _losses(plain: Plain, model: Any, X: Any, y: Any) -> NDArray[Any]:
    told = plain.told(model, X)
    if plain.numbers:
        return np.asarray(np.abs(told[:, 0] - y))
    return np.asarray(-np.maximum(told[np.arange(len(y)), np.searchsorted(plain.classes, y)], -30))


def _attacked(plain: Plain, model: Any) -> dict[str, float]:
    """Return the best of two attacks: by the loss alone, and by how usual it is among models without the person."""
    data = plain.data
    assert data.candidates is not None
    out_X, out_y = data.candidates
    first = np.array([u[0] for u in plain.units])
    known = np.isin(out_y, plain.classes) if not plain.numbers else np.ones(len(out_y), dtype=bool)
    k = min(len(first), int(known.sum()))
    own, others = first[:k], np.flatnonzero(known)[:k]
    asked = [(plain.rows(data.X, own), data.y[own]), (plain.rows(out_X, others), out_y[others])]
    loss = np.concatenate([_losses(plain, model, *q) for q in asked])
    member = np.repeat([True, False], k)
    draw = np.random.default_rng(13)
    without: list[list[float]] = [[] for _ in range(2 * k)]
    answers, sides = list[Any](), list[Any]()
    pool_X, pool_y = _stacked(asked[0][0], asked[1][0]), np.concatenate([asked[0][1], asked[1][1]])
    for _ in range(SHADOWS):
        inside = draw.permutation(2 * k) < k
        rows = np.flatnonzero(inside)
        shadow = plain.train(plain.rows(pool_X, rows), pool_y[rows])
        if len(np.unique(pool_y[rows])) < len(plain.classes) and not plain.numbers:
            continue
        usual = _losses(plain, shadow, pool_X, pool_y)
        answers.append(None if plain.known.floor is None else plain.told(shadow, pool_X))
        sides.append(inside)
        for person in np.flatnonzero(~inside):
            without[person].append(usual[person])
    centre = np.array([np.mean(w) for w in without])
    spread = np.array([np.std(w) for w in without]) + 1e-3
    best = {"accuracy": 0.5, "accuracy_low": 0.5, "found": 0.0, "found_low": 0.0}
    scores = [-loss, (centre - loss) / spread, centre - loss]
    if plain.known.floor is not None:
        scores.append(_read_all_labels(np.array(answers), np.array(sides), plain.told(model, pool_X)))
        best["told"] = _count_told(np.array(answers).sum(axis=2), np.array(sides))
    for score in scores:
        found = _separated(score, member)
        best |= {name: max(best[name], value) for name, value in found.items()}
    return best


def _read_all_labels(answers: Any, inside: Any, target: Any) -> NDArray[Any]:
    """Return for each person how much all labels together speak for membership, weights learned on other models.

    ``answers`` are log-probabilities of shadow models, shape (S, P, K); ``inside`` whom each was trained on.
    """
    from sklearn.linear_model import LogisticRegression

    answers, target = (a - np.log1p(-np.exp(np.minimum(a, -1e-9))) for a in (answers, target))
    order = np.argsort(-answers.mean(axis=0), axis=1)  # the likeliest label first

    def compared(asked: Any, some: Any) -> Any:
        there = inside[some][..., None]
        with_, without = ((answers[some] * s).sum(axis=0) / s.sum(axis=0) for s in (there, ~there))
        spread = np.where(there, answers[some] - with_, answers[some] - without).std(axis=0) + 0.02
        told = ((asked - without) ** 2 - (asked - with_) ** 2) / (2 * spread**2)
        return np.take_along_axis(np.clip(told, -10, 10), order, axis=1)

    every = np.arange(len(answers))
    learned = [compared(answers[s], every[every != s]) for s in every]
    weights = LogisticRegression(C=0.1, max_iter=500).fit(np.concatenate(learned), inside.ravel())
    return np.asarray(weights.decision_function(compared(target, every)))


def _count_told(values: NDArray[Any], inside: NDArray[Any]) -> int:
    """Return of how many people one number tells shadow models with them from those without, nearly always."""
    there, without = inside[:, None], ~inside[None]
    higher = (values[:, None] > values[None]) + 0.5 * (values[:, None] == values[None])
    return int(((higher * (there & without)).sum(axis=(0, 1)) / (there & without).sum(axis=(0, 1)) > SURELY).sum())


def _separated(score: NDArray[Any], member: NDArray[Any]) -> dict[str, float]:
    """Return accuracy and members found, thresholds chosen on one half and judged on the other, with lower limits."""
    from scipy.stats import beta

    even = np.random.default_rng(14).random(len(score)) < 0.5
    places = np.unique(score[even])
    accuracy = [((score[even] >= t) == member[even]).mean() for t in places]
    right = (score[~even] >= places[int(np.argmax(accuracy))]) == member[~even]
    strict = np.quantile(score[even & ~member], 0.99)
    hits = score[~even & member] > strict

    def low(count: int, of: int) -> float:
        return float(beta.ppf(0.025, count, of - count + 1)) if count else 0.0

    return {
        "accuracy": float(right.mean()),
        "accuracy_low": low(int(right.sum()), len(right)),
        "found": float(hits.mean()),
        "found_low": low(int(hits.sum()), len(hits)),
    }


def _stacked(a: Any, b: Any) -> Any:
    if hasattr(a, "iloc"):
        import pandas as pd

        return pd.concat([a, b], ignore_index=True)
    return np.concatenate([a, b])


def _rows(model: Any, X: Any) -> int:
    """Return how many rows of the training data stand in arrays that the model holds, or parts of it hold."""
    if hasattr(X, "iloc") or np.asarray(X).dtype == object:
        return 0
    wanted, found = {np.asarray(r, dtype=float).tobytes() for r in X}, set[bytes]()
    todo, seen = [model], set[int]()
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, np.ndarray):
            if part.ndim == 2 and part.shape[1] == X.shape[1]:
                found |= {np.asarray(r, dtype=float).tobytes() for r in part} & wanted
        elif isinstance(part, Mapping):
            todo += part.values()
        elif isinstance(part, list | tuple):
            todo += part[:1000]
        else:
            todo += getattr(part, "__dict__", {}).values()
    return len(found)
