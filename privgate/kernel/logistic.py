"""L2-regularised logistic regression: how far each person's absence moves an answer, from a checked certificate.

Objective.  f(u) = sum_i w_i loss_i(u) + sum_j penalty_j |u_j|^2 / 2, as scikit-learn's ``LogisticRegression`` has it,
times the sum of the weights. Two classes have one parameter vector (C = 1), K > 2 have one each (C = K); an intercept
is a last column of ones. For K > 2 all vectors may move together along a column without penalty: half the square of
the sum of its C parameters is added to f. That changes neither answers nor, once the sum is taken off, the gradient
where a training ends.

Claim.  Take any training on all records, and any without one person, that ends where no component of the gradient of f
exceeds ``allowed``. No released probability for a record of theirs (asked "own"), or for any accepted question
("any"), differs between the two by more than ``high`` nats; one for a record of theirs differs by ``low`` or more.

Certificate, none of it believed.  ``at`` (C, p): near the minimum. ``factor`` W (C p, C p): near an inverse Cholesky
factor of the Hessian H there. ``moves`` (U, C, p): near what a person's absence adds to the minimum; NaN for whom
nothing is shown. ``swept`` (S,): for whom the gradient at ``at + moves`` is computed anew
over all records. ``alone_people`` (A,), ``alone_at`` (A, C, p), ``alone_factor`` (A, C p, C p): minimum and factor
without that person. ``question`` (U, d): where, beside their records, ``low`` is looked for.

Why it is enough.
1. ||W H W' - I|| <= d < 1 gives H^-1 <= W'W / (1 - d). Write |g| for the length of a gradient in H^-1, |v| for that
   of a move in H, R for the largest change of a difference of two scores that a move of length 1 makes at any record.
2. D^3 loss[v, v, s] = E[(v - Ev)^2 (s - Es)], at most range(s) D^2 loss[v, v]. So Hessians at two points differ by a
   factor of at most e^r if differences of scores differ by at most r at every record. At ``at`` + m, r <= R |m|: the
   gradient there is that at ``at``, plus H m, less the person's own losses', up to ((e^r - 1) / r - 1) |m|. The
   Hessian without the person is at least k H, k = e^-r (1 - h), h the sum of w times the largest variance that a move
   of length 1 gives the scores at the person's records. A sweep needs no remainder; its r is over others' records.
3. From a point with a gradient of length g the minimum is at most -ln(1 - R g) / R away, in the norm of the Hessian
   there: after s along the way the slope is at least (1 - e^(-R s)) / R - g. Where a training ends, its gradient
   counts in the norm at the minimum, and the same inequality bounds how far that is.
4. Distances times the reach of a record, or of the farthest question, bound differences of scores;
   ``softmax_release`` has the rest. Parameters of a column that is 0 in every record, with a penalty and no gradient
   allowed, are 0 in every training. A person without whom a label has no record is infinite: there is no model.

Axioms.  Trainings end within ``allowed``. Weights and penalties do not depend on who is there. Released scores are
sums of products, with intercepts that sum to 0 over K > 2 classes. Rounding is as ``rounding`` says.
docs/mathematics.md, section 6.3.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privgate.kernel import softmax_release
from privgate.kernel.accepted import Accepted
from privgate.kernel.assertion import Case, Float, Index, Limits, Refused, every
from privgate.kernel.rounding import EPS, LARGE, gamma, up
from privgate.kernel.scores import largest, sums
from privgate.kernel.softmax_minimum import BLOCK, Metric, Problem, ends, radius


def bound(case: Case) -> Limits:
    """Return the limits of each person; infinite for whom the certificate shows nothing."""
    pair, person, gone = _compared(case)
    problem, people = pair.M.problem, len(gone)
    low, high = pair.at(problem.X, person)
    if case.scope == "any":
        d = len(problem.penalty) - int(case.setting("intercept", bool))
        accepted = Accepted.from_case(case, d)
        low = np.where(accepted.inside(problem.X[:, :d]), low, 0.0)
        low, high = largest(person, people, low), pair.over(accepted, case.setting("limit", float, default=1.0))
        each = np.arange(people)
        asked = accepted.limit_questions(case, people, len(problem.penalty), lambda x: pair.at(x, each)[0])
        low = np.maximum(low, asked)
    else:
        low, high = largest(person, people, low), largest(person, people, high)
    return Limits(np.where(gone, np.inf, low), np.where(gone, np.inf, high))


def everybody(case: Case) -> Metric:
    """Return the metric of a case without its people, of copies that no other person holds; refuses as ``bound``."""
    names = case.arrays.keys() & {"X", "label", "weight", "penalty", "allowed", "at", "factor"}
    own = replace(case, arrays={name: case.arrays[name].copy() for name in names})
    with np.errstate(all="ignore"):
        return _metric(own, Problem.from_case(own))


def near(case: Case, known: Metric | None = None) -> tuple[Float, Float, Float, Float]:
    """Return scores (R, C) and bounds (R,) with everybody, then the same without person ``whose`` (R,), at ``rows``.

    No difference of two scores at a row of ``rows`` (R, p), and so no log-probability but for what a library loses when
    it releases one, is farther than the bound from that of any training that the claim is about; infinite where the
    certificate shows nothing. ``known`` is what ``everybody`` returned for such a case: it saves time if it fits.

    ``Refused``: as in ``bound``.
    """
    every((case.family == "logistic", f"no scores of {case.family!r} are near those of any training"))
    with np.errstate(all="ignore"):
        pair, _, gone = _compared(case, known)
        rows, whose = case.array("rows", 2), case.array("whose", 1, "i")
        every(
            (rows.shape == (len(whose), len(pair.M.problem.penalty)), "'rows' are not of the design, or nobody's"),
            (bool((np.abs(rows) < LARGE).all()), "'rows' are not finite"),
            (bool(((whose >= 0) & (whose < len(gone))).all()), "array 'whose' names nobody"),
        )
        X = pair.M.problem.X
        z0, e0, z1, e1 = pair.scores(X if np.array_equal(rows, X) else rows, whose)
    lost = gone[whose] | np.isnan(z1).any(axis=1) | np.isnan(e1)
    return z0, e0, np.where(lost[:, None], 0.0, z1), np.where(lost, np.inf, e1)


def _metric(case: Case, problem: Problem, known: Metric | None = None) -> Metric:
    """Return what ``factor`` says of everybody's problem at ``at``; what is known of it, if it is of the same."""
    u, W, shape = case.array("at", 2), case.array("factor", 2), (problem.vectors, len(problem.penalty))
    every((u.shape == shape, f"'at' is not of shape {shape}"))
    if known is not None and known.problem.same(problem) and np.array_equal(known.u, u) and np.array_equal(known.W, W):
        return known
    M = Metric.from_factor(problem, u, W)
    every((np.isfinite(M.trained), "a training on all records may end anywhere"))
    return M


