"""Proposes certificates for ``kernel.logistic``, a wrong number of which is refused: minimum, factor, Newton steps."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index

Proposal = dict[str, NDArray[Any]]
#: parameters (C, p), and there probabilities (n, C) and the Hessian (C p, C p)
Minimum = tuple[Float, Float, Float]

_BLOCK = 4_000_000  # entries of the largest temporary array
_ROUNDS = 60  # steps of Newton's method at most
_ENDED = 1e-20  # squared length of a Newton step at which it ends: below what any limit tells


class Loss:
    """The objective of ``kernel.logistic`` on some records, shapes as there: ``X`` (n, p), ``penalty`` (p,)."""

    def __init__(self, X: Float, label: Index, weight: Float, penalty: Float, classes: int) -> None:
        self.X, self.label, self.weight, self.penalty, self.K = X, label, weight, penalty, classes
        self.C = 1 if classes == 2 else classes
        self.shared = np.where(penalty == 0, float(self.C > 1), 0.0)
        self.target = (label[:, None] == np.arange(classes - self.C, classes)).astype(np.float64)

    def keep(self, rows: NDArray[Any]) -> "Loss":
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
        penalty = (self.penalty * u**2).sum() / 2 + (self.shared * u.sum(axis=0) ** 2).sum() / 2
        return float(self.weight @ loss + penalty)

    def regular(self, u: Float) -> Float:
        """Return the gradient of what is no loss, at (..., C, p)."""
        return np.asarray(self.penalty * u + self.shared * u.sum(axis=-2, keepdims=True))

    def curvature(self, P: Float) -> Float:
        """Return the second derivatives (m, C, C) of one record's loss, from its probabilities (m, C)."""
        if self.C == 1:
            return np.asarray((P * (1 - P))[:, :, None])
        return np.asarray(P[:, :, None] * (np.eye(self.C) - P[:, None, :]))

    def gradient(self, u: Float) -> Float:
        """Return the gradient (C, p) at u."""
        pull = self.weight[:, None] * (self.probabilities(self.X @ u.T) - self.target)
        return np.asarray(pull.T @ self.X + self.regular(u))

    def hessian(self, P: Float) -> Float:
        """Return the Hessian (C p, C p) where probabilities are P."""
        (C, p), curve = (self.C, self.X.shape[1]), self.weight[:, None, None] * self.curvature(P)
        H = np.zeros((C, p, C, p))
        for a in range(C):
            rooted = self.X * np.sqrt(curve[:, a, a, None])  # a matrix by itself takes half the time
            H[a, :, a, :] = rooted.T @ rooted + np.diag(self.penalty)
            for b in range(a + 1, C):
                H[a, :, b, :] = (self.X * curve[:, a, b, None]).T @ self.X
                H[b, :, a, :] = H[a, :, b, :].T
            H[a] += np.diag(self.shared)[:, None, :]
        return H.reshape(C * p, C * p)

    @np.errstate(over="ignore")
    def minimise(self, start: Float) -> Minimum:
        """Return the end of damped Newton steps from ``start``."""
        u, f, last = start, self.value(start), np.inf
        for _ in range(_ROUNDS):
            P, g = self.probabilities(self.X @ u.T), self.gradient(u)
            H = self.hessian(P)
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
    H'^-1 g = H^-1 g + H^-1 B (I - S A)^-1 S B' H^-1 g. ``person`` (n,) is whose each record is, from 0.
    """

    def __init__(self, loss: Loss, person: Index, minimum: Minimum | None = None) -> None:
        self.loss, self.person = loss, person
        self.u, self.P, self.H = minimum or loss.minimise(np.zeros((loss.C, loss.X.shape[1])))
        self.order = np.argsort(person, kind="stable")
        self.ends = np.searchsorted(person[self.order], np.arange(int(person.max(initial=-1)) + 2))

    @cached_property
    def inverse(self) -> Float:
        """The inverse of the Hessian; may raise ``LinAlgError``."""
        return np.asarray(np.linalg.inv(self.H), dtype=np.float64)

    def _alike(self, people: Index) -> Iterator[tuple[Index, Index]]:
        """Yield (places in ``people``, their records (U, m)): people of equally many records, as many as fit."""
        held = np.diff(self.ends)[people]
        for m in np.unique(held):
            places = np.flatnonzero(held == m)
            width = int(m) * self.loss.C
            step = max(1, _BLOCK // (self.u.size * width + width**2))
            for k in range(0, len(places), step):
                some = places[k : k + step]
                yield some, self.order[self.ends[people[some]][:, None] + np.arange(m)]

    def _solve(self, rows: Index, g: Float | None) -> Float:
        """Return steps H'^-1 g (U, C p) of people with these records (U, m); None: from the minimum, g their own."""
        loss, (U, m), C = self.loss, rows.shape, self.loss.C
        x, flat = loss.X[rows], rows.ravel()
        q, p = self.u.size, x.shape[2]
        inverse = self.inverse.reshape(q, C, p)
        HB = np.stack([x.reshape(-1, p) @ inverse[:, c].T for c in range(C)], axis=1).reshape(U, m * C, q)
        curve = (loss.weight[flat, None, None] * loss.curvature(self.P[flat])).reshape(U, m, C, C)
        A = np.einsum("ukcp,ujp->ukjc", HB.reshape(U, m * C, C, p), x, optimize=True).reshape(U, m * C, m, C)
        AS = np.einsum("ukjc,ujcd->ukjd", A, curve, optimize=True).reshape(U, m * C, m * C)  # both are symmetric
        core = (np.eye(m * C) - AS).transpose(0, 2, 1)
        if g is None:
            whole, inner = np.zeros(q), loss.weight[flat, None] * (self.P[flat] - loss.target[flat])
        else:
            whole, inner = g @ self.inverse, np.einsum("uq,ukq->uk", g, HB).reshape(U, m, C)
            inner = np.einsum("ujd,ujde->uje", inner, curve)
        weight = np.linalg.solve(core, inner.reshape(U, m * C, 1))
        return np.asarray(whole + (weight.transpose(0, 2, 1) @ HB)[:, 0])

    def propose(self, people: Index | None = None) -> Proposal:
        """Return arrays ``at``, ``factor`` and ``moves``: a Newton step of each of ``people``; NaN of the others."""
        moves = np.full((len(self.ends) - 1, *self.u.shape), np.nan)
        people = np.arange(len(moves)) if people is None else people
        for places, rows in self._alike(people):
            try:
                moves[people[places]] = self._solve(rows, None).reshape(-1, *self.u.shape)
            except np.linalg.LinAlgError:
                continue
        return {"at": self.u, "factor": _invert_factor(self.H), "moves": moves}

    def _gradients(self, people: Index, moves: Float) -> Float:
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

    @np.errstate(all="ignore")
    def refine(self, proposal: Proposal, people: Index, rounds: int = 3) -> Proposal:
        """Return the proposal with more steps of some people, who are then to be swept; one that grows is undone."""
        everybody = proposal["moves"].copy()
        moves, last = everybody[people], np.full(len(people), np.inf)
        for _ in range(rounds):
            g = self._gradients(people, moves).reshape(len(people), -1)
            steps = np.zeros_like(g)
            for places, rows in self._alike(people):
                steps[places] = self._solve(rows, g[places])
            size = np.einsum("uq,uq->u", g, steps)
            better = (size < last) & (size > 0)
            moves[better] -= steps.reshape(moves.shape)[better]
            last = size
        everybody[people] = moves
        return {**proposal, "moves": everybody, "swept": people}

    def minimise_alone(self, proposal: Proposal, people: Index) -> Proposal:
        """Return the proposal with a minimum and a factor of their own for some people."""
        own: list[tuple[int, Float, Float]] = []
        for one in people:
            start = proposal["at"] + np.nan_to_num(proposal["moves"][one])
            try:
                u, _, H = self.loss.keep(self.person != one).minimise(start)
                own.append((one, u, _invert_factor(H)))
            except np.linalg.LinAlgError:
                continue
        names = ("alone_people", "alone_at", "alone_factor")
        return {**proposal, **{n: np.array(part) for n, part in zip(names, zip(*own, strict=True), strict=False)}}


def _invert_factor(H: Float) -> Float:
    return np.asarray(np.linalg.inv(np.linalg.cholesky(H)))
