"""What the report shows of attacks: figures with limits, curves, false alarms, and rotated targets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
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
from privgate.evidence.telling import SMALL_CELL
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.membership import board as attacked
from privgate.membership import limits
from privgate.membership.attacks import BY_NAME
from privgate.membership.attacks.attack_base import Attack, Signals
from privgate.membership.attacks.observed import own_log
from privgate.membership.board import Attempt, Board
from privgate.run.run import Run
from privgate.statistics import roc
from privgate.statistics.roc import Decisions

# What the report shows of attacks: figures with limits, curves, small cells suppressed, false alarms.

#: false-positive rates that the report tries
RATES = (0.1, 0.01, 0.001)
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
    alpha, found = 1 - confidence, []
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
        found.append([(d.tp, d.fn, d.tn, d.fp) for d in counts])
    alarms = int((lower_limits(np.array(found), alpha / len(found[0])) > 0.5).any(axis=1).sum())
    low, high = (float(limit(alarms, NULL_RUNS, alpha=0.025)) for limit in (lower_limit, upper_limit))
    return NullRuns(attacks=len(ran), runs=NULL_RUNS, alarms=alarms, nominal=alpha, low=low, high=high)


def lower_limits(counts: NDArray[np.int64], alpha: float) -> Float:
    """Return lower limits of balanced accuracies from counts (..., tp, fn, tn, fp): thousands at once, to be shown.

    The kernel's, by which is judged, are taken one after another, which took longer than the attacks.
    """
    from scipy.stats import beta

    right, wrong = counts[..., ::2], counts[..., 1::2]
    return np.asarray(np.where(right > 0, beta.ppf(alpha / 2, right, wrong + 1), 0.0).mean(axis=-1))


# Rotated targets: shadow models take turns as the target. Point estimates a record, labelled so, never a limit.
#
# Targets that share shadow models are not independent (a 95 % limit from them fell below the truth in up to 17 % of
# cases; docs/mathematics.md, section 9.3), so nothing here approves or blocks.

#: targets of one turn are attacked with the shadow models of all other turns
TURNS = 8
#: attacks whose accuracy a record the report sets against PDTP
SHOWN = ("lira_online", "long_distance", "long_frequency")


def rotate(attack: Attack, signals: Signals, rng: Generator, *, turns: int = TURNS) -> Float:
    """Return scores of every shadow model as a target, shape (N, P); NaN for models that were not trained.

    Parameters
    ----------
    attack : Attack
    signals : Signals
        Shadow models in complementary pairs; a pair is never split between target and shadows.
    rng : Generator
    turns : int
        Number of parts that the pairs are divided into; attacks that can subtract a pair from their sums let every pair
        take a turn of its own.
    """
    count = len(signals.shadow)
    inside = signals.shadow_members
    paired = count >= 6 and count % 2 == 0 and bool((inside[::2] ^ inside[1::2]).all())
    if paired and not np.isnan(signals.shadow).any():
        together = attack.each_in_turn(signals.shadow, inside, signals.labels)
        if together is not None:
            return together
    turn = np.arange(count) // 2 % min(turns, max(2, count // 2))
    out = np.full(signals.shadow.shape[:2], np.nan)
    for t in range(int(turn.max()) + 1):
        rest, own = turn != t, np.flatnonzero(turn == t)
        inside = signals.shadow_members[rest]
        # the adversary's figure for the average training loss comes from models of his own
        loss = float(-np.nanmean(own_log(signals.shadow[rest], signals.labels)[inside]))
        scorer, around = attack.fit(signals.with_shadows(rest, training_loss=loss), rng), signals.shadow_beside
        for i in own:
            if not np.isnan(signals.shadow[i]).any():
                out[i] = scorer(attack.seen(signals.shadow[i], around if around is None else around[i]))
    return out


def threshold_of(attack: Attack, scores: Float, inside: Bool) -> float:
    """Return the paper's threshold, or the one that serves best over all rotated targets together."""
    if attack.cut is not None:
        return float(np.nextafter(attack.cut, np.inf))
    live = ~np.isnan(scores)
    return roc.best_threshold(scores[live], inside[live])


def accuracy_per_record(attack: Attack, scores: Float, inside: Bool) -> Float:
    """Return the share of right guesses about every record over rotated targets, shape (P,)."""
    live = ~np.isnan(scores).any(axis=1)
    fired = scores[live] >= threshold_of(attack, scores[live], inside[live])
    return np.asarray((fired == inside[live]).mean(axis=0), dtype=np.float64)


def correlation(one: Float, other: Float) -> dict[str, Any]:
    """Return Pearson's correlation with its p-value over records where both are finite, as Long et al. report it."""
    from scipy.stats import pearsonr

    both = np.isfinite(one) & np.isfinite(other)
    if both.sum() < 3 or np.ptp(one[both]) == 0 or np.ptp(other[both]) == 0:
        return {"pearson": None, "p_value": None, "n": int(both.sum())}
    found = pearsonr(one[both], other[both])
    return {"pearson": float(found.statistic), "p_value": float(found.pvalue), "n": int(both.sum())}


def against_pdtp(board: Board, table: Mapping[str, NDArray[Any]]) -> AgainstPdtp:
    """Return how accuracy a record goes with PDTP: correlation, shares, and means over records of similar PDTP."""
    place = {str(name): i for i, name in enumerate(board.run.subject.data.unit_names)}
    units = np.array([place[str(u)] for u in table["unit"]], dtype=np.int64)
    tried = np.isin(units, board.units)
    units, pdtp = units[tried], np.asarray(table["pdtp"], dtype=np.float64)[tried]
    best = np.zeros(len(units))
    for name in SHOWN:
        attack = BY_NAME[name]
        try:
            scores = rotate(attack, board.signals.without_truth(), board.run.generator(f"rotation {name}"))
        except MeasurementError as exc:
            return AgainstPdtp(problem=f"{name}: {exc}")
        people = np.searchsorted(board.units, units)
        accuracy = accuracy_per_record(attack, scores, board.signals.shadow_members)
        best = np.maximum(best, accuracy[board.first[people]])
    order = np.argsort(pdtp, kind="stable")
    bins = [b for b in np.array_split(order, 20) if len(b) >= 10 and np.isfinite(pdtp[b]).all()]
    above = pdtp > 1
    return AgainstPdtp(
        attacks=SHOWN,
        kind="point estimates from rotated targets; no limits",
        targets=int((~np.isnan(board.signals.shadow).any(axis=(1, 2))).sum()),
        **correlation(pdtp, best),
        records_above_1=int(above.sum()),
        share_above_1_found=float((best[above] > 0.8).mean()) if above.any() else None,
        points=tuple((float(pdtp[b].mean()), float(best[b].mean())) for b in bins),
    )
