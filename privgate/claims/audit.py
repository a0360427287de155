"""Empirical lower bounds on ε: what attacks on real runs prove a mechanism to leak at least.

A lower bound above the claimed ε breaks the claim. A small one proves nothing: a test without an error in 100 runs of
each kind gives 3.28 at 95 %. Jagielski et al. (2020); Nasr et al. (2021); Steinke et al. (2023), Theorem 5.2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.claims.bounds import check_delta, check_epsilon, sigmoid
from privgate.claims.guarantee_basis import claimed_epsilon, note_claim
from privgate.errors import MeasurementError, UsageError
from privgate.evidence import AuditRuns, BehindClaim, ManyRuns, Measurement, OneRun, Request
from privgate.kernel.sample import upper_limit
from privgate.run.run import Run
from privgate.subject.claim import Claim
from privgate.subject.containers import scale_of
from privgate.training.fit import Fit

#: upper end, in nats, of the search for a lower bound: proving as much would take more than e^50 canaries
LARGEST_EPSILON = 50.0


def choose_test(with_record: Float, without: Float) -> Callable[[Float], NDArray[np.bool_]]:
    """Return the threshold test that best separates two samples of scores; it fires where the record seems to be in.

    ``bound_many_runs`` must count others: a test chosen on its samples inflates the bound (0.72 for 0.44, simulated).
    """
    values = np.unique(np.concatenate([with_record, without]))
    thresholds = np.concatenate([values[:1] - 1, (values[1:] + values[:-1]) / 2])
    advantages = np.array([(with_record > t).mean() - (without > t).mean() for t in thresholds])
    best = int(np.argmax(np.abs(advantages)))
    sign, threshold = (1 if advantages[best] >= 0 else -1), thresholds[best]
    return lambda scores: np.asarray(sign * scores > sign * threshold)


def bound_many_runs(
    misses: int, runs_with: int, false_alarms: int, runs_without: int, *, delta: float, confidence: float
) -> float:
    """Return a lower bound on ε, in nats, from independent runs with and without one record.

    The test did not fire in ``misses`` of ``runs_with`` the record, and fired in ``false_alarms`` of ``runs_without``.
    Where test and runs are fixed before, it exceeds the true ε with probability 1 - ``confidence`` at most.
    """
    check_delta(delta)
    errors, runs = (misses, false_alarms), (runs_with, runs_without)
    fnr, fpr = upper_limit(errors, runs, alpha=(1 - confidence) / 2).tolist()
    # (ε, δ)-DP demands e^ε ≥ (1 - δ - fpr) / fnr, and the same with the two rates exchanged
    return max(0.0, *(math.log((1 - delta - a) / b) if 1 - delta > a else 0.0 for a, b in ((fpr, fnr), (fnr, fpr))))


def one_run_p_value(epsilon: float, *, canaries: int, guesses: int, right: int, delta: float) -> float:
    """Return how likely, at most, (ε, δ)-DP lets ``right`` = v or more of ``guesses`` = r guesses be right.

    A fair coin put each of ``canaries`` = m records into one training or left it out. The r most confident guesses
    count, and r is fixed before the run. δ adds ``2 m δ max_i P[v-i ≤ Bin(r, q) < v] / i``: published code leaves this
    out, and accuses a (0, 0.02)-DP mechanism in 39 % of runs at a nominal 5 %.
    """
    from scipy.stats import binom

    q = sigmoid(check_epsilon(epsilon))
    below = binom.cdf(np.arange(-1, right), guesses, q)  # P[Bin(r, q) < j] for j = 0 .. v
    p_value = float(binom.sf(right - 1, guesses, q))
    if delta and right:
        i = np.arange(1, right + 1)
        p_value += 2 * canaries * check_delta(delta) * float(((below[-1] - below[right - i]) / i).max())
    return float(min(1.0, max(0.0, p_value)))


def bound_one_run(*, canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Return a lower bound on ε from one training with canaries: below it the result rejects every ε; 0 if none."""
    p_value = partial(one_run_p_value, canaries=canaries, guesses=guesses, right=right, delta=delta)

    def rejects(epsilon: float) -> bool:
        return p_value(epsilon) < 1 - confidence

    if not rejects(0.0):
        return 0.0
    low, high = 0.0, LARGEST_EPSILON
    if delta:
        # with δ the p-value need not grow with ε: bisect before the first point of a grid that is not rejected; the
        # grid ends at the bound without δ, which is larger, because its p-values are smaller
        top = bound_one_run(canaries=canaries, guesses=guesses, right=right, delta=0, confidence=confidence)
        grid = np.linspace(0, top)
        first = next((i for i, e in enumerate(grid) if i and not rejects(float(e))), len(grid) - 1)
        low, high = float(grid[first - 1]), float(grid[first])
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if rejects(middle) else (low, middle)
    return low


