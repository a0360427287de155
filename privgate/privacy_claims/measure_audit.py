"""The measurement ``dp_epsilon_lower_bound``: attacks on many real trainings, and on one with many canaries."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import MeasurementError
from privgate.evidence import AuditRuns, BehindClaim, ManyRuns, Measurement, OneRun, Request, TradeoffPoint
from privgate.privacy_claims import audit
from privgate.privacy_claims.contradictions import claimed_epsilon
from privgate.privacy_claims.told import told
from privgate.run.run import Run
from privgate.subject.claim import Claim
from privgate.training.fit import Fit

Float = NDArray[np.float64]


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


#: in a search, which judges nobody: what is broken by far is seen, and a whole check audits what it proposes
REHEARSED = AuditEffort(tuning=5, counted=20)


def effort_of(run: Run) -> AuditEffort:
    """Return how much a run trains for an audit."""
    return REHEARSED if run.rehearsed else AuditEffort()


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
    noted = run.once(told)
    noted.audit = found.runs
    noted.fact(
        "Audit",
        f"epsilon at least {found.epsilon:.4g} (confidence {found.confidence:g}, {found.runs.trainings} trainings); "
        "an audit can contradict a guarantee, never show it",
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
    effort = effort or effort_of(run)
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
    test = audit.choose_test(inside[: effort.tuning], outside[: effort.tuning])
    misses = int((~test.fires(inside[effort.tuning :])).sum())
    alarms = int(test.fires(outside[effort.tuning :]).sum())
    found = audit.many_run(misses, effort.counted, alarms, effort.counted, delta=delta, confidence=confidence)
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
    _, right = audit.guess(scores, included, guesses, rng)
    found = audit.one_run(canaries=m, guesses=guesses, right=right, delta=delta, confidence=confidence)
    return OneRun(epsilon=found, canaries=m, guesses=guesses, right=right)


def canary(run: Run) -> tuple[int, int]:
    """Return (row, wrong label) of the record whose label one training is most certain of.

    Mislabelled, its gradient is as large as clipping allows in every step; without clipping, larger.
    """
    subject = run.subject
    rows = np.arange(subject.data.n, dtype=np.int64)
    answer = run.fleet.fits(subject, [Fit(None, rows, left_out=rows[:0], repeat=0)], label="auditing")[0]
    if answer.problem:
        raise MeasurementError(f"the audit could not train: {answer.problem}")
    row = int(np.argmax(answer.log_p[rows, subject.label_codes]))
    return row, int(np.argmin(answer.log_p[row]))


def _scores(run: Run, fits: list[Fit], labels: NDArray[Any]) -> Float:
    """Return the log-probability of each query's label, shape (fits, queries); -inf becomes a very low number."""
    answers = run.fleet.fits(run.subject, fits, label="auditing")
    bad = [a.problem for a in answers if a.problem]
    if bad:
        raise MeasurementError(f"{len(bad)} of {len(fits)} trainings of the audit failed: {bad[0]}")
    logs = np.stack([a.log_p[np.arange(len(labels)), labels] for a in answers])
    return np.asarray(np.maximum(logs, -1e6), dtype=np.float64)
