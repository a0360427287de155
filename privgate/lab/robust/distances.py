"""Distance from a record to the nearest question with another answer than its label, in three norms.

Exact for linear models and for single trees; by projected gradient descent for networks of torch, and along random
directions for anything else, where it is an upper bound. A record about which the model is wrong has distance 0.

References
----------
Yeom et al. (2020), section 6; Madry et al. (2018) for the projected gradient.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import SubjectError
from privgate.subject.containers import take
from privgate.subject.subject import Subject
from privgate.training import payload, worker
from privgate.training.fleet import Fleet
from privgate.training.isolation import apart
from privgate.training.payload import Opened, Payload
from privgate.training.task_limits import Clock, OutOfTimeError, TaskLimits

#: labels of questions (Q, d), as positions of classes
Ask = Callable[[Float], Index]

NORMS = (1.0, 2.0, float("inf"))
#: steps of a descent, radii, and halvings of the way back to the boundary
STEPS, HALVINGS, PULLS = 8, 6, 8
#: random directions where nothing is known of a model
DIRECTIONS = 24


def linear(W: Float, b: Float, X: Float, y: Index) -> Float:
    """Return exact distances (n, 3) for scores ``X @ W.T + b``, the largest of which names the class.

    The nearest wrong answer lies across one hyperplane; the distance to it in a norm is its margin over the dual norm
    of its normal.
    """
    scores = X @ W.T + b
    found = np.full((len(X), len(NORMS)), np.inf)
    own = scores[np.arange(len(X)), y]
    for k in range(len(W)):
        other = y != k
        normal = W[y] - W[k]
        margin = own - scores[:, k]
        for i, dual in enumerate((np.inf, 2.0, 1.0)):
            size = np.linalg.norm(normal, ord=dual, axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                away = np.where(size > 0, np.maximum(margin, 0.0) / size, np.where(margin > 0, np.inf, 0.0))
            found[:, i] = np.where(other, np.minimum(found[:, i], away), found[:, i])
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


def answered(low: Float, high: Float, answers: Index, X: Float) -> Index:
    """Return what the leaf says in which each record lies."""
    found = np.full(len(X), -1, dtype=np.int64)
    Z = X.astype(np.float32).astype(np.float64)  # as scikit-learn's trees read it
    for lower, upper, answer in zip(low, high, answers, strict=True):
        found[((lower < Z) & (upper >= Z)).all(axis=1)] = answer
    return found


def leaves(fitted: Any) -> tuple[Float, Float, Index]:
    """Return the boxes of a fitted scikit-learn tree's leaves and what each answers, as position of a class."""
    t = fitted.tree_
    d = int(fitted.n_features_in_)
    todo = [(0, np.full(d, -np.inf), np.full(d, np.inf))]
    lows, highs, answers = [], [], []
    while todo:
        node, low, high = todo.pop()
        left, right = int(t.children_left[node]), int(t.children_right[node])
        if left < 0:
            lows.append(low)
            highs.append(high)
            answers.append(int(np.argmax(t.value[node][0])))
            continue
        j, at = int(t.feature[node]), float(t.threshold[node])
        below, above = high.copy(), low.copy()
        below[j], above[j] = min(high[j], at), max(low[j], at)
        todo += [(left, low, below), (right, above, high)]
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
        high = np.full(len(X), 2.0)
        reached = ask(_within(X + high[:, None] * step, box)) != y
        low = np.zeros(len(X))
        for _ in range(16):
            middle = (low + high) / 2
            crossed = ask(_within(X + middle[:, None] * step, box)) != y
            high, low = np.where(crossed, middle, high), np.where(crossed, low, middle)
        moved = _within(X + high[:, None] * step, box) - X
        for i, norm in enumerate(NORMS):
            away = np.where(reached, np.linalg.norm(moved, ord=norm, axis=1), np.inf)
            found[:, i] = np.minimum(found[:, i], away)
    found[wrong] = 0.0
    return found


def _within(X: Float, box: tuple[Float, Float]) -> Float:
    return np.clip(X, *box)


