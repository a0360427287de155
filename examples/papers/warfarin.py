"""Yeom et al. (2020), Figures 2 and 5: advantage against overfitting, on warfarin dosing, by trees of all depths."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.datasets import Doses, warfarin
from papers.gaussian import theorem_3
from papers.pictures import Picture, Series
from papers.table import Row, Table
from privgate.membership.attacks.attack_base import Signals
from privgate.membership.numbers import BY_NAME
from privgate.membership.sensitive import ALL, Seen, normal
from privgate.statistics.roc import Decisions
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]
Say = Callable[[str], None]

#: random splits in halves, of which figures are means
SPLITS = 5
#: members who are replaced, one after another, for the stability of Definition 1
REPLACED = 100
SHAPE = (
    "The paper draws curves and prints no figure: advantage grows with sigma_D / sigma_S, Adversary 7 does better than "
    "Adversary 6, and better than Adversary 4 where trees are deep."
)
SIMULATED = "Definition 6: Adversary 4 on members, less a simulator"
DEPTHS = (2, 4, 6, 8, 12, 20)


def run(folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Reproduce the shapes of Figures 2 and 5: Adversaries 2, 4, 6 and 7 against sigma_D / sigma_S."""
    del fleet
    from sklearn.linear_model import Ridge
    from sklearn.tree import DecisionTreeRegressor

    data = warfarin(folder)
    models: dict[str, Callable[[], Any]] = {"ridge": lambda: Ridge(1.0)}
    models |= {f"tree of depth {d}": tree(DecisionTreeRegressor, d) for d in DEPTHS}
    seen = list[dict[str, float]]()
    for name, make in models.items():
        rng = np.random.default_rng(7)
        each: list[dict[str, float]] = []
        for _ in range(SPLITS):
            members = rng.permutation(len(data.y)) < len(data.y) // 2
            each.append(figures(make, data, members, rng))
        say(f"{name}: {SPLITS} splits")
        means = {what: float(np.mean([e[what] for e in each])) for what in each[0]}
        seen.append(means)
        rows = [Row(what, None, value) for what, value in means.items()]
        yield Table(
            f"Yeom et al. (2020), Figures 2 and 5, warfarin dosing, {name}",
            rows,
            (f"{len(data.y)} patients with dose and VKORC1 (the paper has 4,819), means of {SPLITS} halves.", SHAPE),
        )
    yield together(dict(zip(models, seen, strict=True)))


def together(models: dict[str, dict[str, float]]) -> Table:
    """Return Figures 2a, 2b and 5 as one: every model's advantages against its overfitting, beside Theorem 3."""
    seen = list(models.values())
    ratios = [s["sigma_D / sigma_S"] for s in seen]
    grid = np.linspace(1.0, max(ratios), 60)
    series = [Series("Theorem 3", grid.tolist(), [theorem_3(float(r)) for r in grid])]
    series += [Series(w, ratios, [s[w] for s in seen], "dots") for w in seen[0] if w.startswith("Adversary")]
    series.append(Series(SIMULATED, ratios, [s[SIMULATED] for s in seen], "dots"))
    densities = "Adversary 2, error_densities: advantage"
    rows = [Row(f"{name}: {densities}", None, s[densities], due=theorem_3(max(r, 1.0)))
            for (name, s), r in zip(models.items(), ratios, strict=True)]  # fmt: skip
    return Table("Yeom et al. (2020), Figures 2a, 2b and 5, warfarin dosing, all models", rows,
                 ("due: Theorem 3 at the model's own sigma_D / sigma_S",),
                 Picture("yeom-2-5", "sigma_D / sigma_S", "advantage", series))  # fmt: skip


def tree(kind: Any, depth: int) -> Callable[[], Any]:
    """Return what makes a tree of one depth."""
    return lambda: kind(max_depth=depth, random_state=0)


def figures(
    make: Callable[[], Any], data: Doses, members: NDArray[np.bool_], rng: np.random.Generator
) -> dict[str, float]:
    """Return errors and advantages of one model, trained on the members."""
    from sklearn.linear_model import LogisticRegression

    X, y = data.X, data.y
    model = make().fit(X[members], y[members])
    residual = y - model.predict(X)
    inside, outside = (max(float(np.sqrt(np.mean(residual[m] ** 2))), 1e-9) for m in (members, ~members))
    # the adversaries learn both errors from a model of their own, on the other half
    other = y - make().fit(X[~members], y[~members]).predict(X)
    signals = Signals(residual[:, None], np.zeros(len(y), dtype=np.int64), np.stack([other, residual])[..., None],
                      np.stack([~members, members]), training_loss=inside)  # fmt: skip
    found = {"sigma_D / sigma_S": outside / inside, "average generalization error": outside**2 - inside**2}
    found["ARO stability (Definition 1)"] = aro_stability(make, X, y, members, rng)
    for adversary in ("error_threshold", "error_densities"):
        decided = BY_NAME[adversary].scores(signals, rng) > 0
        found[f"Adversary 2, {adversary}: advantage"] = Decisions.from_flags(decided, members).advantage
    columns = np.arange(X.shape[1])[data.genes]
    truth = X[:, columns].argmax(axis=1)
    # Definition 6: a simulator who knows people, and no model; the best of two stands for the best there is
    rest = np.column_stack([np.delete(X, columns, axis=1), y])
    guesser = LogisticRegression(max_iter=1000).fit(rest[~members], truth[~members])
    simulated = max(float((guesser.predict(rest[members]) == truth[members]).mean()),
                    float((truth[members] == np.bincount(truth[~members]).argmax()).mean()))  # fmt: skip
    errors = []
    for k in range(len(columns)):
        asked = X.copy()
        asked[:, columns] = np.arange(len(columns)) == k
        errors.append(y - model.predict(asked))
    prior = np.bincount(truth, minlength=len(columns)) / len(truth)
    table = np.column_stack(errors)
    seen = Seen(normal(table, inside), prior, float(normal(np.array(inside), inside)), table)
    for one in ALL:
        right = one.guess(seen, rng) == truth
        found[f"{one.source.partition(';')[0].rpartition(', ')[2]}, VKORC1: advantage"] = float(
            right[members].mean() - right[~members].mean()
        )
        if "Adversary 4" in one.source:
            found[SIMULATED] = float(right[members].mean()) - simulated
    return found


def aro_stability(
    make: Callable[[], Any], X: Float, y: Float, members: NDArray[np.bool_], rng: np.random.Generator
) -> float:
    """Return the mean rise of squared loss at a member who is replaced by somebody outside, over ``REPLACED`` of them.

    Definition 1 of Yeom et al.; over all training sets it equals the average generalization error (Shalev-Shwartz).
    """
    inside, outside = np.flatnonzero(members), np.flatnonzero(~members)
    whole, rises = make().fit(X[inside], y[inside]), []
    for member, other in zip(rng.permutation(inside)[:REPLACED], rng.permutation(outside)[:REPLACED], strict=True):
        rows = np.where(inside == member, other, inside)
        model, own = make().fit(X[rows], y[rows]), X[member : member + 1]
        before, after = (float((y[member] - m.predict(own)[0]) ** 2) for m in (whole, model))
        rises.append(after - before)
    return float(np.mean(rises))
