"""Membership guessed from how far a record is from the nearest question with another answer than its label.

Distances, in three norms, are exact for linear models and single trees. Labels along random directions bound those of
any other model from above. A record about which the model is wrong has distance 0.

References
----------
Yeom et al. (2020), section 6: Adversaries 8 and 9, with Adversary 1 beside them.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privgate.arrays import Bool, Float, Index
from privgate.errors import MeasurementError, SubjectError
from privgate.evidence import BehindMembership, Estimate, Measurement, Request, RobustAdversary, RobustPart
from privgate.kernel.sample import difference
from privgate.run import pool as pools
from privgate.run.run import Run
from privgate.subject.containers import take
from privgate.training import payload, worker
from privgate.training.isolation import apart
from privgate.training.payload import Opened, Payload
from privgate.training.task_limits import Clock, OutOfTimeError, TaskLimits

#: labels of questions (Q, d), as positions of classes
Ask = Callable[[Float], Index]

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


def linear(W: Float, b: Float, X: Float, y: Index) -> Float:
    """Return exact distances (n, 3) for scores ``X @ W.T + b``, the largest of which names the class.

    The nearest wrong answer lies across one hyperplane, at its margin over the dual norm of its normal.
    """
    scores = X @ W.T + b
    found = np.full((len(X), len(NORMS)), np.inf)
    own = scores[np.arange(len(X)), y]
    for k in range(len(W)):
        normal, margin = W[y] - W[k], own - scores[:, k]
        for i, dual in enumerate((np.inf, 2.0, 1.0)):
            size = np.linalg.norm(normal, ord=dual, axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                away = np.where(size > 0, np.maximum(margin, 0.0) / size, np.where(margin > 0, np.inf, 0.0))
            found[:, i] = np.where(y != k, np.minimum(found[:, i], away), found[:, i])
    return found


def tree(low: Float, high: Float, answers: Index, X: Float, y: Index) -> Float:
    """Return exact distances (n, 3) to the nearest leaf with another answer; leaves are boxes (low, high] of (L, d)."""
    found = np.full((len(X), len(NORMS)), np.inf)
    for lower, upper, answer in zip(low, high, answers, strict=True):
        out = np.maximum(np.maximum(lower - X, X - upper), 0.0)
        for i, norm in enumerate(NORMS):
            away = np.linalg.norm(out, ord=norm, axis=1)
            found[:, i] = np.where(y != answer, np.minimum(found[:, i], away), found[:, i])
    return found


def leaves(fitted: Any) -> tuple[Float, Float, Index]:
    """Return the boxes of a fitted scikit-learn tree's leaves and what each answers, as position of a class."""
    t, d = fitted.tree_, int(fitted.n_features_in_)
    todo, found = [(0, np.full(d, -np.inf), np.full(d, np.inf))], []
    while todo:
        node, low, high = todo.pop()
        left, right = int(t.children_left[node]), int(t.children_right[node])
        if left < 0:
            found.append((low, high, int(np.argmax(t.value[node][0]))))
            continue
        j, at = int(t.feature[node]), float(t.threshold[node])
        below, above = high.copy(), low.copy()
        below[j], above[j] = min(high[j], at), max(low[j], at)
        todo += [(left, low, below), (right, above, high)]
    lows, highs, answers = zip(*found, strict=True)
    return np.array(lows), np.array(highs), np.array(answers, dtype=np.int64)


def along_random_directions(ask: Ask, X: Float, y: Index, box: tuple[Float, Float], rng: np.random.Generator) -> Float:
    """Return upper bounds (n, 3) on distances, by labels alone: the nearest change along random directions."""
    found = np.full((len(X), len(NORMS)), np.inf)
    wrong = ask(X) != y
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
        for i, norm in enumerate(NORMS):
            away = np.where(reached, np.linalg.norm(moved, ord=norm, axis=1), np.inf)
            found[:, i] = np.minimum(found[:, i], away)
    found[wrong] = 0.0
    return found


# In a worker: the registered model's distances, and those of one shadow model that the adversary trains.


