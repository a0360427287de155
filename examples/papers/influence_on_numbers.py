"""Which regressors ``regression-1`` approves, on scikit-learn's diabetes and on warfarin dosing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from papers.datasets import warfarin
from papers.table import Row, Table
from privgate.check.gate import evaluate
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

POLICY = "regression-1"
#: patients who must share a category for a linear model to say something about all of them
COMMON = 20
NOTE = (
    "Residual deviations, of which .5 are allowed. Once the rule is broken for certain nobody else is trained without: "
    "trees' and neighbours' figures are of the people tried, in a unit that the residual deviation cannot exceed. "
    "A category that two patients have moves ridge's answer about them."
)


def models() -> dict[str, Any]:
    """Return name -> estimator."""
    from sklearn.linear_model import LinearRegression, Ridge
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.tree import DecisionTreeRegressor

    return {
        "ridge": Ridge(1.0),
        "least squares": LinearRegression(),
        "whole tree": DecisionTreeRegressor(random_state=0),
        "one neighbour": KNeighborsRegressor(1),
    }


def run(folder: Path, fleet: Fleet, say: Callable[[str], None]) -> Iterator[Table]:
    """Judge each model by ``regression-1``: the largest influence of one person, in residual deviations."""
    from sklearn.datasets import load_diabetes

    doses = warfarin(folder)
    rare = np.count_nonzero(doses.X, axis=0) < COMMON
    usual = ~(doses.X[:, rare] != 0).any(axis=1)
    data = {
        "diabetes": load_diabetes(return_X_y=True),
        "warfarin dosing": (doses.X, doses.y),
        f"warfarin dosing, patients whose categories {COMMON} or more have": (doses.X[usual][:, ~rare], doses.y[usual]),
    }
    for title, (X, y) in data.items():
        rows = []
        for name, estimator in models().items():
            if name == "least squares" and np.linalg.matrix_rank(X - X.mean(axis=0)) < X.shape[1]:
                continue  # one-hot columns beside an intercept: no one solution
            value, became = judged(estimator, X, y, fleet)
            rows.append(Row(f"{name}: largest influence", None, value, became))
            say(f"{title}, {name}: {became}")
        yield Table(f"Policy {POLICY} on {title}", rows, (f"{len(y)} people. {NOTE}",))


def judged(estimator: Any, X: Any, y: Any, fleet: Fleet) -> tuple[float, str]:
    """Return the largest influence found, and what became of the model."""
    verdict = evaluate(
        POLICY, Subject.local(Recipe(estimator, seed=0), TrainingData(X, y, one_record_each=True)), fleet=fleet
    )
    (found,) = (f for f in verdict.findings if not f.rule.startswith("precondition:"))
    message = "" if verdict.approved else next(f.message for f in verdict.findings if not f.outcome.releases)
    why = message.partition(";")[0]
    return float(found.value), "approved" if verdict.approved else f"{found.outcome}: {why}"
