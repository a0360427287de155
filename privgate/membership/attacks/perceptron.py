"""The small network that some papers train on shadow models' answers: one hidden layer, rectified linear units."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.membership.attacks.observed import FLOOR

#: of Adam, of the penalty and of giving up: what scikit-learn takes, by which the papers' networks were trained here
FIRST, SECOND, SMALL, PENALTY, LEAST_GAIN, PATIENCE = 0.9, 0.999, 1e-8, 1e-4, 1e-4, 10
BATCH = 200  # rows


@dataclass(frozen=True, slots=True)
class Network:
    """A trained network.

    Parameters
    ----------
    scaler : StandardScaler
    weights : tuple of float64 arrays
        Of the hidden units, of shapes (f, hidden) and (hidden,), and of the output, (hidden, 1) and (1,).
    """

    scaler: Any
    weights: tuple[Float, Float, Float, Float]


def train(
    rows: Float, inside: NDArray[np.bool_], rng: Generator, *, hidden: int, epochs: int, rate: float = 0.01
) -> Network:
    """Return a standardised classifier of "in" against "out": scikit-learn's ``MLPClassifier`` in half its time.

    Parameters
    ----------
    rows : float64 array of shape (n, f)
        What the adversary sees of each (shadow model, record).
    inside : bool array of shape (n,)
        Whether the model was trained on the record; both kinds.
    rng : Generator
        Initial weights and order of batches.
    hidden, epochs, rate : int, int, float
        Units of the hidden layer, passes over the rows, learning rate of Adam.
    """
    from scipy.special import expit
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(rows)
    X, y = scaler.transform(rows), inside[:, None].astype(np.float64)
    draws = np.random.RandomState(int(rng.integers(2**31)))
    shapes = ((X.shape[1], hidden), (hidden,), (hidden, 1), (1,))
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    flat, change, mean, square = np.zeros((4, ends[-1]))
    weights, gradients = (
        [part.reshape(shape) for part, shape in zip(np.split(v, ends[:-1]), shapes, strict=True)]
        for v in (flat, change)
    )
    for k, weight in enumerate(weights):
        bound = np.sqrt(6 / sum(shapes[k - k % 2]))
        weight[...] = draws.uniform(-bound, bound, weight.shape)
    W, bias, V, shift = weights
    order, p, best, stale, step = np.arange(len(X)), np.empty_like(y), np.inf, 0, 0
    for _ in range(epochs):
        turn = np.arange(len(X))
        draws.shuffle(turn)
        order = order[turn]
        Xs, ys, size = X[order], y[order], 0.0
        for start in range(0, len(X), BATCH):
            x, t = Xs[start : start + BATCH], ys[start : start + BATCH]
            H = x @ W
            H += bias
            np.maximum(H, 0, out=H)
            z = H @ V
            z += shift
            p[start : start + BATCH] = expit(z)
            size += W.ravel() @ W.ravel() + V.ravel() @ V.ravel()
            away = p[start : start + BATCH] - t
            behind = away * V.T
            behind *= H > 0
            for k, (seen, wrong) in enumerate(((x, behind), (H, away))):
                np.matmul(seen.T, wrong, out=gradients[2 * k])
                gradients[2 * k] += PENALTY * weights[2 * k]
                wrong.sum(axis=0, out=gradients[2 * k + 1])
            change /= len(x)
            step += 1
            mean *= FIRST
            mean += (1 - FIRST) * change
            square *= SECOND
            square += (1 - SECOND) * change**2
            flat += -(rate * np.sqrt(1 - SECOND**step) / (1 - FIRST**step)) * mean / (np.sqrt(square) + SMALL)
        right = np.clip(np.where(ys == 1, p, 1 - p), np.finfo(float).eps, None)
        loss = float(0.5 * PENALTY * size - np.log(right).sum()) / len(X)
        stale, best = stale + 1 if loss > best - LEAST_GAIN else 0, min(best, loss)
        if stale > PATIENCE:
            break
    if not np.isfinite(flat).all():
        raise ValueError("the attack model's weights are not finite: what it is shown is too large")
    return Network(scaler, (W, bias, V, shift))


def log_odds(network: Network, rows: Float) -> Float:
    """Return ln P(in) - ln P(out), shape (n,); finite, since a saturated unit's 0 is taken for 1e-30."""
    from scipy.special import expit

    W, bias, V, shift = network.weights
    p = expit(np.maximum(network.scaler.transform(rows) @ W + bias, 0) @ V + shift)[:, 0]
    return np.asarray(np.log(np.maximum(p, FLOOR)) - np.log(np.maximum(1 - p, FLOOR)), dtype=np.float64)


def balanced_rows(inside: NDArray[np.bool_], most: int, rng: Generator) -> NDArray[np.int64]:
    """Return positions in the flattened ``inside``: equally many of each kind, at most ``most`` in all, shuffled."""
    flat = inside.ravel()
    one, other = np.flatnonzero(flat), np.flatnonzero(~flat)
    size = min(len(one), len(other), most // 2)
    picked = np.concatenate([rng.choice(one, size, replace=False), rng.choice(other, size, replace=False)])
    return np.asarray(rng.permutation(picked), dtype=np.int64)
