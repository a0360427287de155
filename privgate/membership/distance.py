"""Membership guessed from how far a record is from the nearest question with another answer than its label.

Distances, in three norms, are exact for linear models and single trees; random directions bound others' from above.
Where the model is wrong it is 0. Source: Yeom et al. (2020), section 6: Adversaries 8 and 9, with Adversary 1.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from privgate.arrays import Bool, Float, Index
from privgate.errors import MeasurementError
from privgate.evidence import BehindMembership, Estimate, Measurement, Request, RobustAdversary, RobustPart
from privgate.kernel.sample import difference
from privgate.membership.limits import Interval, find_worst
from privgate.run import pool as pools
from privgate.run.run import Run
from privgate.subject.containers import take

NORMS = (1.0, 2.0, float("inf"))
#: random directions where nothing is known of a model, and halvings along each
DIRECTIONS, HALVINGS = 24, 16
#: people of either side who are trials, or train and try the shadow model; with fewer than LEAST nothing is shown
MOST, LEAST = 400, 20
#: trainings: the target where none is registered, and the shadow model
TRAININGS = 2
ASSUMPTIONS = (
    "candidates come from the same population as the training records",
    "the adversary has the model itself, knows people's records and labels, and trains one model as it was trained",
)


def measure_linear(W: Float, b: Float, X: Float, y: Index) -> Float:
    """Return exact distances (n, 3) for scores ``X @ W.T + b``, the largest of which names the class.

    The nearest wrong answer lies across one hyperplane, at its margin over the dual norm of its normal.
    """
    scores, nearest = X @ W.T + b, np.full((len(X), len(NORMS)), np.inf)
    for k in range(len(W)):
        margin = (scores[np.arange(len(X)), y] - scores[:, k])[:, None]
        size = np.stack([np.linalg.norm(W[y] - W[k], ord=dual, axis=1) for dual in (np.inf, 2.0, 1.0)], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.where(size > 0, np.maximum(margin, 0.0) / size, np.where(margin > 0, np.inf, 0.0))
        nearest = np.where((y != k)[:, None], np.minimum(nearest, away), nearest)
    return nearest


def measure_tree(fitted: Any, X: Float, y: Index) -> Float:
    """Return exact distances (n, 3) to the nearest leaf of a scikit-learn tree with another answer."""
    nearest = np.full((len(X), len(NORMS)), np.inf)
    for low, high, answer in list_leaves(fitted):
        outside = np.maximum(np.maximum(low - X, X - high), 0.0)
        away = np.stack([np.linalg.norm(outside, ord=norm, axis=1) for norm in NORMS], axis=1)
        nearest = np.where((y != answer)[:, None], np.minimum(nearest, away), nearest)
    return nearest


def list_leaves(fitted: Any) -> list[tuple[Float, Float, int]]:
    """Return each leaf's box (low, high] and what it answers, as position of a class."""
    t, d = fitted.tree_, int(fitted.n_features_in_)
    todo, leaves = [(0, np.full(d, -np.inf), np.full(d, np.inf))], []
    while todo:
        node, low, high = todo.pop()
        child, j, at = int(t.children_left[node]), int(t.feature[node]), float(t.threshold[node])
        if child < 0:
            leaves.append((low, high, int(np.argmax(t.value[node][0]))))
            continue
        below, above = high.copy(), low.copy()
        below[j], above[j] = min(high[j], at), max(low[j], at)
        todo += [(child, low, below), (int(t.children_right[node]), above, high)]
    return leaves


def along_random_directions(
    ask: Callable[[Float], Index], X: Float, y: Index, box: tuple[Float, Float], rng: np.random.Generator
) -> Float:
    """Return upper bounds (n, 3) on distances: the nearest change of a label (position of a class) that was met."""
    nearest, wrong = np.full((len(X), len(NORMS)), np.inf), ask(X) != y
    width = np.where(box[1] > box[0], box[1] - box[0], 1.0)
    for turn in range(DIRECTIONS):
        # dense directions, and ones along few columns, because a norm may prefer either
        step = rng.normal(size=X.shape) * width
        if turn % 2:
            step *= rng.random(X.shape) < max(1.0, 0.05 * X.shape[1]) / X.shape[1]
        low, high = np.zeros(len(X)), np.full(len(X), 2.0)
        reached = ask(np.clip(X + high[:, None] * step, *box)) != y
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            crossed = ask(np.clip(X + middle[:, None] * step, *box)) != y
            high, low = np.where(crossed, middle, high), np.where(crossed, low, middle)
        moved = np.clip(X + high[:, None] * step, *box) - X
        away = np.stack([np.linalg.norm(moved, ord=norm, axis=1) for norm in NORMS], axis=1)
        nearest = np.where(reached[:, None], np.minimum(nearest, away), nearest)
    nearest[wrong] = 0.0
    return nearest


