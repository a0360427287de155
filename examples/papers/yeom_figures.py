"""Yeom et al. (2020), Figures 2c, 3 and 4: networks of all sizes on digits, and errors of models that overfit."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from papers.datasets import warfarin
from papers.gaussian import theorem_3
from papers.pictures import Picture, Series
from papers.table import Row, Table
from papers.yeom2020 import Float, train_cnn
from privgate.statistics.roc import Decisions
from privgate.training.fleet import Fleet

#: random splits over which errors are gathered; the paper has 1,000
SPLITS = 100
#: shares of labels that are replaced, epochs: from a network that fits to one that overfits
PLANS = ((0.0, 5), (0.0, 30), (0.1, 30), (0.2, 30), (0.3, 30), (0.3, 60), (0.5, 60))


def run(folder: Path, fleet: Fleet, say: Callable[[str], None]) -> Iterator[Table]:
    """Return the three figures."""
    del fleet
    from sklearn.linear_model import Ridge
    from sklearn.tree import DecisionTreeRegressor

    data = warfarin(folder)
    yield errors(3, "a deep tree", lambda: DecisionTreeRegressor(max_depth=14, random_state=0), (data.X, data.y),
                 due=(0.3899, 0.9507))  # fmt: skip
    # few patients and random features beside theirs: ridge overfits where features are as many as records
    rng = np.random.default_rng(4)
    few = rng.permutation(len(data.y))[:120]
    wide = np.hstack([data.X[few], rng.normal(size=(120, 170))])
    yield errors(4, "ridge, 120 patients, 170 random features more", lambda: Ridge(20.0), (wide, data.y[few]),
                 due=(0.2774, 0.8884))  # fmt: skip
    say("Figures 3 and 4 are done")
    yield figure_2c(say)


def errors(
    number: int, what: str, make: Callable[[], Any], data: tuple[Float, Float], *, due: tuple[float, float]
) -> Table:
    """Return Figure 3 or 4: errors on training and test records beside normal ones of the same deviation."""
    (X, y), rng = data, np.random.default_rng(number)
    gathered: tuple[list[Float], list[Float]] = ([], [])
    for _ in range(SPLITS):
        inside = rng.permutation(len(y)) < 3 * len(y) // 4
        residual = y - make().fit(X[inside], y[inside]).predict(X)
        gathered[0].append(residual[inside])
        gathered[1].append(residual[~inside])
    bins = np.linspace(-3, 3, 62)
    middle = (bins[1:] + bins[:-1]) / 2
    rows, series = list[Row](), list[Series]()
    for name, parts, published in zip(("training", "test"), gathered, due, strict=True):
        found = np.concatenate(parts)
        deviation = float(np.sqrt(np.mean(found**2)))
        density = np.histogram(found, bins)[0] / len(found) / (bins[1] - bins[0])
        normal = np.exp(-((middle / deviation) ** 2) / 2) / deviation / np.sqrt(2 * np.pi)
        peak = float(density[30] / normal[30])
        rows += [Row(f"{name} error, root mean square", published, deviation),
                 Row(f"{name}: height at 0, times the normal curve's", None, peak)]  # fmt: skip
        series += [Series(f"{name} errors", middle.tolist(), density.tolist(), "steps"),
                   Series(f"{name}, normal", middle.tolist(), normal.tolist())]  # fmt: skip
    notes = (f"{SPLITS} random splits 75-25; the paper has 1,000 and does not print its curves",)
    return Table(f"Yeom et al. (2020), Figure {number}: errors of {what}, warfarin dosing", rows, notes,
                 Picture(f"yeom-{number}", "error", "density", series))  # fmt: skip


def figure_2c(say: Callable[[str], None]) -> Table:
    """Return Figure 2c: advantage of the threshold adversary against the ratio of losses of networks on digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.default_rng(2)
    rows, points = list[Row](), list[tuple[float, float]]()
    for noise, epochs in PLANS:
        y = digits.target.astype(np.int64).copy()
        wrong = rng.random(len(y)) < noise
        y[wrong] = rng.integers(0, 10, int(wrong.sum()))
        inside = rng.permutation(len(y)) < len(y) // 2
        loss = -train_cnn(digits.images / 16.0, y, inside, seed=epochs, epochs=epochs)[np.arange(len(y)), y]
        ratio = float(np.sqrt(np.mean(loss[~inside] ** 2) / np.mean(loss[inside] ** 2)))
        advantage = float(Decisions.from_flags(loss <= loss[inside].mean(), inside).advantage)
        points.append((ratio, advantage))
        what = f"{noise:.0%} of labels replaced, {epochs} epochs: ratio {ratio:.3g}: advantage"
        rows.append(Row(what, None, advantage, due=theorem_3(ratio) if ratio > 1 else None))
        say(f"a network on digits, {noise:.0%} of labels replaced, {epochs} epochs")
    ratios = np.geomspace(1.01, max(10.0, *(r for r, _ in points)), 60)
    series = [Series("Theorem 3", ratios.tolist(), [theorem_3(float(r)) for r in ratios]),
              Series("networks on digits", [r for r, _ in points], [a for _, a in points], "dots")]  # fmt: skip
    notes = ("first column: Theorem 3 at this ratio; the paper draws points and prints none",
             "published on MNIST and CIFAR; obtained on scikit-learn's digits")  # fmt: skip
    return Table("Yeom et al. (2020), Figure 2c: networks, advantage against overfitting", rows, notes,
                 Picture("yeom-2c", "test loss / training loss, root mean squares", "advantage", series,
                         logarithmic=True))  # fmt: skip
