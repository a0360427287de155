"""Models on halves of one candidate set, as Long et al. (2017) train them, and PDTP of its target records."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers import networks, regressions
from papers.datasets import Data
from papers.memory import recalled
from privgate import digest
from privgate.run import refit
from privgate.statistics import leakage
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.theorems.catalogue import find_closed_form
from privgate.theorems.closed_form import RefitRequest
from privgate.theorems.newton import LARGEST
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Index = NDArray[np.int64]
Say = Callable[[str], None]

#: records of the candidate set, half of which train (section 5.1)
POOL = 2000
#: shared models: complementary halves are the paper's D1 and D2
MODELS = 64
#: target records, and partitions over which their PDTP is averaged (section 5.4)
TARGETS, PARTITIONS = 100, 10
#: target records of networks, each of which is trained again without every one of them
OF_NETWORKS = 10
EPOCHS = {"Location": 60, "Adult": 100}


@dataclass(frozen=True, eq=False)
class Trained:
    """Shared models of one kind on one candidate set.

    Parameters
    ----------
    kind : {"NN", "NB", "LR"}
    data : Data
        The candidate set, ``POOL`` records.
    masks : bool array of shape (N, P)
    log_p : float64 array of shape (N, P, K)
    pdtp : float64 array of shape (PARTITIONS, TARGETS)
        Of the target records in the member of each pair of models that was trained on them; nats.
    targets : int64 array of shape (TARGETS,)
    seconds : float
        CPU time of the shared models.
    """

    kind: str
    data: Data
    masks: Bool
    log_p: Float
    pdtp: Float
    targets: Index
    seconds: float


def halves(count: int, size: int, rng: Generator) -> Bool:
    """Return complementary pairs of random halves, shape (count, size)."""
    one = [rng.permutation(size) < size // 2 for _ in range(count // 2)]
    return np.stack([side for half in one for side in (half, ~half)])


def subject_of(kind: str, data: Data, rows: Index, others: Index) -> Subject:
    """Return a local subject trained on ``rows``, with ``others`` as candidates."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import BernoulliNB, CategoricalNB

    # numbers, not whole numbers, where features are 0 and 1: integer matrix products are slow
    X: Any = data.X if kind != "NB" or data.binary else data.codes
    candidates = X[others], data.y[others]
    if kind == "NN":
        recipe = Recipe(fit, params=asdict(settings_of(data)), seed=0, predict=ask)
        return Subject.local(
            recipe, TrainingData(X[rows], data.y[rows], candidates=candidates, one_record_each=True), name=kind
        )
    estimator: Any
    if kind == "NB":
        values = data.codes.max(axis=0) + 1
        estimator = BernoulliNB() if data.binary else CategoricalNB(min_categories=values)
    else:
        # weak penalty: Weka's logistic model trees fit Purchase fully (published training accuracy 1.00), Adult not
        # a solver that stops by its gradient is answered without retraining; the largest models never are
        solver = "lbfgs" if too_large(data, rows) else "newton-cg"
        C = 1.0 if data.name == "Adult" else 100.0
        estimator = LogisticRegression(C=C, max_iter=10_000, tol=1e-8, solver=solver)
    return Subject.local(
        Recipe(estimator), TrainingData(X[rows], data.y[rows], candidates=candidates, one_record_each=True), name=kind
    )


def fit(X: Float, y: Index, *, seed: int, **settings: Any) -> Any:
    """Train the paper's network, alone as it is trained beside others."""
    codes = np.unique(y, return_inverse=True)[1]
    own, members = networks.Settings(**settings), np.ones(len(y), dtype=bool)
    return networks.fitted(X, codes, members, own, n_classes=int(codes.max()) + 1, seed=seed)


def ask(model: Any, X: Float) -> Float:
    """Return the network's probabilities."""
    return np.asarray(model(X))


def settings_of(data: Data) -> networks.Settings:
    """Return the paper's network: 64 tanh units; 100 epochs for Adult, 60 elsewhere."""
    return networks.Settings(hidden=64, epochs=EPOCHS.get(data.name, 60))