def in_worker(
    shipped: Payload, asked: list[int], shadow: list[int], shadow_asked: list[int], limits: TaskLimits
) -> dict[str, Any]:
    """Return JSON values: how both models' distances at pool rows were measured, and (n, 3) of each; or a problem."""
    try:
        with Clock(limits.seconds * (TRAININGS + 2)) as clock, clock.call():
            opened = Opened(shipped)
            if not isinstance(opened.X, np.ndarray) or opened.X.dtype.kind not in "biuf":
                return {"problem": "records that are no arrays of numbers have no distance from a boundary"}
            table = opened.X.reshape(len(opened.X), -1).astype(np.float64)
            registered = (opened.root / "model.pkl").is_file()
            target = opened.model if registered else _trained(opened, list(range(opened.n)))
            how, found = _distances(opened, target, table, asked)
            same, beside = _distances(opened, _trained(opened, shadow), table, shadow_asked)
        if how != same:
            return {"problem": f"the model is looked at {how}, the shadow model {same}: they cannot be compared"}
        return {"how": how, "target": found.tolist(), "shadow": beside.tolist()}
    except OutOfTimeError:
        return {"problem": f"distances were not measured within {limits.seconds * (TRAININGS + 2):g} s"}
    except SubjectError as exc:
        return {"problem": str(exc)}
    except BaseException as exc:  # noqa: BLE001  the user's code runs here; what it raises becomes a sentence
        return {"problem": worker.sentence("measuring distances", exc)}


def _trained(opened: Opened, rows: list[int]) -> Any:
    return opened.recipe.train(take(opened.X, np.array(rows)), opened.y[rows].copy(), seed=opened.recipe.seed)


def _distances(opened: Opened, model: Any, table: Float, rows: list[int]) -> tuple[str, Float]:
    """Return how distances were measured, in words, and the distances (n, 3)."""
    X, y = table[rows], np.searchsorted(opened.classes, opened.y[rows]).astype(np.int64)
    shape = opened.X.shape[1:]

    def likelihood(Z: Float) -> Float:
        return opened.recipe.probabilities(model, Z.reshape(len(Z), *shape).astype(opened.X.dtype), opened.classes)

    def ask(Z: Float) -> Index:
        return np.asarray(likelihood(Z).argmax(axis=1), dtype=np.int64)

    if opened.recipe.payload["predict"] is None:
        if (flat := _linear(model, len(opened.classes))) is not None and _agrees(flat, X, likelihood(X)):
            return "exactly, as a linear model", linear(*flat, X, y)
        if _of_scikit_learn(model) and hasattr(model, "tree_") and hasattr(model, "classes_"):
            values = model.tree_.value[model.tree_.apply(X.astype(np.float32))][:, 0]
            if values.shape[1] == len(opened.classes) and (values.argmax(axis=1) == ask(X)).all():
                return "exactly, leaf by leaf", tree(*leaves(model), X, y)
    box = table.min(axis=0), table.max(axis=0)
    return "along random directions", along_random_directions(ask, X, y, box, np.random.default_rng(0))


def _linear(model: Any, classes: int) -> tuple[Float, Float] | None:
    """Return weights (K, d) and intercepts (K,) of a linear classifier, behind a scaler or none; None for others."""
    *before, last = [step for _, step in getattr(model, "steps", [("", model)])]
    if not all(map(_of_scikit_learn, (model, *before, last))) or len(getattr(last, "classes_", ())) != classes:
        return None
    if not (hasattr(last, "coef_") and hasattr(last, "intercept_")):
        return None
    W, b = np.atleast_2d(np.asarray(last.coef_, dtype=np.float64)), np.atleast_1d(last.intercept_).astype(np.float64)
    if len(W) == 1:  # two classes, one score
        W, b = np.concatenate([-W, W]) / 2, np.concatenate([-b, b]) / 2
    if before:
        scale, mean = getattr(before[0], "scale_", None), getattr(before[0], "mean_", None)
        if scale is None or mean is None or [type(step).__name__ for step in before] != ["StandardScaler"]:
            return None
        W = W / scale
        b = b - W @ mean
    return W, b


