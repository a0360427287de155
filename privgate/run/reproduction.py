"""The first control before any leave-one-out number counts: the recipe gives the registered model again."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.evidence import Precondition
from privgate.families import listed
from privgate.families.over_all_queries import applies
from privgate.families.refit import no_answers
from privgate.run import changed
from privgate.statistics import leakage, roc
from privgate.subject import released
from privgate.subject.containers import stack, take
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

# Questions that nobody's record is, put to the stored model too: it must be the recipe's there as well.
#
# A stored model that is the recipe's on every record in the data, and another one elsewhere, would pass a comparison
# on these records alone. In a run that is to be signed nobody can know the questions before: who writes a model could
# else prepare it for them.

#: how many times as much may lie between two models at a question as on the records, however far out it lies
FARTHEST = 100.0


def drawn(subject: Subject, purpose: str, fleet: Fleet) -> Generator:
    """Return randomness that is the same in every run; nobody else can foretell it in one that is to be signed."""
    return fleet.drawn(subject, purpose) if fleet.signable else subject.generator(purpose)


def asked(subject: Subject, fleet: Fleet) -> tuple[Subject, Index]:
    """Return the subject, stored model included, with questions as further candidates, and their rows of the pool.

    Values of people's columns mixed, and where a domain is declared its corners and random points; no rows where
    records are no tables.
    """
    made = _questions(subject, drawn(subject, "beyond", fleet))
    size = subject.data.pool_size
    if made is None:
        return subject, np.arange(0, dtype=np.int64)
    container, count = made
    label, known = np.full(count, subject.data.y[0]), subject.data.candidates
    both = (container, label) if known is None else (stack(known[0], container), np.concatenate([known[1], label]))
    wide = replace(subject, data=replace(subject.data, candidates=both))
    return wide, size + np.arange(count, dtype=np.int64)


def _questions(subject: Subject, rng: Generator) -> tuple[Any, int] | None:
    X = subject.data.X
    rows = listed.shared(subject, rng)
    if rows.size:
        container, kept = listed.asked(subject, rows)
        return (container, int(kept.sum())) if kept.any() else None
    if not hasattr(X, "columns"):
        return None
    places = rng.integers(0, subject.data.n, (len(X.columns), listed.RANDOM))
    made = take(X, places[0]).copy()  # of which pandas 2 would warn that it is part of another frame
    for j, column in enumerate(X.columns):
        made[column] = X[column].take(places[j]).set_axis(made.index)
    return made, listed.RANDOM


def stretch(subject: Subject, wide: Subject, rows: Index) -> Float:
    """Return how far out each question lies, shape (Q,): 1 within the records' own ranges, at most ``FARTHEST``.

    Two trainings on different machines differ in the last digits of a model, and what follows grows with the question.
    """
    X = applies.dense(subject.data.X)
    if X is None:
        return np.ones(len(rows))
    middle, half = (X.max(axis=0) + X.min(axis=0)) / 2, np.ptp(X, axis=0) / 2
    asked_rows = applies.dense(wide.data.at(rows))
    if asked_rows is None:
        return np.ones(len(rows))
    off = np.abs(asked_rows - middle)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.where(off <= half, 1.0, off / half)
    return np.asarray(np.clip(out.max(axis=1, initial=1.0), 1.0, FARTHEST))


# What is left between two models that should be one: within the tolerance it may still be a mark of members.
#
# Attacks compare a model with its shadow models and read no mark that only its author knows; one ten-thousandth of a
# probability holds a mark easily. What machines and orders of additions leave behind follows the answer itself, so it
# tells members from others no better than confidence does. A mark whose digits only a key explains looks like
# rounding, and is not seen here.

#: standard errors by which a difference must tell members better than confidence does: not by chance in any run
_SURE = 5.0
#: fewer people than this on either side tell nothing
_FEW = 10


def tells(one: Float, other: Float, members: Bool) -> float:
    """Return the AUC by which the difference of two answers tells members from others; 0 if it tells nothing.

    Parameters
    ----------
    one, other : float64 arrays of shape (n, K)
        Log-probabilities of the same records.
    members : bool array of shape (n,)
    """
    inside, outside = int(members.sum()), int((~members).sum())
    if min(inside, outside) < _FEW or np.array_equal(one, other):
        return 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        odds = [np.nan_to_num(_odds(a)) for a in (one, other)]
    gap = odds[1] - odds[0]
    error = float(np.sqrt((inside + outside + 1) / (12 * inside * outside)))
    sure = max(abs(roc.auc(v, members) - 0.5) for v in (*odds[0].T, np.abs(odds[0]).max(axis=1)))
    found = max(
        (max(a, 1 - a) for a in (roc.auc(v, members) for v in (*gap.T, *np.abs(gap).T, np.abs(gap).max(axis=1)))),
        default=0.5,
    )
    return found if found - 0.5 > sure + _SURE * error else 0.0


def _odds(log_p: Float) -> Float:
    return np.asarray(log_p - np.log(-np.expm1(np.minimum(log_p, -1e-300))))


def sentence(what: str, auc: float) -> str:
    """Return what such a difference means."""
    return (
        f"what lies between {what} tells people who were trained on from others (AUC {auc:.2f}), which rounding does "
        "not: its last digits may be a mark that no attack here reads"
    )


#: probabilities of one recipe on another machine, with other threads, differ by less than this
REPRODUCED = 1e-4
#: nats between registered model and recipe from which on a sentence says so
TOLD = 1e-3
#: a second training on one machine with the same seed differs by less than this; float32 sums are not associative
DETERMINISTIC = 1e-6
#: changed trainings are asked about at most this many training records, chosen by digest
COMPARED = 10_000
#: runs of a recipe without a seed whose distance from each other says how close the registered model must be
RUNS = 5


def reproduces(subject: Subject, fleet: Fleet) -> Precondition:
    """Judge whether the recipe gives the registered model again, and the same model twice.

    Trains twice on everything with the recipe's seed and compares probabilities with each other and with the stored
    model's on all training records. What is left between them is told in nats, too: a small probability may be many
    times another within the tolerance, and whoever bounds changes of log-probabilities must add it. A recipe trained
    with differential privacy has no seed: its stored model must be as close to reruns as reruns are to each other.
    """
    if subject.recipe.dp is not None and subject.recipe.seed is None:
        return _reproduces_in_distribution(subject, fleet)
    answers = list[Answer]()
    for repeat in range(2):  # what cannot be trained or asked says so at the first
        answers += fleet.fits(subject, [changed.full(subject, repeat=repeat)], label="checking the recipe")
        if problem := problem_in(answers):
            return doubt("reproduces", no_answers(problem))
    once, again = (subject.comparable(a.log_p) for a in answers)
    noise = gap(once, again)
    detail: dict[str, Any] = {"between_two_trainings": noise, "tolerance": REPRODUCED, "deterministic": DETERMINISTIC}
    if noise > DETERMINISTIC:
        how = (
            "leaves random_state open; give Recipe(seed=…)"
            if subject.recipe.seed is None
            else f"is not deterministic given its seed {subject.recipe.seed}; hand the seed to every random generator"
        )
        return doubt(
            "reproduces", f"two trainings on the same data differ by up to {noise:.2g}: the recipe {how}", detail
        )
    if subject.model is None:
        return Precondition(
            "reproduces", "passed", "two trainings agree; there is no stored model to compare with", detail
        )
    rows, which = _everybody(subject)
    stored = fleet.registered(subject, rows)
    if stored.problem:
        return doubt("reproduces", f"the registered model could not be asked: {stored.problem}", detail)
    apart = gap(subject.comparable(stored.log_p), once[rows])
    detail |= {"from_registered_model": apart, "records_compared": len(rows)}
    detail["from_registered_model_nats"] = _in_nats(subject, stored, answers[0].log_p[rows])
    if not apart <= REPRODUCED:
        return doubt(
            "reproduces",
            f"the recipe does not reproduce the registered model: {answers_in(subject)} differ by up to {apart:.2g} on "
            f"{which}, allowed is {REPRODUCED:g}",
            detail,
        )
    if problem := _elsewhere(subject, fleet, detail) or _marked(subject, fleet, answers[0]):
        return doubt("reproduces", problem, detail)
    text = f"the recipe reproduces the registered model on {which} to {REPRODUCED:g}"
    if (nats := max(registered_apart(Precondition("reproduces", "passed", "", detail)))) > TOLD:
        text += f"; logarithms of small probabilities differ by up to {nats:.3g} nats, which upper limits include"
    return Precondition("reproduces", "passed", text, detail)


def _elsewhere(subject: Subject, fleet: Fleet, detail: dict[str, Any]) -> str:
    """Return why the registered model is not the recipe's at questions that nobody's record is; empty if it is."""
    wide, out = asked(subject, fleet)
    if not len(out):
        return ""
    (once,) = fleet.fits(wide, [Fit(subject.recipe.seed, out, left_out=changed.NOBODY)], label="checking the recipe")
    stored = fleet.registered(wide, out)
    if problem := once.problem or stored.problem:
        return f"recipe and registered model could not be asked about other than their own records: {problem}"
    gaps = np.abs(subject.comparable(stored.log_p) - subject.comparable(once.log_p)).max(axis=1) / stretch(
        subject, wide, out
    )
    detail |= {"from_registered_model_elsewhere": float(gaps.max()), "questions_compared": len(out)}
    if not gaps.max() <= REPRODUCED:
        return (
            "the recipe reproduces the registered model on its records and not elsewhere: probabilities differ at "
            f"{int((~(gaps <= REPRODUCED)).sum())} of {len(out)} questions within the domain that are nobody's record"
        )
    detail["from_registered_model_elsewhere_nats"] = _in_nats(subject, stored, once.log_p)
    return ""


def _marked(subject: Subject, fleet: Fleet, once: Answer) -> str:
    """Return that what lies between registered model and recipe tells members from candidates; empty if not."""
    if subject.task == "regression" or subject.data.candidates is None:
        return ""
    everybody = changed.pool(subject)
    stored = fleet.registered(subject, everybody)
    if stored.problem:
        return f"the registered model could not be asked: {stored.problem}"
    auc = tells(once.log_p[everybody], stored.log_p, everybody < subject.data.n)
    return sentence("registered model and recipe", auc) if auc else ""


def _reproduces_in_distribution(subject: Subject, fleet: Fleet) -> Precondition:
    answers = fleet.fits(subject, [changed.full(subject)], label="checking the recipe")
    if not answers[0].problem:
        more = [changed.full(subject, repeat=r) for r in range(1, RUNS)]
        answers += fleet.fits(subject, more, label="checking the recipe")
    if problem := problem_in(answers):
        return doubt("reproduces", no_answers(problem))
    if subject.model is None:
        return Precondition("reproduces", "passed", "there is no stored model to compare with", {"runs": RUNS})
    rows, which = _everybody(subject)
    stored = fleet.registered(subject, rows)
    if stored.problem:
        return doubt("reproduces", f"the registered model could not be asked: {stored.problem}")
    runs = subject.comparable(np.stack([a.log_p[rows] for a in answers]))
    among = np.abs(runs[:, None] - runs[None]).mean(axis=(2, 3)).sum(axis=1) / (RUNS - 1)
    own = float(np.abs(runs - subject.comparable(stored.log_p)).mean())
    detail = {"runs": RUNS, "from_registered_model": own, "between_runs": float(among.max())}
    if not own <= 2 * among.max():
        return doubt(
            "reproduces",
            f"the registered model is {own:.2g} away from reruns of the recipe on {which}, reruns only "
            f"{among.max():.2g} from each other",
            detail,
        )
    return Precondition(
        "reproduces",
        "passed",
        f"the registered model is as close to reruns as they are to each other, on {which}",
        detail,
    )


def _everybody(subject: Subject) -> tuple[Index, str]:
    """Return all training records, and how a sentence names them: a stored model may be another at any of them."""
    return np.arange(subject.data.n, dtype=np.int64), f"all {subject.data.n} training records"


def _in_nats(subject: Subject, stored: Answer, expected: Float) -> float:
    """Return the largest change of log-probability, released ones too, from the recipe's model to the stored one."""
    if subject.task == "regression":
        return 0.0
    exact = leakage.largest_change(stored.log_p, expected)
    return float(np.maximum(exact, released.changes(stored.log_p, expected, subject.release)).max(initial=0.0))


