"""Shokri et al. (2017), Table I, Figures 4, 5, 7 and 10 to 13: classes, their size, gap, uncertainty, inversion."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from papers import datasets, networks
from papers.datasets import Data
from papers.networks import Settings
from papers.pictures import Picture, Series
from papers.shokri2017 import Answered, Bool, Float, Say, judged, split, subsets
from papers.table import Row, Table, read_rates
from privgate.statistics.roc import Decisions
from privgate.training.fleet import Fleet

PAPER = "Shokri et al. (2017)"
#: classes -> published precision of the attack on Purchase (Table II)
CLASSES = {2: 0.505, 10: 0.550, 20: 0.590, 50: 0.860, 100: 0.935}
#: training records of a network, and shadow models
EACH, SHADOWS = 2000, 8
NETWORK = Settings(hidden=64, epochs=60, batch=100)
#: training records on Location, for Figure 4
SIZES = (300, 600, 1200)
#: published 50th, 75th and 90th percentile of precision over classes (Figure 5)
PLATFORMS = {"Amazon (10, 1e-6)": (0.74, 0.79, 0.84), "Amazon (100, 1e-4)": (0.84, 0.88, 0.91),
             "Google": (0.94, 0.97, 1.0)}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Attacked:
    """One attacked network, and figures of its classes.

    Parameters
    ----------
    log_p : float64 array of shape (P, K)
    right, inside : bool arrays of shape (P,)
    decisions : Decisions
    precision, gap, share : float64 arrays of shape (K,)
        Of each class: precision, NaN where the attack names nobody; accuracy on members less that on others; share of
        the training set.
    """

    log_p: Float
    right: Bool
    inside: Bool
    decisions: Decisions
    precision: Float
    gap: Float
    share: Float


def attacked(data: Data, each: int, fleet: Fleet | None, rng: Generator) -> Attacked:
    """Train a network and shadow models on other records, and attack it."""
    own, out, rest = split(data, (each, each, 0), rng)
    both, inside = np.concatenate([own, out]), np.arange(2 * each) < each
    k, y = data.n_classes, data.y[both]
    log_p = networks.train(data.X[both], y, inside[None], NETWORK, n_classes=k, seed=5, fleet=fleet)[0]
    masks = subsets(SHADOWS, len(rest), min(each, len(rest) // 2), rng)
    shadow = networks.train(data.X[rest], data.y[rest], masks, NETWORK, n_classes=k, seed=50, fleet=fleet)
    fired = judged(Answered(log_p, y, inside), Answered(shadow, data.y[rest], masks), rng) > 0
    right = log_p.argmax(axis=1) == y

    def by_class(value: Bool, among: Bool) -> Float:
        total = np.bincount(y[among], minlength=k)
        return np.where(total > 0, np.bincount(y[among & value], minlength=k) / np.maximum(total, 1), np.nan)

    share = np.bincount(y[inside], minlength=k) / each
    return Attacked(log_p, right, inside, Decisions.from_flags(fired, inside), by_class(inside, fired),
                    by_class(right, inside) - by_class(right, ~inside), share)  # fmt: skip


def run(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Return Figures 4, 5, 7 and 10 to 13, and Table I's network."""
    location = datasets.location(folder)
    yield figure_4({n: attacked(location, n, fleet, np.random.default_rng(n)) for n in SIZES})
    found = dict[int, Attacked]()
    for k in CLASSES:
        rng = np.random.default_rng([10, k])
        data = datasets.purchase_like(rng, n=4 * EACH, features=600, classes=k, spread=0.95)
        found[k] = attacked(data, EACH, fleet, rng)
        say(f"{k} classes are done")
    yield figure_5(found[100])
    yield figure_10(found)
    yield figure_11(found, "gap", "accuracy on members less that on others", found[100].gap)
    yield figure_11(found, "share", "share of the training set", found[100].share)
    yield figure_12(found[100])
    yield figure_13()


def figure_4(found: dict[int, Attacked]) -> Table:
    """Return Figure 4: precision against the size of the training set."""
    printed = {"CIFAR-10": ((2500, 5000, 10_000, 15_000), (0.78, 0.74, 0.72, 0.71)),
               "CIFAR-100": ((4600, 10_520, 19_920, 29_540), (1.0, 1.0, 0.98, 0.97))}  # fmt: skip
    median = [float(np.nanmedian(a.precision)) for a in found.values()]
    rows = [Row(f"{n} records: median precision of 30 classes", None, m) for n, m in zip(found, median, strict=True)]
    rows += [Row(f"{name}, {n:,} records: median precision", v, None)
             for name, (sizes, values) in printed.items() for n, v in zip(sizes, values, strict=True)]  # fmt: skip
    series = [Series("obtained, Location", list(found), median)]
    series += [Series(f"published, {name}", list(xy[0]), list(xy[1]), "dots") for name, xy in printed.items()]
    return _table("4", "size of the training set, Location", rows, Picture(
        "shokri-4", "training records", "median precision", series, logarithmic=True))  # fmt: skip


def figure_5(one: Attacked) -> Table:
    """Return Figures 5 and 7 and Table I: how precision is spread over classes."""
    inside, right, levels = one.inside, one.right, (50, 75, 90)
    known = np.sort(one.precision[~np.isnan(one.precision)])
    rows = [Row("Table I, neural network: training accuracy", 0.83, float(right[inside].mean())),
            Row("Table I, neural network: test accuracy", 0.67, float(right[~inside].mean()))]  # fmt: skip
    rows += [Row(f"precision, {q}th percentile of classes", None, float(np.percentile(known, q))) for q in levels]
    rows += [Row(f"{name}: precision, {q}th percentile", v, None, "no such service to ask")
             for name, values in PLATFORMS.items() for q, v in zip(levels, values, strict=True)]  # fmt: skip
    series = [Series("obtained, network", known.tolist(), (np.arange(1, len(known) + 1) / len(known)).tolist())]
    series += [Series(f"published, {n}", list(v), [q / 100 for q in levels], "dots") for n, v in PLATFORMS.items()]
    return _table("5 and 7, Table I", "precision over 100 classes", rows, Picture(
        "shokri-5", "precision of a class", "share of classes", series))  # fmt: skip