def count_right_guesses(scores: Float, included: NDArray[np.bool_], guesses: int, rng: np.random.Generator) -> int:
    """Return how many guesses are right: half of them call the highest scores included, half the lowest left out.

    ``guesses`` is even, at most ``len(scores)``, and fixed in advance. ``rng`` decides between equal scores.
    """
    if not np.isfinite(scores).all():
        raise UsageError("a canary has no finite score; without all of them the audit is not valid")
    order = np.lexsort((rng.random(len(scores)), scores))
    half = guesses // 2
    return int(included[order[-half:]].sum() + (~included[order[:half]]).sum())


# The measurement ``dp_epsilon_lower_bound``: attacks on many real trainings, and on one with many canaries.


@dataclass(frozen=True, slots=True)
class AuditEffort:
    """How many trainings an audit makes; fixed before any of them.

    The test is chosen on ``tuning`` trainings with the canary and as many without; its errors are counted on
    ``counted`` others of each kind. 80 of each without an error give 2.2 at 99.9 %: no larger claim is contradicted.
    """

    tuning: int = 20
    counted: int = 80
    #: records of the single training with many canaries; 0 leaves that training out
    canaries: int = 200

    @property
    def trainings(self) -> int:
        """Trainings in all: with and without the canary, one to choose it, one with many canaries."""
        return 2 * (self.tuning + self.counted) + 1 + (self.canaries > 0)


def measure_lower_bound(run: Run, request: Request) -> Measurement:
    """Return a lower bound on ε at the δ that the rule states, else at the claim's."""
    claim = run.subject.recipe.dp
    if claim is None:
        raise MeasurementError("the recipe states no differential-privacy claim to audit")
    delta, confidence = request.option("delta"), float(request.option("confidence"))
    audit = audit_claim(run, claim, delta=float(claim.delta or 0.0 if delta is None else delta), confidence=confidence)
    note_claim(run)  # the report has a part about the claim
    assumptions = (
        "trainings are independent of each other, and the test was fixed before those that count",
        "an audit gives a lower bound only; a small one does not show that the guarantee holds",
    )
    return Measurement(
        request, audit.epsilon, audit.epsilon, math.inf, "nats", "confidence", confidence, n=audit.trainings,
        population=audit.trainings, assumptions=assumptions,
        behind=BehindClaim(audit=audit, claimed_epsilon=claimed_epsilon(claim)),
    )  # fmt: skip


def audit_claim(
    run: Run, claim: Claim, *, delta: float, confidence: float, effort: AuditEffort | None = None
) -> AuditRuns:
    """Return the audit by many trainings and, for add/remove claims, the one by a training with many canaries.

    Each may err with half the probability 1 - ``confidence``.
    """
    effort = effort or AuditEffort()
    each = 1 - (1 - confidence) / 2
    many = _audit_many_runs(run, claim, effort, delta, each)
    effort = effort if claim.adjacency == "add_remove" else replace(effort, canaries=0)
    single = _audit_one_run(run, effort, delta, each) if effort.canaries else None
    return AuditRuns(many_runs=many, one_run=single, delta=delta, trainings=effort.trainings)


