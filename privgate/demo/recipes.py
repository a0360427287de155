"""Three ways to predict income, and what each gives away."""

from dataclasses import dataclass

from privgate.demo import adult
from privgate.subject.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Shown:
    """One model of the demonstration: what it shows, how it trains, which decision is due, and by which policy."""

    what: str
    recipe: Recipe
    approved: bool = False
    policy: str = "release-1"


def recipes() -> dict[str, Shown]:
    """Return name -> model, in the order in which they are shown."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.naive_bayes import CategoricalNB
    from sklearn.neighbors import KNeighborsClassifier

    sizes = list(adult.SIZES)
    gentle = HistGradientBoostingClassifier(
        max_depth=2, l2_regularization=50.0, learning_rate=0.4, max_iter=8, min_samples_leaf=60
    )
    return {
        "income-smoothed": Shown(
            "naive Bayes, smoothing 20: expected to be approved",
            Recipe(CategoricalNB(alpha=20.0, min_categories=sizes), seed=7),
            approved=True,
        ),
        "income-neighbours": Shown(
            "50 nearest neighbours: its file is its training data", Recipe(KNeighborsClassifier(50), seed=7)
        ),
        "income-boosted": Shown(
            "gradient boosting, depth 2, strong regularization: expected to be approved",
            Recipe(gentle, seed=7),
            approved=True,
        ),
    }