def _agrees(flat: tuple[Float, Float], X: Float, p: Float) -> bool:
    """Whether the largest linear score is the model's own answer wherever that is clear."""
    top = np.sort(p, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-9 if p.shape[1] > 1 else np.ones(len(p), dtype=bool)
    return bool(clear.any() and ((X @ flat[0].T + flat[1]).argmax(axis=1) == p.argmax(axis=1))[clear].all())


def _of_scikit_learn(model: Any) -> bool:
    """Whether an attribute means what scikit-learn means by it: a class of its own may answer otherwise."""
    return type(model).__module__.partition(".")[0] == "sklearn"


# The adversaries, and the metric ``robust_advantage``.


@dataclass(frozen=True, eq=False)
class Seen:
    """Distances of the target's and the shadow model's people, and who is a member."""

    how: str
    target: Float
    members: Bool
    shadow: Float
    shadow_members: Bool


@dataclass(frozen=True)
class Guesses:
    """Members whom one adversary calls members, all members, others whom it calls members, all others."""

    name: str
    title: str
    counts: tuple[int, int, int, int]
    radius: float | None = None


def noted(run: Run) -> list[RobustPart]:
    """Return where a run's adversaries are noted."""
    del run
    return []


def part(run: Run) -> RobustPart | None:
    """Return what was found beside the number; None where no rule asked for it."""
    found = run.once(noted) if run.made(noted) else []
    return found[-1] if found else None


def advantage(run: Run, request: Request) -> Measurement:
    """Return the largest advantage of Adversaries 8 and 9 of Yeom et al. (2020), with limits.

    Adversary 8 calls a person a member about whom the model stays right within a radius: its advantage is the robust
    generalization error where every wrong answer is found (Theorem 8). Adversary 9 weighs the three distances by a
    logistic regression that was fitted to one shadow model's. ``low`` holds over both that were tried, ``high`` is an
    intersection-union test.

    Raises
    ------
    MeasurementError
        There are too few candidates for a shadow model, or the model has no boundary that could be looked for.
    """
    alpha, radius = 1 - float(request.option("confidence", 0.95)), request.option("radius")
    seen = run.once(looked)
    found = guesses(seen, None if radius is None else float(radius))
    run.once(noted).append(RobustPart(how=seen.how, adversaries=tuple(_told(g, alpha) for g in found)))
    tried = found[1:]
    limits = [difference(g.counts, low_alpha=alpha / len(tried), high_alpha=alpha) for g in tried]
    worst = int(np.argmax([value for value, _, _ in limits]))
    return Measurement(
        request,
        value=limits[worst][0],
        low=max(low for _, low, _ in limits),
        high=max(high for _, _, high in limits),
        unit="fraction",
        kind="confidence",
        confidence=1 - alpha,
        n=len(seen.members),
        population=len(run.once(pools.of_run).trial),
        where=f"{tried[worst].title}, distances {seen.how}",
        assumptions=ASSUMPTIONS,
        behind=BehindMembership(
            searched=len(tried), members=int(seen.members.sum()), candidates=int((~seen.members).sum()), shadow_models=1
        ),
    )


def looked(run: Run) -> Seen:
    """Measure the distances of both models."""
    if run.subject.task == "regression":
        raise MeasurementError("a regressor has no boundary between answers")
    target, members, shadow, tried, inside = split(run)
    limits = run.fleet.limits
    with tempfile.TemporaryDirectory(prefix="privgate-robust-") as folder:
        found = apart(
            in_worker,
            payload.write(run.subject, Path(folder, "shown") / "subject"),
            target.tolist(),
            shadow.tolist(),
            tried.tolist(),
            limits,
            limits=limits,
            runs=TRAININGS + 2,
            way=run.fleet.isolate,
            logs=Path(folder),
        )
    run.fleet.calls += TRAININGS
    if not isinstance(found, dict):
        raise MeasurementError("the worker process died while distances were measured")
    if problem := found.get("problem"):
        raise MeasurementError(str(problem))
    far, beside = (np.array(found[k], dtype=np.float64) for k in ("target", "shadow"))
    if np.isnan(far).any() or np.isnan(beside).any():
        raise MeasurementError("some distances are no numbers")
    if not str(found["how"]).startswith("exactly") and not all((np.isfinite(d) & (d > 0)).any() for d in (far, beside)):
        raise MeasurementError("no wrong answer was found near any record, so that no distance was measured")
    return Seen(str(found["how"]), far, members, beside, inside)


def split(run: Run) -> tuple[Index, Bool, Index, Index, Bool]:
    """Return (target's trials, whether members, shadow's records, shadow's trials, whether it was trained on them).

    Candidates are cut in three: people outside of the target, people whom the shadow model is trained on, and people
    outside of both; a label that the shadow would miss goes to it first.
    """
    pool = run.once(pools.of_run)
    rng = run.generator("robust trials")
    rows = np.flatnonzero(pool.trial)
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
    labels = run.subject.data.pool_labels
    missing = np.setdiff1d(np.unique(run.subject.data.y), np.unique(labels[shadow]))
    more = [int(tests[labels[tests] == label][0]) for label in missing if (labels[tests] == label).any()]
    shadow, tests = np.concatenate([shadow, more]).astype(np.int64), np.setdiff1d(tests, more, assume_unique=True)
    others, beside = tests[: len(tests) // 2][:MOST], tests[len(tests) // 2 :][:MOST]
    tried = np.concatenate([shadow[:MOST], beside]).astype(np.int64)
    trials = np.concatenate([inside, others]).astype(np.int64)
    return trials, np.arange(len(trials)) < len(inside), shadow, tried, np.arange(len(tried)) < len(shadow[:MOST])


def guesses(seen: Seen, radius: float | None) -> list[Guesses]:
    """Return what Adversaries 1, 8 and 9 guess of the target's people."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    chosen = best_radius(seen.shadow[:, -1], seen.shadow_members) if radius is None else radius
    # infinite: nothing is wrong anywhere; farther than anything finite
    ends = np.array([_largest(seen.shadow[:, i], seen.target[:, i]) for i in range(len(NORMS))])
    learned = make_pipeline(StandardScaler(), LogisticRegression()).fit(
        np.minimum(seen.shadow, ends), seen.shadow_members
    )
    guessed = learned.predict(np.minimum(seen.target, ends)).astype(bool)

    def counted(name: str, title: str, told: Bool, radius: float | None = None) -> Guesses:
        inside, outside = told[seen.members], told[~seen.members]
        return Guesses(name, title, (int(inside.sum()), len(inside), int(outside.sum()), len(outside)), radius)

    return [
        counted("bounded_loss", "Adversary 1 (right or wrong)", seen.target[:, -1] > 0),
        counted("robust_classification", "Adversary 8 (right within a radius)", seen.target[:, -1] > chosen, chosen),
        counted("robust_threshold", "Adversary 9 (distance to the boundary)", guessed),
    ]


def _largest(*columns: Float) -> float:
    finite = np.concatenate(columns)
    finite = finite[np.isfinite(finite)]
    return float(2 * finite.max()) if len(finite) and finite.max() > 0 else 1.0


def best_radius(away: Float, members: Bool) -> float:
    """Return the radius at which the shadow model's members are told best from others."""
    tries = np.unique(np.concatenate([[0.0], away[np.isfinite(away)]]))
    gains = [(away[members] > r).mean() - (away[~members] > r).mean() for r in tries]
    return float(tries[int(np.argmax(gains))])


def _told(g: Guesses, alpha: float) -> RobustAdversary:
    value, low, high = difference(g.counts, low_alpha=alpha, high_alpha=alpha)
    inside, members, outside, others = g.counts
    return RobustAdversary(
        name=g.name,
        title=g.title,
        inside=inside / members,
        outside=outside / others,
        members=members,
        others=others,
        radius=g.radius,
        advantage=Estimate(value=value, low=low, high=high),
    )
