"""Proposes certificates for ``kernel.logistic``: a minimum, a factor, a Newton step for each person.

Nothing is believed. A wrong number here widens a limit or has it refused. ``propose`` makes one step for everybody
from one factorisation; ``refine`` takes further steps for those whom it leaves open, ``alone`` minimises again for the
last few.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index

Certificate = dict[str, NDArray[Any]]
#: parameters (C, p), and there probabilities (n, C) and the Hessian (C p, C p)
Minimum = tuple[Float, Float, Float]

#: entries of the largest temporary array
_BLOCK = 4_000_000
#: steps of Newton's method at most
_ROUNDS = 60
#: squared length of a Newton step at which it ends: below what any limit tells
_ENDED = 1e-20


class Loss:
    """The objective of ``kernel.logistic`` on some records, shapes as there.

    Parameters
    ----------
    X : float64 array of shape (n, p)
    label : int64 array of shape (n,)
    weight : float64 array of shape (n,)
    penalty : float64 array of shape (p,)
    classes : int
    """

    def __init__(self, X: Float, label: Index, weight: Float, penalty: Float, classes: int) -> None:
        self.X, self.label, self.weight, self.penalty, self.K = X, label, weight, penalty, classes
        self.C = 1 if classes == 2 else classes
        self.shared = np.where(penalty == 0, float(self.C > 1), 0.0)
        self.target = (label[:, None] == np.arange(classes - self.C, classes)).astype(np.float64)

    def keep(self, rows: NDArray[np.bool_]) -> "Loss":
        """Return the objective on some of the records."""
        return Loss(self.X[rows], self.label[rows], self.weight[rows], self.penalty, self.K)

    def probabilities(self, Z: Float) -> Float:
        """Return probabilities (..., C) of the second of two classes, or of all, from scores of that shape."""
        if self.C == 1:
            return np.asarray(1 / (1 + np.exp(-Z)))
        E = np.exp(Z - Z.max(axis=-1, keepdims=True))
        return np.asarray(E / E.sum(axis=-1, keepdims=True))

    def value(self, u: Float) -> float:
        """Return f(u)."""
        Z = self.X @ u.T
        scores = np.column_stack([np.zeros(len(Z)), Z]) if self.C == 1 else Z
        loss = np.logaddexp.reduce(scores, axis=1) - (Z * self.target).sum(axis=1)
        return float(
            self.weight @ loss + (self.penalty * u**2).sum() / 2 + (self.shared * u.sum(axis=0) ** 2).sum() / 2
        )

    def regular(self, u: Float) -> Float:
        """Return the gradient of what is no loss, at (..., C, p)."""
        return np.asarray(self.penalty * u + self.shared * u.sum(axis=-2, keepdims=True))

    def curvature(self, P: Float) -> Float:
        """Return the second derivatives (m, C, C) of one record's loss, from its probabilities (m, C)."""
        if self.C == 1:
            return np.asarray((P * (1 - P))[:, :, None])
        return np.asarray(P[:, :, None] * (np.eye(self.C) - P[:, None, :]))

    def gradient(self, u: Float, P: Float | None = None) -> Float:
        """Return the gradient (C, p) at u, where probabilities are P."""
        P = self.probabilities(self.X @ u.T) if P is None else P
        return np.asarray((self.weight[:, None] * (P - self.target)).T @ self.X + self.regular(u))

    def slope(self, u: Float) -> tuple[Float, Float, Float]:
        """Return (probabilities, gradient (C, p), Hessian (C p, C p)) at u."""
        P, (C, p) = self.probabilities(self.X @ u.T), u.shape
        gradient = self.gradient(u, P)
        H, curve = np.zeros((C, p, C, p)), self.weight[:, None, None] * self.curvature(P)
        for a in range(C):
            rooted = self.X * np.sqrt(curve[:, a, a, None])  # a matrix by itself takes half the time
            H[a, :, a, :] = rooted.T @ rooted + np.diag(self.penalty)
            for b in range(a + 1, C):
                H[a, :, b, :] = (self.X * curve[:, a, b, None]).T @ self.X
                H[b, :, a, :] = H[a, :, b, :].T
            H[a] += np.diag(self.shared)[:, None, :]
        return P, gradient, H.reshape(C * p, C * p)

    def minimise(self, start: Float) -> Minimum:
        """Return the end of damped Newton steps from ``start``."""
        u, f, last = start, self.value(start), np.inf
        for _ in range(_ROUNDS):
            P, g, H = self.slope(u)
            step = np.linalg.solve(H, g.ravel()).reshape(u.shape)
            square, t = float((g * step).sum()), 1.0
            if not square > _ENDED or last / 4 < square < 1e-12:  # the rest is rounding
                break
            last = square
            # a step that is small needs no search, and could not be told from rounding
            while square > 1e-6 and t > 1e-9 and not self.value(u - t * step) <= f - 1e-4 * t * square:
                t /= 2
            u = u - t * step
            f = self.value(u) if square > 1e-6 else f
        return u, P, H


