"""Distance from a record to the nearest question with another answer than its label, in three norms.

Exact for linear models and for single trees; by projected gradient descent for networks of torch, and along random
directions for anything else, where it is an upper bound. A record about which the model is wrong has distance 0.

References
----------
Yeom et al. (2020), section 6; Madry et al. (2018) for the projected gradient.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Index = NDArray[np.int64]
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
