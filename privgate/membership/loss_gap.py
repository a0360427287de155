"""The metric ``generalization_gap``: mean loss on candidates less mean loss on training records."""

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.errors import MeasurementError
from privgate.evidence import BehindMembership, Measurement, Request
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.membership import board as boards
from privgate.membership.limits import Interval
from privgate.run import pool as pools
from privgate.run.run import Run


def measure_gap(run: Run, request: Request) -> Measurement:
    """Return R_gen of the subject's model, over all records or in the worst class or group.

    The training loss is known exactly (every training record is evaluated); the limits are those of the population's
    loss, estimated from candidates: Clopper-Pearson for ``zero_one``, Student for ``cross_entropy``. Records that
    somebody else's equals are left out on both sides, for the reason that ``Pool.trial`` gives.

    References
    ----------
    Yeom et al. (2020), Definition 3 and Theorem 2.

    Raises
    ------
    MeasurementError
        No candidates, or an infinite loss on both sides.
    """
    where = {}
    answers = boards.target_answers(run)
    p = pools.of(run.subject.data)  # everybody, whom attacks need not all be tried on
    loss = losses(answers, p.labels, str(request.option("loss", "zero_one")))
    scope = str(request.option("scope", "model"))
    if scope == "model":
        where[""] = np.ones(len(loss), dtype=bool)
    elif scope == "class":
        where = {f"label {c}": p.labels == k for k, c in enumerate(run.subject.classes)}
    elif scope == "group":
        for name, values in pools.groups(run.subject.data, request.option("group")).items():
            where |= {f"{name} = {v}": values == v for v in np.unique(values)}
    else:
        raise MeasurementError(f"unknown scope {scope!r} for a generalization gap; known: model, class, group")
    where = {name: who & p.trial for name, who in where.items() if (who & p.trial & p.members).any()}
    if not where:
        raise MeasurementError("no class or group holds a training record that could be compared")
    alpha = 1 - float(request.option("confidence", 0.95))
    zero_one = request.option("loss", "zero_one") == "zero_one"
    found = {
        name: gap(
            loss[who & p.members],
            loss[who & ~p.members],
            zero_one=zero_one,
            low_alpha=alpha / len(where),
            high_alpha=alpha,
        )
        for name, who in where.items()
    }
    worst = max(found, key=lambda k: np.nan_to_num(found[k].value, nan=-np.inf))
    return Measurement(
        request,
        value=found[worst].value,
        low=max(g.low for g in found.values()),
        high=max(g.high for g in found.values()),
        unit="fraction" if zero_one else "nats",
        kind="confidence",
        confidence=1 - alpha,
        n=int(p.trial.sum()),
        population=int(p.trial.sum()),
        where=worst if len(where) == 1 or (where[worst] & ~p.members).sum() >= 10 else "a cell too small to name",
        assumptions=(
            "candidates come from the same population as the training records",
            *(() if zero_one else ("the mean loss on candidates is roughly normal",)),
        ),
        behind=BehindMembership(
            training_loss=float(loss[p.members & p.trial].mean()), removed_candidates=dict(p.removed)
        ),
    )


def losses(log_p: Float, labels: NDArray[np.int64], kind: str) -> Float:
    """Return the loss of every pool record, shape (P,): 0 or 1, or nats."""
    if kind == "zero_one":
        return np.asarray(log_p.argmax(axis=1) != labels, dtype=np.float64)
    if kind == "cross_entropy":
        return np.asarray(-log_p[np.arange(len(labels)), labels], dtype=np.float64)
    raise MeasurementError(f"unknown loss {kind!r}; known: zero_one, cross_entropy")


def gap(inside: Float, outside: Float, *, zero_one: bool, low_alpha: float, high_alpha: float) -> Interval:
    """Return mean loss outside less mean loss inside, with limits of the population's; nothing outside: no limits."""
    training = float(inside.mean())
    n = len(outside)
    if np.isinf(training):
        raise MeasurementError("the model gives a training record probability 0: its cross-entropy has no value")
    if zero_one:
        wrong = int(outside.sum())
        share = wrong / n if n else float("nan")
        low, high = lower_limit(wrong, n, alpha=low_alpha), upper_limit(wrong, n, alpha=high_alpha)
        return Interval(share - training, float(low) - training, float(high) - training)
    if n < 2:
        return Interval(float("nan"), -np.inf, np.inf)
    from scipy.special import stdtrit

    mean = float(outside.mean())
    if np.isinf(mean):
        return Interval(np.inf, np.inf, np.inf)
    step = float(outside.std(ddof=1)) / np.sqrt(n)
    low = mean - stdtrit(n - 1, 1 - low_alpha) * step
    return Interval(
        mean - training, float(low) - training, float(mean + stdtrit(n - 1, 1 - high_alpha) * step) - training
    )
