"""Subjects that a theorem speaks about: naive Bayes, logistic regression, tables, neighbours."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB

from fifty import truth
from fifty.catalogue import Trial, case, policy, variants
from privgate import Domain, Recipe, Subject, TrainingData
from privgate.models import ContingencyTable, SmoothedNeighbors


def trial(
    estimator: Any,
    data: TrainingData,
    questions: Any,
    *,
    by: Any = "dtp-1",
    limit: float = 1.0,
    only: Any = None,
) -> Trial:
    """Return the trial of an estimator whose truth is the worst change at the questions and at own records."""

    def worst() -> float:
        fit = truth.trainer(Recipe(estimator, seed=1).estimator)
        return float(truth.leave_one_out(fit, data.X, data.y, questions, people=data.units, only=only).max())

    return Trial(by, lambda: Subject.local(Recipe(estimator, seed=1), data), worst, limit)


# -- the library's own rounding ----------------------------------------------------------------------------------------

#: a moment in Unix seconds, with a fraction: a column of it is constant, and its mean rounds
MOMENT = 1718452800.1


def timestamp(folder: Path, *, n: int, offset: float = MOMENT, groups: bool = False, frame: bool = False) -> Trial:
    rng = np.random.default_rng(n)
    y = rng.integers(0, 2, n)
    X = np.column_stack(
        [np.clip(0.5 + 0.1 * y + 0.15 * rng.normal(size=(n,)), 0, 1), rng.random(n), np.full(n, offset)]
    )
    box = ((0.0, 1.0), (0.0, 1.0), (offset - 0.5, offset + 0.5))
    people = np.arange(n) // 2 if groups else None
    records: Any = X
    if frame:
        import pandas as pd

        records = pd.DataFrame(X, columns=["age", "income", "asked_at"])
    data = TrainingData(records, y, groups=people, one_record_each=not groups, domain=Domain(box=box))
    questions: Any = truth.corners(box)
    if frame:
        import pandas as pd

        questions = pd.DataFrame(questions, columns=["age", "income", "asked_at"])
    return trial(GaussianNB(), data, questions, only=range(30))


variants(
    timestamp,
    "rounding of the library",
    approve=False,
    because="class means of a constant column at 1.7e9 err by the sum's rounding, which the smoothed variance "
    "magnifies; at a corner half a second away a refit without one of 30 people answers thousands of nats apart",
    n200={"n": 200},
    n263_two_records_a_person={"n": 263, "groups": True},
    n903_frame={"n": 903, "frame": True},
)


def flags(n: int, width: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return (rng.random((n, width)) < 0.3 + 0.4 * y[:, None]).astype(int), y


def constant_flags(folder: Path, *, alpha: float, n: int) -> Trial:
    X, y = flags(n, 2, 1)
    X = np.column_stack([X, np.ones((n, 3), dtype=int)])
    data = TrainingData(X, y, domain=Domain(categories=(2,) * 5), one_record_each=True)
    return trial(BernoulliNB(alpha=alpha), data, truth.enumerated((2,) * 5), only=range(60))


variants(
    constant_flags,
    "rounding of the library",
    approve=False,
    because="log(1 - exp(log p)) of a flag that everybody has loses all digits of alpha / n: at a question without the "
    "flag a refit answers more than 1 nat apart for all of 60 people",
    alpha1e12={"alpha": 1e-12, "n": 2000},
)


@case(
    "rounding of the library",
    approve=False,
    because="(all + alpha) - count is 0 or a rounding error where only one class has a word, and its logarithm "
    "anything",
)
def complement_tiny_alpha(folder: Path) -> Trial:
    X, y = flags(400, 4, 2)
    X[:, 2] = y
    data = TrainingData(X, y, domain=Domain(box=((0.0, 2.0),) * 4), one_record_each=True)
    return trial(ComplementNB(alpha=1e-14), data, truth.enumerated((3,) * 4), only=range(20))


# -- solvers that stop early -------------------------------------------------------------------------------------------


def regression_data(n: int, d: int, seed: int, K: int = 2) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    score = X @ rng.normal(size=(d, K)) * 1.5 + rng.gumbel(size=(n, K))
    return X, score.argmax(axis=1), ((-1.0, 1.0),) * d


def regression(
    folder: Path,
    *,
    solver: str,
    tol: float,
    C: float,
    seed: int,
    q: float | None = None,
    share: float = 0.998,
    K: int = 2,
) -> Trial:
    """Return a regression whose policy allows ``share`` of its worst real change (or of a quantile): refits decide."""
    X, y, box = regression_data(60, 3, seed, K)
    estimator = LogisticRegression(C=C, tol=tol, solver=solver, max_iter=10_000, random_state=0)
    data = TrainingData(X, y, domain=Domain(box=box), one_record_each=True)
    each = truth.leave_one_out(truth.trainer(estimator), X, y, truth.grid(box, 3))
    found = float(each.max() if q is None else np.quantile(each, q, method="inverted_cdf"))
    limit = float(np.round(share * found, 6))
    rule = "metric: dtp, max: " + str(limit) + ("" if q is None else f", aggregate: quantile, q: {q}")
    own = policy(folder, rule)
    return Trial(own, lambda: Subject.local(Recipe(estimator, seed=0), data), lambda: found, limit)


variants(
    regression,
    "a solver that stops early",
    approve=False,
    because="a change at a corner that real refits show is above the limit: where a solver stops varies from refit to "
    "refit by more than its distance on all records",
    sag_1e3={"solver": "sag", "tol": 1e-3, "C": 100.0, "seed": 5},
    saga_1e3={"solver": "saga", "tol": 1e-3, "C": 100.0, "seed": 13},
    lbfgs_1e2_median={"solver": "lbfgs", "tol": 1e-2, "C": 1.0, "seed": 11, "q": 0.5},
    lbfgs_1e3_median={"solver": "lbfgs", "tol": 1e-3, "C": 100.0, "seed": 4, "q": 0.5},
    newton_cg_1e3_median={"solver": "newton-cg", "tol": 1e-3, "C": 100.0, "seed": 8, "q": 0.5},
    liblinear_1e3_quartile={"solver": "liblinear", "tol": 1e-3, "C": 100.0, "seed": 6, "q": 0.25},
)
variants(
    regression,
    "honest",
    approve=True,
    because="the largest change of real refits at corners and grid, where a linear score changes most, is a tenth "
    "below the limit, and the solver reaches its minimum",
    lbfgs_tight={"solver": "lbfgs", "tol": 1e-10, "C": 0.1, "seed": 1, "share": 1.1},
    newton_cholesky_tight={"solver": "newton-cholesky", "tol": 1e-10, "C": 1.0, "seed": 2, "share": 1.1},
    three_classes_tight={"solver": "newton-cholesky", "tol": 1e-10, "C": 0.1, "seed": 3, "share": 1.15, "K": 3},
)


# -- memory order ------------------------------------------------------------------------------------------------------


@case(
    "memory order",
    approve=None,
    because="distances of a Fortran-ordered table are summed in another order once a record is gone, so that a tie of "
    "many records turns; refits of the class as it ships say whether they still differ by more than ln(1 + 1 / .6)",
)
def neighbours_in_fortran_order(folder: Path) -> Trial:
    X, y = fortran()
    data = TrainingData(X, y, domain=Domain(box=((0.0, 1.0),) * X.shape[1]), one_record_each=True)
    questions = np.concatenate([X, np.full((1, X.shape[1]), 0.5)])
    return trial(SmoothedNeighbors(n_neighbors=3, alpha=0.6), data, questions)


def fortran(n: int = 50, d: int = 10, seed: int = 1) -> tuple[Any, Any]:
    """Return records that are equally far from the middle up to rounding: permutations of one set of coordinates."""
    rng = np.random.default_rng(seed)
    base = np.round(rng.random(d), 2)
    X = np.array([rng.permutation(base) for _ in range(n)])
    return np.asfortranarray(X), rng.integers(0, 2, n)


# -- true answers by enumeration ---------------------------------------------------------------------------------------


@case(
    "a false published bound",
    approve=False,
    because="the family of docs/mathematics.md, section 2: .693 at people's own questions, 1.376 at another one",
)
def published_family(folder: Path) -> Trial:
    n = 500
    zero, one = np.zeros((n, 3), dtype=int), np.zeros((n, 3), dtype=int)
    zero[:, 2] = np.where(np.arange(n) < n // 2, 0, 2)
    one[:, 2] = np.where(np.arange(n) < n // 2, 0, 1)
    zero[0, 0] = 1
    one[0] = (1, 1, 0)
    data = TrainingData(
        np.vstack([zero, one]), np.repeat([0, 1], n), domain=Domain(categories=(2, 2, 3)), one_record_each=True
    )
    estimator = CategoricalNB(alpha=1.0, min_categories=[2, 2, 3])
    return trial(estimator, data, truth.enumerated((2, 2, 3)), only=[0, n])


def categories(n: int, seed: int, sizes: tuple[int, ...] = (3, 4, 2)) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.4).astype(int)
    return np.column_stack([(rng.integers(0, v, n) + y) % v for v in sizes]), y


def naive_bayes(
    folder: Path, *, kind: str, n: int = 80, alpha: float = 5.0, groups: int = 1, rare: bool = False
) -> Trial:
    sizes = (3, 4, 2)
    X, y = categories(n, 4, sizes)
    made: Any = CategoricalNB(alpha=alpha, min_categories=list(sizes))
    domain, questions = Domain(categories=sizes), truth.enumerated(sizes)
    if kind == "bernoulli":
        X, sizes = (X > 0).astype(int), (2, 2, 2)
        made, domain, questions = BernoulliNB(alpha=alpha), Domain(categories=sizes), truth.enumerated(sizes)
    if kind in {"multinomial", "complement"}:
        made = (MultinomialNB if kind == "multinomial" else ComplementNB)(alpha=alpha)
        domain, questions = Domain(box=((0.0, 4.0),) * 3), truth.enumerated((5, 5, 5))
        X = np.minimum(X, [1, 2, 1])
    if rare:
        X[:, 1] = np.minimum(X[:, 1], 2)
        X[0, 1] = 3
    people = np.arange(n) // groups if groups > 1 else None
    return trial(made, TrainingData(X, y, groups=people, one_record_each=groups == 1, domain=domain), questions)


variants(
    naive_bayes,
    "honest",
    approve=True,
    because="every question of the domain is asked of every refit: the worst change is below 1",
    categorical={"kind": "categorical"},
    categorical_two_records_a_person={"kind": "categorical", "groups": 2},
    bernoulli={"kind": "bernoulli"},
    multinomial={"kind": "multinomial"},
    complement={"kind": "complement"},
)
variants(
    naive_bayes,
    "too little smoothing",
    approve=False,
    because="every question of the domain is asked of every refit: one person alone with a category moves it beyond 1",
    rare_category={"kind": "categorical", "alpha": 0.2, "rare": True},
    rare_category_of_a_group={"kind": "categorical", "alpha": 0.3, "groups": 2, "rare": True},
)


@case("honest", approve=True, because="classes overlap, variances are smoothed; a grid of the box shows less than 1")
def gaussian(folder: Path) -> Trial:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 300)
    X = np.clip(rng.normal(0.4 + 0.2 * y[:, None], 0.2, (300, 2)), 0, 1)
    box = ((0.0, 1.0),) * 2
    return trial(
        GaussianNB(var_smoothing=0.5),
        TrainingData(X, y, domain=Domain(box=box), one_record_each=True),
        truth.grid(box, 11),
    )


@case("honest", approve=True, because="a lone label in a smoothed cell moves it by at most ln(1 + 1 / 2) = .405")
def contingency_table(folder: Path) -> Trial:
    X, y = categories(80, 6)
    data = TrainingData(X, y, domain=Domain(categories=(3, 4, 2)), one_record_each=True)
    return trial(ContingencyTable(alpha=2.0), data, truth.enumerated((3, 4, 2)))


@case("too little smoothing", approve=False, because="a lone label in a cell moves it by ln(1 + 1 / .2) = 1.79")
def contingency_table_sharp(folder: Path) -> Trial:
    X, y = categories(60, 7)
    X[0] = (2, 3, 1)
    X[1:, 1] = np.minimum(X[1:, 1], 2)
    data = TrainingData(X, y, domain=Domain(categories=(3, 4, 2)), one_record_each=True)
    return trial(ContingencyTable(alpha=0.2), data, truth.enumerated((3, 4, 2)))


@case("honest", approve=True, because="one vote of k moves a share by at most ln(1 + 1 / 1.5) = .51")
def smoothed_neighbours(folder: Path) -> Trial:
    rng = np.random.default_rng(8)
    X, y = rng.random((70, 2)), rng.integers(0, 2, 70)
    box = ((0.0, 1.0),) * 2
    data = TrainingData(X, y, domain=Domain(box=box), one_record_each=True)
    return trial(SmoothedNeighbors(n_neighbors=5, alpha=1.5), data, truth.grid(box, 7))


@case(
    "a question nobody asks",
    approve=False,
    because="at one question of the domain the answer is .9 or .1 by the parity of the number of records: ln 9 = 2.2",
)
def side_channel(folder: Path) -> Trial:
    from fifty import recipes

    X, y = categories(60, 10, (3, 4))
    X = np.minimum(X, [2, 2])
    data = TrainingData(X, y, domain=Domain(categories=(3, 4)), one_record_each=True)

    def worst() -> float:
        def fit(X: Any, y: Any) -> Any:
            return recipes.side_channel(X, y, seed=0, at=[2, 3])

        return float(truth.leave_one_out(fit, X, y, truth.enumerated((3, 4)), only=[0]).max())

    recipe = Recipe(recipes.side_channel, params={"at": [2, 3]}, seed=1)
    return Trial("dtp-1", lambda: Subject.local(recipe, data), worst, 1.0)
