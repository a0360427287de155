"""Refit: runs the user's own training function; the definition that every faster engine is checked against."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Float, Index
from privgate.errors import MeasurementError
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, Engine
from privgate.families.retrained import Retrained, Seeds, Shadows, Status
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet


class Refit(Engine):
    """Trains again without the unit, in a worker process, and evaluates.

    Covers every recipe, hands nothing on. Exact by definition: same seed, same order of the remaining records, all
    preprocessing included. A unit whose class vanishes with it is undefined without being trained.
    """

    name = "refit"
    trains = True
    certain = True
    real = True
    tasks = ("classification", "regression")

    def supports(self, subject: Subject) -> str:
        """Return an empty text: any recipe can be run again."""
        return ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the number of calls; their time is unknown until one was made (``training.budget`` times a sample)."""
        size = getattr(subject.data.X, "nbytes", 0)
        return Cost(fits=len(seeds) * (len(units) + 1), cpu_seconds=float("nan"), memory_bytes=2 * int(size))

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return models with and without each unit; no unit is handed on.

        Raises
        ------
        MeasurementError
            The training function fails on the complete data: then there is nothing to compare with.
        """
        subject, units, seeds = asked.subject, asked.units, asked.seeds
        members, (row_unit, row_query) = subject.data.units, asked.rows
        bounds = np.searchsorted(row_unit, np.arange(len(units) + 1)).tolist()
        gone = vanishing(subject, units)
        tried = np.flatnonzero(~gone)
        without = [
            Fit(seed, row_query[bounds[u] : bounds[u + 1]], left_out=members[units[u]], repeat=_repeat(seed, s))
            for s, seed in enumerate(seeds)
            for u in tried
        ]
        log_with = full(subject, seeds, asked.fleet)[:, row_query]
        answers = asked.fleet.fits(subject, without, label="retraining without single people")
        log_without = np.full_like(log_with, np.nan)
        status, failed = np.full(len(units), Status.EXACT, dtype=object), dict[int, str]()
        for i, answer in enumerate(answers):
            s, u = divmod(i, len(tried))
            unit = int(tried[u])
            if answer.problem:
                status[unit] = Status.FAILED
                failed.setdefault(unit, answer.problem)
            else:
                log_without[s, bounds[unit] : bounds[unit + 1]] = answer.log_p
        vanished = {int(u): "its class vanishes from the training data without it" for u in np.flatnonzero(gone)}
        made = Retrained.of(
            self.name, units, seeds, asked.rows, log_with, log_without, status=status, undefined=vanished, reason=failed
        )
        return made, units[:0]

    def subsets(
        self, subject: Subject, masks: NDArray[np.bool_], seeds: Seeds, fleet: Fleet, *, rows: Index | None = None
    ) -> Shadows:
        """Return models trained on subsets of the pool, asked about all of it, or about some ``rows``.

        Parameters
        ----------
        subject : Subject
        masks : bool array of shape (N, P)
        seeds : tuple of length N, or of length 1 for all models alike
        fleet : Fleet
        rows : int64 array of shape (R,), optional
        """
        count, asked = len(masks), np.arange(masks.shape[1], dtype=np.int64) if rows is None else rows
        each = seeds * count if len(seeds) == 1 else seeds
        if len(each) != count:
            raise ValueError(f"{len(seeds)} seeds for {count} subsets")
        fits = [
            Fit(seed, asked, members=np.flatnonzero(mask).astype(np.int64), repeat=_repeat(seed, i))
            for i, (mask, seed) in enumerate(zip(masks, each, strict=True))
        ]
        log_p, reason = np.full((count, len(asked), subject.width), np.nan), dict[int, str]()
        for i, read in enumerate(fleet.each(subject, fits, label="training shadow models")):
            if (answer := read()).problem:
                reason[i] = answer.problem
            else:
                log_p[i] = answer.log_p
        return Shadows(
            masks=masks,
            log_p=log_p,
            seeds=tuple(each),
            status=np.array([Status.FAILED if i in reason else Status.EXACT for i in range(count)], dtype=object),
            engine=self.name,
            reason=reason,
        )


def full(subject: Subject, seeds: Seeds, fleet: Fleet) -> Float:
    """Return log-probabilities of models trained on everything, at every pool record: shape (S, P, K).

    Raises
    ------
    MeasurementError
        Training on the complete data fails.
    """
    answers = fleet.fits(subject, full_fits(subject, seeds), label="training on all records")
    bad: list[Answer] = [a for a in answers if a.problem]
    if bad:
        raise MeasurementError(no_answers(bad[0].problem))
    return np.stack([a.log_p for a in answers])


def no_answers(problem: str) -> str:
    """Return what it means that the training on all records ended with a problem, and what to do about it.

    >>> no_answers("training raised ValueError")
    'the recipe cannot be trained on its own complete data: training raised ValueError; mend fit, or what it lacks here'
    >>> no_answers("Ridge has no predict_proba").partition(": ")[0]
    'the model that the recipe gives on its own complete data cannot be asked'
    """
    if problem.startswith("training "):
        return f"the recipe cannot be trained on its own complete data: {problem}; mend fit, or what it lacks here"
    how = "let Recipe(predict=…) ask what fit returns, a PythonModel by model.predict(None, X)"
    return f"the model that the recipe gives on its own complete data cannot be asked: {problem}; {how}"


def full_fits(subject: Subject, seeds: Seeds) -> list[Fit]:
    """Return the calls on the complete data; always evaluated on the whole pool, so that every policy shares them."""
    pool, nobody = np.arange(subject.data.pool_size, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return [Fit(seed, pool, left_out=nobody, repeat=_repeat(seed, s)) for s, seed in enumerate(seeds)]


def _repeat(seed: int | None, position: int) -> int:
    """Tell runs without a seed apart: they are different runs on purpose."""
    return position if seed is None else 0


ENGINE = Refit()


# Screening: shadow models rank the units, and only the top of the ranking is retrained. It never approves.
#
# Worth it for boosting and other learners without a fast engine, where the units that matter most were found among the
# top 5 to 10 %; it fails for forests, whose ranking is noise. The units not retrained are labelled screened.

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
    shadows = ENGINE.subsets(subject, masks, seeds[:1], fleet)
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
    masks = np.zeros((MODELS, subject.data.pool_size), dtype=bool)
    masks[:, : subject.data.n] = drawn[:, members.owner]
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
