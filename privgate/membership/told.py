"""What the report shows of attacks: figures with limits, curves, small cells suppressed, false alarms."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import MeasurementError
from privgate.membership import board as attacked
from privgate.membership import limits
from privgate.membership.board import Attacked, Attempt
from privgate.statistics import intervals, roc
from privgate.statistics.roc import Decisions

Bool = NDArray[np.bool_]

#: false-positive rates that the report tries
RATES = (0.1, 0.01, 0.001)
#: a cell of fewer people on either side is not shown: one person in it could be recognised
SMALL_CELL = 10
#: runs with labels that mean nothing, which measure how often the limits alarm without cause
NULL_RUNS = 200


def note(board: Attacked, attempts: list[Attempt], confidence: float) -> None:
    """Write all attacks that were tried into the bench's detail, each once, those that did not run by name."""
    known = {entry["name"]: entry for entry in board.bench.detail.get("attacks", [])}
    for attempt in attempts:
        known.setdefault(attempt.attack.name, entry(board, attempt, 1 - confidence))
    detail = board.bench.detail
    detail["attacks"] = list(known.values())
    ran = [a for a in attempts if not a.problem]
    if ran and detail.get("attack_null_runs", {}).get("attacks", 0) < len(ran):
        detail["attack_null_runs"] = null_runs(board, ran, confidence)


def entry(board: Attacked, attempt: Attempt, alpha: float) -> dict[str, Any]:
    """Return one attack for the report; limits are for this attack alone, not corrected for others."""
    attack = attempt.attack
    said: dict[str, Any] = {
        "name": attack.name,
        "title": attack.title,
        "kind": "membership inference",
        "scope": "model",
        "threat_model": attack.threat_model,
        "source": attack.source,
        "self_test": attacked.payload(attempt.test),
        "problem": attempt.problem,
    }
    if attempt.problem:
        return said
    scores, members = attempt.scores, board.members
    fixed = board.decisions(attempt, np.ones(len(members), dtype=bool))[0]
    accuracy = limits.balanced_accuracy(fixed, low_alpha=alpha / 2, high_alpha=alpha / 2)
    said |= {
        "auc": roc.auc(scores, members),
        "auc_error": roc.auc_error(scores, members),
        "accuracy": {"value": accuracy.value, "low": accuracy.low, "high": accuracy.high},
        "advantage": fixed.advantage,
        "precision": fixed.precision,
        "recall": fixed.recall,
        "tpr_at_fpr": {f"{fpr:g}": _rate(board, attempt, fpr, alpha) for fpr in RATES},
        "roc": roc.thinned_roc(scores, members),
        "classes": shown_cells(board, attempt, "class", alpha),
        "groups": shown_cells(board, attempt, "group", alpha) if board.bench.subject.data.sensitive else [],
        "seconds": round(attempt.seconds, 3),
    }
    return said


def _rate(board: Attacked, attempt: Attempt, fpr: float, alpha: float) -> dict[str, Any]:
    """Return TPR at one FPR with limits, or why the sample cannot resolve it."""
    try:
        got = limits.tpr_limits(board.ranks(attempt), board.members, fpr=fpr, low_alpha=alpha, high_alpha=alpha)
    except MeasurementError as exc:
        return {"value": None, "problem": str(exc)}
    return {"value": got.value, "low": got.low, "high": got.high}


def shown_cells(board: Attacked, attempt: Attempt, scope: str, alpha: float) -> list[dict[str, Any]]:
    """Return accuracy in every class or group that is large enough to be shown."""
    try:
        where = attacked.cells(board, scope, None)
    except MeasurementError:
        return []
    out = []
    for name, who in where.items():
        inside, outside = int((who & board.members).sum()), int((who & ~board.members).sum())
        if min(inside, outside) < SMALL_CELL:
            continue
        got = limits.balanced_accuracy(board.decisions(attempt, who)[0], low_alpha=alpha / 2, high_alpha=alpha / 2)
        out.append({"name": name, "value": got.value, "low": got.low, "high": got.high,
                    "members": inside, "candidates": outside})  # fmt: skip
    return out


def null_runs(board: Attacked, ran: list[Attempt], confidence: float) -> dict[str, Any]:
    """Return how often the lower limit rises above guessing when candidates are called members at random.

    All candidates were outside the training set, so any alarm among them is false; the same scores, thresholds, limits
    and correction are used as for the verdict.
    """
    rng = board.bench.generator("null runs")
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
    low, high = intervals.clopper_pearson(alarms, NULL_RUNS, alpha=0.05)
    return {
        "attacks": len(ran),
        "runs": NULL_RUNS,
        "alarms": int(alarms),
        "nominal": alpha,
        "low": float(low),
        "high": float(high),
    }
