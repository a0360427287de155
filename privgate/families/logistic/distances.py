"""How far released answers of a training may be from its minimum's: where the solver stops, and what float64 adds."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privgate.families.logistic import minimum, objective
from privgate.families.logistic.minimum import FittedProblem
from privgate.families.logistic.objective import Float
from privgate.families.over_all_queries import applies, linear
from privgate.families.over_all_queries.reach import Reach
from privgate.families.over_all_queries.rounding import DEEPEST
from privgate.subject.subject import Subject

#: nats by which a training on all records may miss its minimum; beyond, a bound would be about the solver
STOPPED_SHORT = 0.5
#: relative margin for what the inverse Hessian lost to rounding (docs/mathematics.md, section 6.3)
MARGIN = 1e-3


@dataclass(frozen=True, eq=False)
class HessianNorm:
    """What the norm of a Hessian says about records and queries.

    Parameters
    ----------
    R : float
        Largest change of a logit difference at any record for parameters moved by 1.
    norm : float
        The same at any query of the domain.
    rest : float
        Length, in the inverse norm, of what rounding left of the gradient.
    stop : float
        Length, in the inverse norm, of the largest gradient at which a training ends.
    """

    R: float
    norm: float
    rest: float
    stop: float

    @classmethod
    def of(cls, problem: FittedProblem, reach: Reach, records: Float) -> "HessianNorm":
        """Return the metric of ``problem.inverse`` for these records."""
        a = problem.pairs
        inner = np.einsum("ip,apbq,iq->iab", records, problem.inverse, records, optimize=True)
        R = float(np.sqrt(np.einsum("ma,iab,mb->im", a, inner, a, optimize=True).max()))
        flat = problem.inverse.reshape(problem.u.size, problem.u.size)
        g, size = problem.gradient.ravel(), np.tile(problem.allowed, problem.C)
        rest, stop = np.sqrt(max(float(g @ flat @ g), 0.0)), np.sqrt(float(size @ np.abs(flat) @ size)) * (1 + MARGIN)
        return cls(R, float(problem.norms(a, reach).max()), float(rest), float(stop))


def whole(metric: HessianNorm) -> float:
    """Return how far from its minimum a training on all records may stop: nats, of any log-probability.

    At the minimum u* self-concordance gives ``||g|| >= (1 - exp(-R s)) / R`` in the norm there for the gradient g at
    distance s: the inequality of section 6.3 (ii) from the other end.
    """
    return float(radius(np.array([metric.stop]), np.array([metric.R]))[0] * metric.norm * (1 + MARGIN))


def radius(gradient: Float, R: Float) -> Float:
    """Return ``-ln(1 - R gradient) / R``, infinite from ``R gradient = 1``, shape of the inputs."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        nu = np.where(R * gradient < 1, -np.log1p(-R * gradient) / R, np.inf)
    return np.where(np.isnan(nu), np.inf, nu)


def rounding(problem: FittedProblem, bias: Float, weights: Float, reach: Reach, apart: Float) -> Float:
    """Return what float64 does to released log-probabilities of N models over the domain, at most, shape (N,), nats.

    Infinite where a probability has no digits left. The library computes logits as sums, a softmax by ``exp`` and a
    quotient; of two classes it computes the second and releases the first as 1 - p.

    Parameters
    ----------
    bias, weights : float64 arrays of shapes (N, K) and (N, K, d)
    reach : Reach
    apart : float64 array of shape (N,)
        How far logit differences of the released model may be from these, nats.

    References
    ----------
    docs/mathematics.md, section 16: 1 - p is relatively off by up to 1.7e-16 exp(margin).
    """
    eps, d = float(np.finfo(np.float64).eps), weights.shape[2]
    span = np.abs(linear.pair_ranges(bias, weights, reach)[1]).max(axis=(1, 2)) + apart
    logits = (d + 4) * eps * (_largest(weights, reach).max(axis=1) + np.abs(bias).max(axis=1) + apart)
    lost = 2 * logits + eps * (span + 2 * bias.shape[1] + 8)
    if problem.C == 1:
        margin = linear.pair_ranges(bias, weights, reach)[1][:, 1, 0] + apart + logits
        delta = 2.5e-16 * (1 + np.exp(np.minimum(margin, DEEPEST)))
        lost += np.where(delta < 0.5, -np.log1p(-np.minimum(delta, 0.5)), np.inf)
    return np.where(span < DEEPEST, lost, np.inf)


def _largest(weights: Float, reach: Reach) -> Float:
    """Return an upper bound of ``|w| . |x|`` over the domain, shape of ``weights`` without its last axis."""
    one, two = reach.longest(weights.shape[-1])
    bound = np.minimum(np.abs(weights).max(axis=-1) * one, np.linalg.norm(weights, axis=-1) * two)
    if reach.low is not None and reach.high is not None:
        bound = np.minimum(bound, np.abs(weights) @ np.maximum(np.abs(reach.low), np.abs(reach.high)))
    return np.asarray(bound)


def delivered(problem: FittedProblem, reach: Reach, stop: float) -> float:
    """Return how far released log-probabilities of a model trained on all records are from the minimiser's, nats.

    ``stop`` is ``whole``'s; rounding of the release comes on top.
    """
    bias, weights = problem.softmax(problem.u[None])
    return stop + float(rounding(problem, bias, weights, reach, np.array([stop]))[0])


@lru_cache(maxsize=4)
def short_of_minimum(subject: Subject) -> str:
    """Return why a theorem about minimisers says nothing about this recipe and data; empty if it may speak."""
    if refused := minimum.refusal(subject):
        return refused
    problem = minimum.problem_of(subject)
    if isinstance(problem, str):
        return problem
    reach = applies.reach(subject)
    stop = whole(HessianNorm.of(problem, reach, problem.X))
    if not stop <= STOPPED_SHORT:
        return f"its tolerance lets the solver stop far from its own minimum; {objective.ADVICE}"
    if not np.isfinite(delivered(problem, reach, stop)):
        return "float64 holds some probabilities of the domain in too few digits; declare a narrower domain or lower C"
    return ""
