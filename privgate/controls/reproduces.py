"""The first control before any number about people counts: the recipe gives the registered model again."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float, Index
from privgate.evidence import Precondition
from privgate.families import listed
from privgate.families.over_all_queries import applies
from privgate.families.refit import no_answers
from privgate.statistics import leakage
from privgate.subject import released
from privgate.subject.containers import stack, take
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: probabilities of one recipe on another machine, with other threads, differ by less than this
REPRODUCED = 1e-4
#: nats between registered model and recipe from which on a sentence says so
TOLD = 1e-3
#: a second training on one machine with the same seed differs by less than this; float32 sums are not associative
DETERMINISTIC = 1e-6
#: runs of a recipe without a seed whose distance from each other says how close the registered model must be
RUNS = 5
#: how many times as much may lie between two models at a question as on the records, however far out it lies
FARTHEST = 100.0
_LABEL = "checking the recipe"
_doubt, _pass = (partial(Precondition, "reproduces", outcome) for outcome in ("inconclusive", "passed"))
NOBODY: Index = np.zeros(0, dtype=np.int64)


@lru_cache(maxsize=2)
def _list_rows(size: int) -> Index:
    rows = np.arange(size, dtype=np.int64)
    rows.setflags(write=False)
    return rows


def list_pool(subject: Subject) -> Index:
    """Return all rows of the pool, shape (P,): training records, then candidates."""
    return _list_rows(subject.data.pool_size)


def train_all(subject: Subject, *, repeat: int = 0) -> Fit:
    """Return the training on everybody, asked about the whole pool."""
    return Fit(subject.recipe.seed, list_pool(subject), left_out=NOBODY, repeat=repeat)


def reproduces(subject: Subject, fleet: Fleet) -> Precondition:
    """Judge whether the recipe gives the registered model again, and the same model twice.

    Training runs twice on everything with the recipe's seed. Probabilities are compared with each other and with the
    stored model's on all training records, and at questions within the domain that are no record. What is left between
    them is stated in nats as well (``detail``): whoever limits changes of log-probabilities must add it. A recipe with
    differential privacy has no seed: its stored model must be as close to reruns as reruns are to each other.
    """
    rerun, seed = subject.recipe.dp is not None and subject.recipe.seed is None, subject.recipe.seed
    answers = fleet.fits(subject, [train_all(subject)], label=_LABEL)
    if not answers[0].problem:  # else no other is tried
        answers += fleet.fits(
            subject, [train_all(subject, repeat=r) for r in range(1, RUNS if rerun else 2)], label=_LABEL
        )
    if problem := find_problem(answers):
        return _doubt(no_answers(problem))
    rows, which = np.arange(subject.data.n, dtype=np.int64), f"all {subject.data.n} training records"
    first, again = (subject.comparable(a.log_p) for a in answers[:2])
    noise = leakage.widest((first, again))
    detail: dict[str, Any] = {"between_two_trainings": noise, "tolerance": REPRODUCED, "deterministic": DETERMINISTIC}
    if noise > DETERMINISTIC and not rerun:
        how = f"is not deterministic given its seed {seed}; hand the seed to every random generator"
        how = "leaves random_state open; give Recipe(seed=…)" if seed is None else how
        return _doubt(f"two trainings on the same data differ by up to {noise:.2g}: the recipe {how}", detail)
    if subject.model is None:
        text = "there is no stored model to compare with"
        return _pass(text, {"runs": RUNS}) if rerun else _pass(f"two trainings agree; {text}", detail)
    stored = fleet.registered(subject, rows)
    if stored.problem:
        return _doubt(f"the registered model could not be asked: {stored.problem}", {} if rerun else detail)
    if rerun:
        return _compare_with_reruns(subject, [a.log_p[rows] for a in answers], stored.log_p, which)
    apart = leakage.widest((subject.comparable(stored.log_p), first[rows]))
    detail |= {"from_registered_model": apart, "records_compared": len(rows)}
    detail["from_registered_model_nats"] = _measure_nats(subject, stored, answers[0].log_p[rows])
    if not apart <= REPRODUCED:
        unit = "probabilities" if subject.task == "classification" else "answers, in deviations of the targets,"
        text = f"the recipe does not reproduce the registered model: {unit} differ by up to {apart:.2g} on {which}"
        return _doubt(f"{text}, allowed is {REPRODUCED:g}", detail)
    if problem := _differs_elsewhere(subject, fleet, detail):
        return _doubt(problem, detail)
    text = f"the recipe reproduces the registered model on {which} to {REPRODUCED:g}"
    if (nats := max(registered_apart(_pass("", detail)))) > TOLD:
        text += f"; logarithms of small probabilities differ by up to {nats:.3g} nats, which upper limits include"
    return _pass(text, detail)


def _compare_with_reruns(subject: Subject, answers: list[Float], stored: Float, which: str) -> Precondition:
    runs = subject.comparable(np.stack(answers))
    among = float((np.abs(runs[:, None] - runs[None]).mean(axis=(2, 3)).sum(axis=1) / (RUNS - 1)).max())
    own = float(np.abs(runs - subject.comparable(stored)).mean())
    detail = {"runs": RUNS, "from_registered_model": own, "between_runs": among}
    if not own <= 2 * among:
        text = f"the registered model is {own:.2g} away from reruns of the recipe on {which}, reruns only {among:.2g}"
        return _doubt(f"{text} from each other", detail)
    return _pass(f"the registered model is as close to reruns as they are to each other, on {which}", detail)


# Questions that are no record, put to the stored model as well: it must be the recipe's there, too.


def draw(subject: Subject, purpose: str, fleet: Fleet) -> Generator:
    """Return randomness that is the same in every run; nobody else can foretell it in one that is to be signed."""
    return fleet.drawn(subject, purpose) if fleet.signable else subject.generator(purpose)


def ask_beyond(subject: Subject, fleet: Fleet) -> tuple[Subject, Index]:
    """Return the subject, stored model included, with questions as further candidates, and their rows of the pool.

    Values of the columns are mixed, and a declared domain gives its corners and random points; no rows where records
    are no tables.
    """
    size, questions = subject.data.pool_size, _list_questions(subject, draw(subject, "beyond", fleet))
    if questions is None:
        return subject, np.arange(0, dtype=np.int64)
    container, count = questions
    labels, known = np.full(count, subject.data.y[0]), subject.data.candidates
    both = (container, labels) if known is None else (stack(known[0], container), np.concatenate([known[1], labels]))
    wide = replace(subject, data=replace(subject.data, candidates=both))
    return wide, size + np.arange(count, dtype=np.int64)


def _list_questions(subject: Subject, rng: Generator) -> tuple[Any, int] | None:
    X, rows = subject.data.X, listed.shared(subject, rng)
    if rows.size:
        container, kept = listed.asked(subject, rows)
        return (container, int(kept.sum())) if kept.any() else None
    if not hasattr(X, "columns"):
        return None
    places = rng.integers(0, subject.data.n, (len(X.columns), listed.RANDOM))
    mixed = take(X, places[0]).copy()  # of which pandas 2 would warn that it is part of another frame
    for j, column in enumerate(X.columns):
        mixed[column] = X[column].take(places[j]).set_axis(mixed.index)
    return mixed, listed.RANDOM


def _measure_stretch(subject: Subject, wide: Subject, rows: Index) -> Float:
    """Return how far out each question lies, shape (Q,): 1 within the records' own ranges, at most ``FARTHEST``.

    Two trainings on different machines differ in the last digits of a model, and what follows grows with the question.
    """
    X, questions = applies.dense(subject.data.X), applies.dense(wide.data.at(rows))
    if X is None or questions is None:
        return np.ones(len(rows))
    off, half = np.abs(questions - (X.max(axis=0) + X.min(axis=0)) / 2), np.ptp(X, axis=0) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.where(off <= half, 1.0, off / half)
    return np.asarray(np.clip(out.max(axis=1, initial=1.0), 1.0, FARTHEST))


def _differs_elsewhere(subject: Subject, fleet: Fleet, detail: dict[str, Any]) -> str:
    """Return why the registered model is not the recipe's at questions that are no record; empty if it is."""
    wide, rows = ask_beyond(subject, fleet)
    if not len(rows):
        return ""
    (own,) = fleet.fits(wide, [Fit(subject.recipe.seed, rows, left_out=NOBODY)], label=_LABEL)
    stored = fleet.registered(wide, rows)
    if problem := own.problem or stored.problem:
        return f"recipe and registered model could not be asked about other than their own records: {problem}"
    gaps = np.abs(subject.comparable(stored.log_p) - subject.comparable(own.log_p)).max(axis=1)
    gaps = gaps / _measure_stretch(subject, wide, rows)
    detail |= {"from_registered_model_elsewhere": float(gaps.max()), "questions_compared": len(rows)}
    if not gaps.max() <= REPRODUCED:
        return (
            "the recipe reproduces the registered model on its records and not elsewhere: probabilities differ at "
            f"{int((~(gaps <= REPRODUCED)).sum())} of {len(rows)} questions within the domain that are nobody's record"
        )
    detail["from_registered_model_elsewhere_nats"] = _measure_nats(subject, stored, own.log_p)
    return ""


def _measure_nats(subject: Subject, stored: Answer, expected: Float) -> float:
    """Return the largest change of log-probability, released ones too, from the recipe's model to the stored one."""
    if subject.task == "regression":
        return 0.0
    exact = leakage.largest_change(stored.log_p, expected)
    return float(np.maximum(exact, released.changes(stored.log_p, expected, subject.release)).max(initial=0.0))


def registered_apart(control: Precondition) -> tuple[float, float]:
    """Return how far the registered model is from the recipe's, nats: on records, and at any question asked."""
    records = control.figure("from_registered_model_nats") or 0.0
    return records, max(records, control.figure("from_registered_model_elsewhere_nats") or 0.0)


def find_problem(answers: Iterable[Answer]) -> str:
    """Return the first problem of some trainings; empty if there is none."""
    return next((a.problem for a in answers if a.problem), "")