def network(logits: Any, X: Float, y: Index, box: tuple[Float, Float]) -> Float:
    """Return upper bounds (n, 3) by projected gradient descent on differentiable ``logits``, a radius at a time.

    Parameters
    ----------
    logits : callable
        Torch tensor (n, d) to tensor (n, K).
    """
    import torch

    x, labels = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    ends = torch.as_tensor(box[0], dtype=torch.float32), torch.as_tensor(box[1], dtype=torch.float32)
    found = np.full((len(X), len(NORMS)), np.inf)
    with torch.no_grad():
        wrong = (logits(x).argmax(1) != labels).numpy()
    for i, norm in enumerate(NORMS):
        low, high = torch.zeros(len(x)), torch.linalg.vector_norm(ends[1] - ends[0], ord=norm).repeat(len(x))
        # the largest radius is tried too: where nothing is found even there, the distance is infinite
        reached = torch.isinf(high)
        best = torch.full((len(x),), float("inf"))
        radius = high.clone()
        for _ in range(HALVINGS):
            moved = _descended(logits, x, labels, radius, norm, ends)
            with torch.no_grad():
                crossed = logits(moved).argmax(1) != labels
            moved = _pulled_back(logits, x, labels, moved, crossed)
            away = torch.linalg.vector_norm(moved - x, ord=norm, dim=1)
            best = torch.where(crossed, torch.minimum(best, away), best)
            reached |= crossed
            high = torch.where(crossed, torch.minimum(radius, away), high)
            low = torch.where(crossed, torch.minimum(low, high / 2), torch.minimum(radius, high))
            radius = torch.where(reached, (low + high) / 2, high / 2)
            high = torch.where(reached, high, high / 2)
        found[:, i] = np.where(reached.numpy(), best.double().numpy(), np.inf)
    found[wrong] = 0.0
    return found


def _descended(  # noqa: PLR0917  one descent, all of it needed
    logits: Any, x: Any, labels: Any, radius: Any, norm: float, ends: tuple[Any, Any]
) -> Any:
    """Return the questions within ``radius`` of ``x`` to which descent of the margin comes."""
    import torch

    at = x
    for step in range(STEPS):
        at = at.detach().requires_grad_()
        scores = logits(at)
        own = scores.gather(1, labels[:, None])[:, 0]
        others = scores.scatter(1, labels[:, None], float("-inf")).max(1).values
        (slope,) = torch.autograd.grad((others - own).sum(), at)
        # a first long step, then shorter ones along the edge of what is allowed
        at = at.detach() + _steepest(slope, norm) * (radius * (1.0 if step == 0 else 2.5 / STEPS))[:, None]
        at = x + _projected(at - x, radius, norm)
        at = torch.minimum(torch.maximum(at, ends[0]), ends[1])
    return at.detach()


def _pulled_back(logits: Any, x: Any, labels: Any, moved: Any, crossed: Any) -> Any:
    """Return wrong answers' questions moved back towards ``x`` as near as halving finds them; others as they are."""
    import torch

    low, high = torch.zeros(len(x)), torch.ones(len(x))
    with torch.no_grad():
        for _ in range(PULLS):
            middle = (low + high) / 2
            wrong = logits(x + middle[:, None] * (moved - x)).argmax(1) != labels
            high, low = torch.where(wrong, middle, high), torch.where(wrong, low, middle)
    return torch.where(crossed[:, None], x + high[:, None] * (moved - x), moved)


