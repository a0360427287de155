"""Do shared shadow models and models of each record's own find the same accuracy a record? On the same targets."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers import networks, per_target, worst
from papers.candidate_set import MODELS, Say, halves, settings_of, subject_of
from papers.datasets import Data
from papers.table import Row, Table
from privgate.membership.attacks import BY_NAME, Signals
from privgate.run import refit
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Index = NDArray[np.int64]

#: target models (section 5.4)
TARGETS = 200
#: shared models where they cost next to nothing
MANY = 256
#: five shared models a target, each with and without the record
PAIRED = f"five of {MODELS} shared models a target, with and without the record"


@dataclass(frozen=True, eq=False)
class Compared:
    """Accuracies a record by two schemes on the same target models.

    Parameters
    ----------
    one, other : float64 arrays of shape (M,)
        Accuracies.
    apart : float64 array of shape (M,)
        Half width of the 95 % interval of their difference as if the two were separate experiments.
    p : float64 array of shape (M,)
        Two-sided p-values of "both are right equally often", on the same targets.
    """

    one: Float
    other: Float
    apart: Float
    p: Float

    @property
    def difference(self) -> Float:
        """First less second accuracy."""
        return np.asarray(self.one - self.other)

    @property
    def outside(self) -> Bool:
        """Records whose 95 % interval of the difference excludes 0."""
        return np.asarray(np.abs(self.difference) > self.apart + 1e-12)

    @property
    def rejected(self) -> Bool:
        """Records for which equality is rejected on the same targets, by Holm over all records, at 5 %."""
        return worst.holm(self.p, alpha=0.05)

    @property
    def too_many(self) -> float:
        """Probability that so many intervals exclude 0 if each does so with probability 5 %, independently."""
        from scipy.stats import binom

        return float(binom.sf(int(self.outside.sum()) - 1, len(self.one), 0.05))


def compare(one: Bool, other: Bool, sets: int) -> Compared:
    """Compare right guesses (R, M) of two schemes; targets r with equal r modulo ``sets`` were attacked alike.

    With a set of models for each target, trials are independent: binomial variances, and McNemar's exact test. With
    fewer sets, a set's targets are one cluster: t-tests and t-intervals over the means of the sets.
    """
    from scipy.stats import binomtest, t, ttest_1samp

    count = len(one)
    if sets == count:
        parts = one.astype(np.float64), other.astype(np.float64)
    else:
        turn = np.arange(count) % sets
        left, right = (np.stack([v[turn == s].mean(axis=0) for s in range(sets)]) for v in (one, other))
        parts = left, right
    width = t.ppf(0.975, sets - 1) * np.sqrt(sum(v.var(axis=0, ddof=1) for v in parts) / sets)
    p = np.ones(one.shape[1])
    for j in range(one.shape[1]):
        if sets == count:
            first, second = int((one[:, j] & ~other[:, j]).sum()), int((other[:, j] & ~one[:, j]).sum())
            p[j] = binomtest(first, first + second).pvalue if first + second else 1.0
        elif np.ptp(gap := parts[0][:, j] - parts[1][:, j]) > 0:
            p[j] = ttest_1samp(gap, 0.0).pvalue
        else:  # all sets differ alike: nothing varies, and a t-test has no scale
            p[j] = 1.0 if gap[0] == 0 else 0.5 ** (sets - 1)
    return Compared(one.mean(axis=0), other.mean(axis=0), np.asarray(width), p)


def drawn(p: Float, inside: Bool, members: Bool, target_p: Float, rng: Generator) -> Bool:
    """Return right guesses (R,) about one record, five shared models on either side drawn anew for every target.

    Parameters
    ----------
    p : float64 array of shape (N, K)
        Shared models' probabilities for the record.
    inside : bool array of shape (N,)
    members : bool array of shape (R,)
    target_p : float64 array of shape (R, K)
    rng : Generator
    """
    sides = [np.flatnonzero(side) for side in (inside, ~inside)]
    chosen = [s[rng.random((len(members), len(s))).argsort(axis=1)[:, : per_target.PAIRS]] for s in sides]
    return np.asarray((per_target.distance(target_p, p[chosen[0]], p[chosen[1]]) > 0) == members)


def both_versions(data: Data, record: int, inside: Bool) -> tuple[Float, Float]:
    """Return probabilities for a record of models on subsets with it and of the same without it, shapes (N, K).

    The record is added to or taken from every subset of the candidate set: a pair differs by it alone, as in the paper.
    Naive Bayes only, which learns and forgets a record by counting.
    """
    with_it, without = inside.copy(), inside.copy()
    with_it[:, record], without[:, record] = True, False
    return np.exp(per_target.counted(data, record, with_it)), np.exp(per_target.counted(data, record, without))


def drawn_in_pairs(pairs: tuple[Float, Float], members: Bool, target_p: Float, rng: Generator) -> Bool:
    """Return right guesses (R,) about one record, five pairs of ``both_versions`` drawn anew for every target."""
    chosen = rng.random((len(members), len(pairs[0]))).argsort(axis=1)[:, : per_target.PAIRS]
    return np.asarray((per_target.distance(target_p, pairs[0][chosen], pairs[1][chosen]) > 0) == members)


@dataclass(frozen=True, eq=False)
class BothWays:
    """One kind of model, attacked by the distance-based attack with shared models and with models of its own.

    Parameters
    ----------
    kind : {"NB", "LR", "NN"}
    data : Data
    records : int64 array of shape (M,)
    own : bool array of shape (R, M)
        Right guesses with ten models of the record's own.
    shared : mapping name -> bool array of shape (R, M)
        Right guesses with shared models: ten of them drawn anew for every target, or all at once, as the product does.
    sets : int
        Sets of ten models of each record's own.
    """

    kind: str
    data: Data
    records: Index
    own: Bool
    shared: dict[str, Bool]
    sets: int

    def table(self) -> Table:
        """Return how far the schemes agree."""
        rows = []
        for words, guesses in self.shared.items():
            c = compare(guesses, self.own, self.sets)
            spread = 1.96 * float(c.difference.std(ddof=1)) / len(c.one) ** 0.5
            rows += [
                Row(f"{words}: mean accuracy", None, float(c.one.mean()),
                    f"difference {c.difference.mean():+.4f} +- {spread:.4f}", float(c.other.mean())),
                Row(f"{words}: share of records whose 95 % interval of the difference excludes 0", None,
                    float(c.outside.mean()), f"so many or more by chance: p = {c.too_many:.2g}", 0.05),
                Row(f"{words}: share with p < 0.05 on the same targets", None,
                    float((c.p < 0.05).mean()), f"{int(c.rejected.sum())} by Holm over {len(c.p)} records", 0.05),
                Row(f"{words}: correlation of the accuracies", None, _correlation(c)),
                Row(f"{words}: largest difference", None, float(np.abs(c.difference).max())),
            ]  # fmt: skip
        each = "one a target, as in the paper" if self.sets == TARGETS else f"{TARGETS // self.sets} targets each"
        notes = (
            f"{self.kind} on {self.data.name}, distance-based attack, {TARGETS} target models",
            f"{len(self.records)} random records; due: the paper's scheme as trained here, or what chance gives",
            f"{self.sets} sets of ten models of each record's own: {each}",
            "pairs of the paper differ by the record alone; shared models where it is added to and taken from each",
            "lira_online: the strongest attack on shared models, beside the paper's attack with models of its own",
        )
        return Table(f"Both schemes on the same target models, {self.kind} on {self.data.name}", rows, notes)


def _correlation(c: Compared) -> float | None:
    if np.ptp(c.one) == 0 or np.ptp(c.other) == 0:
        return None
    return float(np.corrcoef(c.one, c.other)[0, 1])


def models(kind: str, data: Data, masks: Bool, fleet: Fleet, *, seed: int) -> Float:
    """Return log-probabilities (N, P, K) of models on subsets of the candidate set."""
    if kind == "NN":
        settings = settings_of(data)
        return networks.train(data.X, data.y, masks, settings, n_classes=data.n_classes, seed=seed, fleet=fleet)
    half = len(data.y) // 2
    subject = subject_of(kind, data, np.arange(half), np.arange(half, len(data.y)))
    return refit.train_on_subsets(subject, masks, (None,) * len(masks), fleet).log_p


def both_ways(kind: str, data: Data, fleet: Fleet, say: Say, *, records: int = 100, sets: int = TARGETS) -> BothWays:
    """Attack random records both ways, on the same target models."""
    rng = np.random.default_rng([66, ord(kind[-1])])
    many = MODELS if kind == "NN" else MANY
    inside = halves(many, len(data.y), rng)
    pool = models(kind, data, inside, fleet, seed=31)
    targets = np.stack([rng.permutation(len(data.y)) < len(data.y) // 2 for _ in range(TARGETS)])
    answered = models(kind, data, targets, fleet, seed=5_000_001)
    chosen = np.sort(rng.permutation(len(data.y))[:records])  # drawn before anything is looked at
    signals = Signals(pool[0], data.y, pool[:MODELS], inside[:MODELS])
    every = {}
    for name in ("long_distance", "lira_online"):
        scorer = BY_NAME[name].fit(signals, rng)
        every[name] = ((np.stack([scorer(p) for p in answered]) > 0) == targets)[:, chosen]
    own = np.empty_like(every["long_distance"])
    few = {f"ten of {n} shared models a target": np.empty_like(own) for n in sorted({MODELS, many})}
    paired = np.empty_like(own)
    # pairs take draws of their own: those above stay what they were
    other_rng = np.random.default_rng([67, ord(kind[-1])])
    for j, i in enumerate(chosen):
        q, members = np.exp(answered[:, i]), targets[:, i]
        for n, guesses in zip(sorted({MODELS, many}), few.values(), strict=True):
            guesses[:, j] = drawn(np.exp(pool[:n, i]), inside[:n, i], members, q, rng)
        if kind == "NB":
            paired[:, j] = drawn_in_pairs(both_versions(data, int(i), inside[:MODELS]), members, q, other_rng)
        own[:, j] = per_target.right(kind, data, int(i), members, q, fleet, rng, sets=sets)
        if j % 10 == 9:
            say(f"{kind} on {data.name}: {j + 1} of {len(chosen)} records attacked both ways")
    all_of_them = {f"all {MODELS} shared models at once, {name}": guesses for name, guesses in every.items()}
    in_pairs = {PAIRED: paired} if kind == "NB" else {}
    return BothWays(kind, data, chosen, own, {**in_pairs, **few, **all_of_them}, sets)
