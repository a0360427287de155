"""Refit: runs the user's own training function; the definition that every faster engine is checked against."""

import numpy as np
from numpy.typing import NDArray

from privgate.errors import MeasurementError
from privgate.families.engine import Asked, Cost, Engine
from privgate.families.removal import vanishing
from privgate.families.retrained import Float, Index, Retrained, Seeds, Shadows, Status
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
    tasks = ("classification", "regression")

    def supports(self, subject: Subject) -> str:
        """Return an empty text: any recipe can be run again."""
        return ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the number of calls; their time is unknown until one was made (``training.plan`` times a sample)."""
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
        answers = asked.fleet.fits(subject, without, label="retraining without single units")
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
            self.name,
            units,
            seeds,
            asked.rows,
            log_with,
            log_without,
            status=status,
            undefined=vanished,
            reason=failed,
        )
        return made, units[:0]

    def subsets(self, subject: Subject, masks: NDArray[np.bool_], seeds: Seeds, fleet: Fleet) -> Shadows:
        """Return models trained on subsets of the pool, evaluated on all of it.

        Parameters
        ----------
        subject : Subject
        masks : bool array of shape (N, P)
        seeds : tuple of length N, or of length 1 for all models alike
        fleet : Fleet
        """
        count, size = masks.shape
        each = seeds * count if len(seeds) == 1 else seeds
        if len(each) != count:
            raise ValueError(f"{len(seeds)} seeds for {count} subsets")
        pool = np.arange(size, dtype=np.int64)
        fits = [
            Fit(seed, pool, members=np.flatnonzero(mask).astype(np.int64), repeat=_repeat(seed, i))
            for i, (mask, seed) in enumerate(zip(masks, each, strict=True))
        ]
        answers = fleet.fits(subject, fits, label="training shadow models")
        log_p = np.full((count, size, subject.width), np.nan)
        for i, answer in enumerate(answers):
            if not answer.problem:
                log_p[i] = answer.log_p
        failed = [bool(a.problem) for a in answers]
        return Shadows(
            masks=masks,
            log_p=log_p,
            seeds=tuple(each),
            status=np.array([Status.FAILED if f else Status.EXACT for f in failed], dtype=object),
            engine=self.name,
            reason={i: a.problem for i, a in enumerate(answers) if a.problem},
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
    """Return what it means that the training on all records ended with a problem; training and asking are two things.

    >>> no_answers("training raised ValueError")
    'the recipe cannot be trained on its own complete data: training raised ValueError'
    >>> no_answers("Ridge has no predict_proba")
    'the model that the recipe gives on its own complete data cannot be asked: Ridge has no predict_proba'
    """
    if problem.startswith("training "):
        return f"the recipe cannot be trained on its own complete data: {problem}"
    return f"the model that the recipe gives on its own complete data cannot be asked: {problem}"


def full_fits(subject: Subject, seeds: Seeds) -> list[Fit]:
    """Return the calls on the complete data; always evaluated on the whole pool, so that every policy shares them."""
    size = subject.data.n + (0 if subject.data.candidates is None else len(subject.data.candidates[1]))
    pool, nobody = np.arange(size, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return [Fit(seed, pool, left_out=nobody, repeat=_repeat(seed, s)) for s, seed in enumerate(seeds)]


def _repeat(seed: int | None, position: int) -> int:
    """Tell runs without a seed apart: they are different runs on purpose."""
    return position if seed is None else 0


ENGINE = Refit()
