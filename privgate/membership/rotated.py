"""Rotated targets: shadow models take turns as the target; point estimates a record, never a limit.

Targets that share shadow models are not independent (a 95 % limit from them fell below the truth in up to 17 % of
cases; docs/mathematics.md, section 9.3), so nothing here approves or blocks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError
from privgate.evidence import AgainstPdtp
from privgate.membership.attacks import BY_NAME
from privgate.membership.attacks.attack_base import Attack, Signals
from privgate.membership.attacks.lira import LiraOnline
from privgate.membership.attacks.observed import own_log
from privgate.membership.board import Board
from privgate.statistics import roc

#: targets of one turn are attacked with the shadow models of all other turns
TURNS = 8
#: attacks whose accuracy a record the report sets against PDTP
SHOWN = ("lira_online", "long_distance", "long_frequency")


def rotate(attack: Attack, signals: Signals, rng: Generator, *, turns: int = TURNS) -> Float:
    """Return scores of every shadow model as a target, shape (N, P); NaN for models that were not trained.

    Shadow models come in complementary pairs, which are never split between target and shadows. ``turns`` is the number
    of parts that the pairs are divided into; attacks that can subtract a pair from their sums let every pair take one.
    """
    count, inside = len(signals.shadow), signals.shadow_members
    paired = count >= 6 and count % 2 == 0 and bool((inside[::2] ^ inside[1::2]).all())
    if paired and not np.isnan(signals.shadow).any() and isinstance(attack, LiraOnline):
        return attack.scores_in_turn(signals.shadow, inside, signals.labels)
    turn, near = np.arange(count) // 2 % min(turns, max(2, count // 2)), signals.shadow_near
    scores = np.full(signals.shadow.shape[:2], np.nan)
    for t in range(int(turn.max()) + 1):
        rest = turn != t
        # the adversary's figure for the average training loss comes from models of his own
        loss = float(-np.nanmean(own_log(signals.shadow[rest], signals.labels)[inside[rest]]))
        scorer = attack.fit(signals.with_shadows(rest, training_loss=loss), rng)
        for i in np.flatnonzero(turn == t):
            if not np.isnan(signals.shadow[i]).any():
                scores[i] = scorer(attack.seen(signals.shadow[i], None if near is None else near[i]))
    return scores


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
    pearson = pearsonr(one[both], other[both])
    return {"pearson": float(pearson.statistic), "p_value": float(pearson.pvalue), "n": int(both.sum())}


def against_pdtp(board: Board, table: Mapping[str, Any]) -> AgainstPdtp:
    """Return how accuracy a record goes with PDTP: correlation, shares, and means over records of similar PDTP."""
    wanted = {str(u) for u in table["unit"]}  # few of perhaps millions
    place = {str(name): i for i, name in enumerate(board.run.subject.data.person_names) if name in wanted}
    units = np.array([place[str(u)] for u in table["unit"]], dtype=np.int64)
    tried = np.isin(units, board.units)
    pdtp, people = np.asarray(table["pdtp"], dtype=np.float64)[tried], np.searchsorted(board.units, units[tried])
    best = np.zeros(len(people))
    for name in SHOWN:
        try:
            scores = rotate(BY_NAME[name], board.signals.without_truth(), board.run.generator(f"rotation {name}"))
        except MeasurementError as exc:
            return AgainstPdtp(problem=f"{name}: {exc}")
        accuracy = accuracy_per_record(BY_NAME[name], scores, board.signals.shadow_members)
        best = np.maximum(best, accuracy[board.first[people]])
    above, parts = pdtp > 1, np.array_split(np.argsort(pdtp, kind="stable"), 20)
    shown = (b for b in parts if len(b) >= 10 and np.isfinite(pdtp[b]).all())
    return AgainstPdtp(
        attacks=SHOWN, kind="point estimates from rotated targets; no limits", targets=board.trained,
        **correlation(pdtp, best), records_above_1=int(above.sum()),
        share_above_1_found=float((best[above] > 0.8).mean()) if above.any() else None,
        points=tuple((float(pdtp[b].mean()), float(best[b].mean())) for b in shown),
    )  # fmt: skip
