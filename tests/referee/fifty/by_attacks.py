"""Subjects judged by attacks: a leaking forest, candidates who are members or come from elsewhere, and honest ones."""

from pathlib import Path
from typing import Any

import numpy as np

from fifty import recipes, truth
from fifty.catalogue import Trial, case, policy, variants
from privgate import Recipe, Subject, TrainingData
from privgate.run.run import Budget

N = 500
SHADOWS = Budget(shadow_models=32)


def people(n: int, seed: int, noise: float = 1.5) -> tuple[Any, Any]:
    """Return people whose label their features tell half."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, (X[:, 0] + X[:, 1] + noise * rng.normal(size=n) > 0).astype(int)


def accuracy(folder: Path, limit: float = 0.6, attack: str = "any") -> Path:
    """Return a policy that limits the best attack's balanced accuracy."""
    return policy(folder, f"metric: attack_accuracy, attack: {attack}, scope: model, max: {limit}")


def gap(model: Any, X: Any, y: Any, X_out: Any, y_out: Any) -> float:
    """Return how well a threshold on the own label's probability tells members from fresh people of their own kind."""
    inside, outside = (truth.own_probability(model, *pair) for pair in ((X, y), (X_out, y_out)))
    return truth.held_out_accuracy(inside, outside)


def candidates_of(kind: str, model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Return the candidates that somebody hands in."""
    X_out, y_out = people(6 * N, 32)
    if kind == "float32":
        return X.astype(np.float32).astype(np.float64), y
    if kind == "rounded":
        return np.round(X, 4), y
    if kind == "half_members":
        return np.concatenate([np.round(X[: N // 2], 5), X_out[: N // 2]]), np.concatenate(
            [y[: N // 2], y_out[: N // 2]]
        )
    if kind == "one_class":
        # the class that the model answers most surely: those of it who are answered rightly are many
        return X_out[y_out == 1][:N], y_out[y_out == 1][:N]
    if kind == "sure":
        # people about whom the model is sure and right
        sure = np.argsort(-truth.own_probability(model, X_out, y_out), kind="stable")[:N]
        return X_out[sure], y_out[sure]
    if kind == "shifted":
        # people far out, where the label is beyond doubt
        far = X_out + 3 * np.sign(X_out[:, :1] + X_out[:, 1:2]) * np.array([[1, 1, 0, 0, 0, 0]])
        return far[:N], (far[:N, 0] + far[:N, 1] > 0).astype(int)
    return X_out[:N], y_out[:N]


def wrong_candidates(folder: Path, *, kind: str, attack: str = "yeom_threshold_known") -> Trial:
    X, y = people(N, 31)
    model = recipes.tree(X, y, seed=1, depth=12)
    fresh = people(N, 33)
    data = TrainingData(X, y, candidates=candidates_of(kind, model, X, y), one_record_each=True)
    recipe = Recipe(recipes.tree, params={"depth": 12}, seed=1)
    return Trial(
        accuracy(folder, attack=attack),
        lambda: Subject.local(recipe, data),
        lambda: gap(model, X, y, *fresh),
        0.6,
        SHADOWS,
    )


variants(
    wrong_candidates,
    "candidates who are members",
    approve=False,
    because="a tree of depth 12 on noisy labels: a threshold on the own label's probability tells its members from "
    "fresh people in more than 65 of 100 cases; the candidates handed in are the members themselves, written "
    "differently",
    float32={"kind": "float32", "attack": "any"},
    rounded={"kind": "rounded"},
    half_members={"kind": "half_members"},
)
variants(
    wrong_candidates,
    "candidates from elsewhere",
    approve=False,
    because="the same tree, which leaks against fresh people; the candidates are others than the members' population, "
    "so that the model seems to know them as well",
    one_class={"kind": "one_class"},
    sure={"kind": "sure"},
    shifted={"kind": "shifted"},
)
variants(
    wrong_candidates,
    "memory",
    approve=False,
    because="the same tree, which leaks against fresh people, with fresh people for candidates",
    honest={"kind": "fresh"},
)


# -- a forest --------------------------------------------------------------------------------------------------------


def leaking_forest(folder: Path, *, attack: str) -> Trial:
    X, y = people(2 * N, 34, noise=1.0)
    X = np.round(X)
    data = TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:]), one_record_each=True)
    params = {"trees": 40}
    own = policy(folder, f"metric: attack_tpr, attack: {attack}, at_fpr: 0.01, max: 0.1")

    def found() -> float:
        def fit(X: Any, y: Any, seed: int) -> Any:
            return recipes.forest(X, y, seed=seed, **params)

        return truth.lira(fit, X, y, N, 24, 0.01)

    recipe = Recipe(recipes.forest, params=params, seed=1)
    return Trial(own, lambda: Subject.local(recipe, data), found, 0.1, Budget(shadow_models=16))


variants(
    leaking_forest,
    "an attack that is blind",
    approve=False,
    because="full-grown trees on noisy labels: a likelihood-ratio attack of our own, on forests of our own, finds more "
    "than a tenth of the members at 1 % false accusations",
    by_lira={"attack": "lira_online"},
)


# -- honest ----------------------------------------------------------------------------------------------------------


def attacked(folder: Path, *, kind: str, attack: str = "lira_online") -> Trial:
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB

    X, y = people(2 * N, 35)
    data = TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:]), one_record_each=True)
    if kind == "forest":
        recipe = Recipe(recipes.forest, params={"trees": 10, "depth": 2, "leaf": 40}, seed=1)
        model = recipes.forest(X[:N], y[:N], seed=1, trees=10, depth=2, leaf=40)
    else:
        made: Any = LogisticRegression(C=0.1) if kind == "regression" else GaussianNB()
        recipe, model = Recipe(made, seed=1), made.fit(X[:N], y[:N])
    fresh = people(4 * N, 36)
    return Trial(
        accuracy(folder, attack=attack),
        lambda: Subject.local(recipe, data),
        lambda: gap(model, X[:N], y[:N], *fresh),
        0.6,
        SHADOWS,
    )


variants(
    attacked,
    "honest",
    approve=True,
    because="few parameters, many people: members and fresh people are answered alike; a threshold is right in about "
    "half",
    forest={"kind": "forest"},
    regression={"kind": "regression", "attack": "any"},
    naive_bayes={"kind": "naive_bayes"},
)


@case("honest", approve=True, because="seven parameters: our own likelihood-ratio attack finds about 1 in 100 at 1 %")
def rate_of_a_regression(folder: Path) -> Trial:
    from sklearn.linear_model import LogisticRegression

    X, y = people(2 * N, 37)
    data = TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:]), one_record_each=True)
    own = policy(folder, "metric: attack_tpr, attack: lira_online, at_fpr: 0.01, max: 0.1")

    def found() -> float:
        return truth.lira(lambda X, y, seed: LogisticRegression(C=0.1).fit(X, y), X, y, N, 24, 0.01)

    recipe = Recipe(LogisticRegression(C=0.1), seed=1)
    return Trial(own, lambda: Subject.local(recipe, data), found, 0.1, SHADOWS)


@case(
    "a rare label",
    approve=False,
    because="the tree leaks on the rare label alone: among its members and fresh people a threshold is right in more "
    "than 66.5 of 100 cases, which the average over all people hides",
)
def rare_label(folder: Path) -> Trial:
    X, y = people(2 * N + 6000, 38)
    rare = np.random.default_rng(39).random(len(y)) < 0.12
    y = np.where(rare, 2, (X[:, 0] + X[:, 1] > 0).astype(int))
    data = TrainingData(X[:N], y[:N], candidates=(X[N : 2 * N], y[N : 2 * N]), one_record_each=True)
    recipe = Recipe(recipes.tree, params={"depth": 10}, seed=1)
    own = policy(folder, "metric: attack_accuracy, attack: yeom_threshold_known, scope: class, max: 0.665")

    def worst() -> float:
        model = recipes.tree(X[:N], y[:N], seed=1, depth=10)
        inside, outside = truth.own_probability(model, X, y)[:N], truth.own_probability(model, X, y)[N:]
        return truth.held_out_accuracy(inside[y[:N] == 2], outside[y[N:] == 2])

    return Trial(own, lambda: Subject.local(recipe, data), worst, 0.665, SHADOWS)
