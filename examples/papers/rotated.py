"""Rotated targets: shadow models take turns as the target; point estimates a record, never a limit.

Targets that share shadow models are not independent (a 95 % limit from them fell below the truth in up to 17 % of
cases; docs/mathematics.md, section 9.3), so the gate shows none of this.
"""

from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float
from privgate.membership.attacks.attack_base import Attack, Signals
from privgate.membership.attacks.lira import LiraOnline, ratios_in_turn
from privgate.membership.attacks.observed import own_log
from privgate.statistics import roc

#: targets of one turn are attacked with the shadow models of all other turns
TURNS = 8


def rotate(attack: Attack, signals: Signals, rng: Generator, *, turns: int = TURNS) -> Float:
    """Return scores of every shadow model as a target, shape (N, P); NaN for models that were not trained.

    Shadow models come in complementary pairs, which are never split between target and shadows. ``turns`` is the number
    of parts that the pairs are divided into; attacks that can subtract a pair from their sums let every pair take one.
    """
    count, inside = len(signals.shadow), signals.shadow_members
    paired = count >= 6 and count % 2 == 0 and bool((inside[::2] ^ inside[1::2]).all())
    if paired and not np.isnan(signals.shadow).any() and isinstance(attack, LiraOnline):
        figure = attack.choose_figure(signals.shadow, inside, signals.labels)
        return ratios_in_turn(np.stack([figure(p) for p in signals.shadow])[:, None], inside)[:, 0]
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
