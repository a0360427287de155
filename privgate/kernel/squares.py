"""Least squares, with or without a penalty: how far each person's absence moves a number that is answered.

Objective.  f(u) = |X u - y|^2 / 2 + sum_j penalty_j u_j^2 / 2, as scikit-learn's ``LinearRegression`` and ``Ridge``
have it; an intercept is a last column of ones without penalty.

Claim.  Take any training on all records, and any without one person, that ends where no component of the gradient of f
exceeds ``allowed``. No answer about a record of theirs (asked "own"), or to any accepted question ("any"), differs
between the two by more than ``high``; one about a record of theirs differs by ``low`` or more. The unit is the
standard deviation of y about its mean.

Certificate.  ``at`` (p,): near the minimum. ``factor`` W (p, p): near an inverse Cholesky factor of the Hessian
H = X'X + diag(penalty). ``moves`` (U, p): near what a person's absence adds to the minimum; NaN for whom nothing is
shown. ``question`` (U, d): where, beside their records, ``low`` is looked for.

Why it is enough.
1. ||W H W' - I|| <= d < 1 gives H^-1 <= W'W / (1 - d). |g| is the length of a gradient in H^-1, |v| that of a move in
   H, and ``reach`` of x the most that a move of length 1 changes x . u.
2. f is quadratic: from u the minimum is |gradient at u| away, and a training ends within |allowed| of it.
3. Without a person the Hessian is at least (1 - h) H, h the sum of their records' squared reaches, or the square
   of the largest reach that any combination of them of length 1 has. The gradient at
   ``at`` + m is that at ``at``, plus H m, less the person's own. So the minimum without them is at most
   |that gradient| / (1 - h) away, in the norm of H, and a training ends within |allowed| / (1 - h) of that.
4. Distances times the reach of a question bound how far its answer is from what the parameters say.

Axioms.  Trainings end within ``allowed``; answers are sums of products. Rounding is as ``rounding`` says.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privgate.kernel.accepted import Accepted
from privgate.kernel.assertion import Case, Float, Index, Limits, every
from privgate.kernel.rounding import EPS, LARGE, gamma, up
from privgate.kernel.scores import largest, sums

#: size below which a deviation is none
_SMALL = 1e-50


@dataclass(frozen=True, eq=False)
class _Metric:
    """What the factor says of the inverse Hessian: ``|g| <= grown ||W g||``, off by ``lost`` of ``||W| |g||``."""

    X: Float
    y: Float
    penalty: Float
    H: Float
    W: Float
    grown: float
    off: float

    @classmethod
    def from_case(cls, case: Case) -> "_Metric":
        """Return the metric if the factor is near an inverse factor of the Hessian."""
        X, y, penalty, W = case.array("X", 2), case.array("y", 1), case.array("penalty", 1), case.array("factor", 2)
        n, p = X.shape
        every(
            (n > 0 and p > 0 and y.shape == (n,) and penalty.shape == (p,), "records, targets and penalties differ"),
            (bool((np.abs(X) < LARGE).all() and (np.abs(y) < LARGE).all()), "numbers are not finite"),
            (bool(((penalty >= 0) & (penalty < LARGE)).all()), "penalties are negative"),
            (W.shape == (p, p) and bool((np.abs(W) < LARGE).all()), "the factor is no finite square matrix"),
            (not case.setting("intercept", bool) or bool((X[:, -1] == 1).all()), "the last column is not of ones"),
        )
        H, scale = X.T @ X + np.diag(penalty), np.sqrt((X**2).sum(axis=0) + penalty)
        ahead = float(up(np.array(np.linalg.norm(np.abs(W) @ scale)), p + 8))
        summed = gamma(n + 4)  # an entry of H errs by this share of scale_j scale_k
        d = float(np.linalg.norm(W @ H @ W.T - np.eye(p))) * (1 + gamma(p * p + 8))
        d += 2 * (gamma(2 * p + 8) + summed) * ahead**2
        every((d < 0.5, f"the factor is {d:.2g} from an inverse factor of the Hessian"))
        grown = float(up(np.array(1 / np.sqrt(1 - d))))
        return cls(X, y, penalty, H, W, grown, float(up(np.array(2 * summed * (grown * ahead) ** 2))))

    def length(self, G: Float, off: Float) -> Float:
        """Return at most how long gradients are, rows of G (m, p) each of whose components is off by ``off``."""
        p = len(self.W)
        lost = gamma(p + 8) * (np.abs(G) @ np.abs(self.W).T) + off @ np.abs(self.W).T
        both = np.linalg.norm(G @ self.W.T, axis=-1) + np.linalg.norm(lost, axis=-1) + 1e-150
        return up(self.grown * both, p + 16)

    def reach(self, X: Float) -> Float:
        """Return how far a move of length 1 moves the answers to the rows of X, at most."""
        return self.length(X, np.zeros((1, X.shape[1])))


def bound(case: Case) -> Limits:
    """Return the limits of each person; infinite for whom the certificate shows nothing."""
    M = _Metric.from_case(case)
    p, (person, people) = M.X.shape[1], case.person(len(M.X))
    u, moves, allowed = case.array("at", 1), case.certificate("moves", (people, p)), case.array("allowed", 1)
    fits = u.shape == allowed.shape == (p,) and bool((np.abs(u) < LARGE).all())
    every(
        (fits, "'at' or 'allowed' are not of length p"), (bool((allowed >= 0).all()), "allowed gradients are negative")
    )
    shown = np.asarray((np.abs(moves) < LARGE).all(axis=1))
    stop = float(M.length(np.zeros((1, p)), allowed[None])[0])
    pair = _Pair(M, person, u, np.where(shown[:, None], moves, 0.0), stop)
    apart, (scale, scale_off) = np.where(shown, pair.apart(), np.inf), _deviation(M.y)
    low, high = pair.at(M.X, person, pair.reach, apart)
    if case.scope == "any":
        accepted = Accepted.from_case(case, p - int(case.setting("intercept", bool)))
        low = largest(person, people, np.where(accepted.inside(M.X[:, : len(accepted.single)]), low, 0.0))
        asked = accepted.limit_questions(
            case, people, p, lambda x: pair.at(x, np.arange(people), pair.M.reach(x), apart)[0]
        )
        low, high = np.maximum(low, asked), pair.over(accepted, apart)
    else:
        low, high = largest(person, people, low), largest(person, people, high)
    return Limits(low / (scale + scale_off), up(high / (scale - scale_off)))


@dataclass(frozen=True, eq=False)
class _Pair:
    """Parameters ``u`` with everybody and ``u + moves`` without each person; ``stop`` is the longest gradient left."""

    M: _Metric
    person: Index
    u: Float
    moves: Float
    stop: float

    @cached_property
    def gradient(self) -> tuple[Float, Float]:
        """The gradient at u, (p,), and how far each component may be off."""
        M, u, (n, p) = self.M, self.u, self.M.X.shape
        pull, lost = M.X @ u - M.y, gamma(p + 4) * (np.abs(M.X) @ np.abs(u) + np.abs(M.y))
        off = np.abs(M.X).T @ (lost + gamma(n + 4) * np.abs(pull)) + 4 * EPS * M.penalty * np.abs(u)
        return M.X.T @ pull + M.penalty * u, off

    @cached_property
    def whole(self) -> float:
        """How far from u a training on all records ends."""
        g, off = self.gradient
        return float(up(self.M.length(g[None], off[None])[0] + self.stop))

    @cached_property
    def reach(self) -> Float:
        """``_Metric.reach`` of each record, (n,)."""
        return self.M.reach(self.M.X)

    def apart(self) -> Float:
        """Return how far from ``u + moves`` a training without each person ends, in the norm of H; (people,)."""
        M, (people, p), n = self.M, self.moves.shape, len(self.person)
        v, size = (self.u + self.moves)[self.person], (np.abs(self.u) + np.abs(self.moves))[self.person]
        pull = np.einsum("np,np->n", M.X, v) - M.y
        lost = gamma(p + 6) * (np.einsum("np,np->n", np.abs(M.X), size) + np.abs(M.y))
        own = sums(self.person, people, pull[:, None] * M.X)
        own_off = sums(self.person, people, (lost + gamma(n + 4) * np.abs(pull))[:, None] * np.abs(M.X))
        bent, scale = self.moves @ M.H, np.sqrt((M.X**2).sum(axis=0) + M.penalty)
        bent_off = gamma(n + 2 * p + 8) * (np.abs(self.moves) @ scale)[:, None] * scale
        g, g_off = self.gradient
        off = g_off + bent_off + own_off + 4 * EPS * (np.abs(g) + np.abs(bent) + np.abs(own))
        residual = M.length(g + bent - own, off) + self.stop
        kept = (1 - up(self.leverage() * (1 + M.off), n)) * (1 - 4 * EPS)
        return np.where(kept > 0, up(residual / np.where(kept > 0, kept, 1.0)), np.inf)

    def leverage(self) -> Float:
        """Return the share of the Hessian that is each person's own, at most, (people,): by trace, or largest value."""
        M, people = self.M, len(self.moves)
        share = sums(self.person, people, self.reach[:, None] ** 2)[:, 0]
        held = np.bincount(self.person, minlength=people)
        for k in np.flatnonzero((share > 0.25) & (held > 1)):
            own = M.X[self.person == k]
            lost = gamma(own.shape[1] + 8) * float(np.linalg.norm(np.abs(own) @ np.abs(M.W).T))
            top = M.grown * (float(np.linalg.norm(own @ M.W.T, 2)) * (1 + gamma(own.size + 64)) + lost)
            share[k] = min(share[k], up(top**2))
        return share

    def at(self, X: Float, person: Index, reach: Float, apart: Float) -> tuple[Float, Float]:
        """Return the (least, largest) change of the answer about each row of X when its person leaves, (m,)."""
        moves = self.moves[person]
        change = np.abs(np.einsum("np,np->n", X, moves))
        distance = up(reach * (self.whole + apart[person]))
        size = np.einsum("np,np->n", np.abs(X), 2 * np.abs(self.u) + 2 * np.abs(moves)) + 2 * distance
        off = up(distance + 2 * gamma(X.shape[1] + 6) * size)
        return np.maximum(change - off, 0.0), change + off

    def over(self, accepted: Accepted, apart: Float) -> Float:
        """Return the largest change of the answer to any accepted question, (people,)."""
        d, p, W = len(accepted.single), len(self.u), self.M.W
        const = self.moves[:, d:].sum(axis=1)
        rise, fall = accepted.bound_dot(self.moves[:, :d]) + const, accepted.bound_dot(-self.moves[:, :d]) - const
        farthest = self.M.grown * accepted.bound_norm(W[:, :d], W[:, d] if p > d else np.zeros(p))
        distance = up(farthest * (self.whole + apart))
        sizes = 2 * np.abs(self.u) + 2 * np.abs(self.moves)
        size = accepted.absolutes.bound_dot(sizes[:, :d]) + sizes[:, d:].sum(axis=1) + 2 * distance
        return np.asarray(np.maximum(np.maximum(rise, fall), 0.0) + up(distance + 2 * gamma(p + 8) * size))


def _deviation(y: Float) -> tuple[float, float]:
    """Return the standard deviation of y about its mean, and how far it may be off."""
    n, centre = len(y), y - y[0]
    mean = centre.mean()
    scale = float(np.sqrt(((centre - mean) ** 2).mean()))
    # the mean errs by a share of the sizes, and so does what is left; the square of it counts
    off = 2 * gamma(n + 8) * (float(np.abs(centre).max()) + scale) + 4 * EPS * float(np.abs(y).max())
    every((scale > _SMALL and off < scale / 4, "the targets hardly vary"))
    return scale, off
