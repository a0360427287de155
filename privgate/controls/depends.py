"""The second control before any number about people counts: the recipe depends on its data.

A recipe that returns cached weights would make every influence a false zero. So the gate trains it on changed data, and
each change must move predictions: half of the records gone, some relabelled, and both at once. A library's estimator
holds no cache, so that some records relabelled are enough.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from privgate.arrays import Index
from privgate.controls import reproduces
from privgate.controls.reproduces import NOBODY, draws_noise, list_pool, no_answers, plan_training
from privgate.evidence import Precondition
from privgate.statistics import leakage
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: records that are relabelled together
RELABELLED = 20
#: trainings on the same data; a change counts where it moves predictions ``FACTOR`` times as far as these differ
REPEATS, FACTOR = 4, 10.0
#: trainings on each of two sides, compared as samples: the least p-value of all C(14, 7) / 2 splits is 5.8e-4
SIDE = 7
#: probability that a recipe which ignores its data passes for one that uses it, in comparisons of samples
LEVEL = 1e-3
_LABEL = "checking that training uses its data"
_doubt = partial(Precondition, "depends_on_data", "inconclusive")


class Probe(NamedTuple):
    """A training on changed data, and the training without that change."""

    change: str
    fit: Fit
    unchanged: Fit


def draw_people(subject: Subject, count: int = 1) -> list[int]:
    """Return ``count`` people whom controls leave out, drawn by digest, but nobody who has all records of a label."""
    codes, people = subject.label_codes, subject.data.units
    counts, drawn = np.bincount(codes, minlength=len(subject.classes)), list[int]()
    for person in subject.generator("people left out by controls").permutation(len(people)).tolist():
        kept = counts - np.bincount(codes[people[person]], minlength=len(counts))
        # a declared label may have no record, and a regressor's target may be one person's
        if kept.sum() > 1 and (subject.task == "regression" or kept[counts > 0].all()):
            drawn.append(person)
        if len(drawn) == count:
            break
    return drawn


def draw_half(subject: Subject, rng: Generator) -> Index:
    """Return half of the records, ascending, to be left out; two records of each label stay for validation splits.

    The draw is repeated until shares of labels change: a model that only follows them must not seem to ignore its data.
    """
    codes = subject.label_codes
    if subject.task == "regression":
        return np.sort(rng.permutation(len(codes))[: len(codes) // 2]).astype(np.int64)
    shares = np.bincount(codes) / len(codes)
    for _ in range(20):
        order = rng.permutation(len(codes))
        by_label, rank = np.argsort(codes[order], kind="stable"), np.empty_like(order)  # each record's, in its label
        rank[by_label] = np.arange(len(order)) - np.searchsorted(label := codes[order][by_label], label)
        free = order[rank >= 2]
        if len(free) < len(codes) // 4:
            free = order[rank >= 1]
        gone = np.sort(free[: len(codes) // 2]).astype(np.int64)
        kept = np.bincount(np.delete(codes, gone), minlength=len(shares))
        if not np.allclose(kept / kept.sum(), shares):
            break
    return gone


def relabel(subject: Subject, rows: Index, rng: Generator, *, gone: Index = NOBODY) -> tuple[tuple[int, int], ...]:
    """Return pairs of a row and its new label's position; empty if no label can change.

    All chosen rows get one common label: exchanging the labels of two equal records would leave the data as they were.
    Every other label keeps a quarter of its records, and two if it has them.
    """
    codes, count = subject.label_codes, len(subject.classes)
    if subject.task == "regression":  # new targets come from the highest, or from the lowest, quarter of all
        ranks = rng.integers(0, max(1, count // 4), len(rows))
        targets = count - 1 - ranks if rng.random() < 0.5 else ranks
        return tuple((int(row), int(new)) for row, new in zip(rows, targets, strict=True) if codes[row] != new)
    counts = np.bincount(np.delete(codes, gone), minlength=count)
    own = np.bincount(codes[rows], minlength=count)
    target = int(rng.choice(np.flatnonzero(own == own.min())))
    for least in (np.maximum(2, counts // 4), np.ones_like(counts)):
        kept, chosen = counts.copy(), []
        for row in np.sort(rows).tolist():
            if codes[row] != target and kept[codes[row]] > least[codes[row]]:
                kept[codes[row]] -= 1
                chosen.append((row, target))
        if chosen:
            return tuple(chosen)
    return ()


def list_probes(subject: Subject) -> list[Probe]:
    """Return the three probes, drawn by digest: half left out, 20 records relabelled, and both."""
    rng, whole = subject.generator("depends_on_data"), plan_training(subject)
    gone, everybody = draw_half(subject, rng), np.arange(subject.data.n)
    half = plan_training(subject, left_out=gone)
    probes = [Probe("leaving out a random half", half, whole)]
    for whose, out, unchanged in (("", NOBODY, whole), (" of the other half", gone, half)):
        rows = rng.permutation(np.setdiff1d(everybody, out))[:RELABELLED]
        if labels := relabel(subject, rows, rng, gone=out):
            fit = Fit(subject.recipe.seed, list_pool(subject), left_out=out, relabel=labels)
            probes.append(Probe(f"relabelling records{whose}", fit, unchanged))
    return probes


def check_depends_on_data(subject: Subject, fleet: Fleet) -> Precondition:
    """Check that the recipe learns from the data it is given.

    A change counts where it moves a prediction ten times as far as repeated trainings differ. A training that fails on
    relabelled data shows no dependence; one that fails on half may lack records for its validation split. A recipe that
    recognises these very records and answers from a store passes; ``person_table.nothing_moves`` shows it. Of a
    library's estimator one change is enough.
    """
    if draws_noise(subject):
        return _compare_samples(subject, fleet)
    for count, probes in list_attempts(subject):
        if (control := _compare_changes(subject, fleet, count, probes)).outcome == "passed":
            break
    return control


def list_attempts(subject: Subject) -> list[tuple[int, list[Probe]]]:
    """Return how many trainings on the same data and which probes are made, one attempt after the other."""
    probes, whole = list_probes(subject), plan_training(subject).encoding
    relabelled = [p for p in probes if p.fit.relabel and p.unchanged.encoding == whole]
    quick = [(2, relabelled)] if relabelled and subject.recipe.library_estimator is not None else []
    return [*quick, (REPEATS, probes)]


def _compare_changes(subject: Subject, fleet: Fleet, count: int, probes: Sequence[Probe]) -> Precondition:
    """Return whether each change moves predictions more than ``count`` trainings on the same data differ."""
    repeats = [plan_training(subject, repeat=r) for r in range(count)]
    answers = fleet.fits(subject, [*repeats, *(p.fit for p in probes)], label=_LABEL)
    if problem := reproduces.find_problem(answers[:count]):
        return _doubt(no_answers(problem))
    noise = reproduces.measure_gap(subject, *answers[:count])
    if noise > reproduces.DETERMINISTIC:
        text = f"trainings on the same data differ by up to {noise:.2g}"
        return _doubt(f"{text}: what moves predictions cannot be told from noise", {"between_two_trainings": noise})
    whole = repeats[0].encoding
    answered = {p.fit.encoding: answer for p, answer in zip(probes, answers[count:], strict=True)}
    answered[whole] = answers[0]
    moved = {p.change: _measure_move(subject, answered[p.fit.encoding], answered[p.unchanged.encoding]) for p in probes}
    relabelled = [p for p in probes if p.fit.relabel and p.unchanged.encoding == whole]
    by_record = max((moved[p.change] / len(p.fit.relabel) for p in relabelled), default=0.0)
    detail = {"moved_by": moved, "moved_by_record": by_record, "between_two_trainings": noise}
    idle = [p for p in probes if not moved[p.change] > FACTOR * noise]
    problems = [answered[p.fit.encoding].problem for p in idle]
    on_half = [p.fit.left_out is not None and len(p.fit.left_out) > 0 for p in idle]
    excused = all(problem and half for problem, half in zip(problems, on_half, strict=True))
    if len(idle) == len(probes) or not excused:
        text = f"{' and '.join(p.change for p in idle)} moves no prediction"
        if failed := next(filter(None, problems), ""):
            text = f"training on changed data failed, which shows nothing ({failed})"
        return _doubt(f"the recipe does not depend on its data: {text}", detail)
    text = "leaving out and relabelling records moves" if len(probes) > 1 else f"{probes[0].change} moves"
    return Precondition("depends_on_data", "passed", f"{text} predictions", detail)


def _measure_move(subject: Subject, one: Answer, other: Answer) -> float:
    return 0.0 if one.problem or other.problem else reproduces.measure_gap(subject, one, other)


def _compare_samples(subject: Subject, fleet: Fleet) -> Precondition:
    """Test exactly, by permutation, whether relabelling half of the data moves trainings beyond their own noise.

    The test is made on all people, and without one. A recipe that ignores its data passes it with probability 5.8e-4.
    """
    rng, pool, people = subject.generator("depends_on_data"), list_pool(subject), draw_people(subject, SIDE)
    if not people:
        return _doubt("nobody can be left out without a label being lost")
    half = relabel(subject, rng.permutation(subject.data.n)[: subject.data.n // 2], rng)
    persons = [subject.data.units[people[r % len(people)]] for r in range(SIDE)]
    detail: dict[str, Any] = {"runs": SIDE, "permutation_p": {}}
    for change, gone in (
        ("relabelling half of the data", [NOBODY] * SIDE),
        ("with one person left out, relabelling half of the others", persons),
    ):
        labels = [tuple((row, code) for row, code in half if row not in rows) for rows in gone]
        fits = [
            Fit(None, pool, left_out=rows, relabel=changed, repeat=r)
            for side in ([()] * SIDE, labels)
            for r, (rows, changed) in enumerate(zip(gone, side, strict=True))
        ]
        answers = fleet.fits(subject, fits, label=_LABEL)
        if problem := reproduces.find_problem(answers):
            return _doubt(f"the recipe cannot be trained: {problem}", detail)
        runs = subject.comparable(np.stack([a.log_p[: subject.data.n] for a in answers]))
        p = leakage.permutation_p(runs.reshape(2 * SIDE, -1))
        detail["permutation_p"][change] = p
        if p > LEVEL:
            return _doubt(f"{change} moves predictions no more than the noise does", detail)
    text = "relabelling half of the data moves predictions beyond the noise"
    return Precondition("depends_on_data", "passed", text, detail)


def check_remembers_nothing(subject: Subject, fleet: Fleet, noise: float) -> Precondition | None:
    """Check that training in a used process gives the same model as in a new one.

    A cache that outlives a training would make every influence a false zero. The check trains on half of the records,
    and on all but one person. Library estimators, clusters and recipes that draw noise are not checked.
    """
    if subject.recipe.library_estimator is not None or draws_noise(subject):
        return None
    name, apart = "remembers_nothing", 0.0
    persons = [plan_training(subject, left_out=subject.data.units[p]) for p in draw_people(subject)]
    for fit in (list_probes(subject)[0].fit, *persons):
        used = fleet.fits(subject, [fit], label="checking that training remembers nothing")[0]
        fresh = fleet.alone(subject, fit)
        if fresh is None:
            return None
        if fresh.problem and not used.problem:
            text = f"training in a new process, without files that earlier trainings left, fails: {fresh.problem}"
            return Precondition(name, "inconclusive", text, {"between_processes": np.inf})
        apart = max(apart, np.inf if used.problem != fresh.problem else _measure_move(subject, used, fresh))
    if apart <= max(FACTOR * noise, reproduces.DETERMINISTIC):
        return Precondition(name, "passed", "training in a new process gives the same model")
    text = (
        "training remembers what was trained before in the same process or in files: on the same people a new process "
        f"answers otherwise (by {apart:.2g}), so that a person who is left out may be known; keep nothing "
        "outside of the training function"
    )
    return Precondition(name, "inconclusive", text, {"between_processes": float(apart)})


def count_trainings(subject: Subject, more: Sequence[Fit] = ()) -> int:
    """Return how many different trainings the first two controls make, together with those in ``more``."""
    if draws_noise(subject):
        return 4 * SIDE + len({f.encoding for f in more})
    count, probes = list_attempts(subject)[0]
    fits = [plan_training(subject, repeat=r) for r in range(count)] + [p.fit for p in probes]
    return len({f.encoding for f in [*fits, *more]})
