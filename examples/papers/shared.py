"""Shared shadow models against Long et al.'s scheme: one set of models for all records, or ten models for each."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers import agreement, datasets, networks
from papers.candidate_set import MODELS, POOL, halves, settings_of
from papers.datasets import Data
from papers.rotated import rotate
from papers.table import Row, Table
from privgate.membership.attacks import BY_NAME, Signals
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Index = NDArray[np.int64]
Say = Callable[[str], None]

#: the paper's 200 targets x 100 records x 10 models
TRAININGS = 200_000
#: times that cheap things are timed; the median counts
REPEATS = 5


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of both schemes.

    Parameters
    ----------
    alone : float
        Of one training and one answer.
    shared : float
        Of all shared models, every record attacked in every one of them.
    """

    alone: float
    shared: float

    @property
    def ratio(self) -> float:
        """Times that the shared models need less than the paper's 200,000 trainings."""
        return self.alone * TRAININGS / self.shared


def spent(alone: Callable[[], Any], shared: Callable[[], Any], *, repeats: int = REPEATS) -> Spent:
    """Return CPU seconds of one training of the paper's scheme and of all shared models, taken in turns."""
    seen: list[tuple[float, float]] = []
    for _ in range(repeats):
        times = [time.process_time()]
        for do in (alone, shared):
            do()
            times.append(time.process_time())
        seen.append((times[1] - times[0], times[2] - times[1]))
    each, together = np.median(seen, axis=0)
    return Spent(float(each), float(together))


def networks_cost(data: Data, *, models: int = MODELS, repeats: int = 1) -> Spent:
    """Return what networks cost: torch's own layers one by one, against one batch of all."""
    inside = halves(models, len(data.y), np.random.default_rng(5))

    def shared() -> None:
        log_p = networks.train(data.X, data.y, inside, settings_of(data), n_classes=data.n_classes, seed=1)
        scored(log_p, data, inside)

    rows = np.flatnonzero(inside[0])
    plain_network(data, rows[: min(50, len(rows))])  # what torch does once, importing above all, is nobody's cost
    return spent(lambda: plain_network(data, rows), shared, repeats=repeats)


def scored(log_p: Float, data: Data, masks: Bool) -> Float:
    """Attack every model by the likelihood ratio of the others and return scores."""
    return rotate(BY_NAME["lira_online"], Signals(log_p[0], data.y, log_p, masks), np.random.default_rng(0))


def table(kind: str, data: Data, seen: Spent, wanted: float, models: int = MODELS) -> Table:
    """Return one side-by-side table of costs; ``wanted`` is the ratio that is aimed at."""
    rows = [
        Row("CPU seconds of one training and one answer", None, seen.alone),
        Row(f"CPU seconds of {TRAININGS:,} trainings (extrapolated)", None, seen.alone * TRAININGS),
        Row(f"CPU seconds of {models} shared models, all records attacked in all of them", None, seen.shared),
        Row("times less CPU (due: aimed at)", None, seen.ratio, due=wanted),
    ]
    notes = (f"the paper answers for 100 records, the shared models for all {len(data.y):,}",)
    return Table(f"Cost of {kind} on {data.name}, {len(data.y):,} records x {data.X.shape[1]} features", rows, notes)


def run(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Measure what shared shadow models save: nothing is remembered here."""
    location = datasets.location(folder).sample(POOL, np.random.default_rng(0))
    del fleet
    yield table("network", location, networks_cost(location), 2000)
    say("networks timed")


def run_both_ways(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Compare both schemes: all trainings of the paper for naive Bayes, a set for 20 targets each for networks."""
    location = datasets.location(folder).sample(POOL, np.random.default_rng(0))
    made = datasets.purchase_like(np.random.default_rng(0), n=POOL, features=836, classes=10, spread=0.5)
    yield agreement.both_ways("NB", made, fleet, say).table()
    yield agreement.both_ways("NB", location, fleet, say).table()
    yield agreement.both_ways("NN", location, fleet, say, records=10, sets=10).table()


def plain_network(data: Data, rows: Index) -> Float:
    """Train one network as everybody does, with torch's own layers and optimizer; return its log-probabilities."""
    t = networks.torch()
    settings = settings_of(data)
    network = t.nn.Sequential(
        t.nn.Linear(data.X.shape[1], settings.hidden), t.nn.Tanh(), t.nn.Linear(settings.hidden, data.n_classes)
    )
    X, y = t.tensor(data.X[rows], dtype=t.float32), t.tensor(data.y[rows])
    optimizer = t.optim.Adam(network.parameters(), lr=settings.rate)
    for _ in range(settings.epochs):
        for batch in t.randperm(len(X)).split(settings.batch // 2):
            optimizer.zero_grad()
            t.nn.functional.cross_entropy(network(X[batch]), y[batch]).backward()
            optimizer.step()
    with t.no_grad():
        out = t.log_softmax(network(t.tensor(data.X, dtype=t.float32)), dim=1)
    return np.asarray(out.double().numpy(), dtype=np.float64)
