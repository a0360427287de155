"""Where a regularised softmax loss has its minimum: the objective, what a factor says of its Hessian, and radii.

``logistic`` says what is minimised, and why these lengths bound distances. Nothing here believes the parameters, or the
factor, that a metric is made of.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from privgate.kernel.accepted import Accepted
from privgate.kernel.assertion import Case, Float, Index, every
from privgate.kernel.rounding import EPS, LARGE, gamma, up

#: size of a number of a factor from which on products may overflow
_FACTOR = 1e40
#: of a radius, the share of what self-concordance bounds from which on it is infinite
_FULL = 1 - 1e-12
#: entries of the largest temporary array
BLOCK = 4_000_000


@dataclass(frozen=True, eq=False)
class Problem:
    """The objective, as the module says; ``size`` is ``|X|``."""

    X: Float
    label: Index
    weight: Float
    penalty: Float
    allowed: Float
    K: int
    size: Float

    @classmethod
    def from_case(cls, case: Case) -> "Problem":
        """Return the problem of a case that is one."""
        X, label, K = case.array("X", 2), case.array("label", 1, "i"), case.setting("classes", int)
        penalty, allowed = case.array("penalty", 1), case.array("allowed", 1)
        (n, p), size = X.shape, np.abs(X)
        weight = case.array("weight", 1) if "weight" in case.arrays else np.ones(n)
        every((n > 0 and p > 0 and K >= 2, "there are no records, features or classes"))
        every(
            (label.shape == weight.shape == (n,), f"labels or weights are not about {n} records"),
            (penalty.shape == allowed.shape == (p,), f"penalties or gradients are not about {p} parameters"),
            (bool((size <= LARGE).all()), "records are not finite"),
            (bool(((weight > 1 / LARGE) & (weight < LARGE)).all()), "weights are not positive"),
            (bool(((penalty == 0) | ((penalty > 1 / LARGE) & (penalty < LARGE))).all()), "penalties are negative"),
            (bool(((allowed >= 0) & (allowed < LARGE)).all()), "allowed gradients are negative"),
            (not case.setting("intercept", bool) or bool((X[:, -1] == 1).all()), "the last column is not of ones"),
        )
        known = len(np.unique(label)) == K and bool(label.min() == 0 and label.max() == K - 1)
        every((known, f"labels are not 0 to {K - 1}, each held by a record"))
        return cls(X, label, weight, penalty, allowed, K, size)

    def same(self, other: "Problem") -> bool:
        """Return whether everything of another problem is equal to this one's; sizes follow the records."""
        ours, theirs = ((q.X, q.label, q.weight, q.penalty, q.allowed) for q in (self, other))
        return self.K == other.K and all(map(np.array_equal, ours, theirs))

    def without(self, gone: Index) -> "Problem":
        """Return the problem without some records."""
        kept = np.delete(np.arange(len(self.X)), gone)
        parts = self.X[kept], self.label[kept], self.weight[kept]
        return Problem(*parts, self.penalty, self.allowed, self.K, self.size[kept])

    @property
    def vectors(self) -> int:
        """Number of parameter vectors."""
        return 1 if self.K == 2 else self.K

    @cached_property
    def shared(self) -> Float:
        """1 at columns along which all vectors may move together, (p,)."""
        return np.where(self.penalty == 0, float(self.vectors > 1), 0.0)

    @cached_property
    def used(self) -> Float:
        """0 at columns whose parameters are 0 in every training: no record has them, no gradient is left; (p,)."""
        idle = (self.size == 0).all(axis=0) & (self.allowed == 0) & (self.penalty > 0)
        return np.where(idle, 0.0, 1.0)

    def off(self, size: Float) -> Float:
        """Return how far rounding moves a difference of two scores, from ``|x| . |u|`` of either."""
        return 2 * gamma(len(self.penalty) + 8) * size

    def scores(self, Z: Float) -> Float:
        """Return scores (..., K) of all classes: of two, the first has 0."""
        return Z if self.vectors > 1 else np.concatenate([np.zeros_like(Z), Z], axis=-1)

    def classwise(self, u: Float, d: int) -> Float:
        """Return parameters (..., C, p) as (..., K, d + 1), the constant last."""
        u = u if self.vectors > 1 else np.concatenate([np.zeros_like(u), u], axis=-2)
        return u if u.shape[-1] > d else np.concatenate([u, np.zeros((*u.shape[:-1], 1))], axis=-1)

    def answers(self, Z: Float) -> Float:
        """Return probabilities (..., K) from scores (..., C), off by a share of ``2 K + 24`` units of roundoff."""
        Z = self.scores(Z)
        E = np.exp(Z - Z.max(axis=-1, keepdims=True))
        return np.asarray(E / E.sum(axis=-1, keepdims=True))

    def pulls(self, Z: Float, off: Float, label: Index) -> tuple[Float, Float]:
        """Return derivatives of losses by scores Z (m, ..., C), and errors (m,) where scores are off by ``off``."""
        first = self.K - self.vectors
        mine = label.reshape(-1, *[1] * (Z.ndim - 1)) == np.arange(first, self.K)
        P = self.answers(Z) if first == 0 else 1 / (1 + np.exp(-Z))
        return P - mine, off / 4 + (2 * self.K + 28) * EPS  # a probability has slope p (1 - p) at most

    def hessian(self, P: Float) -> Float:
        """Return the Hessian, (C p, C p): only products of two probabilities, each rounded by a share of itself."""
        p, C = len(self.penalty), self.vectors
        H = np.zeros((C, p, C, p))
        for a, b in combinations(range(self.K), 2):
            M = (self.X * (self.weight * P[:, a] * P[:, b])[:, None]).T @ self.X
            for k, other, sign in ((a, a, 1), (b, b, 1), (a, b, -1), (b, a, -1)) if C > 1 else ((0, 0, 1),):
                H[k, :, other, :] += sign * M
        for k in range(C):
            H[k, :, k, :] += np.diag(self.penalty)
            H[k, :, :, :] += np.diag(self.shared)[:, None, :]
        return H.reshape(C * p, C * p)


