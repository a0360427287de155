"""Empirical lower bounds on ε: what attacks on real runs prove a mechanism to leak at least.

A lower bound above the claim breaks the claim. A small one proves nothing: 100 runs of each kind without an error
give 3.28 at 95 %, so an audit can never report "private", only "at least this much leakage".

References
----------
Jagielski et al. (2020), "Auditing differentially private machine learning"; Nasr et al. (2021); Steinke, Nasr,
Jagielski (2023), "Privacy auditing with one (1) training run", Theorem 5.2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.claims.bounds import check_delta, check_epsilon, sigmoid
from privgate.claims.standing import claimed_epsilon, findings
from privgate.errors import MeasurementError, UsageError
from privgate.evidence import AuditRuns, BehindClaim, ManyRuns, Measurement, OneRun, Request, TradeoffPoint
from privgate.kernel.sample import upper_limit
from privgate.run.run import Run
from privgate.subject.claim import Claim
from privgate.subject.containers import scale_of
from privgate.training.fit import Fit

#: no attack distinguishes more than this many nats in any number of runs a gate could pay for
LARGEST = 50.0


def choose_test(with_record: Float, without: Float) -> Callable[[Float], NDArray[np.bool_]]:
    """Return the test that separates two *tuning* samples of scores best: where it fires, it says member.

    It is fixed before the runs that are counted. Chosen on these, it inflates the bound (0.72 instead of 0.44 in a
    simulation).
    """
    if not (len(with_record) and len(without)):
        raise UsageError("choosing a test needs runs of both kinds")
    values = np.unique(np.concatenate([with_record, without]))
    cuts = np.concatenate([values[:1] - 1, (values[1:] + values[:-1]) / 2])
    gains = np.array([(with_record > c).mean() - (without > c).mean() for c in cuts])
    best = int(np.argmax(np.abs(gains)))
    sign, threshold = (1 if gains[best] >= 0 else -1), cuts[best]
    return lambda scores: np.asarray(sign * scores > sign * threshold)


def many_run(
    misses: int, runs_with: int, false_alarms: int, runs_without: int, *, delta: float, confidence: float
) -> float:
    """Return a lower bound on ε, nats, from independent runs with and without one record.

    Parameters
    ----------
    misses, runs_with : int
        Of ``runs_with`` runs that contained the record, how often the test did not fire.
    false_alarms, runs_without : int
        Of ``runs_without`` runs that did not, how often it did.
    delta : float in [0, 1)
    confidence : float in (0, 1)
        The bound exceeds the true ε with probability at most 1 - confidence. The test and both numbers of runs are
        fixed before the runs.
    """
    check_delta(delta)
    fnr = _upper_limit(misses, runs_with, (1 - confidence) / 2)
    fpr = _upper_limit(false_alarms, runs_without, (1 - confidence) / 2)
    pairs = ((fpr, fnr), (fnr, fpr))
    return max(0.0, *(math.log((1 - delta - near) / far) if 1 - delta > near else 0.0 for near, far in pairs))


def _upper_limit(errors: int, runs: int, level: float) -> float:
    """Return the one-sided Clopper-Pearson limit: the error rate is above it with probability at most ``level``."""
    if not (runs >= 1 and 0 <= errors <= runs and 0 < level < 0.5):
        raise UsageError(f"{errors} errors in {runs} runs cannot be audited; pass 0 <= errors <= runs, runs >= 1")
    return float(upper_limit(errors, runs, alpha=level))


def one_run_p_value(epsilon: float, *, canaries: int, guesses: int, right: int, delta: float) -> float:
    """Return the largest probability of at least ``right`` right guesses under (ε, δ)-DP.

    Parameters
    ----------
    epsilon : float
    canaries : int
        m, all records that were included by a fair coin each, guessed or not.
    guesses : int
        r, fixed before the run: the most confident ones, the rest abstains.
    right : int
        v.
    delta : float
        Enters as ``2 m δ max_i P[v-i ≤ Bin(r, q) < v] / i``; public copies drop the term and flag a (0, 0.02)-DP
        mechanism in 39 % of runs at a nominal 5 %.
    """
    from scipy.stats import binom

    if not 0 <= right <= guesses <= canaries or guesses < 1:
        raise UsageError(f"{right} right of {guesses} guesses on {canaries} canaries is impossible")
    q = sigmoid(check_epsilon(epsilon))
    below = binom.cdf(np.arange(-1, right), guesses, q)  # P[Bin < j] for j = 0 .. v
    tail = float(binom.sf(right - 1, guesses, q))
    if delta and right:
        i = np.arange(1, right + 1)
        tail += 2 * canaries * check_delta(delta) * float(((below[-1] - below[right - i]) / i).max())
    return float(min(1.0, max(0.0, tail)))


def one_run(*, canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Return a lower bound on ε from a single run with canaries: the sup of all ε that its outcome rejects, or 0."""
    if not 0.5 < confidence < 1:
        raise UsageError(f"confidence must lie strictly between 0.5 and 1, not {confidence}")
    p_value = partial(one_run_p_value, canaries=canaries, guesses=guesses, right=right, delta=delta)

    def rejected(epsilon: float) -> bool:
        return p_value(epsilon) < 1 - confidence

    if not rejected(0.0):
        return 0.0
    low, high = 0.0, LARGEST
    if delta:
        # the δ term need not grow with ε: the first ε on the way up that is not rejected ends the search; the bound
        # without δ, whose p-values are smaller, lies above it
        grid = np.linspace(0, one_run(canaries=canaries, guesses=guesses, right=right, delta=0, confidence=confidence))
        first = next((i for i, e in enumerate(grid) if i and not rejected(float(e))), len(grid) - 1)
        low, high = float(grid[first - 1]), float(grid[first])
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def guess(scores: Float, included: NDArray[np.bool_], guesses: int, rng: np.random.Generator) -> int:
    """Return the right guesses when the highest of m scores are guessed in and the lowest out, half each.

    ``guesses`` is even, at most m and fixed in advance; ``rng`` breaks ties, which otherwise the order would.
    """
    if not np.isfinite(scores).all():
        raise UsageError("a canary has no finite score; without all of them the audit is not valid")
    order = np.lexsort((rng.random(len(scores)), scores))
    half = guesses // 2
    return int(included[order[-half:]].sum() + (~included[order[:half]]).sum())


