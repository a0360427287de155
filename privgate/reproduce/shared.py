"""Shared shadow models against Long et al.'s scheme: one set of models for all records, or ten models for each."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate import engines
from privgate.attacks import BY_NAME, Signals
from privgate.reproduce import datasets, networks
from privgate.reproduce.datasets import Data
from privgate.reproduce.long2017 import MODELS, POOL, halves, settings_of, subject_of
from privgate.reproduce.table import Row, Table
from privgate.retrain.fleet import Fleet
from privgate.statistics import intervals

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Index = NDArray[np.int64]
Say = Callable[[str], None]

#: the paper's 200 targets x 100 records x 10 models
TRAININGS = 200_000
#: records that are attacked both ways, pairs of models a record, and target models
RECORDS, PAIRS, TARGETS = 6, 5, 200


def distance(q: Float, with_it: Float, without: Float) -> float:
    """Return KL(q, mean without) - KL(q, mean with), nats; arrays of shape (K,), (M, K), (M, K) of probabilities."""
    least = 1e-30
    a, b = np.maximum(with_it.mean(axis=0), least), np.maximum(without.mean(axis=0), least)
    return float((q * (np.log(a) - np.log(b))).sum())


def per_target(data: Data, record: int, targets: Bool, target_p: Float, rng: Generator) -> int:
    """Return how many targets are attacked rightly when ``PAIRS`` pairs of models are trained for this record anew.

    Parameters
    ----------
    data : Data
    record : int
    targets : bool array of shape (R, P)
    target_p : float64 array of shape (R, K)
        The targets' probabilities for the record.
    rng : Generator
    """
    from sklearn.naive_bayes import BernoulliNB

    others = np.setdiff1d(np.arange(len(data.y)), [record])
    right = 0
    for inside, q in zip(targets[:, record], target_p, strict=True):
        answers = np.empty((2, PAIRS, data.n_classes))
        for j in range(PAIRS):
            rows = rng.permutation(others)[: len(data.y) // 2 - 1]
            for side, train in enumerate((np.append(rows, record), rows)):
                model = BernoulliNB().fit(data.X[train], data.y[train])
                answers[side, j] = 0.0
                answers[side, j, model.classes_] = model.predict_proba(data.X[record : record + 1])[0]
        right += (distance(q, *answers) > 0) == inside
    return right


def both_ways(data: Data, fleet: Fleet, say: Say) -> Table:
    """Return accuracies a record of the distance-based attack by either scheme, on the same target models."""
    rng = np.random.default_rng(66)
    half = len(data.y) // 2
    subject = subject_of("NB", data, np.arange(half), np.arange(half, len(data.y)))
    shadows = engines.subsets(subject, halves(MODELS, len(data.y), rng), (None,) * MODELS, fleet)
    masks = np.stack([rng.permutation(len(data.y)) < half for _ in range(TARGETS)])
    log_p = engines.subsets(subject, masks, (None,) * TARGETS, fleet).log_p
    scorer = BY_NAME["long_distance"].fit(Signals(shadows.log_p[0], data.y, shadows.log_p, shadows.masks), rng)
    shared = ((np.stack([scorer(p) for p in log_p]) > 0) == masks).sum(axis=0)
    # records over the whole range of accuracies, not those where the schemes agree
    order = np.argsort(shared, kind="stable")
    chosen = order[np.linspace(0, len(order) - 1, RECORDS).round().astype(int)]
    rows, agree = [], 0
    for i in chosen:
        apart = per_target(data, int(i), masks, np.exp(log_p[:, i]), rng)
        low, high = intervals.clopper_pearson([shared[i], apart], TARGETS, alpha=0.05)
        meets = bool(max(low) <= min(high))
        agree += meets
        rows.append(
            Row(f"a record: accuracy with models of its own, {2 * PAIRS} a target (first), and shared (second)",
                apart / TARGETS, shared[i] / TARGETS, "intervals meet" if meets else "intervals do not meet")
        )  # fmt: skip
        say(f"record {i}: {apart / TARGETS:.3f} apart, {shared[i] / TARGETS:.3f} shared")
    rows.append(Row("records whose 95 % intervals meet", None, agree / RECORDS))
    notes = (
        f"naive Bayes on {data.name}, {TARGETS} target models, distance-based attack; first column: the paper's scheme",
        f"records spread over the whole range of shared accuracies; {MODELS} shared models see each record in half",
    )
    return Table("Both schemes on the same target models", rows, notes)


def cost(kind: str, data: Data, naive: Callable[[], Any], quick: Callable[[], Any], *, repeats: int = 5) -> Table:
    """Return CPU of the paper's scheme, extrapolated from single trainings, and CPU of shared models, measured."""
    started = time.process_time()
    for _ in range(repeats):
        naive()
    each = (time.process_time() - started) / repeats
    started = time.process_time()
    quick()
    shared = time.process_time() - started
    rows = [
        Row("CPU seconds of one training", None, each),
        Row(f"CPU seconds of {TRAININGS:,} trainings (extrapolated)", None, each * TRAININGS),
        Row("CPU seconds of the shared models, all records scored", None, shared),
        Row("times less CPU", None, each * TRAININGS / shared),
    ]
    notes = (f"{kind} on {data.name}; the paper answers for 100 records, the shared models for all {len(data.y)}",)
    return Table(f"Cost of {kind}", rows, notes)


def scored(log_p: Float, data: Data, masks: Bool) -> Float:
    """Attack every model by the likelihood ratio of the others and return scores."""
    from privgate.measure.rotation import rotate

    return rotate(BY_NAME["lira_online"], Signals(log_p[0], data.y, log_p, masks), np.random.default_rng(0))


def run(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Measure what shared shadow models save, and whether they agree with the per-target scheme."""
    from sklearn.naive_bayes import BernoulliNB

    location = datasets.location(folder).sample(POOL, np.random.default_rng(0))
    rng = np.random.default_rng(5)
    masks = halves(MODELS, POOL, rng)

    def one_network() -> None:
        plain_network(location, np.flatnonzero(masks[0]))

    def all_networks() -> None:
        settings, k = settings_of(location), location.n_classes
        log_p = networks.train(location.X, location.y, masks, settings, n_classes=k, seed=1)
        scored(log_p, location, masks)

    yield cost("network", location, one_network, all_networks, repeats=2)
    say("networks timed")
    for data in (location, datasets.purchase_like(rng, n=10_000, features=600, classes=10)):
        half = len(data.y) // 2
        inside = halves(MODELS, len(data.y), rng)
        subject = subject_of("NB", data, np.arange(half), np.arange(half, len(data.y)))
        rows = np.flatnonzero(inside[0])

        def one_bayes(data: Data = data, rows: Index = rows) -> None:
            BernoulliNB().fit(data.X[rows], data.y[rows]).predict_proba(data.X[:1])

        def all_bayes(data: Data = data, subject: Any = subject, inside: Bool = inside) -> None:
            scored(engines.subsets(subject, inside, (None,) * MODELS, fleet).log_p, data, inside)

        yield cost("naive Bayes", data, one_bayes, all_bayes)
        say(f"naive Bayes timed on {data.name}")
    yield both_ways(location, fleet, say)


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
