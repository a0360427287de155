"""Empirical lower bounds on ε: what attacks on real runs prove a mechanism to leak at least.

A lower bound above the claim breaks the claim. A small one proves nothing: 100 runs of each kind without an error
give 3.28 at 95 %, so an audit can never report "private", only "at least this much leakage".

References
----------
Jagielski et al. (2020), "Auditing differentially private machine learning"; Nasr et al. (2021); Steinke, Nasr,
Jagielski (2023), "Privacy auditing with one (1) training run", Theorem 5.2.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.claims.bounds import checked_delta, checked_epsilon, sigmoid
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


@dataclass(frozen=True, slots=True)
class FixedTest:
    """A decision fixed before the runs that are counted: fire iff ``sign * score > sign * threshold``.

    Parameters
    ----------
    threshold : float
    sign : {1, -1}
        1 if members score higher.
    """

    threshold: float
    sign: int = 1

    def fires(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return where the test says member, shape of ``scores``."""
        return np.asarray(self.sign * scores > self.sign * self.threshold)


def choose_test(with_record: NDArray[np.float64], without: NDArray[np.float64]) -> FixedTest:
    """Return the threshold and direction that separate two *tuning* samples best; never use it on the same runs.

    Parameters
    ----------
    with_record, without : float64 arrays
        Scores of runs that are not counted afterwards. A threshold chosen on the counted runs inflates the bound
        (0.72 instead of 0.44 in a simulation).
    """
    if not (len(with_record) and len(without)):
        raise UsageError("choosing a test needs runs of both kinds")
    values = np.unique(np.concatenate([with_record, without]))
    cuts = np.concatenate([values[:1] - 1, (values[1:] + values[:-1]) / 2])
    gains = np.array([(with_record > c).mean() - (without > c).mean() for c in cuts])
    best = int(np.argmax(np.abs(gains)))
    return FixedTest(float(cuts[best]), 1 if gains[best] >= 0 else -1)


def many_run(
    misses: int, runs_with: int, false_alarms: int, runs_without: int, *, delta: float, confidence: float
) -> float:
    """Return a lower bound on ε from independent runs with and without one record.

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

    Returns
    -------
    float
        Nats, at least 0; infinite is never returned, because upper confidence limits are above 0.
    """
    fnr = _upper_limit(misses, runs_with, (1 - confidence) / 2)
    fpr = _upper_limit(false_alarms, runs_without, (1 - confidence) / 2)
    checked_delta(delta)
    found = [0.0]
    for near, far in ((fpr, fnr), (fnr, fpr)):
        if 1 - delta - near > 0:
            found.append(math.log((1 - delta - near) / far))
    return max(found)


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

    _check_counts(canaries, guesses, right)
    q = sigmoid(checked_epsilon(epsilon))
    below = binom.cdf(np.arange(-1, right), guesses, q)  # P[Bin < j] for j = 0 .. v
    tail = float(binom.sf(right - 1, guesses, q))
    if delta and right:
        i = np.arange(1, right + 1)
        tail += 2 * canaries * checked_delta(delta) * float(((below[-1] - below[right - i]) / i).max())
    return float(min(1.0, max(0.0, tail)))