# The measurement ``dp_epsilon_lower_bound``: attacks on many real trainings, and on one with many canaries.


@dataclass(frozen=True, slots=True)
class AuditEffort:
    """How much is trained for an audit; fixed before anything is looked at.

    Parameters
    ----------
    tuning, counted : int
        Trainings with and without the canary, each; the first choose the test, only the second count. With 80 of each
        and no error the bound at 99.9 % is 2.2: a claim above that cannot be contradicted.
    canaries : int
        Records of the single run with many canaries; 0 to leave it out.
    """

    tuning: int = 20
    counted: int = 80
    canaries: int = 200

    @property
    def trainings(self) -> int:
        """Trainings in all: with and without the canary, one to choose it, one with many canaries."""
        return 2 * (self.tuning + self.counted) + 1 + (self.canaries > 0)


def measure(run: Run, request: Request) -> Measurement:
    """Return a lower bound on ε at the claim's δ, or at the one asked for."""
    claim = run.subject.recipe.dp
    if claim is None:
        raise MeasurementError("the recipe states no differential-privacy claim to audit")
    asked, confidence = request.option("delta"), float(request.option("confidence"))
    audit = audited(run, claim, delta=float(claim.delta or 0.0 if asked is None else asked), confidence=confidence)
    noted, many = run.once(findings), audit.many_runs
    noted.audit = audit
    noted.facts["Audit"] = (
        f"epsilon at least {audit.epsilon:.4g} (confidence {confidence:g}, {audit.trainings} trainings); "
        "an audit can contradict a guarantee, never show it"
    )
    noted.points.append(TradeoffPoint(name="audit", fpr=many.fpr, tpr=many.tpr))
    return Measurement(
        request,
        value=audit.epsilon,
        low=audit.epsilon,
        high=math.inf,
        unit="nats",
        kind="confidence",
        confidence=confidence,
        n=audit.trainings,
        population=audit.trainings,
        assumptions=(
            "trainings are independent of each other, and the test was fixed before those that count",
            "an audit gives a lower bound only; a small one does not show that the guarantee holds",
        ),
        behind=BehindClaim(audit=audit, claimed_epsilon=claimed_epsilon(claim, run.subject.data.n)),
    )


