"""Shokri et al. (2017): Table II, and where shadow data come from (Figures 8 and 9)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers import datasets, networks
from papers.datasets import Data
from papers.networks import Settings
from papers.table import Row, Table, read_rates
from privgate.membership.attacks import shokri
from privgate.statistics import roc
from privgate.statistics.roc import Decisions
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Index = NDArray[np.int64]
Say = Callable[[str], None]
Model = Callable[[Float], Float]

#: hidden tanh units of the paper's network (section VI.B)
NETWORK = Settings(hidden=128, epochs=60, batch=100, rate=0.001)


@dataclass(frozen=True, eq=False)
class Answered:
    """Answers of one model, or of N shadow models, about records whose membership is known.

    Parameters
    ----------
    log_p : float64 array of shape (P, K) or (N, P, K)
        As released.
    y : int64 array of shape (P,)
    inside : bool array of shape (P,) or (N, P)
    """

    log_p: Float
    y: Index
    inside: Bool


def attack(target: Answered, shadow: Answered, rng: Generator) -> tuple[Decisions, float]:
    """Return decisions and AUC of the shadow-trained attack, one attack model a class.

    ``shadow`` is about the adversary's own records; records of a class that he has no data of are called non-members.
    """
    scores = judged(target, shadow, rng)
    return Decisions.from_flags(scores > 0, target.inside), roc.auc(scores, target.inside)


def judged(target: Answered, shadow: Answered, rng: Generator) -> Float:
    """Return scores of the attack of ``attack``; above 0 it says member."""
    learned = shokri.learn(shadow.log_p, shadow.inside, shadow.y, rng)
    scores = np.full(len(target.y), -1e9)
    known = np.isin(target.y, list(learned))
    scores[known] = shokri.judge(learned, target.log_p[known], target.y[known])
    return scores


def split(data: Data, sizes: tuple[int, ...], rng: Generator) -> list[Index]:
    """Return disjoint random sets of records of these sizes; the last one takes the rest where it is 0."""
    order = rng.permutation(len(data.y))
    ends = np.cumsum(sizes)
    parts = np.split(order, ends)
    return parts[:-1] if sizes[-1] else [*parts[:-2], np.concatenate(parts[-2:])]


def subsets(count: int, size: int, each: int, rng: Generator) -> Bool:
    """Return ``count`` random subsets of ``each`` of ``size`` records; shadow data sets may overlap."""
    return np.stack([rng.permutation(size) < each for _ in range(count)])


def experiment(
    data: Data, fleet: Fleet | None, *, each: int, shadows: int, settings: Settings, rng: Generator
) -> tuple[Row, ...]:
    """Attack one network with shadow models trained on other people's data, and return its figures."""
    own, out, rest = split(data, (each, each, 0), rng)
    both = np.concatenate([own, out])
    k = data.n_classes
    members = np.arange(2 * each) < each
    target = networks.train(data.X[both], data.y[both], members[None], settings, n_classes=k, seed=5, fleet=fleet)[0]
    size = min(each, len(rest) // 2)
    inside = subsets(shadows, len(rest), size, rng)
    shadow = networks.train(data.X[rest], data.y[rest], inside, settings, n_classes=k, seed=50, at_once=20, fleet=fleet)
    decisions, area = attack(Answered(target, data.y[both], members), Answered(shadow, data.y[rest], inside), rng)
    right = target.argmax(axis=1) == data.y[both]
    loss = -target[np.arange(2 * each), data.y[both]]
    one_query = Decisions.from_flags(loss <= loss[members].mean(), members)
    return (
        Row("training accuracy", None, float(right[members].mean())),
        Row("test accuracy", None, float(right[~members].mean())),
        Row("attack precision", None, read_rates(decisions).precision),
        Row("attack recall", None, decisions.recall),
        Row("attack accuracy", None, read_rates(decisions).accuracy),
        Row("attack AUC", None, area),
        Row(
            "one query with the training loss (Yeom et al., Table 1): precision", None, read_rates(one_query).precision
        ),
        Row("one query with the training loss (Yeom et al., Table 1): recall", None, one_query.recall),
    )


def run_table_2(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Reproduce two lines of Table II: Location (1,200 records, 60 shadow models) and Adult (10,000, 20)."""
    published = {
        "Location": (1.000, 0.673, 0.678, 0.98, None, None, None, None),
        "Adult": (0.848, 0.842, 0.503, None, None, None, None, None),
    }
    plans = (
        (datasets.location(folder), 1200, 60, NETWORK),
        (datasets.adult(folder), 10_000, 20, Settings(hidden=5, epochs=20, batch=500, rate=0.003)),
    )
    for data, each, shadows, settings in plans:
        rows = experiment(data, fleet, each=each, shadows=shadows, settings=settings, rng=np.random.default_rng(2))
        said = [Row(r.what, p, r.obtained) for r, p in zip(rows, published[data.name], strict=True)]
        notes = (
            f"obtained: {settings.hidden} tanh units, {each} records, {shadows} shadow models on other records",
            "published: a model trained by a machine-learning service",
        )
        say(f"{data.name}: done")
        yield Table(f"Shokri et al. (2017), Table II, {data.name}", said, notes)


# -- where shadow data come from ---------------------------------------------------------------------------------------


def noisy(X: Float, share: float, rng: Generator) -> Float:
    """Return binary records with ``share`` of each one's features flipped (section V.C, noisy real data)."""
    return np.asarray(np.where(rng.random(X.shape) < share, 1 - X, X))


def marginal(X: Float, count: int, rng: Generator) -> Float:
    """Return binary records whose features are drawn from their own marginals, independently (statistics-based)."""
    return np.asarray(rng.random((count, X.shape[1])) < X.mean(axis=0), dtype=np.float64)


def synthesize(
    model: Model,
    label: Index,
    features: int,
    rng: Generator,
    *,
    rounds: int = 1500,
    largest: int = 128,
    smallest: int = 4,
    rejected: int = 10,
    confidence: float = 0.2,
) -> tuple[Float, Bool]:
    """Return binary records made by Algorithm 1 with queries to the target only, all records at once.

    Parameters
    ----------
    model : callable
        Released probabilities of shape (n, K) for records of shape (n, d).
    label : int64 array of shape (n,)
        Class wanted for each record.
    features : int
    rng : Generator
    rounds, largest, smallest, rejected, confidence
        iter_max, k_max, k_min, rej_max and conf_min of the algorithm.

    Returns
    -------
    float64 array of shape (n, features), bool array of shape (n,)
        The records, and which of them were accepted; the others are the algorithm's failures.
    """  # fmt: skip
    n = len(label)
    rows = np.arange(n)
    best = proposal = (rng.random((n, features)) < 0.5).astype(np.float64)
    reached, failures, width = np.zeros(n), np.zeros(n, dtype=int), np.full(n, largest)
    done, made = np.zeros(n, dtype=bool), np.zeros((n, features))
    for _ in range(rounds):
        live = np.flatnonzero(~done)
        if not len(live):
            break
        p = model(proposal[live])
        own = p[np.arange(len(live)), label[live]]
        better = own >= reached[live]
        sure = better & (own > confidence) & (p.argmax(axis=1) == label[live]) & (rng.random(len(live)) < own)
        made[live[sure]], done[live[sure]] = proposal[live[sure]], True
        up, down = live[better], live[~better]
        best = best.copy()
        best[up], reached[up], failures[up] = proposal[up], own[better], 0
        failures[down] += 1
        worn = down[failures[down] > rejected]
        width[worn], failures[worn] = np.maximum(smallest, (width[worn] + 1) // 2), 0
        # flip k features of the best record so far
        place = np.argsort(np.argsort(rng.random((n, features)), axis=1), axis=1)
        proposal = np.where(place < width[:, None], 1 - best, best)
    return made[rows], done


def run_sources(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Reproduce Figures 8 and 9 on Location: real, noisy, marginal and synthesized shadow data."""
    data, rng = datasets.location(folder), np.random.default_rng(8)
    own, out, rest = split(data, (1200, 1200, 0), rng)
    both, members, k = np.concatenate([own, out]), np.arange(2400) < 1200, data.n_classes

    model = networks.fitted(data.X[both], data.y[both], members, NETWORK, n_classes=k, seed=5)
    target = np.log(model(data.X[both]))
    sources: dict[str, tuple[Float, Index, float | None, float | None]] = {
        "real data": (data.X[rest], data.y[rest], 0.678, 0.98),
        "noisy data, 10 %": (noisy(data.X[rest], 0.1, rng), data.y[rest], 0.666, 0.99),
        "noisy data, 20 %": (noisy(data.X[rest], 0.2, rng), data.y[rest], 0.613, 1.00),
    }
    drawn = marginal(data.X[rest], len(rest), rng)
    sources["marginals"] = (drawn, model(drawn).argmax(axis=1), 0.795, 0.991)
    wanted = np.arange(len(rest)) % k
    synthetic, found = synthesize(model, wanted, data.X.shape[1], rng)
    say(f"Algorithm 1 made {int(found.sum())} of {len(found)} records")
    if found.sum() > 200:
        sources["synthesis by queries (Algorithm 1)"] = (synthetic[found], wanted[found], 0.896, 0.526)
    rows = []
    for name, (X, y, precision, recall) in sources.items():
        inside = subsets(20, len(y), min(1200, len(y) // 2), rng)
        shadow = networks.train(X, y, inside, NETWORK, n_classes=k, seed=70, at_once=20, fleet=fleet)
        decisions, area = attack(Answered(target, data.y[both], members), Answered(shadow, y, inside), rng)
        rows += [
            Row(f"{name}: precision", precision, read_rates(decisions).precision),
            Row(f"{name}: recall", recall, decisions.recall),
            Row(f"{name}: AUC", None, area),
        ]
        say(f"shadow data: {name}")
    notes = (
        "published: real and noisy data on Location (Figure 8), marginals and synthesis on Purchase (Figure 9)",
        "obtained on Location for all, 20 shadow models each; marginal records are labelled by the target",
    )
    yield Table("Shokri et al. (2017), Figures 8 and 9: where shadow data come from", rows, notes)
