"""Three ways to predict income, and what each gives away."""

from privgate.demo import adult
from privgate.subject.recipe import Recipe


def recipes() -> dict[str, tuple[str, Recipe]]:
    """Return name -> (what it shows, recipe)."""
    from sklearn.naive_bayes import CategoricalNB
    from sklearn.tree import DecisionTreeClassifier

    sizes = list(adult.SIZES)
    return {
        "income-smoothed": (
            "naive Bayes, smoothing 5: expected to pass",
            Recipe(CategoricalNB(alpha=5.0, min_categories=sizes), seed=7),
        ),
        "income-laplace": (
            "the same with Laplace smoothing (1): one rare value tells too much",
            Recipe(CategoricalNB(alpha=1.0, min_categories=sizes), seed=7),
        ),
        "income-tree": ("a fully grown decision tree: it remembers people", Recipe(DecisionTreeClassifier(), seed=7)),
    }