def _audit_many_runs(run: Run, claim: Claim, effort: AuditEffort, delta: float, confidence: float) -> ManyRuns:
    row, label = choose_canary(run)
    canary, runs = np.array([row], dtype=np.int64), effort.tuning + effort.counted
    nobody = canary[:0]
    # the trainings without the canary: add/remove claims leave it out, replace-one claims give it its true label
    left_out = canary if claim.adjacency == "add_remove" else nobody
    fits = [Fit(None, canary, left_out=nobody, relabel=((row, label),), repeat=1 + i) for i in range(runs)]
    fits += [Fit(None, canary, left_out=left_out, repeat=1 + i) for i in range(runs)]
    with_canary, without = np.split(_score_labels(run, fits, np.array([label]))[:, 0], 2)
    fires = choose_test(with_canary[: effort.tuning], without[: effort.tuning])
    misses = int((~fires(with_canary[effort.tuning :])).sum())
    alarms = int(fires(without[effort.tuning :]).sum())
    return ManyRuns(
        epsilon=bound_many_runs(misses, effort.counted, alarms, effort.counted, delta=delta, confidence=confidence),
        trainings=2 * runs, counted=2 * effort.counted, misses=misses, false_alarms=alarms,
        fpr=alarms / effort.counted, tpr=1 - misses / effort.counted,
    )  # fmt: skip


def _audit_one_run(run: Run, effort: AuditEffort, delta: float, confidence: float) -> OneRun:
    subject, rng = run.subject, run.generator("dp-audit-canaries")
    n, classes = subject.data.n, len(subject.classes)
    m = min(effort.canaries, n // 5)
    if m < 4:
        raise MeasurementError(f"{n} training records are too few for an audit with canaries")
    rows = np.sort(rng.choice(n, m, replace=False)).astype(np.int64)
    wrong_labels = (subject.label_codes[rows] + rng.integers(1, classes, m)) % classes
    included = rng.random(m) < 0.5
    members = np.setdiff1d(np.arange(n, dtype=np.int64), rows[~included])
    relabel = tuple((int(r), int(c)) for r, c in zip(rows[included], wrong_labels[included], strict=True))
    scores = _score_labels(run, [Fit(None, rows, members=members, relabel=relabel, repeat=1)], wrong_labels)[0]
    guesses = 2 * (m // 4)
    right = count_right_guesses(scores, included, guesses, rng)
    bound = bound_one_run(canaries=m, guesses=guesses, right=right, delta=delta, confidence=confidence)
    return OneRun(epsilon=bound, canaries=m, guesses=guesses, right=right)


def choose_canary(run: Run) -> tuple[int, int]:
    """Return (row, wrong label) of the record whose true label one training is most certain of.

    With that label its gradient stays as large as clipping allows. Of a regressor: the most extreme, and the other end.
    """
    subject = run.subject
    rows = np.arange(subject.data.n, dtype=np.int64)
    answer = run.fleet.fits(subject, [Fit(None, rows, left_out=rows[:0], repeat=0)], label="auditing")[0]
    if answer.problem:
        raise MeasurementError(f"the audit could not train: {answer.problem}")
    if subject.task == "regression":
        row = int(np.argmax(np.abs(answer.log_p[:, 0])))
        return row, 0 if answer.log_p[row, 0] > 0 else len(subject.classes) - 1
    row = int(np.argmax(answer.log_p[rows, subject.label_codes]))
    return row, int(np.argmin(answer.log_p[row]))


def _score_labels(run: Run, fits: list[Fit], labels: NDArray[Any]) -> Float:
    """Return the score, shape (fits, queries), that each trained model gives to the label of each query.

    Log-probabilities; of a regressor minus the distance of answer and target, in deviations of the targets.
    """
    answers = run.fleet.fits(run.subject, fits, label="auditing")
    problems = [a.problem for a in answers if a.problem]
    if problems:
        raise MeasurementError(f"{len(problems)} of {len(fits)} trainings of the audit failed: {problems[0]}")
    if run.subject.task == "regression":
        mean, deviation = scale_of(run.subject.data.y)
        targets = (run.subject.classes[labels].astype(np.float64) - mean) / deviation
        return np.asarray(-np.abs(np.stack([a.log_p[:, 0] for a in answers]) - targets))
    logs = np.stack([a.log_p[np.arange(len(labels)), labels] for a in answers])
    return np.asarray(np.maximum(logs, -1e6), dtype=np.float64)  # ``count_right_guesses`` needs finite scores
