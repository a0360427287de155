"""The first control before any number about people counts: the recipe gives the registered model again."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float, Index
from privgate.evidence import Precondition
from privgate.statistics import leakage
from privgate.subject.containers import length, make_like, stack, take
from privgate.subject.release import measure_changes
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: the recipe's probabilities may differ by so much from the registered model's: machines and threads round differently
TOLERANCE = 1e-4
#: nats between registered model and recipe from which on the finding's sentence names them
LEAST_NATS_NAMED = 1e-3
#: two trainings on one machine with the same seed may differ by so much: sums of float32 depend on their order
DETERMINISTIC = 1e-6
#: trainings of a recipe without a seed; their distances say how close the registered model must be
RUNS = 5
#: a gap at a question outside the records' ranges may be so many times ``TOLERANCE`` at most
MOST_STRETCH = 100.0
_RANDOM = 64  # questions of each kind
_LABEL = "checking the recipe"
_doubt, _pass = (partial(Precondition, "reproduces", outcome) for outcome in ("inconclusive", "passed"))
NOBODY: Index = np.zeros(0, dtype=np.int64)


@lru_cache(maxsize=2)
def _number_rows(size: int) -> Index:
    rows = np.arange(size, dtype=np.int64)
    rows.setflags(write=False)  # all planned trainings share this array
    return rows


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


def list_pool(subject: Subject) -> Index:
    """Return all pool rows, shape (P,): training records, then candidates."""
    return _number_rows(subject.data.pool_size)


def plan_training(subject: Subject, *, left_out: Index = NOBODY, repeat: int = 0) -> Fit:
    """Return a planned training at the recipe's own seed, whose model answers about the whole pool."""
    return Fit(subject.recipe.seed, list_pool(subject), left_out=left_out, repeat=repeat)


def draws_noise(subject: Subject) -> bool:
    """Return whether each training draws other noise: the recipe claims differential privacy and has no seed."""
    return subject.recipe.dp is not None and subject.recipe.seed is None


def make_generator(subject: Subject, purpose: str, fleet: Fleet | None, *, recorded: bool = False) -> Generator:
    """Return the generator that draws questions, people or seeds for ``purpose``.

    In a run that will be signed, only the ledger's key foretells them, so that nobody writes code for them. The key
    also draws what is ``recorded`` in a lasting ledger, where the next run finds it. Else the subject's digest decides.
    """
    if fleet is not None and (fleet.signable or (recorded and fleet.ledger.lasting)):
        return fleet.drawn(subject, purpose)
    return subject.generator(purpose)


def find_problem(answers: Iterable[Answer]) -> str:
    """Return the first problem of some trainings; empty if there is none."""
    return next((a.problem for a in answers if a.problem), "")


def measure_gap(subject: Subject, *answers: Answer) -> float:
    """Return the largest difference of one probability, or of one number in deviations, between any two models."""
    return leakage.widest(subject.comparable(a.log_p) for a in answers)


def check_reproduces(subject: Subject, fleet: Fleet) -> Precondition:
    """Check that the recipe gives the registered model again, and the same model twice.

    The recipe is trained twice on all records. Both models and the registered one must agree on all training records,
    and at questions that are no record. Upper limits add the gap in nats from ``detail``. Where training draws noise,
    the registered model must be as close to reruns as they are to each other.
    """
    noisy, seed = draws_noise(subject), subject.recipe.seed
    answers = fleet.fits(subject, [plan_training(subject)], label=_LABEL)
    if not answers[0].problem:  # where the first training fails, no other is tried
        again = [plan_training(subject, repeat=r) for r in range(1, RUNS if noisy else 2)]
        answers += fleet.fits(subject, again, label=_LABEL)
    if problem := find_problem(answers):
        return _doubt(no_answers(problem))
    noise = measure_gap(subject, *answers[:2])
    detail: dict[str, Any] = {"between_two_trainings": noise, "tolerance": TOLERANCE, "deterministic": DETERMINISTIC}
    if noise > DETERMINISTIC and not noisy:
        how = f"is not deterministic given its seed {seed}; hand the seed to every random generator"
        how = "leaves random_state open; give Recipe(seed=…)" if seed is None else how
        return _doubt(f"two trainings on the same data differ by up to {noise:.2g}: the recipe {how}", detail)
    if subject.model is None:
        text = "there is no stored model to compare with"
        return _pass(text, {"runs": RUNS}) if noisy else _pass(f"two trainings agree; {text}", detail)
    stored = fleet.registered(subject, np.arange(subject.data.n, dtype=np.int64))
    if stored.problem:
        return _doubt(f"the registered model could not be asked: {stored.problem}", {} if noisy else detail)
    records, expected = f"all {subject.data.n} training records", answers[0].log_p[: subject.data.n]
    if noisy:
        return _compare_with_reruns(subject, [a.log_p[: subject.data.n] for a in answers], stored.log_p, records)
    gap = leakage.widest((subject.comparable(stored.log_p), subject.comparable(expected)))
    detail |= {"from_registered_model": gap, "records_compared": subject.data.n}
    detail["from_registered_model_nats"] = _measure_nats(subject, stored, expected)
    if not gap <= TOLERANCE:
        what = "probabilities" if subject.task == "classification" else "answers, in deviations of the targets,"
        text = f"the recipe does not reproduce the registered model: {what} differ by up to {gap:.2g} on {records}"
        return _doubt(f"{text}, allowed is {TOLERANCE:g}", detail)
    if problem := _compare_elsewhere(subject, fleet, detail):
        return _doubt(problem, detail)
    text = f"the recipe reproduces the registered model on {records} to {TOLERANCE:g}"
    if (nats := max(value for key, value in detail.items() if key.endswith("_nats"))) > LEAST_NATS_NAMED:
        text += f"; logarithms of small probabilities differ by up to {nats:.3g} nats, which upper limits include"
    return _pass(text, detail)


