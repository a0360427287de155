"""Logistic regression without each person at its minimum, first steps fitted without them; where training stops apart.

lbfgs stops where nobody promises, and first steps that learn change everybody's features. The minimum of the changed
problem is near one Newton step away, with further ones for the riskiest. How far real trainings stop from it is
measured by the re-check on people drawn at random, and added to everybody's limits: true of all but a share of them.

Without a person a column is ``a z + b + c m`` (``pipelines.learned_steps``). With parameters times a the records stay
as they are: the penalty of a column is divided by the square of its a, b goes into the intercept, which has no penalty,
and values that were missing move by c / a. Balanced weights grow by one factor a label.
"""

import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.engines.logistic_moves import Leaving, Loss
from privgate.families.certificate import people_of
from privgate.families.closed_form import VANISHED
from privgate.families.designs import design_refusal, vanishing
from privgate.families.engine import Asked, Cost, Declined, Engine
from privgate.families.logistic import logistic_engine, stopping
from privgate.families.logistic.logistic_engine import log_softmax
from privgate.families.pipelines import learned_steps, steps
from privgate.families.pipelines.learned_steps import SAME, Change, Followed
from privgate.families.recheck import WORST
from privgate.families.retrained import Retrained, Seeds, Status
from privgate.statistics.leakage import largest_change
from privgate.subject.containers import length, take
from privgate.subject.subject import Subject

#: parameters beyond which the Hessian is too large, and numbers of the largest table
_LARGEST, _CELLS = 4_000, 1e8
#: multiplications spent on further steps of the riskiest, how many they get, and on minima of their own
_STEPS, _ROUNDS, _ALONE = 3e10, 3, 5e9
#: parameters of models without a person that are in memory at once, and people
_MOVES, _PEOPLE = 20_000_000, 2_000


class AtMinimum(Engine):
    """Leave-one-out of scikit-learn's ``LogisticRegression`` at its minimum, also behind first steps that learn.

    For lbfgs, whose stops promise nothing, and behind one-hot encoders, scalers and imputers. It ranks people: their
    limits are what refits of a random sample show, 149 for all but 2 %.
    """

    name = "logistic_minimum"
    complements = True
    tolerance = 0.5
    sample = 149
    charged = 0.1
    hands_on = "without them the first steps change in another way"

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        from sklearn.linear_model import LogisticRegression

        estimator = subject.recipe.library_estimator
        last = estimator[-1] if steps.is_pipeline(estimator) else estimator
        if type(last) is not LogisticRegression:
            return "the recipe is not scikit-learn's LogisticRegression"
        if not subject.release.exact or len(subject.classes) < 2:
            return "what is released hangs on where training stops, or there is one class only"
        if why := stopping.unfit(last, balanced=True) or stopping.solver_refusal(last):
            return why
        if last is not estimator:
            no_intercept = "" if last.fit_intercept else "without an intercept other features are another problem"
            return no_intercept or learned_steps.refusal(estimator[:-1])
        bounded = not stopping.refusal(subject) and not logistic_engine.ENGINE.declines(subject)
        return design_refusal(subject) or ("the engine logistic covers it" if bounded else "")

    def declines(self, subject: Subject) -> str:
        """Return why ``answers`` will decline; empty if it answers. The subject must be supported."""
        return found if isinstance(found := _leaving(subject), str) else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one step for every unit, and of further ones for the riskiest."""
        found = _leaving(subject)
        n, width = subject.data.n, 0 if isinstance(found, str) else found.u.size
        flops = 40 * n * width**2 + 8 * len(units) * width**2 + min(_STEPS, 4.0 * _ROUNDS * len(units) * n * width)
        return Cost(0, flops / 2e10, 24 * n * width + 40 * width**2 + 32 * min(len(units) * width, _MOVES))

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return the model as it was trained, and minima without each unit; who changes first steps is handed on.

        Raises
        ------
        Declined
            The first steps cannot be followed, or the Hessian is singular.
        """
        units, (row_unit, row_query), found = asked.units, asked.rows, _leaving(asked.subject)
        if isinstance(found, str):
            raise Declined(found)
        gone = vanishing(asked.subject, units)
        log_with = log_softmax(found.pool @ found.stop.T)[row_query]
        log_without = found.minima(units, row_unit, row_query, log_with)
        sure = ~found.unsure[units]
        sure[row_unit[np.isnan(log_without).any(axis=1)]] = False
        sure |= gone
        log_without[gone[row_unit] | ~sure[row_unit]] = -np.inf
        made = Retrained.of(
            self.name,
            units,
            asked.seeds[:1],
            asked.rows,
            log_with[None],
            log_without[None],
            status=Status.CONVERGED,
            undefined={int(k): VANISHED for k in np.flatnonzero(gone)},
        )
        return (made, units[:0]) if sure.all() else (made.select(sure), units[~sure])


