"""The metric ``generalization_gap``: mean loss on candidates less mean loss on training records."""

import numpy as np

from privgate.arrays import Float
from privgate.errors import MeasurementError
from privgate.evidence import BehindMembership, Measurement, Request
from privgate.evidence.telling import SMALL_CELL
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.membership import board as boards
from privgate.membership.limits import Interval, find_worst
from privgate.run import pool as pools
from privgate.run.run import Run

POPULATION = "candidates come from the same population as the training records"


def measure_gap(run: Run, request: Request) -> Measurement:
    """Return R_gen of the subject's model (Yeom et al., 2020, Definition 3), over all or in the worst class or group.

    The training loss is known exactly; limits are those of the population's, estimated from candidates: Clopper-Pearson
    for ``zero_one``, Student for ``cross_entropy``. Records that somebody else's equals are left out on both sides.
    ``MeasurementError``: there are no candidates, or the loss is infinite on both sides.
    """
    answers, p = boards.target_answers(run), pools.build_pool(run.subject.data)  # everybody, not only trials of attacks
    kind, alpha = str(request.option("loss", "zero_one")), 1 - float(request.option("confidence", 0.95))
    zero_one = kind == "zero_one"
    if kind not in ("zero_one", "cross_entropy"):
        raise MeasurementError(f"unknown loss {kind!r}; known: zero_one, cross_entropy")
    loss = answers.argmax(axis=1) != p.labels if zero_one else -answers[np.arange(len(answers)), p.labels]
    loss = np.asarray(loss, dtype=np.float64)
    scope, where = str(request.option("scope", "model")), {"": np.ones(len(answers), dtype=bool)}
    if scope == "class":
        where = {f"label {c}": p.labels == k for k, c in enumerate(run.subject.classes)}
    elif scope == "group":
        groups = pools.groups(run.subject.data, request.option("group"))
        where = {f"{name} = {v}": values == v for name, values in groups.items() for v in np.unique(values)}
    elif scope != "model":
        raise MeasurementError(f"unknown scope {scope!r} for a generalization gap; known: model, class, group")
    where = {name: who & p.alone for name, who in where.items() if (who & p.alone & p.members).any()}
    if not where:
        raise MeasurementError("no class or group holds a training record that could be compared")
    sides = {name: (loss[who & p.members], loss[who & ~p.members]) for name, who in where.items()}
    worst, gap = find_worst(
        {
            name: limit_gap(inside, outside, zero_one=zero_one, low_alpha=alpha / len(where), high_alpha=alpha)
            for name, (inside, outside) in sides.items()
        }
    )
    high = np.inf if p.copies else gap.high
    shown = len(where) == 1 or len(sides[worst][1]) >= SMALL_CELL
    return Measurement(
        request, gap.value, gap.low, high, "fraction" if zero_one else "nats", "confidence", 1 - alpha,
        n=int(p.alone.sum()), population=int(p.alone.sum()), where=worst if shown else "a cell too small to name",
        assumptions=(POPULATION, "the mean loss on candidates is roughly normal")[: 2 - zero_one],
        behind=BehindMembership(
            training_loss=float(loss[p.members & p.alone].mean()), removed_candidates=dict(p.removed)
        ),
    )  # fmt: skip


def limit_gap(inside: Float, outside: Float, *, zero_one: bool, low_alpha: float, high_alpha: float) -> Interval:
    """Return mean loss outside less mean loss inside, with limits of the population's; nothing outside: no limits."""
    training, n = float(inside.mean()), len(outside)
    if np.isinf(training):
        raise MeasurementError("the model gives a training record probability 0: its cross-entropy has no value")
    mean = float(outside.mean()) if n else np.nan
    if zero_one:
        wrong = int(outside.sum())
        low, high = lower_limit(wrong, n, alpha=low_alpha), upper_limit(wrong, n, alpha=high_alpha)
    elif n < 2:
        mean, low, high = np.nan, np.array(-np.inf), np.array(np.inf)
    elif np.isinf(mean):
        low = high = np.array(np.inf)
    else:
        from scipy.special import stdtrit

        step = float(outside.std(ddof=1)) / np.sqrt(n)
        low, high = mean - stdtrit(n - 1, 1 - low_alpha) * step, mean + stdtrit(n - 1, 1 - high_alpha) * step
    return Interval(mean - training, float(low) - training, float(high) - training)