def train(kind: str, data: Data, fleet: Fleet, rng: Generator, say: Say, *, models: int = MODELS) -> Trained:
    """Train the shared models and measure PDTP of the target records."""
    masks = halves(models, len(data.y), rng)
    targets = np.sort(rng.permutation(len(data.y))[: OF_NETWORKS if kind == "NN" else TARGETS])
    started = time.process_time()
    if kind == "NN":
        settings = settings_of(data)
        log_p = networks.train(data.X, data.y, masks, settings, n_classes=data.n_classes, seed=1, fleet=fleet)
    else:
        half = len(data.y) // 2
        subject = subject_of(kind, data, np.arange(half), np.arange(half, len(data.y)))
        log_p = refit.train_on_subsets(subject, masks, (None,) * models, fleet).log_p
    seconds = time.process_time() - started
    say(f"{data.name} {kind}: {models} shared models in {seconds:.1f} s of this process's CPU")
    pdtp = np.full((PARTITIONS, len(targets)), np.nan)
    for j in range(min(PARTITIONS, models // 2)):
        for side in (2 * j, 2 * j + 1):
            rows = np.flatnonzero(masks[side])
            own = np.isin(targets, rows)
            units = np.searchsorted(rows, targets[own])
            # the engine is checked against refits on the first partition
            pdtp[j, own] = measured_pdtp(kind, data, rows, units, fleet, seed=100 + side, checked=j == 0)
        say(f"{data.name} {kind}: PDTP of {len(targets)} records, partition {j + 1} of {PARTITIONS}")
    return Trained(kind, data, masks, log_p, pdtp, targets, seconds)


def measured_pdtp(
    kind: str, data: Data, rows: Index, units: Index, fleet: Fleet, *, seed: int, checked: bool = True
) -> Float:
    """Return PDTP of the records ``rows[units]`` in the model trained on ``rows``, nats; ``checked`` by refits."""
    others = np.setdiff1d(np.arange(len(data.y)), rows)[:30]
    subject = subject_of(kind, data, rows, others)
    if kind == "LR" and too_large(data, rows):
        return batched_pdtp(data.X[rows], data.y[rows], subject.recipe.estimator.C, units, fleet)
    seeds = (seed if kind == "NN" else None,)

    def made() -> Float:
        asked, engine = RefitRequest(subject, units, seeds, fleet), find_closed_form(subject)[0]
        computed = "none" if engine is None else refit.compute(engine, asked)
        if isinstance(computed, str) or len(computed.rest):
            found = refit.leave_out(asked)
        else:
            found = computed.answers
            some = refit.leave_out(replace(asked, units=units[:59]))
            whole = refit.train_on_all(subject, seeds, fleet)[0]
            if checked and refit.compare(computed, some, whole).outcome != "passed":
                found = refit.leave_out(asked)
        return leakage.largest_change(binned(found.log_with[0]), binned(found.log_without[0]))

    if kind != "NN":
        return made()
    return recalled(fleet, (subject.recipe.digest, data.X[rows], data.y[rows], units, seed), made)


def too_large(data: Data, rows: Index) -> bool:
    """Return whether a regression has more parameters than the certified engine takes, and no class of one record."""
    parameters = (data.X.shape[1] + 1) * data.n_classes
    return data.n_classes > 2 and parameters > LARGEST and np.bincount(data.y[rows]).min() > 1


def batched_pdtp(X: Float, y: Index, C: float, units: Index, fleet: Fleet) -> Float:
    """Return PDTP of regressions too large for the certified engine, nats; remembered."""
    code = digest.of_bytes(Path(regressions.__file__).read_bytes())

    def made() -> Float:
        fits = regressions.Regressions(X, y, int(y.max()) + 1, C)
        start = fits.full()
        answers = [fits.log_probabilities(W, units) for W in (start, fits.without(start, units))]
        return leakage.largest_change(*(binned(a) for a in answers))

    return recalled(fleet, (code, X, y, C, units), made)


def binned(log_p: Float) -> Float:
    """Return log-probabilities of the centres of bins of width 0.01, as the paper's models answer (section 5.2)."""
    return np.asarray(np.log(np.minimum(np.floor(np.exp(log_p) * 100 + 1e-9), 99) / 100 + 0.005), dtype=np.float64)
