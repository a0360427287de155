"""Figures of attacks in words: with their interval, or why there is none."""

import math
from collections.abc import Sequence

from privgate.evidence import AttackFigures, AttackResult, Estimate
from privgate.evidence.membership import CellAccuracy, RateAtFpr
from privgate.report.text import percent, plain

Curve = Sequence[tuple[float, ...]]
#: an attack that ran, with what it achieved
Ran = tuple[AttackResult, AttackFigures]


def ran(attacks: Sequence[AttackResult]) -> list[Ran]:
    """Return the attacks that ran, strongest first."""
    return sorted(((a, a.figures) for a in attacks if a.figures), key=lambda r: strength(r[1]), reverse=True)


def title(attack: AttackResult) -> str:
    """Return an attack's plain name."""
    return plain(attack.title or attack.name, 60)


def estimate(value: Estimate | CellAccuracy) -> tuple[float, float, float]:
    """Return (value, low, high) of a figure; NaN where absent."""
    x, low, high = (math.nan if v is None else v for v in (value.value, value.low, value.high))
    return x, low, high


def told(value: Estimate) -> str:
    """Return a fraction with its interval in words."""
    x, low, high = estimate(value)
    if math.isnan(x):
        return "not measured"
    if math.isfinite(low) and math.isfinite(high):
        return f"{percent(x)} ({percent(low)} to {percent(high)})"
    return f"{percent(x)}, no interval"


def rate(value: RateAtFpr) -> str:
    """Return a true-positive rate in words."""
    return "not resolvable with this sample" if value.problem else told(value)


def finds_most(attacks: Sequence[Ran]) -> tuple[Ran, float, str] | None:
    """Return the attack that finds most at the smallest false-positive rate that any resolves: (attack, fpr, words).

    What is the best by AUC need not be the best at a small rate; a sentence about a rate names the best at that rate.
    """
    found = [
        (r.fpr, -r.value, i, rate(r))
        for i, (_, figures) in enumerate(attacks)
        for r in figures.tpr_at_fpr
        if r.value is not None and not r.problem
    ]
    if not found:
        return None
    fpr, _, i, words = min(found)
    return attacks[i], fpr, words


def strength(figures: AttackFigures) -> float:
    """Return the larger of AUC and accuracy, to put the strongest first."""
    return max(v for v in (figures.auc, estimate(figures.accuracy)[0], 0.0) if not math.isnan(v))


def thinned(curve: Curve, most: int = 200) -> Curve:
    """Return every so-manieth point of a curve, its last included."""
    step = max(1, -(-len(curve) // most))
    return [p for i, p in enumerate(curve) if i % step == 0 or i == len(curve) - 1]
