"""Logistic regression behind steps that learn, or with class weights that do: something else without each unit."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from privgate.families.engine import Asked, Cost, Declined, Engine
from privgate.families.logistic import objective
from privgate.families.logistic.answers import STOPPED_SHORT, TOLERANCE, Solver, log_softmax
from privgate.families.logistic.engine import declined, solved
from privgate.families.logistic.objective import Float, Objective
from privgate.families.pipelines import steps
from privgate.families.pipelines.carried import Carried
from privgate.families.pipelines.carried_sweeps import Moved, Sweeps
from privgate.families.pipelines.last_step import laid_open
from privgate.families.removal import VANISHED, vanishing
from privgate.families.retrained import Index, Retrained, Seeds, Status
from privgate.subject.subject import Subject


@dataclass(frozen=True, eq=False)
class View:
    """A pipeline as its last step on transformed records, and how these move without each unit.

    Parameters
    ----------
    subject : Subject
        The last step on what the first steps, fitted on everybody, make of the records.
    carried : Carried
    """

    subject: Subject
    carried: Carried

    def weights(self, units: Index) -> Float | None:
        """Return the factors of each class's losses without each unit, (U, K); None where there are none."""
        estimator, subject = self.subject.recipe.library_estimator, self.subject
        if estimator.class_weight is None:
            return None
        if estimator.class_weight != "balanced":
            fixed = objective.class_weights(estimator, subject.classes, subject.data.y)
            return np.repeat(fixed[None], len(units), axis=0)
        codes, K = subject.label_codes, len(subject.classes)
        lost = np.array([np.bincount(codes[subject.data.units[int(u)]], minlength=K) for u in units])
        left = np.bincount(codes, minlength=K) - lost.reshape(len(units), K)
        return np.asarray(left.sum(axis=1, keepdims=True) / (K * np.maximum(left, 1)))

    def moved(self, problem: Objective, units: Index) -> Moved:
        """Return what leaving units out does to the last step's problem."""
        found, p = self.carried, problem.X.shape[1]
        a, holes = found.a[units], np.flatnonzero(found.g.any(axis=0))
        ease = np.ones((len(units), p))
        ease[:, : a.shape[1]] = 1.0 / a**2
        M = found.M[:, holes].astype(np.float64)
        return Moved(ease, (found.g[units] / a)[:, holes], holes, M, self.weights(units))

    def allowed(self, allowed: Float, units: Index) -> Float:
        """Return at most which gradient, by v, is left where a refit stops, shape (U, p); docs, section 17.2."""
        a, b, g = (getattr(self.carried, name)[units] for name in "abg")
        d = a.shape[1]
        made = np.repeat(allowed[None], len(units), axis=0)
        made[:, :d] = (allowed[:d] + np.abs(b) * (allowed[d] if len(allowed) > d else 0.0)) / a
        made = made * (1 + (np.abs(a - 1) + np.abs(b) + np.abs(g)).max(axis=1, keepdims=True, initial=0.0))
        if (weights := self.weights(units)) is not None:  # the test is relative to the sum of all weights
            estimator, data = self.subject.recipe.library_estimator, self.subject
            made = made * np.maximum((weights / objective.class_weights(estimator, data.classes, data.data.y)), 1).max(
                axis=1, keepdims=True
            )
        return np.asarray(made)


@lru_cache(maxsize=4)
def view(subject: Subject) -> View | str:
    """Return the pipeline as engines see it, or why what its first steps learn is not carried."""
    from sklearn.linear_model import LogisticRegression

    estimator = subject.recipe.library_estimator
    piped = steps.is_pipeline(estimator)
    last = estimator[-1] if piped else estimator
    if type(last) is not LogisticRegression or not (piped or last.class_weight is not None):
        return "the recipe is no pipeline that ends in scikit-learn's LogisticRegression, nor one with class weights"
    if last.class_weight is not None and len(subject.classes) != 2:
        return "class weights of more than two classes are not covered"
    opened = laid_open(subject)
    if isinstance(opened, str):
        return opened
    made = View(*opened)
    if not last.fit_intercept and made.carried.b.any():
        return "without an intercept, features that move move every score; set fit_intercept=True"
    if why := objective.refusal(made.subject, weighted=True):
        return why
    return made


def agreed(subject: Subject) -> View:
    """Return the view of a subject that is supported."""
    found = view(subject)
    if isinstance(found, str):
        raise TypeError(f"answers() without supports(): {found}")
    return found


