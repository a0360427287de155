"""Empirical lower bounds on ε: what attacks on real runs prove a mechanism to leak at least.

A lower bound above the claimed ε breaks the claim. A small one proves nothing: even a test without an error in 100 runs
of each kind gives 3.28 at 95 %. Jagielski et al. (2020), "Auditing differentially private machine learning"; Nasr et
al. (2021).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.claims.bounds import check_delta
from privgate.claims.guarantee_basis import claimed_epsilon
from privgate.errors import MeasurementError, UsageError
from privgate.evidence import AuditRuns, BehindClaim, ManyRuns, Measurement, Request
from privgate.kernel.sample import upper_limit
from privgate.run.run import Run
from privgate.subject.claim import Claim
from privgate.subject.containers import scale_of
from privgate.training.fit import Fit


def choose_test(with_record: Float, without: Float) -> Callable[[Float], NDArray[np.bool_]]:
    """Return the threshold test that best separates two samples of scores; it fires where the record seems to be in.

    The samples must not be those that ``bound_many_runs`` counts: a test chosen on these inflates the bound (0.72
    instead of 0.44 in a simulation).
    """
    if not (len(with_record) and len(without)):
        raise UsageError("choosing a test needs runs of both kinds")
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

    The test did not fire in ``misses`` of the ``runs_with`` runs with the record; it fired in ``false_alarms`` of the
    ``runs_without`` others. If the test and both numbers of runs are fixed before the runs, the bound exceeds the true
    ε with probability at most 1 - ``confidence``.
    """
    check_delta(delta)
    fnr = _limit_error_rate(misses, runs_with, (1 - confidence) / 2)
    fpr = _limit_error_rate(false_alarms, runs_without, (1 - confidence) / 2)
    # (ε, δ)-DP demands e^ε ≥ (1 - δ - fpr) / fnr, and the same with the two rates exchanged
    return max(0.0, *(math.log((1 - delta - a) / b) if 1 - delta > a else 0.0 for a, b in ((fpr, fnr), (fnr, fpr))))


def _limit_error_rate(errors: int, runs: int, level: float) -> float:
    if not (runs >= 1 and 0 <= errors <= runs and 0 < level < 0.5):
        raise UsageError(f"{errors} errors in {runs} runs cannot be audited; pass 0 <= errors <= runs, runs >= 1")
    return float(upper_limit(errors, runs, alpha=level))


# The measurement ``dp_epsilon_lower_bound``: attacks on many real trainings, and on one with many canaries.


#: trainings with the canary, and as many without, on which the test is chosen; others of each kind whose errors are
#: counted: 80 of each without an error give 2.3 at 99.9 %, and no larger claim is contradicted
TUNING, COUNTED = 20, 80
#: trainings in all, with the one that chooses the canary
TRAININGS = 2 * (TUNING + COUNTED) + 1


def measure_lower_bound(run: Run, request: Request) -> Measurement:
    """Return a lower bound on ε at the δ that the rule states, else at the claim's."""
    claim = run.subject.recipe.dp
    if claim is None:
        raise MeasurementError("the recipe states no differential-privacy claim to audit")
    delta, confidence = request.option("delta"), float(request.option("confidence"))
    audit = audit_claim(run, claim, delta=float(claim.delta or 0.0 if delta is None else delta), confidence=confidence)
    assumptions = (
        "trainings are independent of each other, and the test was fixed before those that count",
        "an audit gives a lower bound only; a small one does not show that the guarantee holds",
    )
    return Measurement(
        request, audit.epsilon, audit.epsilon, math.inf, "nats", "confidence", confidence, n=audit.trainings,
        population=audit.trainings, assumptions=assumptions,
        behind=BehindClaim(audit=audit, claimed_epsilon=claimed_epsilon(claim, run.subject.data.n)),
    )  # fmt: skip


def audit_claim(
    run: Run, claim: Claim, *, delta: float, confidence: float, tuning: int = TUNING, counted: int = COUNTED
) -> AuditRuns:
    """Return the audit of a claim by trainings with and without one record."""
    row, label = choose_canary(run)
    canary, runs = np.array([row], dtype=np.int64), tuning + counted
    nobody = canary[:0]
    # the trainings without the canary: add/remove claims leave it out, replace-one claims give it its true label
    left_out = canary if claim.adjacency == "add_remove" else nobody
    fits = [Fit(None, canary, left_out=nobody, relabel=((row, label),), repeat=1 + i) for i in range(runs)]
    fits += [Fit(None, canary, left_out=left_out, repeat=1 + i) for i in range(runs)]
    with_canary, without = np.split(_score_labels(run, fits, np.array([label]))[:, 0], 2)
    fires = choose_test(with_canary[:tuning], without[:tuning])
    misses = int((~fires(with_canary[tuning:])).sum())
    alarms = int(fires(without[tuning:]).sum())
    bound = bound_many_runs(misses, counted, alarms, counted, delta=delta, confidence=confidence)
    many = ManyRuns(
        epsilon=bound, trainings=2 * runs, counted=2 * counted, misses=misses, false_alarms=alarms,
        fpr=alarms / counted, tpr=1 - misses / counted,
    )  # fmt: skip
    return AuditRuns(many_runs=many, one_run=None, delta=delta, trainings=2 * runs + 1)


def choose_canary(run: Run) -> tuple[int, int]:
    """Return (row, wrong label) of the record whose true label one training is most certain of.

    With the wrong label its gradient stays as large as clipping allows in every step. A regressor's canary is the
    record with the most extreme answer, and its wrong label is the target at the other end.
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

    A classifier's score is the log-probability. A regressor's is minus the distance of its answer from the target, in
    standard deviations of the targets.
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
