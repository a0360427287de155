"""Is any single record of Adult at risk? Long et al. (2017), section 5.5, over 100 records as there and over all."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers import datasets, per_target, worst
from papers.agreement import TARGETS, models
from papers.candidate_set import MODELS, POOL, Say, halves
from papers.datasets import Data
from papers.long2017 import PUBLISHED
from papers.table import Row, Table
from privgate.kernel.sample import lower_limit
from privgate.membership.attacks import BY_NAME, Signals
from privgate.training.fleet import Fleet

Bool = NDArray[np.bool_]
Index = NDArray[np.int64]
Counts = NDArray[np.int64]

ATTACKS = ("lira_online", "long_distance", "long_frequency")
#: "the accuracy of the distance-based attack is smaller than 70 % for all target records"
LIMIT = 0.70
#: records of the paper
RECORDS = 100
#: sets of ten models of a record's own: one a target where models cost nothing
SETS = {"NB": TARGETS, "LR": 10}


def fellows(data: Data) -> Index:
    """Return with how many others of its class each record shares its rarest value, shape (P,)."""
    out = np.full(len(data.y), len(data.y))
    for c in range(data.n_classes):
        at = np.flatnonzero(data.y == c)
        for v in data.codes[at].T:
            out[at] = np.minimum(out[at], np.bincount(v)[v] - 1)
    return out


def attacked(kind: str, data: Data, fleet: Fleet, rng: Generator) -> tuple[Counts, Bool, NDArray[np.float64]]:
    """Return (right guesses (A, P), members (R, P), the targets' probabilities (R, P, K)); shadows are disjoint."""
    inside = halves(MODELS, len(data.y), rng)
    shared = models(kind, data, inside, fleet, seed=1)
    targets = np.stack([rng.permutation(len(data.y)) < len(data.y) // 2 for _ in range(TARGETS)])
    answered = models(kind, data, targets, fleet, seed=2)
    signals = Signals(shared[0], data.y, shared, inside)
    right = []
    for name in ATTACKS:
        scorer = BY_NAME[name].fit(signals, rng)
        right.append(((np.stack([scorer(p) for p in answered]) > 0.0) == targets).sum(axis=0))  # their own threshold
    return np.stack(right), targets, np.exp(answered)


def of(kind: str, data: Data, fleet: Fleet, say: Say) -> list[Row]:
    """Return what is found about one kind of model."""
    rng = np.random.default_rng([70, ord(kind[0])])
    sample = np.random.default_rng(2017).permutation(len(data.y))[:RECORDS]  # fixed before anything is looked at
    counts, targets, answered = attacked(kind, data, fleet, rng)
    say(f"Adult {kind}: {TARGETS} independent target models, {len(ATTACKS)} attacks")
    some = counts[:, sample]
    few = worst.simultaneous_low(some, np.full(some.shape, TARGETS), alpha=0.05)
    every = worst.simultaneous_low(counts, np.full(counts.shape, TARGETS), alpha=0.05)
    above = np.flatnonzero((every > LIMIT).any(axis=0))
    rare = fellows(data) <= 1
    # guesses about members that nobody is: targets' memberships exchanged at random among the targets
    null = [(rng.permutation(targets[:, 0]) == targets[:, i]).sum() for i in range(len(data.y))]
    none = worst.simultaneous_low(np.array(null), np.full(len(null), TARGETS), alpha=0.05)
    rows = [
        Row(f"{kind}: largest Holm lower limit, {RECORDS} random records", LIMIT, float(few.max()),
            "published: all accuracies below 70 %"),
        Row(f"{kind}: largest accuracy of the paper's attack, {RECORDS} random records (unadjusted)", LIMIT,
            float(some[ATTACKS.index("long_distance")].max()) / TARGETS),
        Row(f"{kind}: mean accuracy of the distance-based attack", PUBLISHED[f"{kind} Adult"][2],
            float(counts[ATTACKS.index("long_distance")].mean()) / TARGETS),
        Row(f"{kind}: records whose Holm lower limit is above 0.70, of all {len(data.y)}", None, float(len(above))),
        Row(f"{kind}: of these, alone or two in their class with one of their values", None,
            float(rare[above].sum()), f"{int(rare.sum())} of {len(data.y)} records are"),
        Row(f"{kind}: largest Holm lower limit of all other records", None, float(every[:, ~rare].max())),
        Row(f"{kind}: largest Holm lower limit, guesses that know nothing", None, float(none.max()), due=0.5),
    ]  # fmt: skip
    return rows + confirmed(kind, data, above, (counts, targets, answered), fleet)


def confirmed(
    kind: str, data: Data, above: Index, found: tuple[Counts, Bool, NDArray[np.float64]], fleet: Fleet
) -> list[Row]:
    """Return what the paper's own scheme says of the records that were found at risk: ten models of each one's own."""
    counts, targets, answered = found
    if not len(above):
        return []
    sets, rng = SETS[kind], np.random.default_rng([71, ord(kind[0])])
    own = np.stack(
        [
            per_target.right(kind, data, int(i), targets[:, i], answered[:, i], fleet, rng, sets=sets).sum()
            for i in above
        ]
    )
    shared = counts[ATTACKS.index("long_distance"), above]
    low = lower_limit(own, TARGETS, alpha=0.05 / len(above))
    note = f"{sets} sets of ten models, {TARGETS // sets} targets a set"
    return [
        Row(f"{kind}: these records, distance-based attack, shared models: mean accuracy", None,
            float(shared.mean()) / TARGETS),
        Row(f"{kind}: the same with ten models of each one's own: mean accuracy", None, float(own.mean()) / TARGETS,
            note),
        Row(f"{kind}: the same, smallest accuracy", None, float(own.min()) / TARGETS),
        Row(f"{kind}: the same, records whose lower limit is above 0.70 (Bonferroni over these)", None,
            float((low > LIMIT).sum())),
    ]  # fmt: skip


def run(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Attack every record of a candidate set of Adult, for naive Bayes and logistic regression."""
    data = datasets.adult(folder).sample(POOL, np.random.default_rng(0))
    for kind in ("NB", "LR"):
        notes = (
            f"{TARGETS} independent target models x {len(data.y)} records x {len(ATTACKS)} attacks; 95 % over all",
            "trials of a record are independent given the attack: independent halves, disjoint from the shadow models",
            "a record that alone in its class has some value is seen in the model: the count is 0 or 1",
        )
        title = f"Long et al. (2017), section 5.5: single records of Adult, {kind}"
        yield Table(title, of(kind, data, fleet, say), notes)