class CarriedLogistic(Engine):
    """Leave-one-out for ``LogisticRegression`` behind steps that are fitted with it, or with class weights.

    Means, spreads, medians and categories without each unit follow from those of everybody (docs/mathematics.md,
    section 17.2); the last step is then minimised on exactly what a refit of the whole pipeline would see, to a
    certified radius. Units without whom a category vanishes, a fill value changes its kind or a spread changes by half
    are refitted.
    """

    name = "logistic_carried"
    hands_on = "a first step learns something else without them, or no sweep and no Newton step could certify them"
    complements = True

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        found = view(subject)
        return found if isinstance(found, str) else ""

    def declines(self, subject: Subject) -> str:
        """Return why ``leave_out`` will decline; empty if it answers. The subject must be supported."""
        inner = agreed(subject).subject
        solver = inner.recipe.library_estimator.solver
        if solver not in objective.PROMISING:  # refits on other features are not seen by ``stopping``
            return f"a refit by {solver} may stop before its gradient is small; {objective.ADVICE}"
        return declined(inner)

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of five sweeps over all units."""
        n, d = agreed(subject).subject.data.X.shape
        K = len(subject.classes)
        width = d * (1 if K == 2 else K)
        flops = 20 * n * width * len(units) + 20 * n * width**2
        return Cost(0, flops / 1e10 + 1e-7 * n * len(units) * K, 24 * n * width + 32 * d * len(subject.data.units))

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return every unit that can be certified; the others are handed on.

        Raises
        ------
        Declined
            The Hessian is too ill-conditioned, or where the user's solver stops is not known closely enough.
        """
        subject, units = asked.subject, asked.units
        if why := self.declines(subject):
            raise Declined(why)
        found = agreed(subject)
        problem = objective.objective(found.subject)
        solver, stops, whole = solved(found.subject, problem)
        row_unit, row_query = asked.rows
        gone, work = vanishing(subject, units), _Work(found, solver, units, stops.allowed, (row_unit, row_query))
        todo = np.flatnonzero(~gone & ~found.carried.otherwise[units])
        single = np.array([len(subject.data.units[int(units[k])]) == 1 for k in todo], dtype=bool)
        work.sweep(todo[single], np.array([subject.data.units[int(units[k])][0] for k in todo[single]], dtype=np.int64))
        for k in todo[~(work.missed[todo] <= TOLERANCE) | ~(work.error[todo] <= STOPPED_SHORT)]:
            work.minimise(int(k), subject.data.units[int(units[k])])
        reach = np.full(len(units), 1e-300)
        np.maximum.at(reach, row_unit, solver.reach[row_query])
        error = work.error + whole * reach
        full = log_softmax(problem, problem.X @ solver.u.T)
        made = Retrained.of(
            self.name,
            units,
            asked.seeds[:1],
            asked.rows,
            full[row_query][None],
            work.log_without[None],
            status=Status.CONVERGED,
            error=np.where(gone, 0.0, error),
            undefined={int(k): VANISHED for k in np.flatnonzero(gone)},
        )
        kept = gone | (error <= STOPPED_SHORT)
        return (made, units[:0]) if kept.all() else (made.select(kept), units[~kept])

    def notes(self, subject: Subject) -> dict[str, float]:
        """Return without how many units a first step learns something else, so that they are refitted."""
        return {"learns_otherwise": float(agreed(subject).carried.otherwise.sum())}


class _Work:
    """The answers of some units, filled in."""

    def __init__(self, found: View, solver: Solver, units: Index, allowed: Float, rows: tuple[Index, Index]) -> None:
        self.solver, self.rows = solver, rows
        self.moved = found.moved(solver.problem, units)
        self.allowed = found.allowed(allowed, units)
        self.error, self.missed = np.full(len(units), np.inf), np.full(len(units), np.inf)
        self.log_without = np.full((len(rows[1]), solver.problem.K), -np.inf)
        self.bounds = np.searchsorted(rows[0], np.arange(len(units) + 1))

    def sweep(self, todo: Index, records: Index) -> None:
        """Answer units of one record, many at a time."""
        if not len(todo):
            return
        every = np.zeros(len(self.error), dtype=np.int64)
        every[todo] = records
        work = Sweeps(self.solver, self.moved, every)
        step = max(1, 4_000_000 // self.solver.u.size)
        for begin in range(0, len(todo), step):
            part = todo[begin : begin + step]
            row = np.concatenate([np.arange(self.bounds[k], self.bounds[k + 1]) for k in part])
            at, query = self.rows[0][row], self.rows[1][row]
            reach = np.zeros(len(self.error))
            np.maximum.at(reach, at, work.reach(at, query))
            delta, error = work.run(part, TOLERANCE / 10 / np.maximum(reach[part], 1e-300))
            length = self.solver.length(delta) + error
            stop = work.stops(part, self.allowed[part].max(axis=0), length)
            self.error[part], self.missed[part] = (error + stop) * reach[part], error * reach[part]
            place = np.searchsorted(part, at)
            V, holes = self.solver.u + delta[place], self.moved.holes
            logits = np.einsum("rp,rcp->rc", self.solver.problem.X[query], V)
            logits += np.einsum("rm,rcm->rc", self.moved.M[query] * self.moved.fill[at], V[:, :, holes])
            self.log_without[row] = log_softmax(self.solver.problem, logits)

    def minimise(self, k: int, rows: Index) -> None:
        """Answer one unit by Newton's method on what a refit would see."""
        whole = self.solver.problem
        weights = None if self.moved.weights is None else self.moved.weights[k][whole.y]
        problem = replace(whole, X=self.moved.design(whole.X, k), lam=whole.lam * self.moved.ease[k], weights=weights)
        found = type(self.solver)(problem, self.solver.S).without(rows, self.allowed[k])
        if found is None:
            return
        u, error, _ = found
        mine = np.arange(self.bounds[k], self.bounds[k + 1])
        query = self.rows[1][mine]
        self.log_without[mine] = log_softmax(problem, problem.X[query] @ u.T)
        self.error[k] = error[query].max(initial=0.0)


ENGINE = CarriedLogistic()