def figure_10(found: dict[int, Attacked]) -> Table:
    """Return Figure 10: precision against the number of classes."""
    spread = {q: [float(np.nanpercentile(a.precision, q)) for a in found.values()] for q in (25, 50, 75)}
    rows = [Row(f"{k} classes: precision", CLASSES[k], read_rates(a.decisions).precision) for k, a in found.items()]
    rows += [Row(f"{k} classes: median precision of a class", None, m) for k, m in zip(found, spread[50], strict=True)]
    series = [Series(f"obtained, {q}th percentile", list(found), v) for q, v in spread.items()]
    series.append(Series("published, all records", list(CLASSES), list(CLASSES.values()), "dots"))
    return _table("10", "number of classes", rows, Picture(
        "shokri-10", "classes", "precision", series, logarithmic=True))  # fmt: skip


def figure_11(found: dict[int, Attacked], which: str, words: str, hundred: Float) -> Table:
    """Return one half of Figure 11: precision of each class against its gap or its share."""
    series, rows = list[Series](), list[Row]()
    for k in (10, 20, 50, 100):
        x, p = getattr(found[k], which), found[k].precision
        live = ~np.isnan(x) & ~np.isnan(p)
        series.append(Series(f"{k} classes", x[live].tolist(), p[live].tolist(), "dots"))
        rows.append(Row(f"{k} classes: correlation", None, float(np.corrcoef(x[live], p[live])[0, 1])))
    rows.append(Row(f"100 classes: mean, {words}", None, float(np.nanmean(hundred))))
    return _table("11", words, rows, Picture(f"shokri-11-{which}", words, "precision of the class", series))


def figure_12(one: Attacked) -> Table:
    """Return Figure 12: normalized entropy of answers, and accuracy, on members and on others."""
    p = np.exp(one.log_p)
    entropy = -(p * one.log_p).sum(axis=1) / np.log(p.shape[1])
    bins = np.linspace(0, 1, 41)
    rows, series = list[Row](), list[Series]()
    for name, who in (("members", one.inside), ("others", ~one.inside)):
        rows += [Row(f"{name}: mean uncertainty", None, float(entropy[who].mean())),
                 Row(f"{name}: accuracy", None, float(one.right[who].mean()))]  # fmt: skip
        part = np.histogram(entropy[who], bins)[0] / who.sum()
        series.append(Series(name, ((bins[1:] + bins[:-1]) / 2).tolist(), part.tolist(), "steps"))
    return _table("12", "uncertainty, 100 classes", rows, Picture(
        "shokri-12", "normalized entropy of the answer", "share of records", series))  # fmt: skip


def figure_13() -> Table:
    """Return Figure 13: images that model inversion makes of digits, by ascent from a grey image."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    X, y = digits.images / 16.0, digits.target
    t = networks.torch()
    with t.random.fork_rng():
        t.manual_seed(13)
        network = t.nn.Sequential(t.nn.Linear(64, 64), t.nn.Tanh(), t.nn.Linear(64, 10))
        data, labels = t.tensor(X.reshape(-1, 64), dtype=t.float32), t.tensor(y)
        _descend(t, network.parameters(), lambda: t.nn.functional.cross_entropy(network(data), labels), 300)
        image = t.full((10, 64), 0.5, requires_grad=True)
        _descend(t, [image], lambda: t.nn.functional.cross_entropy(network(image.clamp(0, 1)), t.arange(10)), 200)
        made = image.detach().clamp(0, 1).double().numpy()
    flat = X.reshape(-1, 64)
    average = np.stack([flat[y == c].mean(axis=0) for c in range(10)])
    to_average = [float(np.corrcoef(made[c], average[c])[0, 1]) for c in range(10)]
    nearest = [float(max(np.corrcoef(made[c], x)[0, 1] for x in flat[y == c])) for c in range(10)]
    between = np.corrcoef(flat)
    same = y[:, None] == y
    np.fill_diagonal(same, val=False)
    rows = [Row("correlation with the average of the class, mean of ten", None, float(np.mean(to_average))),
            Row("largest correlation with a record of the class, mean of ten", None, float(np.mean(nearest))),
            Row("the same between records of one class", None,
                float(np.where(same, between, -1).max(axis=1).mean()))]  # fmt: skip
    return _table("13", "model inversion, scikit-learn's digits", rows, Picture(
        "shokri-13", "", "", [Series(f"inverted {c}", [], made[c].tolist(), "image") for c in range(10)]))  # fmt: skip


def _descend(t: Any, parameters: Any, loss: Callable[[], Any], steps: int) -> None:
    optimizer = t.optim.Adam(parameters, lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def _table(number: str, what: str, rows: list[Row], picture: Picture) -> Table:
    notes = (
        "points of the paper's plot cannot be read from its text; published numbers are those that the text prints",
        f"obtained: {NETWORK.hidden} tanh units, {SHADOWS} shadow models, purchase-like synthetic data but where named",
    )
    return Table(f"{PAPER}, Figure {number}: {what}", rows, notes, picture)