def _compared(case: Case, known: Metric | None = None) -> tuple["_Pair", Index, NDArray[np.bool_]]:
    """Return parameters with and without each person, whose each record is, and without whom there is no model."""
    M = _metric(case, Problem.from_case(case), known)
    problem = M.problem
    person, people = case.person(len(problem.X))
    moves = case.certificate("moves", (people, *M.u.shape))
    shown = np.asarray((np.abs(moves) < LARGE).all(axis=(1, 2)))  # not where one is NaN
    moves = np.where(shown[:, None, None], moves, 0.0)
    swept = _people(case, "swept", people)
    far = without(M, person, moves, shown, swept[shown[swept]])
    held = np.bincount(person * problem.K + problem.label, minlength=people * problem.K).reshape(people, -1)
    gone = np.asarray((held == held.sum(axis=0)).any(axis=1))
    alone = list(_alone(case, problem, person, gone))
    for one, _, there in alone:
        moves[one], far[one] = there.u - M.u, there.trained
    return _Pair(M, person, moves, far, alone), person, gone


def _people(case: Case, name: str, people: int) -> Index:
    if name not in case.arrays:
        return np.zeros(0, dtype=np.int64)
    positions = case.array(name, 1, "i")
    every((bool(((positions >= 0) & (positions < people)).all()), f"array {name!r} names nobody"))
    return np.unique(positions)


def _alone(case: Case, problem: Problem, person: Index, gone: NDArray[np.bool_]) -> Iterator[tuple[int, Index, Metric]]:
    """Yield (person, their records, the metric without them) for whose own minimum and factor are given, and hold."""
    if "alone_people" not in case.arrays:
        return
    who = case.array("alone_people", 1, "i")
    every((len(_people(case, "alone_people", len(gone))) == len(who), "'alone_people' names somebody twice"))
    C, p = problem.vectors, len(problem.penalty)
    points = case.certificate("alone_at", (len(who), C, p))
    factors = case.certificate("alone_factor", (len(who), C * p, C * p))
    for k, one in enumerate(who.tolist()):
        rows = np.flatnonzero(person == one)
        try:
            there = None if gone[one] else Metric.from_factor(problem.without(rows), points[k], factors[k])
        except Refused:
            continue  # the other certificate of this person counts
        if there is not None and np.isfinite(there.trained):
            yield one, rows, there