def _length(V: Float) -> Float:
    """Return upper bounds of the lengths of the rows of V; squares may underflow."""
    return up(np.linalg.norm(V, axis=-1) + 1e-150, V.shape[-1] + 8)


def above(x: float, terms: float = 64) -> float:
    """Return a number that so many operations made, rounded upward."""
    return float(up(np.array(x), terms))


def radius(R: Float, g: Float) -> Float:
    """Return -ln(1 - R g) / R rounded upward, infinite where R g is not below 1; never below g.

    t is R g or more, and -ln(1 - t) grows in t; log1p of t as it is stored errs by a share of its result, so nothing
    is lost near 1. Where R g underflows, g is right up to a share of R g.
    """
    t = up(R * g, 4)
    return np.where(t < _FULL, np.maximum(up(-np.log1p(-t) / R), up(g)), np.inf)


def ends(R: Float, stop: Float, moved: Float) -> Float:
    """Return how far from its minimum, ``moved`` away, a training may end; in the norm where the distance began."""
    bend = up(np.exp(R * moved / 2))
    return up(radius(up(R * bend), up(stop * bend)) * bend)


@dataclass(frozen=True, eq=False)
class Metric:
    """What W says of the inverse of the Hessian H at ``u``. All lengths are upper bounds."""

    problem: Problem
    u: Float
    W: Float
    #: shape (n, C): scores and probabilities there
    Z: Float
    P: Float
    H: Float
    #: ``|g| <= grown ||W g||``
    grown: float
    #: how far H is off, a share in its own norm
    off: float
    #: shape (C p,): ``|H_jk| <= scale_j scale_k``
    scale: Float
    #: length of a gradient whose components are at most ``scale``
    spread: float

    @classmethod
    def from_factor(cls, problem: Problem, u: Float, W: Float) -> "Metric":
        """Return the metric if W is near an inverse factor of the Hessian at u."""
        q, n, K = u.size, len(problem.X), problem.K
        every((W.shape == (q, q) and bool((np.abs(W) < _FACTOR).all()), "the factor is no finite square matrix"))
        every((bool((np.abs(u) < LARGE).all()), "the parameters are not finite"))
        Z = problem.X @ u.T
        moved = float(problem.off(problem.size @ np.abs(u).max(axis=0)).max())
        P = problem.answers(Z)
        H = problem.hessian(P)
        curved = above(np.expm1(moved) + (8 * K + 112) * EPS)  # each curvature is off by this share at most
        summed = gamma(n + K + 12)  # and a sum of them by this share of scale_j scale_k
        scale = np.sqrt(np.diag(H) * (1 + 4 * summed))
        ahead = float(_length(np.abs(W) @ scale))
        apart = W @ H @ W.T - np.eye(q)
        d = above(float(np.linalg.norm(apart)), q * q + 8) + above((2 * gamma(2 * q + 8) + summed) * ahead**2)
        every((d + curved < 0.5, f"the factor is {d:.2g} from an inverse factor of the Hessian"))
        grown = above(np.sqrt((1 + curved) / (1 - d)))
        off = above(curved + summed * (grown * ahead) ** 2)
        every((off < 0.5, f"the Hessian is known up to a share of {off:.2g} only"))
        return cls(problem, u, W, Z, P, H, grown, off, scale, above(grown * ahead))

    @cached_property
    def parts(self) -> Float:
        """W by the vector that its columns are of, (C, C p, p)."""
        q = len(self.W)
        return np.ascontiguousarray(self.W.reshape(q, self.problem.vectors, -1).transpose(1, 0, 2))

    def inverse_norm(self, V: Float, off: Float) -> Float:
        """Return |g| for the rows g of V (m, C p), which are off by vectors of length ``off`` (m,)."""
        lost = gamma(len(self.W) + 8) * _length(np.abs(V) @ np.abs(self.W).T)
        return up(self.grown * (_length(V @ self.W.T) + lost) + off)

    def sizes(self, V: Float) -> Float:
        """Return |g| at most, for gradients whose components have at most the sizes V (m, p) in every vector."""
        return up(self.grown * _length(V @ np.abs(self.parts).sum(axis=0).T), len(self.W) + 16)

    def reach(self, X: Float, sizes: Float | None = None) -> Float:
        """Return how far a move of length 1 moves differences of scores at records, (m, pairs of classes)."""
        C, lengths = self.problem.vectors, []
        sizes = self.sizes(np.abs(X)) if sizes is None else sizes
        step = max(1, BLOCK // (len(self.W) * (C + 1)))
        for k in range(0, len(X), step):
            Y = [X[k : k + step] @ part.T for part in self.parts]
            pairs = Y if C == 1 else [Y[a] - Y[b] for a, b in combinations(range(C), 2)]
            lengths.append(np.stack([_length(D) for D in pairs], axis=1))
        return up(self.grown * np.concatenate(lengths) + gamma(X.shape[1] + 8) * sizes[:, None])

    def farthest(self, accepted: Accepted, used: Float) -> float:
        """Return how far a move of length 1 moves a difference of two scores at any accepted question.

        Columns where ``used`` (p,) is 0 are left out: their parameters are known.
        """
        C, d, none = self.problem.vectors, len(accepted.single), np.zeros(len(self.W))
        parts = self.parts * used
        pairs = list(parts) if C == 1 else [parts[a] - parts[b] for a, b in combinations(range(C), 2)]
        ends = [accepted.bound_norm(A[:, :d], A[:, d] if A.shape[1] > d else none) for A in pairs]
        return above(self.grown * max(ends))

    @cached_property
    def record_sizes(self) -> Float:
        """``sizes`` of each record, (n,)."""
        return self.sizes(self.problem.size)

    @cached_property
    def pairs(self) -> Float:
        """Reach of each record, (n, pairs)."""
        return self.reach(self.problem.X, self.record_sizes)

    @cached_property
    def records(self) -> Float:
        """Largest reach of each record, (n,)."""
        return np.asarray(self.pairs.max(axis=1))

    @cached_property
    def widest(self) -> float:
        """Largest reach of any record."""
        return float(self.records.max())

    @cached_property
    def lever(self) -> Float:
        """Each record's part of the Hessian, at most, as a share of H, (n,)."""
        products = np.stack([self.P[:, a] * self.P[:, b] for a, b in combinations(range(self.problem.K), 2)], axis=1)
        trace = np.minimum((products * self.pairs**2).sum(axis=1) * (1 + 2 * self.off), self.records**2 / 4)
        return up(self.problem.weight * trace)

    @cached_property
    def axis(self) -> Float:
        """How far a move of length 1 moves each column's parameters, (p,)."""
        return up(self.grown * _length(self.parts.transpose(0, 2, 1)).max(axis=0))

    @cached_property
    def gradient(self) -> tuple[Float, float]:
        """The gradient at u, (C, p), and the length of its error."""
        problem, u = self.problem, np.abs(self.u)
        pull, lost = problem.pulls(self.Z, problem.off(problem.size @ u.max(axis=0)), problem.label)
        g = (problem.weight[:, None] * pull).T @ problem.X + problem.penalty * self.u
        g = g + problem.shared * self.u.sum(axis=0)
        lost = lost + gamma(len(problem.X) + 8) * np.abs(pull).max(axis=1)
        kept = problem.penalty * u.max(axis=0) + problem.shared * u.sum(axis=0)
        off = (problem.weight * lost) @ problem.size + gamma(problem.vectors + 8) * kept
        return g, float(self.sizes(up(off, len(problem.X))[None])[0])

    @cached_property
    def stop(self) -> float:
        """Length of a gradient at which a training ends."""
        return float(self.sizes(self.problem.allowed[None])[0])

    @cached_property
    def trained(self) -> float:
        """How far from u a training on the records of this problem ends."""
        g, off = self.gradient
        R, near = np.array(self.widest), self.inverse_norm(g.reshape(1, -1), np.array([off]))[0]
        near = radius(R, near)
        return float(up(near + ends(R, np.array(self.stop), near)))