def _compare_with_reruns(subject: Subject, answers: list[Float], stored: Float, records: str) -> Precondition:
    runs = subject.comparable(np.stack(answers))
    among = float((np.abs(runs[:, None] - runs[None]).mean(axis=(2, 3)).sum(axis=1) / (RUNS - 1)).max())
    own = float(np.abs(runs - subject.comparable(stored)).mean())
    detail = {"runs": RUNS, "from_registered_model": own, "between_runs": among}
    if not own <= 2 * among:
        text = f"the registered model is {own:.2g} away from reruns of the recipe on {records}, reruns only {among:.2g}"
        return _doubt(f"{text} from each other", detail)
    return _pass(f"the registered model is as close to reruns as they are to each other, on {records}", detail)


def add_questions(subject: Subject, fleet: Fleet) -> tuple[Subject, Index]:
    """Return the subject with questions that are no record as further candidates, and the questions' pool rows.

    A question mixes the columns' values of different records. A declared domain adds its corners and random points.
    There are no questions where records are no tables.
    """
    size, container = subject.data.pool_size, _draw_questions(subject, make_generator(subject, "beyond", fleet))
    if container is None or not (count := length(container)):
        return subject, NOBODY
    labels, known = np.full(count, subject.data.y[0]), subject.data.candidates
    both = (container, labels) if known is None else (stack(known[0], container), np.concatenate([known[1], labels]))
    wide = replace(subject, data=replace(subject.data, candidates=both))
    return wide, size + np.arange(count, dtype=np.int64)


def _draw_questions(subject: Subject, rng: Generator) -> Any:
    X, known = subject.data.X, hypotheses.dense(subject.data.X)
    if known is not None:
        return _hold_questions(subject, _mix_numbers(subject, known, rng))
    if not hasattr(X, "columns"):
        return None
    sources = rng.integers(0, subject.data.n, (len(X.columns), _RANDOM))
    mixed = take(X, sources[0]).copy()  # a copy, because pandas 2 warns where a part of a frame is changed
    for j, column in enumerate(X.columns):
        mixed[column] = X[column].take(sources[j]).set_axis(mixed.index)
    return mixed


def _mix_numbers(subject: Subject, known: Float, rng: Generator) -> Float:
    """Return corners, random points and mixed records of the domain, (Q, d)."""
    mixed = np.column_stack([rng.choice(column, _RANDOM) for column in known.T])
    reach = "" if subject.accepted is None else hypotheses.read_domain(subject.accepted, known.shape[1])
    if isinstance(reach, str):
        return mixed
    ends, between = rng.random((2, _RANDOM, known.shape[1]))
    ends[:2] = [[0.0], [1.0]]
    rows = [np.where(ends < 0.5, reach.low, reach.high), reach.low + (reach.high - reach.low) * between]
    return np.concatenate([mixed, *(np.floor(r + 0.5) if reach.whole else r for r in rows)])


def _hold_questions(subject: Subject, rows: Float) -> Any:
    """Return ``rows`` (Q, d) as the recipe's kind of records, those of them that lie in the domain as such."""
    like = subject.data.X
    kind = like.dtype if hasattr(like, "toarray") else np.asarray(like).dtype
    with np.errstate(all="ignore"):
        finite = np.nan_to_num(np.nan_to_num(rows).astype(kind)).astype(np.float64)
        records = make_like(finite, like)
    return records if subject.accepted is None else take(records, np.flatnonzero(subject.accepted.holds(records)))


def _measure_stretch(subject: Subject, wide: Subject, rows: Index) -> Float:
    # answers of two machines' models differ by more, the further a question lies outside the records' ranges
    X, questions = hypotheses.dense(subject.data.X), hypotheses.dense(wide.data.at(rows))
    if X is None or questions is None:
        return np.ones(len(rows))
    off, half = np.abs(questions - (X.max(axis=0) + X.min(axis=0)) / 2), np.ptp(X, axis=0) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.where(off <= half, 1.0, off / half)
    return np.asarray(np.clip(stretch.max(axis=1, initial=1.0), 1.0, MOST_STRETCH))


def _compare_elsewhere(subject: Subject, fleet: Fleet, detail: dict[str, Any]) -> str:
    """Return why recipe and registered model differ at questions that are no record; add the gaps to ``detail``."""
    wide, rows = add_questions(subject, fleet)
    if not len(rows):
        return ""
    (own,) = fleet.fits(wide, [Fit(subject.recipe.seed, rows, left_out=NOBODY)], label=_LABEL)
    stored = fleet.registered(wide, rows)
    if problem := own.problem or stored.problem:
        return f"recipe and registered model could not be asked about other than their own records: {problem}"
    gaps = np.abs(subject.comparable(stored.log_p) - subject.comparable(own.log_p)).max(axis=1)
    gaps = gaps / _measure_stretch(subject, wide, rows)
    detail |= {"from_registered_model_elsewhere": float(gaps.max()), "questions_compared": len(rows)}
    if not gaps.max() <= TOLERANCE:
        return (
            "the recipe reproduces the registered model on its records and not elsewhere: probabilities differ at "
            f"{int((~(gaps <= TOLERANCE)).sum())} of {len(rows)} questions within the domain that are nobody's record"
        )
    detail["from_registered_model_elsewhere_nats"] = _measure_nats(subject, stored, own.log_p)
    return ""


def _measure_nats(subject: Subject, stored: Answer, expected: Float) -> float:
    if subject.task == "regression":
        return 0.0
    exact = leakage.largest_change(stored.log_p, expected)
    return float(np.maximum(exact, measure_changes(stored.log_p, expected, subject.release)).max(initial=0.0))