@dataclass(frozen=True, eq=False)
class _Pair:
    """Parameters with everybody and without each person, and how far trainings end from them."""

    M: Metric
    #: shape (n,)
    person: Index
    #: shape (people, C, p)
    moves: Float
    #: shape (people,): how far from ``M.u + moves`` trainings without each person end, in the norm of ``M``
    far: Float
    #: people, their records, and the metric whose norm ``far`` is in for them
    alone: list[tuple[int, Index, Metric]]

    def at(self, X: Float, person: Index) -> tuple[Float, Float]:
        """Return (low, high) at each of these questions (m, p), (m,): with everybody, and without its person."""
        z0, e0, z1, e1 = self.scores(X, person)
        return softmax_release.at_questions(self.M.problem.scores(z0), e0, self.M.problem.scores(z1), e1)

    def scores(self, X: Float, person: Index) -> tuple[Float, Float, Float, Float]:
        """Return scores (m, C) and how far differences are off (m,), with everybody, and without its person."""
        M, problem, far, size = self.M, self.M.problem, self.far[person], np.abs(X)
        records = M.records if X is problem.X else M.reach(X).max(axis=1)
        reach, axis = records.copy(), size @ M.axis
        for one, _, there in self.alone:
            if len(rows := np.flatnonzero(person == one)):
                reach[rows] = there.reach(X[rows]).max(axis=1)
                axis[rows] = size[rows] @ there.axis
        z0 = M.Z if X is problem.X else X @ M.u.T
        z1, size1 = own_scores(M, X, person, self.moves)
        size0 = size @ np.abs(M.u).max(axis=0) + size @ M.axis * M.trained
        # rounding counts twice: where the library adds up a score, and where it was done here
        e0 = up(records * M.trained + 2 * problem.off(size0))
        e1 = up(reach * far + 2 * problem.off(size1 + axis * far))
        return z0, e0, z1, e1

    def over(self, accepted: Accepted, limit: float) -> Float:
        """Return limits over every accepted question, (people,)."""
        M, problem, d = self.M, self.M.problem, len(accepted.single)

        def most(size: Float) -> Float:
            return np.asarray(accepted.absolutes.bound_dot(size[..., :d]) + size[..., d:].sum(axis=-1))

        used = problem.used  # by any person: a person's own column is idle without them, and moves when they leave
        u, moves, whole = M.u * used, self.moves * used, M.farthest(accepted, used)
        farthest = np.full(len(self.far), whole)
        axis = np.full(len(self.far), most(M.axis))
        for one, _, there in self.alone:
            farthest[one], axis[one] = there.farthest(accepted, used), most(there.axis)
        size0 = most(np.abs(u).max(axis=0))
        size1 = size0 + most(np.abs(moves).max(axis=1)) + axis * self.far
        return softmax_release.over_questions(
            accepted,
            problem.classwise(u, d),
            problem.classwise(moves, d),
            errors=(whole * M.trained, farthest * self.far),
            rounded=(problem.off(size0 + most(M.axis) * M.trained), problem.off(size1)),
            limit=limit,
        )


def without(M: Metric, person: Index, moves: Float, shown: NDArray[np.bool_], swept: Index) -> Float:
    """Return how far from ``M.u + moves`` trainings without each person end, in the norm of ``M``; (people,)."""
    people, q = len(moves), M.u.size
    records = int(np.bincount(person).max())
    m = moves.reshape(people, q)
    bent, steps = m @ M.H, np.abs(m) @ M.scale
    square = np.maximum(np.einsum("uq,uq->u", bent, m), 0.0) + gamma(3 * q + 8) * steps**2
    length = up(np.sqrt(up(square) / (1 - M.off)))
    r = up(M.widest * length)
    own, error = _own_gradients(M, person, moves, shown, gamma(2 * q + records + 16))
    g0, off = M.gradient
    # what is added up below, and multiplied by W, loses shares of sizes
    error = error + off + gamma(2 * q + 16) * (M.spread * steps + M.sizes(np.abs(g0).max(axis=0)[None]))
    rest = (np.expm1(r) / r * (1 + 32 * EPS) - 1 + M.off) * length
    residual = M.inverse_norm(g0.ravel() + bent - own, up(error + rest))
    if len(swept):
        residual[swept], r[swept] = _swept(M, person, moves, swept)
    h = up(sums(person, people, M.lever), records + 8)
    k = np.exp(-r) * (1 - h) * (1 - 64 * EPS)  # the Hessian there is at least k times that of M
    bend = np.where(k > 0, up(1 / np.sqrt(k)), np.inf)
    R = up(M.widest * bend)
    near = radius(R, up(residual * bend))
    return np.where(shown, up(bend * (near + ends(R, up(M.stop * bend), near))), np.inf)