def _steepest(slope: Any, norm: float) -> Any:
    """Return the direction of length 1 in a norm in which scores change most."""
    import torch

    if norm == float("inf"):
        return slope.sign()
    if norm == 2.0:
        return slope / torch.linalg.vector_norm(slope, dim=1, keepdim=True).clamp_min(1e-12)
    # in the 1-norm a single coordinate; a twentieth of them moves faster and stays within it
    k = max(1, slope.shape[1] // 20)
    cut = slope.abs().topk(k, dim=1).values[:, -1:]
    kept = torch.where(slope.abs() >= cut, slope.sign(), torch.zeros_like(slope))
    return kept / kept.abs().sum(1, keepdim=True).clamp_min(1e-12)


def _projected(step: Any, radius: Any, norm: float) -> Any:
    """Return steps shortened to ``radius``; in the 1-norm by their length, which is simple and stays inside."""
    import torch

    if norm == float("inf"):
        return torch.minimum(torch.maximum(step, -radius[:, None]), radius[:, None])
    length = torch.linalg.vector_norm(step, ord=norm, dim=1).clamp_min(1e-12)
    return step * torch.minimum(torch.ones_like(length), radius / length)[:, None]


# In a worker: the registered model's distances, and those of one shadow model that the adversary trains.

#: trainings: the target where none is registered, and the shadow model
TRAININGS = 2
#: how closely a network's own answers must agree with the model's, so that descending it says something
AGREE = 1e-3


def measured(subject: Subject, fleet: Fleet, asked: Index, shadow: Index, shadow_asked: Index) -> dict[str, Any]:
    """Return ``{"how", "target", "shadow"}``: distances (n, 3) of both models at pool rows; or ``{"problem"}``.

    Parameters
    ----------
    subject : Subject
    fleet : Fleet
        Whose limits and box hold.
    asked, shadow_asked : int64 arrays
        Pool rows at which the target and the shadow model are looked at.
    shadow : int64 array
        Pool rows that the shadow model is trained on.
    """
    with tempfile.TemporaryDirectory(prefix="privgate-robust-") as folder:
        shipped = payload.write(subject, Path(folder, "shown") / "subject")
        found = apart(
            in_worker,
            shipped,
            asked.tolist(),
            shadow.tolist(),
            shadow_asked.tolist(),
            fleet.limits,
            limits=fleet.limits,
            runs=TRAININGS + 2,
            way=fleet.isolate,
            logs=Path(folder),
        )
    fleet.calls += TRAININGS
    return found if isinstance(found, dict) else {"problem": "the worker process died while distances were measured"}


def in_worker(
    shipped: Payload, asked: list[int], shadow: list[int], shadow_asked: list[int], limits: TaskLimits
) -> dict[str, Any]:
    """Return JSON values; runs in the worker."""
    try:
        with Clock(limits.seconds * (TRAININGS + 2)) as clock, clock.call():
            opened = Opened(shipped)
            table = _table(opened)
            box = table.min(axis=0), table.max(axis=0)
            registered = (opened.root / "model.pkl").is_file()
            target = opened.model if registered else _trained(opened, list(range(opened.n)))
            how, found = _distances(opened, target, table, box, asked)
            other = _trained(opened, shadow)
            same, beside = _distances(opened, other, table, box, shadow_asked)
        if how != same:
            return {"problem": f"the model is looked at {how}, the shadow model {same}: they cannot be compared"}
        return {"how": how, "target": found.tolist(), "shadow": beside.tolist(), "registered": registered}
    except OutOfTimeError:
        return {"problem": f"distances were not measured within {limits.seconds * (TRAININGS + 2):g} s"}
    except SubjectError as exc:
        return {"problem": str(exc)}
    except BaseException as exc:  # noqa: BLE001  the user's code runs here; what it raises becomes a sentence
        return {"problem": worker.sentence("measuring distances", exc, Path(shipped.folder))}


def _table(opened: Opened) -> Float:
    X = np.asarray(opened.X) if isinstance(opened.X, np.ndarray) else None
    if X is None or X.dtype.kind not in "biuf":
        raise SubjectError("records that are no arrays of numbers have no distance from a boundary")
    return X.reshape(len(X), -1).astype(np.float64)


def _trained(opened: Opened, rows: list[int]) -> Any:
    return opened.recipe.train(take(opened.X, np.array(rows)), opened.y[rows].copy(), seed=opened.recipe.seed)


def _distances(
    opened: Opened, model: Any, table: Float, box: tuple[Float, Float], rows: list[int]
) -> tuple[str, Float]:
    """Return how distances were measured, in words, and the distances (n, 3)."""
    X, y = table[rows], np.searchsorted(opened.classes, opened.y[rows]).astype(np.int64)
    shape = np.asarray(opened.X).shape[1:]

    def likelihood(Z: Float) -> Float:
        return opened.recipe.probabilities(model, Z.reshape(len(Z), *shape).astype(opened.X.dtype), opened.classes)

    def ask(Z: Float) -> Index:
        return np.asarray(likelihood(Z).argmax(axis=1), dtype=np.int64)

    if opened.recipe.payload["predict"] is None:
        if (flat := _linear(model, opened.classes)) is not None and _agrees(flat, X, likelihood):
            return "exactly, as a linear model", linear(*flat, X, y)
        if _is_tree(model) and len(model.classes_) == len(opened.classes):
            low, high, answers = leaves(model)
            if (answered(low, high, answers, X) == ask(X)).all():
                return "exactly, leaf by leaf", tree(low, high, answers, X, y)
    rng = np.random.default_rng(0)
    drawn = along_random_directions(ask, X, y, box, rng)
    if (logits := _logits(model, shape, likelihood, X)) is not None:
        # where a network is saturated descent stands still, and random directions do not
        return "by projected gradient descent", np.minimum(network(logits, X, y, box), drawn)
    return "along random directions", drawn


def _linear(model: Any, classes: NDArray[Any]) -> tuple[Float, Float] | None:
    """Return weights (K, d) and intercepts (K,) of a linear classifier, behind a scaler or none; None for others."""
    steps = [step for _, step in getattr(model, "steps", [("", model)])]
    last = steps[-1]
    if not (hasattr(last, "coef_") and hasattr(last, "intercept_") and hasattr(last, "classes_")):
        return None
    if len(steps) > 2 or len(last.classes_) != len(classes) or not all(map(_of_scikit_learn, (model, last, steps[0]))):
        return None
    W, b = np.atleast_2d(np.asarray(last.coef_, dtype=np.float64)), np.atleast_1d(last.intercept_).astype(np.float64)
    if len(W) == 1:  # two classes, one score
        W, b = np.concatenate([-W, W]) / 2, np.concatenate([-b, b]) / 2
    if len(steps) == 2:
        scale, mean = getattr(steps[0], "scale_", None), getattr(steps[0], "mean_", None)
        if scale is None or mean is None or type(steps[0]).__name__ != "StandardScaler":
            return None
        W = W / scale
        b = b - W @ mean
    return W, b


def _agrees(flat: tuple[Float, Float], X: Float, likelihood: Any) -> bool:
    """Whether the largest linear score is the model's own answer at the records."""
    W, b = flat
    scores, p = X @ W.T + b, likelihood(X)
    top = np.sort(p, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-9 if p.shape[1] > 1 else np.ones(len(p), dtype=bool)
    return bool(clear.any() and (scores.argmax(axis=1) == p.argmax(axis=1))[clear].all())


def _of_scikit_learn(model: Any) -> bool:
    """Whether an attribute means what scikit-learn means by it: a class of its own may answer otherwise."""
    return type(model).__module__.partition(".")[0] == "sklearn"


def _is_tree(model: Any) -> bool:
    return _of_scikit_learn(model) and hasattr(model, "tree_") and hasattr(model, "classes_")


def _logits(model: Any, shape: tuple[int, ...], likelihood: Any, X: Float) -> Any:
    """Return the differentiable scores behind the model's answers, if a module of torch gives them; else None."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None:
        return None
    held = [model, *(vars(model).values() if hasattr(model, "__dict__") else ())]
    for module in (m for m in held if isinstance(m, torch.nn.Module)):
        module.eval()
        for given in dict.fromkeys([shape, (int(np.prod(shape)),)]):

            def scores(x: Any, module: Any = module, given: tuple[int, ...] = given) -> Any:
                return module(x.reshape(len(x), *given))

            try:
                with torch.no_grad():
                    own = torch.softmax(scores(torch.as_tensor(X[:64], dtype=torch.float32)), 1).double().numpy()
            except (RuntimeError, TypeError, ValueError, IndexError):
                continue
            seen = likelihood(X[:64])
            if own.shape == seen.shape and np.abs(own - seen).max() <= AGREE:
                return scores
    return None
