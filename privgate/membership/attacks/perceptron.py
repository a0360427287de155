"""The small network that some papers train on shadow models' answers: one hidden layer, rectified linear units."""

import warnings
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.membership.attacks.observed import FLOOR


def train(
    rows: Float, inside: NDArray[np.bool_], rng: Generator, *, hidden: int, epochs: int, rate: float = 0.01
) -> Any:
    """Return a standardised classifier of "in" against "out".

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
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier(
        (hidden,),
        learning_rate_init=rate,
        max_iter=epochs,
        batch_size=min(200, len(rows)),
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        # the papers fix the number of epochs; whether the network has converged by then is not asked
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_pipeline(StandardScaler(), network).fit(rows, inside)


def log_odds(network: Any, rows: Float) -> Float:
    """Return ln P(in) - ln P(out), shape (n,); finite, since a saturated unit's 0 is taken for 1e-30."""
    p = np.log(np.maximum(network.predict_proba(rows), FLOOR))
    return np.asarray(p[:, 1] - p[:, 0], dtype=np.float64)


def balanced_rows(inside: NDArray[np.bool_], most: int, rng: Generator) -> NDArray[np.int64]:
    """Return positions in the flattened ``inside``: equally many of each kind, at most ``most`` in all, shuffled."""
    flat = inside.ravel()
    one, other = np.flatnonzero(flat), np.flatnonzero(~flat)
    size = min(len(one), len(other), most // 2)
    picked = np.concatenate([rng.choice(one, size, replace=False), rng.choice(other, size, replace=False)])
    return np.asarray(rng.permutation(picked), dtype=np.int64)
