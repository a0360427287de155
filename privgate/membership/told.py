"""What the report shows of attacks: figures with limits, curves, small cells suppressed, false alarms."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privgate.errors import MeasurementError
from privgate.evidence import (
    AgainstPdtp,
    AttackFigures,
    AttackResult,
    CellAccuracy,
    Estimate,
    MembershipPart,
    NullRuns,
    RateAtFpr,
)
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.membership import board as attacked
from privgate.membership import limits
from privgate.membership.board import Attempt, Board
from privgate.run.run import Run
from privgate.statistics import roc
from privgate.statistics.roc import Decisions

Bool = NDArray[np.bool_]

#: false-positive rates that the report tries
RATES = (0.1, 0.01, 0.001)
#: a cell of fewer people on either side is not shown: one person in it could be recognised
SMALL_CELL = 10
#: runs with labels that mean nothing, which measure how often the limits alarm without cause
NULL_RUNS = 200


@dataclass
class Shown:
    """What was noted of the attacks of one run; an attack is noted once.

    Parameters
    ----------
    attacks : dict name -> AttackResult
    null_runs : NullRuns or None
        Of the largest set of attacks that were searched together.
    """

    attacks: dict[str, AttackResult] = field(default_factory=dict)
    null_runs: NullRuns | None = None


def shown(run: Run) -> Shown:
    """Return where a run's attacks are noted."""
    del run
    return Shown()


def note(board: Board, attempts: list[Attempt], confidence: float) -> None:
    """Note all attacks that were tried, each once, those that did not run by name."""
    noted = board.run.once(shown)
    for attempt in attempts:
        if attempt.attack.name not in noted.attacks:
            noted.attacks[attempt.attack.name] = result(board, attempt, 1 - confidence)
    ran = [a for a in attempts if not a.problem]
    if ran and (noted.null_runs is None or noted.null_runs.attacks < len(ran)):
        noted.null_runs = null_runs(board, ran, confidence)


def part(run: Run, against_pdtp: AgainstPdtp | None = None) -> MembershipPart | None:
    """Return what the second question found out beside its numbers; None where no attack was tried."""
    if not run.made(shown) and against_pdtp is None:
        return None
    noted = run.once(shown)
    return MembershipPart(attacks=tuple(noted.attacks.values()), null_runs=noted.null_runs, against_pdtp=against_pdtp)


def result(board: Board, attempt: Attempt, alpha: float) -> AttackResult:
    """Return one attack for the report."""
    attack = attempt.attack
    return AttackResult(
        name=attack.name,
        title=attack.title,
        threat_model=attack.threat_model,
        source=attack.source,
        self_test=attempt.test,
        problem=attempt.problem,
        figures=None if attempt.problem else _figures(board, attempt, alpha),
    )


def _figures(board: Board, attempt: Attempt, alpha: float) -> AttackFigures:
    scores, members = attempt.scores, board.members
    fixed = board.decisions(attempt, np.ones(len(members), dtype=bool))[0]
    accuracy = limits.balanced_accuracy(fixed, low_alpha=alpha / 2, high_alpha=alpha / 2)
    return AttackFigures(
        auc=roc.auc(scores, members),
        auc_error=roc.auc_error(scores, members),
        accuracy=Estimate(value=accuracy.value, low=accuracy.low, high=accuracy.high),
        advantage=fixed.advantage,
        precision=fixed.precision,
        recall=fixed.recall,
        tpr_at_fpr=tuple(_rate(board, attempt, fpr, alpha) for fpr in RATES),
        roc=tuple((a, b) for a, b in roc.thinned_roc(scores, members)),
        classes=shown_cells(board, attempt, "class", alpha),
        groups=shown_cells(board, attempt, "group", alpha) if board.run.subject.data.sensitive else (),
        seconds=round(attempt.seconds, 3),
    )


def _rate(board: Board, attempt: Attempt, fpr: float, alpha: float) -> RateAtFpr:
    """Return TPR at one FPR with limits, or why the sample cannot resolve it."""
    try:
        got = limits.tpr_limits(board.ranks(attempt), board.members, fpr=fpr, low_alpha=alpha, high_alpha=alpha)
    except MeasurementError as exc:
        return RateAtFpr(fpr=fpr, value=None, problem=str(exc))
    return RateAtFpr(fpr=fpr, value=got.value, low=got.low, high=got.high)


def shown_cells(board: Board, attempt: Attempt, scope: str, alpha: float) -> tuple[CellAccuracy, ...]:
    """Return accuracy in every class or group that is large enough to be shown."""
    try:
        where = attacked.cells(board, scope, None)
    except MeasurementError:
        return ()
    out = []
    for name, who in where.items():
        inside, outside = int((who & board.members).sum()), int((who & ~board.members).sum())
        if min(inside, outside) < SMALL_CELL:
            continue
        got = limits.balanced_accuracy(board.decisions(attempt, who)[0], low_alpha=alpha / 2, high_alpha=alpha / 2)
        out.append(
            CellAccuracy(name=name, value=got.value, low=got.low, high=got.high, members=inside, candidates=outside)
        )
    return tuple(out)


def null_runs(board: Board, ran: list[Attempt], confidence: float) -> NullRuns:
    """Return how often the lower limit rises above guessing when candidates are called members at random.

    All candidates were outside the training set, so any alarm among them is false; the same scores, thresholds, limits
    and correction are used as for the verdict.
    """
    rng = board.run.generator("null runs")
    outside = np.flatnonzero(~board.members)
    scores = np.stack([a.scores[outside] for a in ran])
    fixed = scores >= np.array([[a.threshold] for a in ran])
    alpha = 1 - confidence
    alarms = 0
    for _ in range(NULL_RUNS):
        order = rng.permutation(len(outside))
        called = np.zeros(len(outside), dtype=bool)
        called[order[: len(outside) // 2]] = True
        half = np.zeros(len(outside), dtype=bool)
        half[order[::2]] = True
        counts = [Decisions.of(f, called) for f in fixed]
        for s in scores:
            at = roc.best_threshold(s[half], called[half])
            counts.append(Decisions.of(s[~half] >= at, called[~half]))
        alarms += any(
            limits.balanced_accuracy(d, low_alpha=alpha / len(counts), high_alpha=alpha).low > 0.5 for d in counts
        )
    low, high = (float(limit(alarms, NULL_RUNS, alpha=0.025)) for limit in (lower_limit, upper_limit))
    return NullRuns(attacks=len(ran), runs=NULL_RUNS, alarms=alarms, nominal=alpha, low=low, high=high)
