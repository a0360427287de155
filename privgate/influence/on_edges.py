"""Declared releases of people whose answer lies next to an edge: their models are trained, not computed.

Rounding, bins, lists and labels make a whole step of an error far below any limit. A fast engine's answer is therefore
carried through the release with its error, outward; who touches an edge within it is retrained, whose error is 0.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import families
from privgate.evidence import EngineShare
from privgate.families import refit
from privgate.families.engine import TOLERANCE
from privgate.families.retrained import Float, Retrained, Status
from privgate.run.run import Run
from privgate.subject import released
from privgate.subject.release import Release

#: why a fast engine's units are handed on after all
WHY = "what is released lies on an edge within the engine's error"

_TOLERANCE = {e.name: e.tolerance for e in families.ALL}


def error(found: Retrained) -> Float:
    """Return by how much each log-probability may be off, shape (U,), nats; infinite where nobody knows.

    A re-check lets a fast engine pass that is off by its tolerance beyond its stated error; only a real model has none.
    """
    real = found.engine == refit.ENGINE.name
    slack = np.array([_TOLERANCE.get(str(name), TOLERANCE) for name in found.engine])
    return np.asarray(np.where(real, 0.0, np.nan_to_num(found.error, nan=np.inf) + slack))


def bounds(found: Retrained, release: Release, live: NDArray[np.bool_]) -> released.Bounds:
    """Return the changes of what is released at the rows where ``live`` (R,) is true, for every seed: shape (S, R')."""
    return released.bounds(
        found.log_with[:, live], found.log_without[:, live], release, error(found)[found.row_unit][live]
    )


def refitted(run: Run, answered: families.Answered) -> families.Answered:
    """Return the same answers with real models for the units whose release hangs on the engine's error.

    With a budget of retrains no more are made than it allows, those with the largest change of exact probabilities
    first; the others keep the worst that their error leaves possible.
    """
    release, found = run.subject.release, answered.retrained
    if release.exact or not len(found.units):
        return answered
    known = ~np.isin(found.status.astype(str), (Status.FAILED, Status.UNDEFINED, Status.SCREENED))
    live = known[found.row_unit]
    shown = bounds(found, release, live)
    touching = np.zeros(len(found.units), dtype=bool)
    np.logical_or.at(touching, found.row_unit[live], shown.touches.any(axis=0))
    some = _affordable(run, found, touching)
    if not some.any():
        return answered
    made = families.answer(run.subject, found.units[some], found.seeds, run.fleet, engines=(refit.ENGINE,))
    return replace(
        answered,
        retrained=Retrained.concatenate([found.select(~some), replace(made.retrained, changes={})]),
        shares=_shares(answered, made.shares, found.engine[some]),
    )


def _affordable(run: Run, found: Retrained, touching: NDArray[np.bool_]) -> NDArray[np.bool_]:
    most = run.limits.max_retrains
    if most is None or touching.sum() * len(found.seeds) <= most:
        return touching
    with np.errstate(invalid="ignore"):
        change = np.abs(np.nan_to_num(found.log_with - found.log_without, nan=0.0)).max(axis=(0, 2))
    largest = np.zeros(len(found.units))
    np.maximum.at(largest, found.row_unit, change)
    order = np.argsort(-np.where(touching, largest, -1.0), kind="stable")[: most // len(found.seeds)]
    some = np.zeros(len(touching), dtype=bool)
    some[order] = touching[order]
    return some


def _shares(
    answered: families.Answered, refits: tuple[EngineShare, ...], engines: NDArray[Any]
) -> tuple[EngineShare, ...]:
    """Return who answered for how many people, those handed on after all counted where they went."""
    found = []
    for share in answered.shares:
        gone = int((engines == share.engine).sum())
        why = {**share.why, WHY: gone}
        found.append(
            EngineShare.of(share.engine, share.asked, (share.answered or 0) - gone, why, share.without_limit)
            if gone
            else share
        )
    for share in refits:
        place = next((k for k, known in enumerate(found) if known.engine == share.engine), None)
        if place is None:
            found.append(share)
            continue
        known = found[place]
        limitless = {
            r: (known.without_limit.get(r) or 0) + (share.without_limit.get(r) or 0)
            for r in {**known.without_limit, **share.without_limit}
        }
        asked, answers = (
            (a or 0) + (b or 0) for a, b in ((known.asked, share.asked), (known.answered, share.answered))
        )
        found[place] = EngineShare.of(known.engine, asked, answers, known.why, limitless)
    return tuple(found)