def one_run(*, canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Return a lower bound on ε from a single run with canaries; see ``one_run_p_value``.

    Returns
    -------
    float
        sup of all ε that the outcome rejects at level 1 - confidence; 0 where it rejects none.
    """
    level = 1 - _checked_confidence(confidence)

    def rejected(epsilon: float) -> bool:
        found = one_run_p_value(epsilon, canaries=canaries, guesses=guesses, right=right, delta=delta)
        return found < level

    if not rejected(0.0):
        return 0.0
    low, high = 0.0, LARGEST
    if delta:
        # the δ term need not grow with ε: the first ε on the way up that is not rejected ends the search; the bound
        # without δ, whose p-values are smaller, lies above it
        grid = np.linspace(0, one_run(canaries=canaries, guesses=guesses, right=right, delta=0, confidence=confidence))
        kept = [not rejected(float(e)) for e in grid[1:]]
        first = kept.index(True) + 1 if True in kept else len(grid) - 1
        low, high = float(grid[first - 1]), float(grid[first])
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def guess(
    scores: NDArray[np.float64], included: NDArray[np.bool_], guesses: int, rng: np.random.Generator
) -> tuple[int, int]:
    """Return (guesses made, right ones) when the highest scores are guessed in and the lowest out, half each.

    Parameters
    ----------
    scores : float64 array of shape (m,)
        Higher means "more likely included".
    included : bool array of shape (m,)
    guesses : int
        Even number fixed in advance, at most m.
    rng : Generator
        Breaks ties, which otherwise the order of records would.
    """
    if guesses % 2 or not 0 < guesses <= len(scores):
        raise UsageError(f"the number of guesses must be even and within the {len(scores)} canaries, not {guesses}")
    if not np.isfinite(scores).all():
        raise UsageError("a canary has no finite score; without all of them the audit is not valid")
    order = np.lexsort((rng.random(len(scores)), scores))
    half = guesses // 2
    return guesses, int(included[order[-half:]].sum() + (~included[order[:half]]).sum())


def _upper_limit(errors: int, runs: int, level: float) -> float:
    """Return the one-sided Clopper-Pearson limit: the error rate is above it with probability at most ``level``."""
    if not (runs >= 1 and 0 <= errors <= runs and 0 < level < 0.5):
        raise UsageError(f"{errors} errors in {runs} runs cannot be audited; pass 0 <= errors <= runs, runs >= 1")
    return float(upper_limit(errors, runs, alpha=level))


def _check_counts(canaries: int, guesses: int, right: int) -> None:
    if not 0 <= right <= guesses <= canaries or guesses < 1:
        raise UsageError(f"{right} right of {guesses} guesses on {canaries} canaries is impossible")


def _checked_confidence(confidence: float) -> float:
    if not 0.5 < confidence < 1:
        raise UsageError(f"confidence must lie strictly between 0.5 and 1, not {confidence}")
    return confidence


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


@dataclass(frozen=True)
class ClaimAudit:
    """What an audit found.

    Parameters
    ----------
    epsilon : float
        Lower bound, nats.
    confidence : float
    runs : AuditRuns
        Both audits; the trade-off of the fixed test on the counted trainings is that of ``many_runs``.
    """

    epsilon: float
    confidence: float
    runs: AuditRuns


def measure(run: Run, request: Request) -> Measurement:
    """Return a lower bound on ε at the claim's δ, or at the one asked for."""
    stated = run.subject.recipe.payload["dp"]
    if stated is None:
        raise MeasurementError("the recipe states no differential-privacy claim to audit")
    claim = Claim.from_payload(stated)
    asked = request.option("delta")
    delta = float(claim.delta or 0.0) if asked is None else float(asked)
    found = audited(run, claim, delta=delta, confidence=float(request.option("confidence")))
    noted = run.once(findings)
    noted.audit = found.runs
    noted.facts["Audit"] = (
        f"epsilon at least {found.epsilon:.4g} (confidence {found.confidence:g}, {found.runs.trainings} trainings); "
        "an audit can contradict a guarantee, never show it"
    )
    seen = found.runs.many_runs
    noted.points.append(TradeoffPoint(name="audit", fpr=seen.fpr, tpr=seen.tpr))
    return Measurement(
        request,
        value=found.epsilon,
        low=found.epsilon,
        high=float("inf"),
        unit="nats",
        kind="confidence",
        confidence=found.confidence,
        n=found.runs.trainings,
        population=found.runs.trainings,
        assumptions=(
            "trainings are independent of each other, and the test was fixed before those that count",
            "an audit gives a lower bound only; a small one does not show that the guarantee holds",
        ),
        behind=BehindClaim(audit=found.runs, claimed_epsilon=claimed_epsilon(claim, run.subject.data.n)),
    )


def audited(
    run: Run, claim: Claim, *, delta: float, confidence: float, effort: AuditEffort | None = None
) -> ClaimAudit:
    """Return the better of both audits, each at half the error probability.

    Parameters
    ----------
    run : Run
    claim : Claim
        Its adjacency says whether the canary is left out or exchanged.
    delta, confidence : float
    effort : Effort, optional
    """
    effort = effort or AuditEffort()
    each = 1 - (1 - confidence) / 2
    many = _many_runs(run, claim, effort, delta, each)
    single = None
    if effort.canaries and claim.adjacency == "add_remove":
        single = _one_run(run, effort, delta, each)
    best = max(many.epsilon, 0.0 if single is None else single.epsilon)
    total = effort.trainings - (effort.canaries > 0 and single is None)
    return ClaimAudit(best, confidence, AuditRuns(many_runs=many, one_run=single, delta=delta, trainings=total))


def _many_runs(run: Run, claim: Claim, effort: AuditEffort, delta: float, confidence: float) -> ManyRuns:
    """Train with and without one mislabelled record, and count a test that was fixed on other trainings."""
    row, label = canary(run)
    query = np.array([row], dtype=np.int64)
    nobody = np.zeros(0, dtype=np.int64)
    runs = effort.tuning + effort.counted
    with_it = [Fit(None, query, left_out=nobody, relabel=((row, label),), repeat=1 + i) for i in range(runs)]
    if claim.adjacency == "add_remove":
        without = [Fit(None, query, left_out=query, repeat=1 + i) for i in range(runs)]
    else:  # the record is exchanged for one with its true label
        without = [Fit(None, query, left_out=nobody, repeat=1 + i) for i in range(runs)]
    scores = _scores(run, [*with_it, *without], np.array([label]))[:, 0]
    inside, outside = scores[:runs], scores[runs:]
    test = choose_test(inside[: effort.tuning], outside[: effort.tuning])
    misses = int((~test.fires(inside[effort.tuning :])).sum())
    alarms = int(test.fires(outside[effort.tuning :]).sum())
    found = many_run(misses, effort.counted, alarms, effort.counted, delta=delta, confidence=confidence)
    return ManyRuns(
        epsilon=found,
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
    _, right = guess(scores, included, guesses, rng)
    found = one_run(canaries=m, guesses=guesses, right=right, delta=delta, confidence=confidence)
    return OneRun(epsilon=found, canaries=m, guesses=guesses, right=right)


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
