"""Long, Bindschaedler, Gunter (2017): Tables 1 and 2, Figures 2 and 3, for networks, naive Bayes and regressions."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate import digest, engines
from privgate.attacks import BY_NAME, Signals
from privgate.data import TrainingData
from privgate.engines.base import Declined
from privgate.engines.softmax import LARGEST
from privgate.measure import rotation
from privgate.recipe import Recipe
from privgate.reproduce import datasets, networks, regressions
from privgate.reproduce.datasets import Data
from privgate.reproduce.memory import recalled
from privgate.reproduce.table import Row, Table
from privgate.retrain.fleet import Fleet
from privgate.statistics import leakage, membership
from privgate.subject import Subject

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
EPOCHS = {"Location": 60, "Adult": 100}
#: Table 2, on Purchase where Adult is not named: train, test, accuracy, precision, recall, F1, PDTP, correlation, p
PUBLISHED = {
    "NN": (1.0000, 0.6434, 0.8533, 0.8470, 0.9087, 0.8768, 3.4019, 0.7653, 1.85e-20),
    "NB": (0.8641, 0.7204, 0.5958, 0.6945, 0.4038, 0.5107, 0.9027, 0.9239, 1.16e-42),
    "LR": (1.0000, 0.6241, 0.7888, 0.7314, 0.9187, 0.8144, 2.8917, 0.8138, 7.78e-25),
    "NN Adult": (0.8555, 0.8566, 0.5340, 0.5311, 0.4402, 0.4356, 0.5847, 0.4588, 1.57e-6),
    "NB Adult": (0.8453, 0.8410, 0.5128, 0.5876, 0.1027, 0.1748, 0.0299, 0.5166, 3.76e-8),
    "LR Adult": (0.8711, 0.8536, 0.5134, 0.5130, 0.3818, 0.4378, 0.1460, -0.0008, 0.9343),
}
COLUMNS = ("training accuracy", "test accuracy", "attack accuracy", "attack precision", "attack recall",
           "attack F1", "average PDTP", "correlation with PDTP", "p-value")  # fmt: skip
#: Table 1: accuracy, precision, recall, F1, correlation, p-value
TABLE_1 = {
    "long_untargeted": (0.6680, 0.6386, 0.8500, 0.7294, 0.4864, 2.89e-7),
    "long_frequency": (0.6257, 0.5933, 0.8253, 0.7174, 0.5052, 8.29e-8),
    "long_distance": (0.8533, 0.8470, 0.9087, 0.8768, 0.7653, 1.85e-20),
}


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
    estimator: Any
    if kind == "NN":
        estimator = declared(settings_of(data))
    elif kind == "NB":
        values = data.codes.max(axis=0) + 1
        estimator = BernoulliNB() if data.binary else CategoricalNB(min_categories=values)
    else:
        # weak penalty: Weka's logistic model trees fit Purchase fully (published training accuracy 1.00), Adult not
        estimator = LogisticRegression(C=1.0 if data.name == "Adult" else 100.0, max_iter=10_000, tol=1e-8)
    return Subject.local(
        Recipe(estimator), TrainingData(X[rows], data.y[rows], candidates=(X[others], data.y[others])), name=kind
    )


def declared(settings: networks.Settings) -> Any:
    """Return the paper's network as the product's declarative recipe, which its engine trains in batches."""
    from privgate.torch_recipe import TorchTraining

    networks.torch()
    return TorchTraining(
        hidden=(settings.hidden,), activation="tanh", optimizer="adam", lr=settings.rate, epochs=settings.epochs,
        weight_decay=settings.decay,
        batch_size=settings.batch // 2,  # of the pool, half of which trains
    )  # fmt: skip


def settings_of(data: Data) -> networks.Settings:
    """Return the paper's network: 64 tanh units; 100 epochs for Adult, 60 elsewhere."""
    return networks.Settings(hidden=64, epochs=EPOCHS.get(data.name, 60))


def train(kind: str, data: Data, fleet: Fleet, rng: Generator, say: Say, *, models: int = MODELS) -> Trained:
    """Train the shared models and measure PDTP of the target records."""
    masks = halves(models, len(data.y), rng)
    targets = np.sort(rng.permutation(len(data.y))[:TARGETS])
    started = time.process_time()
    if kind == "NN":
        settings = settings_of(data)
        log_p = networks.train(data.X, data.y, masks, settings, n_classes=data.n_classes, seed=1, fleet=fleet)
    else:
        half = len(data.y) // 2
        subject = subject_of(kind, data, np.arange(half), np.arange(half, len(data.y)))
        log_p = engines.subsets(subject, masks, (None,) * models, fleet).log_p
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
        first = next(e for e in engines.ALL if not e.supports(subject))
        try:
            found, rest = first.leave_out(subject, units, seeds, fleet)
        except Declined:
            rest = units
        if checked or len(rest):
            found = engines.leave_out(subject, units, seeds, fleet)
        return leakage.largest_change(binned(found.log_with[0]), binned(found.log_without[0]))

    if kind != "NN":
        return made()
    here = Path(engines.__file__).parent
    code = digest.of_bytes(*(p.read_bytes() for p in (here / "perceptrons.py", here.parent / "torch_recipe.py")))
    return recalled(fleet, (code, asdict(settings_of(data)), data.X[rows], data.y[rows], units, seed), made)


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


