"""Certificates for least squares: the minimum, an inverse factor, and everybody's move by the push-through identity."""

import numpy as np

from privgate.arrays import Float, Index


def proposed(X: Float, y: Float, penalty: Float, person: Index) -> dict[str, Float]:
    """Return arrays ``at``, ``factor`` and ``moves``; a move is NaN where a person holds a direction alone.

    Parameters
    ----------
    X : float64 array of shape (n, p)
        A column of ones last where there is an intercept.
    y : float64 array of shape (n,)
    penalty : float64 array of shape (p,)
    person : int64 array of shape (n,)
    """
    factor = np.linalg.inv(np.linalg.cholesky(X.T @ X + np.diag(penalty)))
    at = np.zeros(X.shape[1])
    for _ in range(3):  # each round takes off what rounding left
        at = at - factor.T @ (factor @ (X.T @ (X @ at - y) + penalty * at))
    rest, people = y - X @ at, int(person.max()) + 1
    half = X @ factor.T  # half . half' is the hat matrix
    moves = np.full((people, X.shape[1]), np.nan)
    rows = np.argsort(person, kind="stable")
    edges = np.searchsorted(person[rows], np.arange(people + 1))
    single = np.flatnonzero(np.diff(edges) == 1)
    own = rows[edges[single]]
    with np.errstate(divide="ignore", invalid="ignore"):
        moves[single] = -(half[own] @ factor) * (rest[own] / (1 - (half[own] ** 2).sum(axis=1)))[:, None]
    for k in np.flatnonzero(np.diff(edges) > 1):
        some = rows[edges[k] : edges[k + 1]]
        hat = half[some] @ half[some].T
        if np.linalg.eigvalsh(hat)[-1] < 1 - 1e-9:
            moves[k] = -(half[some].T @ np.linalg.solve(np.eye(len(some)) - hat, rest[some])) @ factor
    return {"at": at, "factor": factor, "moves": moves}
