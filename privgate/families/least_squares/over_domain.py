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
from privgate.families.retrained import Float, Index
from privgate.subject.subject import Subject

#: units of roundoff of what a solver of scikit-learn leaves of a gradient, as a share of the sizes that it adds up
_SOLVER = 64


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
        smoothed(subject, subject.recipe.library_estimator)
        arrays, settings = _case(subject, units)
        made = kernel.Case("squares", "any", settings, arrays)
        found = kernel.limits(made)
    except (Declined, kernel.Refused) as exc:
        return OverDomain(nothing.upper, nothing.where, str(exc))
    except np.linalg.LinAlgError:
        return OverDomain(nothing.upper, nothing.where, "the normal equations are singular")
    asked = slice(0, len(units))
    return OverDomain(found.high[asked], arrays["question"][asked], seen=found.low[asked])


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
    sizes = np.linalg.norm(X) * 2 * np.linalg.norm(proposal["at"]) + np.linalg.norm(y)
    allowed = _SOLVER * (n + len(penalty)) * 2.0**-53 * np.linalg.norm(X, axis=0) * sizes
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
