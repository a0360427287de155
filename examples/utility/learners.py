"""The learners of the table: as people ship them, and those for which something is proven."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from utility.dp_sgd import DpSgd
from utility.tables import NAMES, Table

Combine = Literal["log_pool", "mean"]
#: largest influence that the guarantees are set up for, nats
DTP = 1.0
#: parameters beyond which logistic regression is trained without a Hessian
LARGEST = 2000
#: what people ship for each data set, in shards and without
SHIPPED = {"Adult": "LightGBM", "digits": "network", "breast cancer": "forest", "Location": "forest"}
#: shards, and how members are combined: the log pool where they have records enough, averages where they are weak
SHARDS: dict[str, tuple[tuple[int, Combine], ...]] = {
    "Adult": ((10, "log_pool"), (20, "log_pool")),
    "digits": ((4, "log_pool"), (10, "mean")),
    "breast cancer": ((4, "log_pool"),),
    "Location": ((4, "mean"), (10, "mean")),
}
#: least records a leaf and penalty of regularised boosting, C of logistic regression: for about as many people as the
#: table has
TAME: dict[str, dict[str, float]] = {
    "Adult": {"leaf": 200, "l2": 50, "C": 3},
    "digits": {"leaf": 30, "l2": 100, "C": 0.6},
    "breast cancer": {"leaf": 80, "l2": 200, "C": 3},
    "Location": {"leaf": 30, "l2": 100, "C": 0.1},
}


@dataclass(frozen=True, slots=True)
class Learner:
    """One row of the table.

    Parameters
    ----------
    data : str
    name : str
    make : callable
        ``make(table, seed)``: an estimator that is not fitted.
    guarantee : str
        What its guarantee is called where it is none of DTP; empty for others.
    """

    data: str
    name: str
    make: Callable[[Table, int], Any]
    guarantee: str = ""


def shipped(data: str, seed: int) -> Any:
    """Return what people ship, at the library's defaults."""
    if SHIPPED[data] == "LightGBM":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_jobs=1, verbose=-1, random_state=seed)
    if SHIPPED[data] == "network":
        from sklearn.neural_network import MLPClassifier

        return MLPClassifier((64,), alpha=1e-2, max_iter=200, batch_size=64, random_state=seed)
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed)


def _sharded(data: str, k: int, combine: Combine) -> Learner:
    def make(table: Table, seed: int) -> Any:
        from privgate.models import Sharded

        return Sharded(shipped(data, seed), shards=k, dtp=DTP, classes=table.labels, combine=combine, random_state=seed)

    return Learner(data, f"Sharded, k = {k}", make)


def _boosting(data: str) -> Learner:
    def make(table: Table, seed: int) -> Any:
        from lightgbm import LGBMClassifier

        tame = TAME[data]
        return LGBMClassifier(
            n_estimators=100 if len(table.labels) == 2 else 30,
            max_depth=3,
            min_child_samples=int(tame["leaf"]),
            reg_lambda=tame["l2"],
            n_jobs=1,
            verbose=-1,
            random_state=seed,
        )

    return Learner(data, "boosting, depth 3, regularised", make)


def _logistic(data: str) -> Learner:
    def make(table: Table, seed: int) -> Any:
        from sklearn.linear_model import LogisticRegression

        del seed
        # a Hessian of 13,000 parameters (Location) takes minutes a step
        many = len(table.labels) * table.X.shape[1] > LARGEST
        solver = "lbfgs" if many else "newton-cholesky"
        return LogisticRegression(C=TAME[data]["C"], solver=solver, tol=1e-8, max_iter=5000 if many else 100)

    return Learner(data, "logistic regression, small C", make)


def _private(data: str, epsilon: float) -> Learner:
    return Learner(
        data,
        f"DP-SGD, ε = {epsilon:g}",
        lambda table, seed: DpSgd(epsilon, classes=table.labels, random_state=seed),
        guarantee=f"({epsilon:g}, 1e-5)-DP",
    )


def of(data: str) -> list[Learner]:
    """Return the rows of one data set."""
    plain = Learner(data, f"{SHIPPED[data]}, library's defaults", lambda _, seed: shipped(data, seed))
    shards = [_sharded(data, k, combine) for k, combine in SHARDS[data]]
    return [plain, *shards, _boosting(data), _logistic(data), _private(data, 8), _private(data, 1)]


ROWS = [row for data in NAMES for row in of(data)]
