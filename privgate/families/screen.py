"""Screening: shadow models rank the units, and only the top of the ranking is retrained. It never approves.

Worth it for boosting and other learners without a fast engine, where the units that matter most were found among the
top 5 to 10 %; it fails for forests, whose ranking is noise. The units not retrained are labelled screened.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.families.engine import Asked, Engine
from privgate.families.retrained import Float, Index, Retrained, Status
from privgate.subject.subject import Subject
from privgate.training.fit import Fit

MODELS = 64
SHARE = 0.1
LEAST = 20
#: nats; differences of probabilities beyond float64's range carry no ranking
FLOOR = -700.0


def retrained(units: int) -> int:
    """Return how many of so many units are retrained: the top 10 %, and never fewer than 20."""
    return min(units, max(LEAST, int(np.ceil(SHARE * units))))


def screened(engine: Engine, asked: Asked) -> tuple[Retrained, Index]:
    """Return the units most affected in shadow models, retrained by ``engine``, and the others by an estimate.

    A shadow model is trained on a random half of the units. A unit's score is the largest change of a label's mean
    log-probability, at its own records, between models trained with and without it (Carlini et al. 2022 use the same
    contrast). Units beyond the top 10 % get status ``screened``, an estimate and no error bound.
    """
    subject, units, seeds, fleet = asked.subject, asked.units, asked.seeds, asked.fleet
    masks = halves(subject)
    shadows = engine.subsets(subject, masks, seeds[:1], fleet)
    if shadows is None:
        return engine.answers(asked)
    live = shadows.status != Status.FAILED
    if live.sum() < 4:  # nothing to rank by: every unit is retrained
        return engine.answers(asked)
    row_unit, row_query = asked.rows
    effect = _effect(np.maximum(shadows.log_p[live], FLOOR), masks[live], subject, units, asked.rows)
    score = np.zeros(len(units))
    np.maximum.at(score, row_unit, np.abs(effect).max(axis=1))
    top = np.zeros(len(units), dtype=bool)
    top[np.argsort(-score, kind="stable")[: retrained(len(units))]] = True
    made, handed_on = engine.answers(replace(asked, units=units[top], queries=_part(top, asked.rows)))
    if top.all():
        return made, handed_on
    full = fleet.fits(
        subject, [Fit(seed, row_query, left_out=np.zeros(0, dtype=np.int64)) for seed in seeds], label="screening"
    )
    if any(answer.problem for answer in full):
        return engine.answers(asked)
    with_ = np.stack([np.maximum(answer.log_p, FLOOR) for answer in full])
    rest = Retrained.of(
        "screen",
        units,
        seeds,
        asked.rows,
        with_,
        with_ - effect,
        status=Status.SCREENED,
        error=np.nan,
        reason=dict.fromkeys(range(len(units)), "ranked by shadow models, not retrained"),
    )
    return Retrained.concatenate([made, rest.select(~top)]), handed_on


def halves(subject: Subject) -> NDArray[np.bool_]:
    """Return which pool records each shadow is trained on: every unit is in exactly half of the models, whole."""
    members = subject.data.units
    rng = digest.generator(subject.training_digest, start=16)
    drawn = np.argsort(np.argsort(rng.random((MODELS, len(members))), axis=0), axis=0) < MODELS // 2
    size = subject.data.n + (0 if subject.data.candidates is None else len(subject.data.candidates[1]))
    masks = np.zeros((MODELS, size), dtype=bool)
    unit_of_row = np.empty(subject.data.n, dtype=np.int64)
    for u, rows in enumerate(members):
        unit_of_row[rows] = u
    masks[:, : subject.data.n] = drawn[:, unit_of_row]
    return masks


def _effect(log_p: Float, masks: NDArray[np.bool_], subject: Subject, units: Index, rows: tuple[Index, Index]) -> Float:
    """Return the mean log-probabilities with the unit minus those without it at each row, shape (R, K)."""
    first = np.array([subject.data.units[u][0] for u in units], dtype=np.int64)
    inside = masks[:, first[rows[0]]].astype(np.float64)  # (N, R)
    at = log_p[:, rows[1]]
    counts = inside.sum(axis=0), (1 - inside).sum(axis=0)
    with_ = np.einsum("nr,nrk->rk", inside, at) / np.maximum(counts[0], 1)[:, None]
    without = np.einsum("nr,nrk->rk", 1 - inside, at) / np.maximum(counts[1], 1)[:, None]
    return np.asarray(with_ - without)


def _part(keep: NDArray[np.bool_], queries: tuple[Index, Index]) -> tuple[Index, Index]:
    place, rows = np.cumsum(keep) - 1, keep[queries[0]]
    return place[queries[0][rows]].astype(np.int64), queries[1][rows]