def accuracies(made: Trained, name: str, rng: Generator) -> tuple[membership.Decisions, Float, float]:
    """Return (decisions over all models and records, accuracy a record, AUC) of one attack on rotated targets."""
    attack = BY_NAME[name]
    signals = Signals(made.log_p[0], made.data.y, made.log_p, made.masks, features=made.data.X)
    turns = 4 if name in ("long_untargeted", "shokri", "quantile") else 8
    scores = rotation.rotate(attack, signals, rng, turns=turns)
    live = ~np.isnan(scores).any(axis=1)
    fired = scores[live] >= rotation.threshold_of(attack, scores[live], made.masks[live])
    per_record = (fired == made.masks[live]).mean(axis=0)
    decisions = membership.Decisions.of(fired.ravel(), made.masks[live].ravel())
    return decisions, per_record, membership.auc(scores[live].ravel(), made.masks[live].ravel())


def table_1(made: Trained, rng: Generator) -> Table:
    """Return Table 1 and Figure 2."""
    average = np.nanmean(made.pdtp, axis=0)
    rows, per_record = list[Row](), {}
    for name in (*TABLE_1, "lira_online", "rmia", "yeom_threshold"):
        decisions, accuracy, area = accuracies(made, name, rng)
        per_record[name] = accuracy
        found = rotation.correlation(average, accuracy[made.targets])
        published: tuple[float | None, ...] = TABLE_1.get(name, (None,) * 6)
        obtained = (decisions.accuracy, decisions.precision, decisions.recall, decisions.f1, found["pearson"],
                    found["p_value"])  # fmt: skip
        words = ("accuracy", "precision", "recall", "F1", "correlation with PDTP", "p-value")
        rows += [Row(f"{name}: {w}", p, o) for w, p, o in zip(words, published, obtained, strict=True)]
        rows.append(Row(f"{name}: AUC", None, area))
    best = np.max([per_record[n][made.targets] for n in TABLE_1], axis=0)
    above = average > 1
    rows += [
        Row(
            "Figure 2: correlation of maximum accuracy with PDTP",
            0.8936,
            rotation.correlation(average, best)["pearson"],
        ),
        Row("Figure 2: share with PDTP > 1 and accuracy > 0.8", 0.8462, _share(best[above] > 0.8)),
        Row("Figure 2: share with PDTP > 1 and accuracy > 0.6", 1.0, _share(best[above] > 0.6)),
        Row("records with PDTP > 1, of the target records", None, float(above.mean())),
    ]
    notes = (
        f"published on Purchase (10 classes, 836 features); obtained on {made.data.name}",
        f"{POOL // 2} of {POOL} records, {len(made.masks)} shared models, targets rotate: point estimates",
        f"PDTP: {len(made.targets)} records, average of {PARTITIONS} partitions, binned to 0.01 as in the paper",
    )
    return Table(f"Long et al. (2017), Table 1 and Figure 2, network on {made.data.name}", rows, notes)


def _share(of: Bool) -> float | None:
    return float(of.mean()) if len(of) else None


def table_2(made: Trained, rng: Generator) -> Table:
    """Return one line of Table 2: the distance-based attack on one kind of model."""
    key = f"{made.kind} Adult" if made.data.name == "Adult" else made.kind
    right = made.log_p.argmax(axis=2) == made.data.y
    decisions, accuracy, _ = accuracies(made, "long_distance", rng)
    average = np.nanmean(made.pdtp, axis=0)
    found = rotation.correlation(average, accuracy[made.targets])
    obtained = (float(right[made.masks].mean()), float(right[~made.masks].mean()), decisions.accuracy,
                decisions.precision, decisions.recall, decisions.f1, float(average.mean()), found["pearson"],
                found["p_value"])  # fmt: skip
    rows = [Row(f"{made.kind}: {w}", p, o) for w, p, o in zip(COLUMNS, PUBLISHED[key], obtained, strict=True)]
    where = "Adult" if made.data.name == "Adult" else "Purchase"
    notes = (
        f"published on {where}, obtained on {made.data.name}; targets rotate: point estimates; PDTP binned to 0.01",
    )
    return Table(f"Long et al. (2017), Table 2, {made.kind} on {made.data.name}", rows, notes)


def figure_3(made: Trained, rng: Generator) -> Table:
    """Return Figure 3: correlation of accuracy with PDTP averaged over ever more partitions."""
    _, accuracy, _ = accuracies(made, "long_distance", rng)
    rows = []
    for count in (1, 2, 5, len(made.pdtp)):
        average = np.nanmean(made.pdtp[:count], axis=0)
        found = rotation.correlation(average, accuracy[made.targets])
        rows.append(Row(f"correlation, {count} measurements", None, found["pearson"]))
    notes = ("the paper draws a curve that rises and is flat from about 10 measurements on; it prints no numbers",)
    return Table(f"Long et al. (2017), Figure 3, {made.kind} on {made.data.name}", rows, notes)


def on(data: Data, fleet: Fleet, say: Say, *, kinds: tuple[str, ...] = ("NB", "LR", "NN")) -> Iterator[Table]:
    """Return every table and figure for one data set."""
    for kind in kinds:
        rng = np.random.default_rng([2017, ord(kind[0])])
        made = train(kind, data, fleet, rng, say)
        yield table_2(made, rng)
        yield figure_3(made, rng)
        if kind == "NN" and data.name != "Adult":  # the paper's Table 1 is about Purchase
            yield table_1(made, rng)


def run_location(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Reproduce Tables 1 and 2, Figures 2 and 3 on Location (stands where Purchase is not available)."""
    return on(datasets.location(folder).sample(POOL, np.random.default_rng(0)), fleet, say)


def run_adult(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Reproduce Table 2 on Adult."""
    return on(datasets.adult(folder).sample(POOL, np.random.default_rng(0)), fleet, say)


def run_purchase(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Reproduce Tables 1 and 2 on a purchase-like synthetic set (836 features, 10 classes by k-means)."""
    del folder
    data = datasets.purchase_like(np.random.default_rng(0), n=POOL, features=836, classes=10, spread=0.5)
    return on(data, fleet, say)