class Leaving:
    """Newton steps of people who leave a minimum: the Hessian without theirs, by the push-through identity.

    With B the person's records, S their curvatures and A = B' H^-1 B, the Hessian is H' = H - B S B', and
    H'^-1 g = H^-1 g + H^-1 B (I - S A)^-1 S B' H^-1 g.
    """

    def __init__(self, loss: Loss, person: Index, found: Minimum) -> None:
        self.loss, self.person, (self.u, self.P, self.H) = loss, person, found
        self.inverse = np.linalg.inv(self.H)
        self.order = np.argsort(person, kind="stable")
        self.ends = np.searchsorted(person[self.order], np.arange(int(person.max(initial=-1)) + 2))

    def alike(self, people: Index) -> Iterator[tuple[Index, Index]]:
        """Yield (places in ``people``, their records (U, m)): people of equally many records, as many as fit."""
        held = np.diff(self.ends)[people]
        for m in np.unique(held):
            places = np.flatnonzero(held == m)
            width = int(m) * self.loss.C
            step = max(1, _BLOCK // (self.u.size * width + width**2))
            for k in range(0, len(places), step):
                some = places[k : k + step]
                yield some, self.order[self.ends[people[some]][:, None] + np.arange(m)]

    def solve(self, rows: Index, g: Float | None) -> Float:
        """Return steps H'^-1 g (U, C p) of people with these records (U, m); None: from the minimum, g their own."""
        loss, (U, m), C = self.loss, rows.shape, self.loss.C
        x, flat = loss.X[rows], rows.ravel()
        q, p = self.u.size, x.shape[2]
        inverse = self.inverse.reshape(q, C, p)
        HB = np.stack([x.reshape(-1, p) @ inverse[:, c].T for c in range(C)], axis=1).reshape(U, m * C, q)
        curve = (loss.weight[flat, None, None] * loss.curvature(self.P[flat])).reshape(U, m, C, C)
        A = np.einsum("ukcp,ujp->ukjc", HB.reshape(U, m * C, C, p), x, optimize=True).reshape(U, m * C, m, C)
        SA = np.einsum("ukjc,ujcd->ukjd", A, curve, optimize=True).reshape(
            U, m * C, m * C
        )  # (A S), as both are symmetric
        core = np.eye(m * C) - SA
        if g is None:
            pull = (loss.weight[flat, None] * (self.P[flat] - loss.target[flat])).reshape(U, m * C)
            weight = np.linalg.solve(core.transpose(0, 2, 1), pull[:, :, None])
            return np.asarray((weight.transpose(0, 2, 1) @ HB)[:, 0])
        inner = np.einsum("ujd,ujde->uje", np.einsum("uq,ukq->uk", g, HB).reshape(U, m, C), curve).reshape(U, m * C)
        weight = np.linalg.solve(core.transpose(0, 2, 1), inner[:, :, None])
        return np.asarray(g @ self.inverse + (weight.transpose(0, 2, 1) @ HB)[:, 0])

    def first(self, people: Index) -> Float:
        """Return one Newton step for each of these people, (U, C, p); NaN where there is none."""
        moves = np.full((len(people), self.u.size), np.nan)
        for places, rows in self.alike(people):
            try:
                moves[places] = self.solve(rows, None)
            except np.linalg.LinAlgError:
                continue
        return moves.reshape(len(people), *self.u.shape)

    def gradients(self, people: Index, moves: Float) -> Float:
        """Return the gradients (U, C, p) at ``u + moves`` without each of these people, by a sweep over all records."""
        loss, n = self.loss, len(self.person)
        g, step = np.empty_like(moves), max(1, _BLOCK // (n * loss.C))
        for k in range(0, len(people), step):
            V, some = self.u + moves[k : k + step], people[k : k + step]
            R = loss.probabilities((loss.X @ V.reshape(-1, V.shape[2]).T).reshape(n, len(V), loss.C))
            R = (R - loss.target[:, None, :]) * loss.weight[:, None, None]
            for j, one in enumerate(some):
                R[self.order[self.ends[one] : self.ends[one + 1]], j] = 0.0
            g[k : k + step] = (R.reshape(n, -1).T @ loss.X).reshape(V.shape) + loss.regular(V)
        return g

    def further(self, people: Index, moves: Float, rounds: int) -> Float:
        """Return moves after more steps with the same Hessians; one that grows is taken back."""
        moves, last = moves.copy(), np.full(len(people), np.inf)
        for _ in range(rounds):
            g = self.gradients(people, moves).reshape(len(people), -1)
            steps = np.zeros_like(g)
            for places, rows in self.alike(people):
                steps[places] = self.solve(rows, g[places])
            size = np.einsum("uq,uq->u", g, steps)
            better = (size < last) & (size > 0)
            moves[better] -= steps.reshape(moves.shape)[better]
            last = size
        return moves


def propose(
    loss: Loss, person: Index, start: Float | Minimum | None = None, people: Index | None = None
) -> Certificate:
    """Return the arrays ``at``, ``factor`` and ``moves`` of a certificate: one Newton step for each of ``people``.

    Parameters
    ----------
    loss : Loss
    person : int64 array of shape (n,)
        Whose each record is, from 0.
    start : float64 array of shape (C, p) or tuple, optional
        Parameters near the minimum, such as the registered model's; or what ``Loss.minimise`` returned.
    people : int64 array, optional
        Everybody if absent; the others get NaN.
    """
    if not isinstance(start, tuple):
        u = np.zeros((loss.C, loss.X.shape[1])) if start is None else start - loss.shared * start.mean(axis=0)
        with np.errstate(over="ignore"):
            start = loss.minimise(u)
    leaving = Leaving(loss, person, start)
    moves = np.full((len(leaving.ends) - 1, *leaving.u.shape), np.nan)
    some = np.arange(len(moves)) if people is None else people
    moves[some] = leaving.first(some)
    return {"at": leaving.u, "factor": factor(leaving.H), "moves": moves}


def refine(
    loss: Loss, person: Index, certificate: Certificate, people: Index, *, found: Minimum | None = None, rounds: int = 3
) -> Certificate:
    """Return the certificate with further steps from ``found`` for some people, who are then to be swept."""
    leaving = Leaving(loss, person, found or (certificate["at"], *loss.slope(certificate["at"])[::2]))
    moves = certificate["moves"].copy()
    with np.errstate(all="ignore"):
        moves[people] = leaving.further(people, moves[people], rounds)
    return {**certificate, "moves": moves, "swept": people}


def alone(loss: Loss, person: Index, certificate: Certificate, people: Index) -> Certificate:
    """Return the certificate with a minimum and a factor of their own for some people."""
    points, factors, who = [], [], []
    for one in people:
        try:
            u, _, H = loss.keep(person != one).minimise(certificate["at"] + np.nan_to_num(certificate["moves"][one]))
            factors.append(factor(H))
        except np.linalg.LinAlgError:
            continue
        points.append(u)
        who.append(one)
    made = {"alone_people": who, "alone_at": points, "alone_factor": factors}
    return {**certificate, **{name: np.array(part) for name, part in made.items() if who}}


def factor(H: Float) -> Float:
    """Return the inverse of the Cholesky factor of H."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(H)))