def measure_both(opened: Any, trials: list[int], shadow: list[int], shadow_trials: list[int]) -> dict[str, Any]:
    """Return JSON values, in a worker: distances at pool rows of both models, (n, 3) each; or a problem."""
    if not isinstance(opened.X, np.ndarray) or opened.X.dtype.kind not in "biuf":
        return {"problem": "records that are no arrays of numbers have no distance from a boundary"}

    def train(rows: list[int]) -> Any:
        return opened.recipe.train(take(opened.X, np.array(rows)), opened.y[rows].copy(), seed=opened.recipe.seed)

    registered = (opened.root / "model.pkl").is_file()
    how, target = _measure(opened, opened.model if registered else train(list(range(opened.n))), trials)
    same, other = _measure(opened, train(shadow), shadow_trials)
    if how != same:
        return {"problem": f"the model is looked at {how}, the shadow model {same}: they cannot be compared"}
    return {"how": how, "target": target.tolist(), "shadow": other.tolist()}


def _measure(opened: Any, model: Any, rows: list[int]) -> tuple[str, Float]:
    """Return how distances were measured, in words, and the distances (n, 3)."""
    table, shape = opened.X.reshape(len(opened.X), -1).astype(np.float64), opened.X.shape[1:]
    X, y = table[rows], np.searchsorted(opened.classes, opened.y[rows]).astype(np.int64)

    def ask(Z: Float) -> Index:
        p = opened.recipe.probabilities(model, Z.reshape(len(Z), *shape).astype(opened.X.dtype), opened.classes)
        return np.asarray(p.argmax(axis=1), dtype=np.int64)

    *scalers, last = [step for _, step in getattr(model, "steps", [("", model)])]
    # a class of its own may mean something else by these attributes
    plain = all(type(step).__module__.startswith("sklearn.") for step in (model, *scalers, last))
    if opened.recipe.payload["predict"] is None and plain and len(getattr(last, "classes_", ())) == len(opened.classes):
        flat = _read_linear(scalers, last)
        if flat is not None and ((X @ flat[0].T + flat[1]).argmax(axis=1) == ask(X)).all():
            return "exactly, as a linear model", measure_linear(*flat, X, y)
        tree = getattr(model, "tree_", None)
        if tree is not None and (tree.value[tree.apply(X.astype(np.float32))][:, 0].argmax(axis=1) == ask(X)).all():
            return "exactly, leaf by leaf", measure_tree(model, X, y)
    box = table.min(axis=0), table.max(axis=0)
    return "along random directions", along_random_directions(ask, X, y, box, np.random.default_rng(0))


def _read_linear(scalers: list[Any], last: Any) -> tuple[Float, Float] | None:
    """Return weights (K, d) and intercepts (K,) of a linear classifier, behind a scaler or none; None for others."""
    if not hasattr(last, "coef_") or [type(s).__name__ for s in scalers] not in ([], ["StandardScaler"]):
        return None
    W, b = np.atleast_2d(np.asarray(last.coef_, dtype=np.float64)), np.atleast_1d(last.intercept_).astype(np.float64)
    if len(W) == 1:  # two classes, one score
        W, b = np.concatenate([-W, W]) / 2, np.concatenate([-b, b]) / 2
    for scaler in scalers:
        W = W / (1.0 if scaler.scale_ is None else scaler.scale_)
        b = b - W @ (np.zeros(W.shape[1]) if scaler.mean_ is None else scaler.mean_)
    return W, b


class Seen(NamedTuple):
    """Distances of the target's and the shadow model's people, and who is a member."""

    how: str
    target: Float
    members: Bool
    shadow: Float
    shadow_members: Bool


class Guesses(NamedTuple):
    """Members whom one adversary calls members, all members, others whom it calls members, all others."""

    name: str
    title: str
    counts: tuple[int, int, int, int]
    radius: float | None = None

    def show(self, alpha: float) -> RobustAdversary:
        """Return what the report shows."""
        inside, members, outside, others = self.counts
        advantage = Interval(*difference(self.counts, low_alpha=alpha, high_alpha=alpha))
        return RobustAdversary(
            name=self.name, title=self.title, inside=inside / members, outside=outside / others, members=members,
            others=others, radius=self.radius, advantage=Estimate(**asdict(advantage)),
        )  # fmt: skip


def advantage(run: Run, request: Request) -> Measurement:
    """Return the largest advantage of Adversaries 8 and 9 of Yeom et al. (2020), with limits.

    Adversary 8 calls a person a member about whom the model stays right within a radius (Theorem 8). Adversary 9 weighs
    the three distances by a logistic regression that was fitted to one shadow model's. ``low`` holds over both,
    ``high`` is an intersection-union test. ``MeasurementError``: candidates are too few, or the model has no boundary.
    """
    alpha, radius = 1 - float(request.option("confidence", 0.95)), request.option("radius")
    seen = run.compute(look_near)
    guessed = guesses(seen, None if radius is None else float(radius))
    run.notes["robust"] = RobustPart(how=seen.how, adversaries=tuple(g.show(alpha) for g in guessed))
    alphas = {"low_alpha": alpha / 2, "high_alpha": alpha}
    name, worst = find_worst({g.title: Interval(*difference(g.counts, **alphas)) for g in guessed[1:]})
    members, others = int(seen.members.sum()), int((~seen.members).sum())
    high = 1.0 if run.compute(pools.of_run).copies else worst.high
    return Measurement(
        request, worst.value, worst.low, high, "fraction", "confidence", 1 - alpha, n=members + others,
        population=len(run.compute(pools.of_run).trial), where=f"{name}, distances {seen.how}", assumptions=ASSUMPTIONS,
        behind=BehindMembership(searched=2, members=members, candidates=others, shadow_models=1),
    )  # fmt: skip


