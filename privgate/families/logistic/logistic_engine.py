"""L2-regularised logistic regression without each unit: steps are proposed, and the kernel says how near they are."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.engines import logistic_moves
from privgate.engines.logistic_moves import Certificate
from privgate.families import designs
from privgate.families.closed_form import VANISHED
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, Declined, Engine
from privgate.families.logistic import stopping
from privgate.families.logistic.stopping import Trained
from privgate.families.retrained import Retrained, Seeds, Status
from privgate.statistics.leakage import largest_change
from privgate.subject.subject import Subject

#: nats; wanted bound on the error of each log-probability, two digits below any limit of a policy
TOLERANCE = 1e-6
#: nats; where both trainings together may stop further than this from their minima, leave-one-out measures the solver
STOPPED_SHORT = 0.05
#: parameters beyond which the Hessian and its inverse take more than 1 GB
LARGEST = 8000
#: parameters of models without a unit that are in memory at once
_MOVES = 30_000_000
#: multiplications spent on further steps, and on minima of their own
_STEPS, _ALONE = 2e10, 1e10


class Logistic(Engine):
    """Leave-one-out for ``sklearn.linear_model.LogisticRegression`` with an L2 penalty, two classes or more.

    Everybody gets a Newton step from one factorisation. People whom it leaves open get further steps, and the last few
    a minimum of their own. ``error`` is what the kernel says of both models: how far from them any two trainings may
    end whose gradients are as small as the user's solver leaves them. A unit for which that is more than 0.05 nats is
    refitted, and so are all where the solver stops by something else (docs/mathematics.md, sections 6.3 and 6.4).
    """

    name = "logistic"
    version = 8
    hands_on = "no Newton step of theirs could be certified, or the solver's tolerance is too coarse"
    complements = True
    certain = True
    modes = ("max",)

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        return stopping.refusal(subject)

    def declines(self, subject: Subject) -> str:
        """Return why ``answers`` will decline; empty if it answers. The subject must be supported."""
        return _declined(subject)

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one step for every unit, and further ones for all; with ``mode="max"``, for 64 of them."""
        n, d, K = subject.data.n, designs.matrix(subject).shape[1], len(subject.classes)
        width = d * (1 if K == 2 else K)
        close = min(len(units), 64) if mode == "max" else len(units)
        further = min(16.0 * n * width * close, _STEPS + _ALONE)
        flops = 40 * n * width**2 + 8 * len(units) * width**2 + further
        return Cost(0, flops / 2e10, 24 * n * width + 40 * width**2 + 16 * min(len(units) * width, _MOVES))

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return every unit that can be certified; the others are handed on.

        With ``mode="max"`` only the units that could hold the largest PDTP are answered closely; the others keep a
        rigorous but wide ``error`` that excludes them.

        Raises
        ------
        Declined
            The Hessian is too ill-conditioned, or where the user's solver stops is not known closely enough.
        """
        subject, units, (row_unit, row_query) = asked.subject, asked.units, asked.rows
        if why := self.declines(subject):
            raise Declined(why)
        trained = stopping.trained(subject)
        pool, most = _pool(subject, trained), max(1, _MOVES // trained.stops.u.size)
        found = []
        try:
            for first in range(0, len(units), most):
                some, part = slice(*np.searchsorted(row_unit, [first, first + most])), units[first : first + most]
                rows = row_unit[some] - first, pool[row_query[some]]
                found.append(_Some(trained, stopping.asked_first(subject, part), len(part), rows).closely(asked))
        except (kernel.Refused, np.linalg.LinAlgError) as exc:
            raise Declined(f"the Hessian is too ill-conditioned for a certificate ({exc})") from exc
        gone = vanishing(subject, units)
        error = np.concatenate([np.zeros(0), *(f.error for f in found)])
        shape = (0, len(subject.classes))
        made = Retrained.of(
            self.name,
            units,
            asked.seeds[:1],
            asked.rows,
            np.concatenate([np.zeros(shape), *(f.log_with for f in found)])[None],
            np.where(gone[row_unit, None], -np.inf, np.concatenate([np.zeros(shape), *(f.log_without for f in found)]))[
                None
            ],
            status=Status.CONVERGED,
            error=np.where(gone, 0.0, error),
            undefined={int(k): VANISHED for k in np.flatnonzero(gone)},
        )
        kept = gone | (error <= STOPPED_SHORT)
        return (made, units[:0]) if kept.all() else (made.select(kept), units[~kept])

    def notes(self, subject: Subject) -> dict[str, float]:
        """Return how far the delivered model is from its own minimum (docs/mathematics.md, section 6.4).

        ``gradient`` is the largest component of its gradient (scikit-learn's objective, divided by n C); ``distance``
        the largest difference of a log-probability to the minimiser's over the pool, nats; ``allowed`` about how large
        that may be for a training on these records that ends by its gradient; ``seen`` how many refits were seen to.
        """
        trained = stopping.trained(subject)
        u, inverse, pool = trained.minimum[0], trained.inverse, _pool(subject, trained)
        theirs, ours = (log_softmax(pool @ v.T) for v in (trained.stops.u, u))
        return {
            "gradient": float(np.abs(trained.loss.gradient(trained.stops.u)).max()) / subject.data.n,
            "distance": float(np.abs(theirs - ours).max()),
            "allowed": float(_missed(trained, inverse, pool).max()),
            "seen": float(trained.stops.seen),
        }


class _Found(NamedTuple):
    """Answers at rows, and per unit: the largest change, how far that may be off, and whether more work may help."""

    log_with: Float
    log_without: Float
    change: Float
    error: Float
    loose: NDArray[np.bool_]


class _Some:
    """Units that are answered together.

    Parameters
    ----------
    person : int64 array of shape (n,)
        Whose each record is: the units first, then everybody else as one.
    rows : (int64 array of shape (R,), float64 array of shape (R, p))
        Which of the units each question is about, and the question.
    """

    def __init__(
        self, trained: Trained, person: Index, units: int, rows: tuple[Index, Float], known: Any = None
    ) -> None:
        self.trained, self.person, self.rows, self.units, self.known = trained, person, rows, np.arange(units), known

    def closely(self, asked: Asked) -> _Found:
        """Return answers as near as the budget allows."""
        loss = self.trained.loss
        proposal = logistic_moves.propose(loss, self.person, self.trained.minimum, self.units)
        found, size = self._near(proposal), loss.X.size * loss.C
        affordable = int(_ALONE / (10 * size * loss.C * loss.X.shape[1]))
        open_ = self._open(found, found.error > TOLERANCE, asked, int(_STEPS / (16 * size)))
        if len(open_) > affordable:
            self._again(found, proposal, open_, partial(logistic_moves.refine, found=self.trained.minimum, rounds=1))
            open_ = self._open(found, found.loose, asked, affordable)
        if len(open_):
            self._again(found, proposal, open_, logistic_moves.alone)
        return found

    def _near(self, proposal: Certificate) -> _Found:
        """Return what the kernel says of a proposal."""
        unit, X = self.rows
        case = self.trained.case("own", self.person, {**proposal, "rows": X, "whose": unit})
        self.known = self.known or kernel.everybody(case)
        z0, e0, z1, e1 = kernel.near(case, self.known)
        log_with, log_without = log_softmax(z0), log_softmax(z1)
        change, error, loose = np.zeros((3, len(self.units)))
        np.maximum.at(change, unit, largest_change(log_with, log_without))
        np.maximum.at(error, unit, e0 + e1)
        np.maximum.at(loose, unit, e1 > 2 * e0 + TOLERANCE)
        return _Found(log_with, log_without, change, error, loose > 0)

    def _again(self, found: _Found, proposal: Certificate, open_: Index, further: Callable[..., Certificate]) -> None:
        """Replace what was found of some units by what more work shows; everybody else is one person."""
        place = np.full(len(self.units) + 1, len(open_))
        place[open_] = np.arange(len(open_))
        person, unit = place[self.person], place[self.rows[0]]
        mine = unit < len(open_)
        moves = np.full((int(person.max()) + 1, *proposal["at"].shape), np.nan)
        moves[: len(open_)] = proposal["moves"][open_]
        part = _Some(self.trained, person, len(open_), (unit[mine], self.rows[1][mine]), self.known)
        made = part._near(further(self.trained.loss, person, {**proposal, "moves": moves}, part.units))
        better = made.error < found.error[open_]
        rows = np.flatnonzero(mine)[better[unit[mine]]]
        found.log_without[rows] = made.log_without[better[unit[mine]]]
        for old, new in ((found.change, made.change), (found.error, made.error), (found.loose, made.loose)):
            old[open_[better]] = new[better]

    @staticmethod
    def _open(found: _Found, wanted: NDArray[np.bool_], asked: Asked, most: int) -> Index:
        """Return who gets more work: all who want it if that is affordable, else those who may decide something."""
        low, high = np.maximum(found.change - found.error, 0.0), found.change + found.error
        urgent = ~(found.error <= STOPPED_SHORT)
        for limit in asked.limits:
            urgent |= (low <= limit) & (limit < high)
        leading = high > low.max(initial=0.0)
        some = np.flatnonzero(wanted)
        if len(some) > most or asked.mode == "max":
            some = some[(urgent | leading)[some]]
        order = np.lexsort((-np.where(np.isinf(high), 0.0, high)[some], ~urgent[some]))
        return np.sort(some[order][:most])


@lru_cache(maxsize=4)
def _declined(subject: Subject) -> str:
    """Return why a supported subject is declined; empty if it is answered. Estimates; the kernel decides."""
    trained = stopping.trained(subject)
    if trained.stops.problem:
        return trained.stops.problem
    if trained.stops.u.size > LARGEST:
        return "the Hessian is too large for a certificate"
    try:
        inverse = trained.inverse
    except np.linalg.LinAlgError:
        return "the Hessian is too ill-conditioned for a certificate"
    if not _missed(trained, inverse, trained.loss.X).min() <= STOPPED_SHORT:
        return (
            "its tolerance lets the solver stop far from its own minimum, so leaving one out would measure the "
            f"solver; {stopping.ADVICE}"
        )
    return ""


def _pool(subject: Subject, trained: Trained) -> Float:
    """Return records that train, then candidates, the intercept's column of ones last, (P, p)."""
    made = designs.matrix(subject).astype(np.float64, copy=False)
    return np.column_stack([made, np.ones(len(made))]) if trained.intercept else made


def _missed(trained: Trained, inverse: Float, X: Float) -> Float:
    """Return about how far scores at rows of X may be from the minimum's where a training ends, (m,)."""
    C, p = trained.stops.u.shape
    allowed = np.tile(trained.stops.allowed, C)
    blocks = inverse.reshape(C, p, C, p)
    square = np.stack([np.einsum("np,pq,nq->n", X, blocks[c, :, c], X, optimize=True) for c in range(C)])
    return np.asarray(np.sqrt(allowed @ np.abs(inverse) @ allowed * np.maximum(square, 0.0).max(axis=0)))


def log_softmax(Z: Float) -> Float:
    """Return log-probabilities (m, K) from scores (m, C), of the second of two classes or of all."""
    Z = np.column_stack([np.zeros(len(Z)), Z]) if Z.shape[1] == 1 else Z
    return np.asarray(Z - np.logaddexp.reduce(Z, axis=1)[:, None])


ENGINE = Logistic()