def audited(run: Run, claim: Claim, *, delta: float, confidence: float, effort: AuditEffort | None = None) -> AuditRuns:
    """Return both audits, each at half the error probability; the claim says if the canary is left out or exchanged."""
    effort = effort or AuditEffort()
    each = 1 - (1 - confidence) / 2
    many = _many_runs(run, claim, effort, delta, each)
    with_canaries = effort.canaries > 0 and claim.adjacency == "add_remove"
    single = _one_run(run, effort, delta, each) if with_canaries else None
    total = effort.trainings - (effort.canaries > 0 and single is None)
    return AuditRuns(many_runs=many, one_run=single, delta=delta, trainings=total)


def _many_runs(run: Run, claim: Claim, effort: AuditEffort, delta: float, confidence: float) -> ManyRuns:
    """Train with and without one mislabelled record, and count a test that was fixed on other trainings."""
    row, label = canary(run)
    query, runs = np.array([row], dtype=np.int64), effort.tuning + effort.counted
    # where records are replaced, it is exchanged for one with its true label
    gone = query if claim.adjacency == "add_remove" else query[:0]
    fits = [Fit(None, query, left_out=query[:0], relabel=((row, label),), repeat=1 + i) for i in range(runs)]
    fits += [Fit(None, query, left_out=gone, repeat=1 + i) for i in range(runs)]
    inside, outside = np.split(_scores(run, fits, np.array([label]))[:, 0], 2)
    fires = choose_test(inside[: effort.tuning], outside[: effort.tuning])
    misses = int((~fires(inside[effort.tuning :])).sum())
    alarms = int(fires(outside[effort.tuning :]).sum())
    return ManyRuns(
        epsilon=many_run(misses, effort.counted, alarms, effort.counted, delta=delta, confidence=confidence),
        trainings=2 * runs,
        counted=2 * effort.counted,
        misses=misses,
        false_alarms=alarms,
        fpr=alarms / effort.counted,
        tpr=1 - misses / effort.counted,
    )


def _one_run(run: Run, effort: AuditEffort, delta: float, confidence: float) -> OneRun:
    """Train once with many mislabelled records, each included by a coin, and guess the coins."""
    subject, rng = run.subject, run.generator("dp-audit-canaries")
    n, classes = subject.data.n, len(subject.classes)
    m = min(effort.canaries, n // 5)
    if m < 4:
        raise MeasurementError(f"{n} training records are too few for an audit with canaries")
    rows = np.sort(rng.choice(n, m, replace=False)).astype(np.int64)
    labels = (subject.label_codes[rows] + rng.integers(1, classes, m)) % classes
    included = rng.random(m) < 0.5
    members = np.setdiff1d(np.arange(n, dtype=np.int64), rows[~included])
    relabel = tuple((int(r), int(c)) for r, c, i in zip(rows, labels, included, strict=True) if i)
    scores = _scores(run, [Fit(None, rows, members=members, relabel=relabel, repeat=1)], labels)[0]
    guesses = 2 * (m // 4)
    right = guess(scores, included, guesses, rng)
    bound = one_run(canaries=m, guesses=guesses, right=right, delta=delta, confidence=confidence)
    return OneRun(epsilon=bound, canaries=m, guesses=guesses, right=right)


def canary(run: Run) -> tuple[int, int]:
    """Return (row, wrong label) of the record whose label one training is most certain of.

    Mislabelled, its gradient is as large as clipping allows in every step; without clipping, larger. Of a regressor it
    is the record with the most extreme answer, and the wrong label is the target at the other end.
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


def _scores(run: Run, fits: list[Fit], labels: NDArray[Any]) -> Float:
    """Return the log-probability of each query's label, shape (fits, queries); -inf becomes a very low number.

    Of a regressor: minus the distance of the answer from the target, in deviations of the targets.
    """
    answers = run.fleet.fits(run.subject, fits, label="auditing")
    bad = [a.problem for a in answers if a.problem]
    if bad:
        raise MeasurementError(f"{len(bad)} of {len(fits)} trainings of the audit failed: {bad[0]}")
    if run.subject.task == "regression":
        mean, deviation = scale_of(run.subject.data.y)
        targets = (run.subject.classes[labels].astype(np.float64) - mean) / deviation
        return np.asarray(-np.abs(np.stack([a.log_p[:, 0] for a in answers]) - targets))
    logs = np.stack([a.log_p[np.arange(len(labels)), labels] for a in answers])
    return np.asarray(np.maximum(logs, -1e6), dtype=np.float64)