def look_near(run: Run) -> Seen:
    """Measure the distances of both models, in a worker."""
    if run.subject.task == "regression":
        raise MeasurementError("a regressor has no boundary between answers")
    target, members, shadow, tried, inside = split(run)
    rows = target.tolist(), shadow.tolist(), tried.tolist()
    answer = run.fleet.examined(run.subject, "privgate.membership.distance:measure_both", *rows)
    run.fleet.calls += TRAININGS
    if problem := answer.get("problem"):
        raise MeasurementError(str(problem))
    far, other = (np.array(answer[k], dtype=np.float64) for k in ("target", "shadow"))
    if np.isnan(far).any() or np.isnan(other).any():
        raise MeasurementError("some distances are no numbers")
    if not str(answer["how"]).startswith("exactly") and not all((np.isfinite(d) & (d > 0)).any() for d in (far, other)):
        raise MeasurementError("no wrong answer was found near any record, so that no distance was measured")
    return Seen(str(answer["how"]), far, members, other, inside)


def split(run: Run) -> tuple[Index, Bool, Index, Index, Bool]:
    """Return (target's trials, whether members, shadow's records, shadow's trials, whether it was trained on them).

    Candidates are cut in three: outside of the target, in the shadow model, outside of both; no label is missed.
    """
    pool, rng, labels = run.compute(pools.of_run), run.generator("robust trials"), run.subject.data.pool_labels
    rows = np.flatnonzero(pool.alone)
    inside = rng.permutation(rows[pool.members[rows]])[:MOST]
    outside = rng.permutation(rows[~pool.members[rows]])
    third = len(outside) // 3
    if len(inside) < LEAST:
        raise MeasurementError(f"{len(inside)} people of the training data are too few for a test of {LEAST}")
    if third < LEAST:
        raise MeasurementError(
            f"{len(outside)} candidates are too few for a shadow model and two tests of {LEAST}; give more of them"
        )
    shadow, tests = outside[:third], outside[third:]
    missing = np.setdiff1d(np.unique(run.subject.data.y), np.unique(labels[shadow]))
    more = [int(tests[labels[tests] == label][0]) for label in missing if (labels[tests] == label).any()]
    shadow, tests = np.concatenate([shadow, more]).astype(np.int64), np.setdiff1d(tests, more, assume_unique=True)
    others, strangers = tests[: len(tests) // 2][:MOST], tests[len(tests) // 2 :][:MOST]
    trials, tried = np.concatenate([inside, others]), np.concatenate([shadow[:MOST], strangers])
    return trials, np.arange(len(trials)) < len(inside), shadow, tried, np.arange(len(tried)) < len(shadow[:MOST])


def guesses(seen: Seen, radius: float | None) -> list[Guesses]:
    """Return what Adversaries 1, 8 and 9 guess of the target's people."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    chosen = find_radius(seen.shadow[:, -1], seen.shadow_members) if radius is None else radius
    # infinite: nothing is wrong anywhere; farther than anything finite
    both = np.concatenate([seen.shadow, seen.target])
    largest = np.where(np.isfinite(both), both, 0.0).max(axis=0)
    ends = np.where(largest > 0, 2 * largest, 1.0)
    learned = make_pipeline(StandardScaler(), LogisticRegression())
    learned.fit(np.minimum(seen.shadow, ends), seen.shadow_members)
    far = learned.predict(np.minimum(seen.target, ends)).astype(bool)

    def count(name: str, title: str, called: Bool, radius: float | None = None) -> Guesses:
        inside, outside = called[seen.members], called[~seen.members]
        return Guesses(name, title, (int(inside.sum()), len(inside), int(outside.sum()), len(outside)), radius)

    return [
        count("bounded_loss", "Adversary 1 (right or wrong)", seen.target[:, -1] > 0),
        count("robust_classification", "Adversary 8 (right within a radius)", seen.target[:, -1] > chosen, chosen),
        count("robust_threshold", "Adversary 9 (distance to the boundary)", far),
    ]


def find_radius(away: Float, members: Bool) -> float:
    """Return the radius at which the shadow model's members are told best from others."""
    tries = np.unique(np.concatenate([[0.0], away[np.isfinite(away)]]))
    gains = [(away[members] > r).mean() - (away[~members] > r).mean() for r in tries]
    return float(tries[int(np.argmax(gains))])
