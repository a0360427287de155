"""Long et al. (2017), Figures 6, 7 and 8, on Adult: removing risky records, and what chance alone changes."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from papers import datasets, networks
from papers.candidate_set import Bool, Float, Index, Say
from papers.pictures import Picture, Series
from papers.table import Row, Table
from privgate.training.fleet import Fleet

#: records that are removed, in the order of their first DTP
REMOVED = 60
#: what is added to counts
SMOOTHING = (1.0, 0.05)
COLUMNS = ["age", "marital_status", "race", "sex"]
#: networks of Figures 7 and 8, and records of each one
MODELS, EACH = 100, 1000


def run(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Return the three figures."""
    data = datasets.adult(folder)
    frame = pd.read_csv(folder / "adult.csv.gz")
    codes = np.column_stack([pd.factorize(frame[c], sort=True)[0] for c in COLUMNS])
    yield figure_6(codes, (frame["income"] == ">50K").to_numpy().astype(np.int64))
    say("Figure 6 is done")
    rng = np.random.default_rng(78)
    rows = rng.permutation(len(data.y))[: 2 * EACH]
    asked = np.array([next(r for r in rows if data.y[r] == c) for c in (0, 1)])
    settings = networks.Settings(hidden=64, epochs=60)
    same = np.ones((MODELS, EACH), dtype=bool)
    drawn = np.stack([rng.permutation(2 * EACH) < EACH for _ in range(MODELS)])
    for number, what, masks in ((7, "first weights", same), (8, "the records", drawn)):
        pool = rows[: masks.shape[1]]
        found = networks.train(data.X[pool], data.y[pool], masks, settings, n_classes=2, seed=number,
                               same_start=number == 8, queries=data.X[asked], fleet=fleet)  # fmt: skip
        yield variation(number, what, np.exp(found[:, :, 1]))
        say(f"Figure {number} is done")


def dtp(codes: Index, y: Index, alive: Bool, alpha: float = 1.0) -> tuple[Float, Index]:
    """Return DTP in nats of each distinct record of a naive Bayes of two classes, and each record's place among them.

    Counts are smoothed by ``alpha``, the prior is not, and the maximum is over all questions. Without a record only the
    score of its class moves, by what depends on which attributes agree; log-odds add up, and so do their extremes.
    """
    kept, place = np.unique(np.column_stack([codes, y])[alive], axis=0, return_inverse=True)
    sizes = codes.max(axis=0) + 1
    n = np.bincount(y[alive], minlength=2).astype(float)
    counts = [np.stack([np.bincount(codes[alive & (y == c), j], minlength=k) for c in (0, 1)]).astype(float)
              for j, k in enumerate(sizes)]  # fmt: skip
    odds = [np.log((c[1] + alpha) / (n[1] + alpha * k)) - np.log((c[0] + alpha) / (n[0] + alpha * k))
            for c, k in zip(counts, sizes, strict=True)]  # fmt: skip
    label = kept[:, -1]
    own, sign = n[label], 2 * label - 1
    worst = np.zeros(len(kept))
    for agrees in product((False, True), repeat=len(sizes)):
        change = np.log1p(-1 / own)
        ends = [np.full(len(kept), np.log(n[1] / n[0]))] * 2
        for j, (same, k) in enumerate(zip(agrees, sizes, strict=True)):
            value = kept[:, j]
            change = change + np.log((own + alpha * k) / (own - 1 + alpha * k))
            if same:
                had = counts[j][label, value]
                change = change + np.log((had - 1 + alpha) / (had + alpha))
                ends = [end + odds[j][value] for end in ends]
            else:
                others = np.where(np.arange(k) == value[:, None], np.nan, odds[j])
                ends = [ends[0] + np.nanmin(others, axis=1), ends[1] + np.nanmax(others, axis=1)]
        for end in ends:
            p = 1 / (1 + np.exp(-sign * end))  # of the record's class
            shrunk = -np.log1p(p * np.expm1(change))
            worst = np.maximum(worst, np.maximum(np.abs(change + shrunk), np.abs(shrunk)))
    return worst, place.ravel()


def removal(codes: Index, y: Index, alpha: float) -> list[float]:
    """Return the largest DTP while the records of largest first DTP are removed one at a time."""
    alive = np.ones(len(y), dtype=bool)
    each, place = dtp(codes, y, alive, alpha)
    largest = [float(each.max())]
    for row in np.argsort(-each[place], kind="stable")[:REMOVED]:
        alive[row] = False
        largest.append(float(dtp(codes, y, alive, alpha)[0].max()))
    return largest


def figure_6(codes: Index, y: Index) -> Table:
    """Return Figure 6, for two amounts of smoothing."""
    rows, series = list[Row](), list[Series]()
    for alpha in SMOOTHING:
        largest = removal(codes, y, alpha)
        for count, due in enumerate((3.09, 0.65, 3.0)):
            note = 'published: "around 3"' if count == 2 else ""
            rows.append(Row(f"smoothed by {alpha:g}, {count} removed: largest DTP", due, largest[count], note))
        rises = int((np.diff(largest) > 1e-9).sum())
        rows += [Row(f"smoothed by {alpha:g}, {REMOVED} removed: largest DTP", None, largest[-1]),
                 Row(f"smoothed by {alpha:g}: removals that raise it, of {REMOVED}", None, rises)]  # fmt: skip
        series.append(Series(f"Adult, smoothed by {alpha:g}", list(range(len(largest))), largest))
    series.append(Series("published, ACS 2013", [0, 1, 2], [3.09, 0.65, 3.0], "dots"))
    notes = (
        f"published on 1.6 million records of ACS 2013, obtained on {len(y)} of Adult: age, marital status, race, sex",
        "the paper does not say how its counts are smoothed",
    )
    return Table("Long et al. (2017), Figure 6: removing risky records, naive Bayes on Adult", rows, notes,
                 Picture("long-6", "records removed", "largest DTP, nats", series))  # fmt: skip


def variation(number: int, what: str, p: Float) -> Table:
    """Return Figure 7 or 8: how far one answer varies over networks."""
    bins = np.linspace(0, 1, 41)
    who = ("a person with a low salary", "a person with a high salary")
    rows, series = [], []
    for k, name in enumerate(who):
        rows += [Row(f"{name}: mean of Pr[> 50K]", None, float(p[:, k].mean())),
                 Row(f"{name}: standard deviation", None, float(p[:, k].std(ddof=1)))]  # fmt: skip
        series.append(Series(name, ((bins[1:] + bins[:-1]) / 2).tolist(),
                             np.histogram(p[:, k], bins)[0].tolist(), "steps"))  # fmt: skip
    notes = (
        "the paper draws histograms and prints no numbers",
        f"{len(p)} networks of 64 tanh units on {EACH} records; the paper's have 10,000 records",
        "records come in one order for all networks",
    )
    return Table(
        f"Long et al. (2017), Figure {number}: predictions vary with {what}", rows, notes,
        Picture(f"long-{number}", "predicted probability of > 50K", "networks", series),
    )  # fmt: skip