def own_scores(M: Metric, X: Float, person: Index, moves: Float) -> tuple[Float, Float]:
    """Return scores (m, C) of rows of X at the parameters without their person, and ``|x| . |u|`` at most, (m,)."""
    u, size = M.u + moves, (np.abs(M.u) + np.abs(moves)).max(axis=1)
    Z, sizes = np.empty((len(person), M.problem.vectors)), np.empty(len(person))
    step = max(1, BLOCK // M.u.size)
    for k in range(0, len(person), step):
        at, who = slice(k, k + step), person[k : k + step]
        Z[at] = np.einsum("ncp,np->nc", u[who], X[at])
        sizes[at] = np.einsum("np,np->n", size[who], np.abs(X[at]))
    return Z, sizes


def _own_gradients(
    M: Metric, person: Index, moves: Float, shown: NDArray[np.bool_], share: float
) -> tuple[Float, Float]:
    """Return the gradients (people, C p) of people's own losses without them, and the lengths of their errors.

    ``share`` of its terms' sizes is what a sum may lose. Of whom no move is shown, zeros.
    """
    problem, rows = M.problem, np.flatnonzero(shown[person])
    X, label, weight, who = problem.X[rows], problem.label[rows], problem.weight[rows], person[rows]
    Z, size = own_scores(M, X, who, moves)
    pull, lost = problem.pulls(Z, problem.off(size), label)
    lost = weight * (lost + share * np.abs(pull).max(axis=1)) * M.record_sizes[rows]
    pull = weight[:, None] * pull
    own, error, place = np.zeros((len(moves), M.u.size)), np.zeros(len(moves)), np.cumsum(shown) - 1
    if len(rows):
        people = int(place[-1]) + 1
        own[shown] = sums(place[who], people, pull[:, :, None] * X[:, None, :]).reshape(people, -1)
        error[shown] = sums(place[who], people, lost)
    return own, up(error, len(problem.X))


def _swept(M: Metric, person: Index, moves: Float, swept: Index) -> tuple[Float, Float]:
    """Return (length of the gradient at ``M.u + moves`` without each of these people, r of the others' records)."""
    problem, n, p = M.problem, len(person), len(M.problem.penalty)
    # |m_j| <= times axis_j, so |x| . |u + m| is at most |x| . |u| plus as many times |x| . axis
    times = up((np.abs(moves[swept]).max(axis=1) / M.axis).max(axis=1))
    u = np.abs(M.u).max(axis=0)
    off, more = problem.off(problem.size @ u), problem.off(problem.size @ M.axis)
    lost = problem.pulls(M.Z, off, problem.label)[1] + gamma(n + 8)
    kept = gamma(problem.vectors + 8) * (problem.penalty + problem.vectors * problem.shared)
    parts = [(problem.weight * a) @ problem.size + kept * b for a, b in ((lost, u), (more / 4, M.axis))]
    error, steeper = M.sizes(up(np.stack(parts), n))
    error = up(error + times * steeper)
    residual, r, place = np.empty(len(swept)), np.empty(len(swept)), np.full(len(moves), -1)
    step = max(1, BLOCK // (n * problem.K))
    for k in range(0, len(swept), step):
        some = swept[k : k + step]
        place[:] = -1
        place[some] = np.arange(len(some))
        rows = np.flatnonzero(place[person] >= 0)
        own = rows, place[person[rows]]
        V = M.u + moves[some]
        Z = (problem.X @ V.reshape(-1, p).T).reshape(n, len(some), problem.vectors)
        change = Z - M.Z[:, None, :]
        change = np.ptp(change, axis=2) if problem.vectors > 1 else np.abs(change[..., 0])
        change[own] = 0.0
        r[k : k + step] = change.max(axis=0)
        pull = problem.pulls(Z, off, problem.label)[0] * problem.weight[:, None, None]
        pull[own] = 0.0
        g = (pull.reshape(n, -1).T @ problem.X).reshape(V.shape)
        g = g + problem.penalty * V + problem.shared * V.sum(axis=1, keepdims=True)
        residual[k : k + step] = M.inverse_norm(g.reshape(len(some), -1), error[k : k + step])
    return residual, up(r + 4 * (off.max() + times * more.max()))
