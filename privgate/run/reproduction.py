"""The first control before any leave-one-out number counts: the recipe gives the registered model again."""

from typing import Any

import numpy as np

from privgate.evidence import Precondition
from privgate.families.refit import no_answers
from privgate.run import beyond, changed, last_digits
from privgate.statistics import leakage
from privgate.subject import released
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit, Float, Index
from privgate.training.fleet import Fleet

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
    wide, out = beyond.asked(subject, signable=fleet.signable)
    if not len(out):
        return ""
    (once,) = fleet.fits(wide, [Fit(subject.recipe.seed, out, left_out=changed.NOBODY)], label="checking the recipe")
    stored = fleet.registered(wide, out)
    if problem := once.problem or stored.problem:
        return f"recipe and registered model could not be asked about other than their own records: {problem}"
    gaps = np.abs(subject.comparable(stored.log_p) - subject.comparable(once.log_p)).max(axis=1) / beyond.stretch(
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
    auc = last_digits.tells(once.log_p[everybody], stored.log_p, everybody < subject.data.n)
    return last_digits.sentence("registered model and recipe", auc) if auc else ""


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
    return float(np.abs(p - q).max())


def problem_in(answers: list[Answer]) -> str:
    """Return the first problem of some trainings; empty if there is none."""
    return next((a.problem for a in answers if a.problem), "")


def answers_in(subject: Subject) -> str:
    """Return what answers are compared in."""
    return "probabilities" if subject.task == "classification" else "answers, in deviations of the targets,"


def doubt(name: str, message: str, detail: dict[str, Any] | None = None) -> Precondition:
    """Return what a failed control means: nothing was shown about the model."""
    return Precondition(name, "inconclusive", message, detail or {})
