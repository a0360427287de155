"""Long, Bindschaedler, Gunter (2017): Tables 1 and 2, Figures 2 and 3, for networks, naive Bayes and regressions."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.random import Generator
from scipy.stats import binom

from papers import datasets, rotated
from papers.candidate_set import PARTITIONS, POOL, Bool, Float, Say, Trained, train
from papers.datasets import Data
from papers.table import Row, Table, read_rates
from privgate.membership.attacks import BY_NAME, Signals
from privgate.statistics import roc
from privgate.training.fleet import Fleet

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


def accuracies(made: Trained, name: str, rng: Generator) -> tuple[roc.Decisions, Float, float]:
    """Return (decisions over all models and records, accuracy a record, AUC) of one attack on rotated targets."""
    attack = BY_NAME[name]
    signals = Signals(made.log_p[0], made.data.y, made.log_p, made.masks, features=made.data.X)
    turns = 4 if name in ("long_untargeted", "shokri", "quantile") else 8
    scores = rotated.rotate(attack, signals, rng, turns=turns)
    live = ~np.isnan(scores).any(axis=1)
    fired = scores[live] >= rotated.threshold_of(attack, scores[live], made.masks[live])
    per_record = (fired == made.masks[live]).mean(axis=0)
    decisions = roc.Decisions.from_flags(fired.ravel(), made.masks[live].ravel())
    return decisions, per_record, roc.auc(scores[live].ravel(), made.masks[live].ravel())


def table_1(made: Trained, rng: Generator) -> Table:
    """Return Table 1 and Figure 2."""
    average = np.nanmean(made.pdtp, axis=0)
    rows, per_record = list[Row](), {}
    for name in (*TABLE_1, "lira_online", "rmia", "yeom_threshold"):
        decisions, accuracy, area = accuracies(made, name, rng)
        per_record[name] = accuracy
        found = rotated.correlation(average, accuracy[made.targets])
        published: tuple[float | None, ...] = TABLE_1.get(name, (None,) * 6)
        obtained = (*read_rates(decisions), found["pearson"], found["p_value"])
        words = ("accuracy", "precision", "recall", "F1", "correlation with PDTP", "p-value")
        rows += [Row(f"{name}: {w}", p, o) for w, p, o in zip(words, published, obtained, strict=True)]
        rows.append(Row(f"{name}: AUC", None, area))
    best = np.max([per_record[n][made.targets] for n in TABLE_1], axis=0)
    above = average > 1
    rows += [
        Row(
            "Figure 2: correlation of maximum accuracy with PDTP",
            0.8936,
            rotated.correlation(average, best)["pearson"],
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
    found = rotated.correlation(average, accuracy[made.targets])
    obtained = (float(right[made.masks].mean()), float(right[~made.masks].mean()), *read_rates(decisions),
                float(average.mean()), found["pearson"], found["p_value"])  # fmt: skip
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
        found = rotated.correlation(average, accuracy[made.targets])
        rows.append(Row(f"correlation, {count} measurements", None, found["pearson"]))
    notes = ("the paper draws a curve that rises and is flat from about 10 measurements on; it prints no numbers",)
    return Table(f"Long et al. (2017), Figure 3, {made.kind} on {made.data.name}", rows, notes)


def sentences(trained: list[Trained], rng: Generator) -> Table:
    """Return what the abstract says of small and large DTP: 66.5 % at most below .5, over 90 % above 4."""
    pdtp, best = list[Float](), {name: list[Float]() for name in (*TABLE_1, "lira_online")}
    for made in trained:
        pdtp.append(np.nanmean(made.pdtp, axis=0))
        for name, shares in best.items():
            shares.append(accuracies(made, name, rng)[1][made.targets])
    values, each = np.concatenate(pdtp), {name: np.concatenate(shares) for name, shares in best.items()}
    small, large, paper = values < 0.5, values > 4, np.max([each[name] for name in TABLE_1], axis=0)
    rows = [
        Row("target records with PDTP below .5", None, float(small.sum())),
        *(Row(f"of them above 66.5 %: {name}", None, float((each[name][small] > 0.665).sum())) for name in each),
        Row(
            "largest accuracy below .5, the paper's attacks", 0.665, float(paper[small].max()) if small.any() else None
        ),
        Row("target records with PDTP above 4", None, float(large.sum())),
        Row("share of them above 90 %, the paper's attacks", None, _share(paper[large] > 0.9)),
    ]
    count = len(trained[0].masks)
    chance = float(binom.sf(np.floor(0.665 * count), count, 0.5))
    notes = (
        "the abstract: at most 66.5 % below .5, and above 4 almost always over 90 %; by PDTP of ten partitions here",
        f"accuracy a record over {count} rotated targets: a blind guess passes 66.5 % in {chance:.1%} of records",
    )
    return Table(f"Long et al. (2017), abstract, {trained[0].data.name}", rows, notes)


def on(data: Data, fleet: Fleet, say: Say, *, kinds: tuple[str, ...] = ("NB", "LR", "NN")) -> Iterator[Table]:
    """Return every table and figure for one data set."""
    trained = list[Trained]()
    for kind in kinds:
        rng = np.random.default_rng([2017, ord(kind[0])])
        made = train(kind, data, fleet, rng, say)
        trained.append(made)
        yield table_2(made, rng)
        yield figure_3(made, rng)
        if kind == "NN" and data.name != "Adult":  # the paper's Table 1 is about Purchase
            yield table_1(made, rng)
    yield sentences(trained, np.random.default_rng(2017))


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
