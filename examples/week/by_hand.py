"""What is true of a model, by its library alone: people left out in a plain loop, and a plain attack on all labels."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from models import Model
from numpy.typing import NDArray

SHADOWS = 32
#: the limits of release-1: share of people above, accuracy of an attack, members it finds at 1 % false accusations
LIMITS = {"above": 0.01, "accuracy": 0.6, "members": 0.1}


class ByHand:
    """A model as its author would run it: nothing of the gate's."""

    def __init__(self, model: Model) -> None:
        self.model, self.data = model, model.data()
        assert self.data.candidates is not None
        self.numbers = self.data.y.dtype.kind == "f"
        self.labels = np.unique(self.data.y)

    def fit(self, rows: NDArray[Any], seed: int = 7) -> Any:
        """Train on rows of people and people outside, which are numbered one after the other."""
        X, y = self.take(rows)
        if self.model.claim:
            return self.model.estimator(X, y, seed=seed)
        estimator = self.model.estimator()
        seeds = {k: seed for k in estimator.get_params() if k.rpartition("__")[2] == "random_state"}
        return estimator.set_params(**seeds).fit(X, y)

    def take(self, rows: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        """Return records and labels of some rows."""
        (out_X, out_y), X = self.data.candidates, self.data.X
        pool = pd.concat([X, out_X]) if hasattr(X, "iloc") else np.concatenate([X, out_X])
        return pool.iloc[rows] if hasattr(pool, "iloc") else pool[rows], np.concatenate([self.data.y, out_y])[rows]

    def answer(self, fitted: Any, X: Any) -> NDArray[Any]:
        """Return ln p of each label, shape (n, C), as it is served, or numbers, shape (n, 1)."""
        if self.numbers:
            return np.asarray(fitted.predict(X), dtype=float)[:, None]
        p = np.asarray(fitted.predict_proba(X), dtype=float)
        if self.model.floor:
            p = p.clip(0.01, 0.99)  # of two labels, which these models have
        with np.errstate(divide="ignore"):
            return np.log(p)


def measure_model(model: Model) -> dict[str, Any]:
    """Return what a model gives away by hand, and what the limits of release-1 say of that."""
    warnings.simplefilter("ignore")
    hand = ByHand(model)
    row: dict[str, Any] = {"refits": model.refits, **_leave_out(hand), **_attack(hand)}
    _, y_out = hand.data.candidates or (None, None)
    fitted, outside = hand.fit(np.arange(hand.data.n)), hand.data.n + np.arange(len(y_out))
    answers = hand.answer(fitted, hand.take(outside)[0])
    if hand.numbers:
        row["quality"] = float(1 - np.var(y_out - answers[:, 0]) / np.var(y_out))
    else:
        row["quality"] = float((hand.labels[answers.argmax(axis=1)] == y_out).mean())
    row["records"] = _count_records(hand, fitted)
    row["harmless"] = judge_row(row)
    return row


def judge_row(row: dict[str, Any]) -> str:
    """Return "no", "yes", or "close" where neither is shown, or as many move by another seed as without a person."""
    above = max(0, row["above"] - row["by_seed"])
    attacked = row["accuracy_low"] > LIMITS["accuracy"] or row["members_low"] > LIMITS["members"]
    if row["records"] or attacked or _limit_low(above, row["refits"]) > LIMITS["above"]:
        return "no"
    few = row["above"] < LIMITS["above"] * row["refits"]
    return "yes" if few and row["accuracy"] < LIMITS["accuracy"] and row["members"] < LIMITS["members"] else "close"


def _limit_low(count: int, trials: int) -> float:
    """Return the lower limit, 97.5 %, of a share."""
    from scipy.stats import beta

    return float(beta.ppf(0.025, count, trials - count + 1)) if count else 0.0


def _count_records(hand: ByHand, fitted: Any) -> int:
    """Count the records, of 100, that stand byte by byte in the stored model; only of numbers."""
    import cloudpickle

    X = np.asarray(hand.data.X[:100])
    stored = cloudpickle.dumps(fitted)
    return sum(x.astype(t).tobytes() in stored for x in X for t in (float, np.float32)) if X.dtype.kind == "f" else 0


def _leave_out(hand: ByHand) -> dict[str, Any]:
    """Count the people whose absence moves an answer at or near their record above the limit; 1 is the limit.

    Training that draws by a seed is paired by it. ``by_seed`` counts the same where nobody is left out and the seed is
    one of twenty others: where that is as many, the seed moves the answers and not the people.
    """
    n, draw = hand.data.n, np.random.default_rng(12)
    everybody, people = np.arange(n), draw.choice(n, hand.model.refits, replace=False)
    whole = hand.fit(everybody)
    moved = np.array([_move(hand, whole, hand.fit(np.delete(everybody, k)), k) for k in people])
    limit = 1.0
    if hand.numbers:
        X, y = hand.take(n + np.arange(1000))
        limit = 0.5 * float(np.std(y - hand.answer(whole, X)[:, 0]))
    others = [hand.fit(everybody, seed=8 + k) for k in range(20)]  # one seed's model may be a near one, or a far one
    by_seed = np.array([_move(hand, whole, others[i % 20], k) for i, k in enumerate(people)])
    return {
        "above": int((moved > limit).sum()),
        "largest": float(moved.max() / limit),
        "by_seed": int((by_seed > limit).sum()),
    }


def _move(hand: ByHand, whole: Any, other: Any, person: int) -> float:
    """Return the largest change of an answer at the record, and where one column is somebody else's or a word less."""
    draw = np.random.default_rng(person)
    X, _ = hand.take(np.array([person, *draw.choice(hand.data.n, 8)]))
    questions = np.asarray(X, dtype=object).copy()
    if questions.ndim == 1:
        words = questions[0].split()
        questions[1:] = [" ".join(np.delete(words, k)) for k in draw.choice(len(words), 8, replace=False)]
    else:
        keep = np.arange(questions.shape[1]) != draw.integers(questions.shape[1], size=(8, 1))
        questions[1:] = np.where(keep, questions[0], questions[1:])
    container = (
        pd.DataFrame(questions, columns=X.columns).astype(X.dtypes)
        if hasattr(X, "columns")
        else questions.astype(X.dtype)
    )
    with np.errstate(invalid="ignore"):
        change = np.abs(hand.answer(whole, container) - hand.answer(other, container))
    return float(np.nan_to_num(change, nan=0.0, posinf=np.inf).max())


def _attack(hand: ByHand) -> dict[str, float]:
    """Return the accuracy of a likelihood ratio on the answers to all labels, and the members found at 1 %."""
    n, draw = hand.data.n, np.random.default_rng(13)
    size = min(n, len(hand.data.candidates[1]))
    rows = np.concatenate([draw.choice(n, size, replace=False), n + np.arange(size)])
    others, member = np.setdiff1d(np.arange(n), rows), np.repeat([True, False], size)
    seen, inside = [], []
    for k in range(SHADOWS + 1):
        trained = member if k == 0 else draw.permutation(2 * size) < size
        fitted = hand.fit(np.concatenate([others, rows[trained]]), seed=7 + k)
        X, y = hand.take(rows)
        seen.append(_features(hand, hand.answer(fitted, X), y))
        inside.append(trained)
    target, shadows, of = seen[0], np.array(seen[1:]), np.array(inside[1:])[:, :, None]
    means = [(shadows * w).sum(0) / w.sum(0) for w in (of, ~of)]
    spread = [
        np.sqrt((((shadows - m) * w) ** 2).sum((0, 1)) / w.sum((0, 1))) + 1e-6
        for m, w in zip(means, (of, ~of), strict=True)
    ]
    score = sum(-(((target - m) / s) ** 2) / 2 - np.log(s) if w else ((target - m) / s) ** 2 / 2 + np.log(s)
                for m, s, w in zip(means, spread, (True, False), strict=True)).sum(axis=1)  # fmt: skip
    return _separate(score, member)


def _features(hand: ByHand, answers: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Return log-odds of each label, the own first, shape (n, C); of two one says all; of numbers the residual."""
    if hand.numbers:
        return np.asarray(np.abs(answers - y[:, None]))
    p = np.exp(answers).clip(1e-12, 1 - 1e-12)
    odds, own = np.log(p / (1 - p)), np.searchsorted(hand.labels, y)[:, None]
    return (
        np.take_along_axis(odds, own, axis=1)
        if p.shape[1] == 2
        else np.concatenate([np.take_along_axis(odds, own, 1), odds], axis=1)
    )


def _separate(score: NDArray[Any], member: NDArray[Any]) -> dict[str, float]:
    """Choose thresholds on one half, judge them on the other, with lower limits of 97.5 %."""
    even = np.random.default_rng(14).random(len(score)) < 0.5
    places = np.unique(score[even])
    best = places[int(np.argmax([((score[even] >= t) == member[even]).mean() for t in places]))]
    right, hits = (
        (score[~even] >= best) == member[~even],
        score[~even & member] > np.quantile(score[even & ~member], 0.99),
    )

    return {
        "accuracy": float(right.mean()),
        "accuracy_low": _limit_low(int(right.sum()), len(right)),
        "members": float(hits.mean()),
        "members_low": _limit_low(int(hits.sum()), len(hits)),
    }