class _Without(Leaving):
    """Steps of people without whom penalties, values that were missing, and balanced weights change as well.

    Parameters
    ----------
    loss : Loss
        Of the training records, on features as everybody together gave them.
    stop : float64 array of shape (C, p)
        Where the training on all records stopped.
    pool : float64 array of shape (P, p)
        Features of everybody who may be asked about, the intercept's ones last.
    changes : list of Change
        Of each of the features.
    person, unsure
        As in ``Followed``.
    grown : float64 array of shape (U, K)
        By how much the weight of each label grows; no columns where weights are fixed.
    """

    def __init__(  # noqa: PLR0917  what the docstring lists
        self, loss: Loss, stop: Float, pool: Float, changes: list[Change], person: Index, unsure: Any, grown: Float
    ) -> None:
        super().__init__(loss, person, loss.minimise(stop - loss.shared * stop.mean(axis=0)))
        self.stop, self.pool, self.unsure, self.grown = stop, pool, unsure, grown
        U, self.scaled = len(unsure), [k for k, c in enumerate(changes) if isinstance(c.a, np.ndarray)]
        self.less = np.array([changes[k].a ** -2.0 - 1 for k in self.scaled]).reshape(-1, U).T
        self.filled = [k for k, c in enumerate(changes) if c.missing is not None]
        self.fill = np.array([changes[k].c / changes[k].a for k in self.filled]).reshape(-1, U).T
        self.missing = np.array([changes[k].missing for k in self.filled]).reshape(-1, len(pool)).T
        # the gradient's slopes as these grow, at the minimum of everybody
        pull, curve = loss.weight[:, None] * (self.P - loss.target), loss.weight[:, None, None] * loss.curvature(self.P)
        slopes = [pull[loss.label == k].T @ loss.X[loss.label == k] for k in range(grown.shape[1])]
        for k, empty in zip(self.filled, self.missing[: len(person)].T, strict=True):
            slopes.append((curve[empty] @ self.u[:, k]).T @ loss.X[empty])
            slopes[-1][:, k] += pull[empty].sum(axis=0)
        self.slopes, self.by = np.array(slopes).reshape(-1, self.u.size), np.column_stack([grown, self.fill])

    def pulled(self, people: Index, at: Float) -> Float:
        """Return what these changes add to the gradients of people at (U, C, p)."""
        g = (self.by[people] @ self.slopes).reshape(at.shape)
        g[:, :, self.scaled] += (self.less[people] * self.loss.penalty[self.scaled])[:, None, :] * at[:, :, self.scaled]
        return np.asarray(g)

    def gradients(self, people: Index, moves: Float) -> Float:
        """Return the gradients (U, C, p) at ``u + moves`` without each of these people."""
        return super().gradients(people, moves) + self.pulled(people, self.u + moves)

    def first(self, people: Index) -> Float:
        """Return one Newton step for each of these people, (U, C, p)."""
        moves = super().first(people).reshape(len(people), self.u.size)
        more = self.pulled(people, np.broadcast_to(self.u, (len(people), *self.u.shape))).reshape(moves.shape)
        for places, rows in self.alike(people):
            moves[places] -= self.solve(rows, more[places])
        return moves.reshape(len(people), *self.u.shape)

    def alone(self, people: Index, moves: Float) -> Float:
        """Return the moves to the minima of the changed problems, each minimised by itself."""
        made, n, loss = moves.copy(), len(self.person), self.loss
        for k, u in enumerate(people):
            X, penalty, others = loss.X.copy(), loss.penalty.copy(), self.person != u
            X[:, self.filled] += self.fill[u] * self.missing[:n]
            penalty[self.scaled] *= 1 + self.less[u]
            weight = loss.weight * (1 + self.grown[u, loss.label]) if self.grown.size else loss.weight
            own = Loss(X[others], loss.label[others], weight[others], penalty, loss.K)
            with np.errstate(over="ignore"):
                made[k] = own.minimise(self.u + moves[k])[0] - self.u
        return made

    def minima(self, units: Index, row_unit: Index, row_query: Index, log_with: Float) -> Float:
        """Return log-probabilities at rows without each unit: after one step, and after more for the riskiest."""
        made, size = np.empty_like(log_with), self.loss.X.size * self.loss.C

        def answer(some: Index, *, further: bool = False, alone: bool = False) -> None:
            for part in np.array_split(some, 1 + len(some) // max(1, min(_PEOPLE, _MOVES // self.u.size))):
                if not len(part):
                    continue
                place = np.full(len(units), -1)
                place[part] = np.arange(len(part))
                rows, people = np.flatnonzero(place[row_unit] >= 0), units[part]
                moves = self.first(people)
                moves = self.further(people, moves, _ROUNDS) if further else moves
                moves = self.alone(people, moves) if alone else moves
                unit, query = place[row_unit[rows]], row_query[rows]
                V, filled = (self.u + moves)[unit], self.fill[people[unit]] * self.missing[query]
                Z = np.einsum("rp,rcp->rc", self.pool[query], V) + np.einsum("rf,rcf->rc", filled, V[:, :, self.filled])
                made[rows] = log_softmax(Z)

        answer(np.arange(len(units)))
        change = np.zeros(len(units))
        np.maximum.at(change, row_unit, np.nan_to_num(largest_change(log_with, made), nan=np.inf))
        order = np.argsort(-change, kind="stable")[: int(_STEPS / (2 * _ROUNDS * size))]
        last = max(WORST, int(_ALONE / (10 * self.u.size * (size + self.u.size**2))))
        answer(np.sort(order[last:]), further=True)
        answer(np.sort(order[:last]), further=True, alone=True)
        return made


@lru_cache(maxsize=4)
def _leaving(subject: Subject) -> _Without | str:
    """Return what leaves people out of a supported subject, or why nothing can."""
    from sklearn.base import clone

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return _posed(subject, clone(subject.recipe.library_estimator).fit(subject.data.X, subject.data.y))
    except Exception as exc:  # noqa: BLE001  whatever the library makes of somebody's data: refits will say it
        return f"its first steps, or its training, cannot be followed on these records ({type(exc).__name__})"


def _posed(subject: Subject, fitted: Any) -> _Without | str:
    data, pool, last = subject.data, subject.data.pool()[0], fitted
    person, changes, unsure = people_of(subject, np.arange(len(data.units))), [SAME], np.zeros(len(data.units), bool)
    if steps.is_pipeline(fitted):
        last = fitted[-1]
        if float(fitted[:-1].transform(take(pool, np.arange(1))).shape[1]) * length(pool) > _CELLS:
            return "its features do not fit the memory"
        found = Followed(fitted[:-1], pool, person)
        if found.wrong(data.X, data.y, pool, subject.generator("learned steps")):
            return "its first steps change without a person in another way than they are followed"
        pool, changes, unsure = found.table, found.changes, found.unsure
    X, stop = np.asarray(pool, dtype=np.float64), np.asarray(last.coef_, dtype=np.float64)
    if last.fit_intercept:
        X, stop = np.column_stack([X, np.ones(len(X))]), np.column_stack([stop, last.intercept_])
    if stop.size > _LARGEST:
        return "the Hessian is too large"
    loss, grown = stopping.loss_on(subject, X, np.arange(data.n), last), np.zeros((len(data.units), 0))
    if last.class_weight == "balanced":
        held = np.zeros((len(data.units), loss.K))
        np.add.at(held, (person, loss.label), 1.0)
        left = np.maximum(1 - held / held.sum(axis=0), 1e-9)
        grown = (1 - held.sum(axis=1, keepdims=True) / data.n) / left - 1
    return _Without(loss, stop, X, changes, person, unsure, grown)


ENGINE = AtMinimum()