def registered_apart(found: Precondition) -> tuple[float, float]:
    """Return how far the registered model is from the recipe's in nats: on records, and at any question asked."""
    records = found.figure("from_registered_model_nats") or 0.0
    return records, max(records, found.figure("from_registered_model_elsewhere_nats") or 0.0)


def compared(subject: Subject) -> Index:
    """Return the training records that changed trainings are asked about."""
    n = subject.data.n
    if n <= COMPARED:
        return np.arange(n, dtype=np.int64)
    chosen = subject.generator("compared").choice(n, COMPARED, replace=False)
    return np.sort(chosen).astype(np.int64)


def gap(p: Float, q: Float) -> float:
    """Return the largest difference of two tables of answers."""
    apart = np.subtract(p, q)
    return float(np.abs(apart, out=apart).max())


def problem_in(answers: Iterable[Answer]) -> str:
    """Return the first problem of some trainings; empty if there is none."""
    return next((a.problem for a in answers if a.problem), "")


def answers_in(subject: Subject) -> str:
    """Return what answers are compared in."""
    return "probabilities" if subject.task == "classification" else "answers, in deviations of the targets,"


def doubt(name: str, message: str, detail: dict[str, Any] | None = None) -> Precondition:
    """Return what a failed control means: nothing was shown about the model."""
    return Precondition(name, "inconclusive", message, detail or {})
