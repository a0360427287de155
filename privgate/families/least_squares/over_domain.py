"""The largest change of a linear regression's answer over a declared domain, by the kernel (``kernel/squares``)."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.engines import square_moves
from privgate.families import design
from privgate.families.certificate import accepted_arrays, accepted_settings, people_of
from privgate.families.engine import Declined
from privgate.families.least_squares.engine import ENGINE
from privgate.families.least_squares.smoothers import smoothed
from privgate.families.over_all_queries.reach import Reach
from privgate.families.removal import removal
from privgate.families.retrained import Float, Index
from privgate.families.ridge import change_of
from privgate.subject.subject import Subject

#: units of roundoff of what a solver of scikit-learn leaves of a gradient, as a share of the sizes that it adds up
_SOLVER = 4


@dataclass(frozen=True, eq=False)
class OverDomain:
    """The change of any answer when each unit is left out, in deviations of the targets.

    Parameters
    ----------
    upper : float64 array of shape (U,)
        Over the whole domain; infinite where the closed form does not answer.
    where : float64 array of shape (U, d)
        A question of the domain at which it is largest, or nearly where several constraints are stated.
    seen : float64 array of shape (U,)
        The change there; 0 where that question is not of the domain.
    why : str
        Why nothing is bounded; empty if something is.
    """

    upper: Float
    where: Float
    why: str = ""
    seen: Float = field(default_factory=lambda: np.zeros(0))


def refusal(subject: Subject) -> str:
    """Return why no theorem bounds the change over the declared domain, known without training; empty if one may."""
    if why := ENGINE.refusal(subject):
        return why
    if type(subject.recipe.library_estimator).__name__ not in ("Ridge", "LinearRegression"):
        return "its answers are not linear in the features"
    if subject.data.domain is None:
        return "no domain is declared: pass TrainingData(..., domain=...) with what the endpoint accepts"
    reach = Reach.of(subject.data.domain, int(subject.data.X.shape[1]))
    return reach if isinstance(reach, str) else ""


def bound(subject: Subject, units: Index) -> OverDomain:
    """Return the largest change over the declared domain; infinite, with the reason, where no theorem speaks."""
    nothing = OverDomain(np.full(len(units), np.inf), np.zeros((len(units), 0)), refusal(subject))
    if nothing.why or subject.data.domain is None:
        return nothing
    try:
        found = smoothed(subject, subject.recipe.library_estimator)
        # whoever leaves next to nothing of their own over: the library may drop a direction without them
        sure = change_of(found.smoother, found.residual, removal(subject, units).whole, found.least)[1]
        arrays, settings = _case(subject, units)
        made = kernel.Case("squares", "any", settings, arrays)
        limits = kernel.limits(made)
    except (Declined, kernel.Refused) as exc:
        return OverDomain(nothing.upper, nothing.where, str(exc))
    except np.linalg.LinAlgError:
        return OverDomain(nothing.upper, nothing.where, "the normal equations are singular")
    asked = slice(0, len(units))
    high, low = np.where(sure, limits.high[asked], np.inf), np.where(sure, limits.low[asked], 0.0)
    return OverDomain(high, arrays["question"][asked], seen=low)


def left_by_solver(X: Float, y: Float, penalty: Float, proposal: dict[str, Float], most: int) -> Float:
    """Return how large a component of the gradient may be where a training of scikit-learn ends, (p,): an axiom.

    Its solvers are backward stable: they solve the problem of records that are off by a share of the largest, and where
    features are more than records, by way of one dual number a record. ``most`` is the largest number of records that
    leave at once. docs/mathematics.md, section 8.4; compared with the library by ``test_axiom_of_solvers``.
    """
    n, p = X.shape
    whole, longest = float(np.linalg.norm(X)), np.nan_to_num(np.linalg.norm(proposal["moves"], axis=1)).max(initial=0.0)
    size = whole * 2 * (np.linalg.norm(proposal["at"]) + longest) + np.linalg.norm(y)
    if p > n - most and (penalty > 0).any():
        rest = float(np.linalg.norm(y - X @ proposal["at"]))
        size += 4 * whole**2 * rest / penalty[penalty > 0].min()
    return np.full(p, _SOLVER * (n + p) * 2.0**-53 * whole * size)


def _case(subject: Subject, units: Index) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return arrays and settings of the kernel's case: everybody's moves, those of ``units`` first."""
    estimator, n = subject.recipe.library_estimator, subject.data.n
    X = design.matrix(subject)[:n].astype(np.float64)
    y, d = subject.data.y.astype(np.float64), X.shape[1]
    penalty = np.full(d, float(getattr(estimator, "alpha", 0.0)))
    if estimator.fit_intercept:
        X, penalty = np.column_stack([X, np.ones(n)]), np.append(penalty, 0.0)
    person = people_of(subject, units)
    proposal = square_moves.proposed(X, y, penalty, person)
    allowed = left_by_solver(X, y, penalty, proposal, int(np.bincount(person).max()))
    reach = Reach.of(subject.data.domain, d) if subject.data.domain is not None else ""
    assert isinstance(reach, Reach)  # noqa: S101  refusal() said so
    weights = np.nan_to_num(proposal["moves"][:, :d])
    offset = np.nan_to_num(proposal["moves"][:, d:]).sum(axis=1)
    ends = offset + reach.maximum(weights), -offset + reach.maximum(-weights)
    question = np.where((ends[0] >= ends[1])[:, None], reach.best(weights), reach.best(-weights))
    if reach.length is not None or reach.norm is not None:
        question = question * (1 - 1e-12)  # for sure inside
    arrays = {
        "X": X,
        "y": y,
        "penalty": penalty,
        "person": person,
        "allowed": allowed,
        "question": question,
        **proposal,
    }
    return {**arrays, **accepted_arrays(reach, d)}, {
        "intercept": bool(estimator.fit_intercept),
        **accepted_settings(reach),
    }
