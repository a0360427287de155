"""Small data of one population, cut at random into people who are trained on and people who are not."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import TrainingData

#: people who are trained on, and as many others
PEOPLE = 1000
_COMMON = [f"word{k}" for k in range(40)]


def _cut(X: Any, y: NDArray[Any], n: int = PEOPLE, **more: Any) -> TrainingData:
    pick = X.iloc if hasattr(X, "iloc") else X
    first, rest = pick[:n], pick[n:]
    if hasattr(rest, "reset_index"):
        rest = rest.reset_index(drop=True)
    more = {"ids": np.arange(n), "one_record_each": "groups" not in more} | more
    return TrainingData(first, y[:n], candidates=(rest, y[n:]), **more)


def _labels(score: NDArray[Any], task: str, draw: np.random.Generator, noise: float) -> NDArray[Any]:
    """Return numbers, or labels of equal size, that a score explains up to noise."""
    moved = score + noise * draw.normal(size=len(score))
    if task == "number":
        return np.asarray(moved)
    shares = {"label": [0.5], "three": [1 / 3, 2 / 3], "ten": np.arange(1, 10) / 10, "rare": [0.97]}
    cuts = np.quantile(moved, shares[task])
    return np.asarray(np.searchsorted(cuts, moved).astype(np.int64))


def numbers(columns: int = 5, task: str = "label", noise: float = 1.0, seed: int = 1) -> TrainingData:
    """Return normal numbers, of which the first three explain the target."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(2 * PEOPLE, columns)).clip(-4, 4)
    score = X[:, 0] + 0.7 * X[:, 1] - 0.5 * X[:, 2]
    return _cut(X, _labels(score, task, draw, noise))


def coded(
    people: float, task: str = "label", *, noise: float = 1.0, form: str = "array", codes: int = 1, seed: int = 2
) -> TrainingData:
    """Return three numbers and codes, such as a post code; about so many people who are trained on share a code."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(2 * PEOPLE, 3)).clip(-4, 4)
    code = draw.integers(0, max(2, round(PEOPLE / people)), size=(2 * PEOPLE, codes))
    y = _labels(X[:, 0] + 0.7 * X[:, 1], task, draw, noise)
    if form == "array":
        return _cut(np.column_stack([X, code]), y)
    import pandas as pd

    table = pd.DataFrame(X, columns=["age", "income", "years"])
    for k in range(codes):
        table[f"code{k}"] = [f"c{v}" for v in code[:, k]]
    return _cut(table, y)


def placed(people: int, task: str = "label", noise: float = 0.2) -> TrainingData:
    """Return a number between 0 and 1 that explains the target, another one, and a group of a few people."""
    draw = np.random.default_rng(3)
    X = draw.uniform(size=(2 * PEOPLE, 2))
    group = draw.integers(0, max(1, PEOPLE // people), size=2 * PEOPLE)
    return _cut(np.column_stack([X, group]), _labels(X[:, 0], task, draw, noise))


def unique(share: float = 0.1, task: str = "label") -> TrainingData:
    """Return three numbers and a code: six common ones, and for some people one of their own, who answer otherwise."""
    draw = np.random.default_rng(4)
    X = draw.normal(size=(2 * PEOPLE, 3)).clip(-4, 4)
    own = draw.random(2 * PEOPLE) < share
    code = np.where(own, 100 + draw.permutation(2 * PEOPLE), draw.integers(0, 6, 2 * PEOPLE))
    return _cut(np.column_stack([X, code]), _labels(X[:, 0] + 1.5 * own, task, draw, 0.5))


def missing(columns: int, task: str = "label", share: float = 0.4) -> TrainingData:
    """Return three numbers, and so many more of which a share is missing."""
    draw = np.random.default_rng(5)
    X = draw.normal(size=(2 * PEOPLE, 3 + columns)).clip(-4, 4)
    y = _labels(X[:, 0] + 0.7 * X[:, 1], task, draw, 1.0)
    X[:, 3:][draw.random((2 * PEOPLE, columns)) < share] = np.nan
    return _cut(X, y)


def texts(names: str = "own", task: str = "label", words: int = 6) -> TrainingData:
    """Return letters of common words, with a name of the person's own (``own``), one of 4 (``few``) or none."""
    draw = np.random.default_rng(6)
    y = _labels(np.zeros(2 * PEOPLE), "number" if task == "number" else "label", draw, 1.0)
    half = len(_COMMON) // 2
    lean = np.where(y > (0 if task == "number" else 0.5), 0.6, 0.4)
    written = []
    for person in range(2 * PEOPLE):
        some = [_COMMON[int(draw.integers(half)) + half * int(draw.random() < lean[person])] for _ in range(words)]
        if names != "none":
            some.append(f"name{draw.integers(10**9) if names == 'own' else draw.integers(4)}")
        written.append(" ".join(some))
    return _cut(np.array(written, dtype=object), y)


def several(records: int, *, named: bool, task: str = "label") -> TrainingData:
    """Return people with several records each, who keep one label; the last column is who, or one of 5 places."""
    draw, people = np.random.default_rng(7), PEOPLE // records
    who = np.concatenate([np.repeat(np.arange(people), records), people + np.arange(PEOPLE)])
    own = draw.normal(size=people + PEOPLE)[who]
    X = draw.normal(size=(len(who), 3)).clip(-4, 4)
    y = _labels(X[:, 0] + (own if named else 0.0), task, draw, 0.5 if named else 1.0)
    last = draw.permutation(people + PEOPLE)[who] if named else draw.integers(0, 5, len(who))
    n = people * records
    return _cut(np.column_stack([X, last]), y, n, ids=None, groups=who[:n])


def households(people: int, task: str = "label", *, regions: int = 0) -> TrainingData:
    """Return three numbers and a household whose members share a label, or one of a few regions."""
    draw = np.random.default_rng(8)
    home = np.repeat(np.arange(2 * PEOPLE // people), people)
    home = np.concatenate([home, np.full(2 * PEOPLE - len(home), home[-1])])
    X = draw.normal(size=(2 * PEOPLE, 3)).clip(-4, 4)
    own = draw.normal(size=len(home))[home] if not regions else np.zeros(len(home))
    y = _labels(X[:, 0] + 3.0 * own, task, draw, 0.3 if not regions else 1.0)
    last = draw.permutation(len(home))[home] if not regions else draw.integers(0, regions, len(home))
    return _cut(np.column_stack([X, last]), y)


def indicators(columns: int, each: float, task: str = "number") -> TrainingData:
    """Return three numbers and columns that are zero but for about so many of the people who are trained on."""
    draw = np.random.default_rng(9)
    X = draw.normal(size=(2 * PEOPLE, 3)).clip(-4, 4)
    flags = (draw.random((2 * PEOPLE, columns)) < each / PEOPLE).astype(float)
    return _cut(np.column_stack([X, flags]), _labels(X[:, 0] + 0.7 * X[:, 1], task, draw, 1.0))


def categories(columns: int, values: int, task: str = "label") -> TrainingData:
    """Return codes alone, of as many values each; the first column explains the label."""
    draw = np.random.default_rng(10)
    X = draw.integers(0, values, size=(2 * PEOPLE, columns))
    return _cut(X, _labels(2.0 * X[:, 0] / values, task, draw, 0.5))
