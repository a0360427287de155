"""The second control before any number about people counts: the recipe depends on its data.

Weights that are cached would make every influence a false zero. So training is repeated on changed data, and each
change must move predictions: half of the records gone, some records relabelled, and both at once.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Index
from privgate.controls import reproduces
from privgate.controls.reproduces import NOBODY, list_pool, train_all
from privgate.evidence import Precondition
from privgate.families.refit import no_answers
from privgate.statistics import leakage
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: records that are relabelled together
RELABELLED = 20
#: trainings on the same data that are compared; a change counts where it exceeds ``BEYOND`` times their differences
ALIKE, BEYOND = 4, 10.0
#: runs on each of two sides, compared as samples: the least p-value of all C(14, 7) / 2 splits is 5.8e-4
SIDE = 7
#: probability that a recipe which ignores its data passes for one that uses it, in comparisons of samples
LEVEL = 1e-3
_LABEL = "checking that training uses its data"
_doubt = partial(Precondition, "depends_on_data", "inconclusive")
#: a change of the data in words, its training, and the training that it is compared with
Probe = tuple[str, Fit, Fit]


def without(subject: Subject, person: int, *, seed: int | None = None, repeat: int = 0) -> Fit:
    """Return the training without one person, asked about the whole pool; at the recipe's seed if none is named."""
    seed = subject.recipe.seed if seed is None else seed
    return Fit(seed, list_pool(subject), left_out=subject.data.units[person], repeat=repeat)


def draw_people(subject: Subject, count: int = 1) -> list[int]:
    """Return people whom controls leave out, drawn by digest; nobody who takes the last record of a label along."""
    codes, people = subject.label_codes, subject.data.units
    counts, drawn = np.bincount(codes, minlength=len(subject.classes)), list[int]()
    for person in subject.generator("people left out by controls").permutation(len(people)).tolist():
        kept = counts - np.bincount(codes[people[person]], minlength=len(counts))
        # a declared label may have no record to begin with, and a target may be one person's
        if kept.sum() > 1 and (subject.task == "regression" or kept[counts > 0].all()):
            drawn.append(person)
        if len(drawn) == count:
            break
    return drawn


def draw_half(subject: Subject, rng: Generator) -> Index:
    """Return half of the records, ascending, leaving two of each label if there are two: validation splits need them.

    Shares of labels change where they can: a model that follows nothing else must not seem to ignore its data.
    """
    import pandas as pd

    codes = subject.label_codes
    if subject.task == "regression":
        return np.sort(rng.permutation(len(codes))[: len(codes) // 2]).astype(np.int64)
    shares = np.bincount(codes) / len(codes)
    for _ in range(20):
        order = rng.permutation(len(codes))
        rank = pd.Series(order).groupby(codes[order]).cumcount().to_numpy()  # of each among its label's
        free = order[rank >= 2]
        if len(free) < len(codes) // 4:
            free = order[rank >= 1]
        gone = np.sort(free[: len(codes) // 2]).astype(np.int64)
        kept = np.bincount(np.delete(codes, gone), minlength=len(shares))
        if not np.allclose(kept / kept.sum(), shares):
            break
    return gone


def relabel(subject: Subject, rows: Index, rng: Generator, *, gone: Index = NOBODY) -> tuple[tuple[int, int], ...]:
    """Return (row, new label's position) for those of ``rows`` that get one common new label; empty if none can.

    One label grows and the others shrink, so that the labels as a whole change: exchanged labels of two equal records
    would leave the data as they were. No label falls below a quarter of its records, nor below two if it had more.
    """
    codes, count = subject.label_codes, len(subject.classes)
    if subject.task == "regression":  # targets out of the highest, or of the lowest, quarter of all
        far = rng.integers(0, max(1, count // 4), len(rows))
        targets = count - 1 - far if rng.random() < 0.5 else far
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
    """Return the three changes, drawn by digest: half gone, 20 relabelled, and 20 relabelled of the other half."""
    rng, pool, seed = subject.generator("depends_on_data"), list_pool(subject), subject.recipe.seed
    gone, everybody = draw_half(subject, rng), np.arange(subject.data.n)
    half = Fit(seed, pool, left_out=gone)
    probes = [("leaving out a random half", half, train_all(subject))]
    for of, out, other in (("", NOBODY, train_all(subject)), (" of the other half", gone, half)):
        rows = rng.permutation(np.setdiff1d(everybody, out))[:RELABELLED]
        if labels := relabel(subject, rows, rng, gone=out):
            fit = Fit(seed, pool, left_out=out, relabel=labels)
            probes.append((f"relabelling {len(labels)} records{of}", fit, other))
    return probes


def depends_on_data(subject: Subject, fleet: Fleet) -> Precondition:
    """Judge whether the recipe learns from the data it is given.

    A change counts where it moves a prediction beyond ten times what repeated trainings differ by. Training that fails
    on changed data shows no dependence, except on half of them: that may be too few for its own validation split.

    ``detail["moved_by_record"]`` is the largest change of a probability by relabelling, divided by the records.

    What cannot be seen: a recipe that recognises the very records it is given and answers from a store only then. The
    finding that nobody's record matters (``leave_one_out_moves``) is what remains of such a store.
    """
    if len(subject.classes) < 2:
        return _doubt("the training data has one class only; no label can be exchanged")
    if subject.recipe.dp is not None and subject.recipe.seed is None:
        return _depends_in_distribution(subject, fleet)
    probes = list_probes(subject)
    repeats = [train_all(subject, repeat=r) for r in range(ALIKE)]
    answers = fleet.fits(subject, [*repeats, *(fit for _, fit, _ in probes)], label=_LABEL)
    same = answers[:ALIKE]
    if problem := reproduces.find_problem(same):
        return _doubt(no_answers(problem))
    noise = leakage.widest(subject.comparable(a.log_p) for a in same)
    if noise > reproduces.DETERMINISTIC:
        text = f"trainings on the same data differ by up to {noise:.2g}"
        return _doubt(f"{text}: what moves predictions cannot be told from noise", {"between_two_trainings": noise})
    whole = repeats[0].encoding
    known = {fit.encoding: answer for (_, fit, _), answer in zip(probes, answers[ALIKE:], strict=True)}
    known[whole] = same[0]
    moved = {what: _measure_gap(subject, known[fit.encoding], known[other.encoding]) for what, fit, other in probes}
    of_whole = [(moved[what], fit.relabel) for what, fit, other in probes if other.encoding == whole]
    by_record = [distance / len(relabel) for distance, relabel in of_whole if relabel]
    detail = {"moved_by": moved, "moved_by_record": max(by_record, default=0.0), "between_two_trainings": noise}
    idle = {what: known[fit.encoding].problem for what, fit, _ in probes if not moved[what] > BEYOND * noise}
    # half of the data may be too little for a recipe's own validation split; the other trainings show what it does
    halves = {what for what, fit, _ in probes if fit.left_out is not None and len(fit.left_out)}
    if len(idle) == len(probes) or any(not problem or what not in halves for what, problem in idle.items()):
        failed = next(filter(None, idle.values()), "")
        shown = f"training on changed data failed, which shows nothing ({failed})"
        text = shown if failed else f"{' and '.join(idle)} moves no prediction"
        return _doubt(f"the recipe does not depend on its data: {text}", detail)
    return Precondition("depends_on_data", "passed", "leaving out and relabelling records moves predictions", detail)


def _measure_gap(subject: Subject, one: Answer, other: Answer) -> float:
    """Return the largest change of a prediction; 0 where a training failed, which shows nothing."""
    failed = one.problem or other.problem
    return 0.0 if failed else leakage.widest(subject.comparable(a.log_p) for a in (one, other))


def _depends_in_distribution(subject: Subject, fleet: Fleet) -> Precondition:
    """Compare runs on the data with runs of which half of the labels is changed, on all people and without one person.

    Each comparison is an exact permutation test over runs at ``LEVEL``: a recipe that ignores its data passes one with
    probability 5.8e-4.
    """
    rng, pool, people = subject.generator("depends_on_data"), list_pool(subject), draw_people(subject, SIDE)
    if not people:
        return _doubt("nobody can be left out without a label being lost")
    half = relabel(subject, rng.permutation(subject.data.n)[: subject.data.n // 2], rng)
    gone = [subject.data.units[people[r % len(people)]] for r in range(SIDE)]
    sides = {}
    for what, out in (
        ("relabelling half of the data", [NOBODY] * SIDE),
        ("with one person left out, relabelling half of the others", gone),
    ):
        labels = [tuple((row, code) for row, code in half if row not in rows) for rows in out]
        sides[what] = [
            Fit(None, pool, left_out=rows, relabel=changed, repeat=r)
            for side in ([()] * SIDE, labels)
            for r, (rows, changed) in enumerate(zip(out, side, strict=True))
        ]
    detail: dict[str, Any] = {"runs": SIDE, "permutation_p": {}}
    for what, fits in sides.items():
        answers = fleet.fits(subject, fits, label=_LABEL)
        if problem := reproduces.find_problem(answers):
            return _doubt(f"the recipe cannot be trained: {problem}", detail)
        runs = subject.comparable(np.stack([a.log_p[: subject.data.n] for a in answers]))
        p = leakage.permutation_p(runs.reshape(2 * SIDE, -1))
        detail["permutation_p"][what] = p
        if p > LEVEL:
            return _doubt(f"{what} moves predictions no more than the noise does", detail)
    text = "relabelling half of the data moves predictions beyond the noise"
    return Precondition("depends_on_data", "passed", text, detail)


def remembers_nothing(subject: Subject, fleet: Fleet, noise: float) -> Precondition | None:
    """Judge whether training remembers what the same process trained on before.

    None where no code of the owner runs, on a cluster, and where a claim leaves the noise without a seed. Half of the
    records, and all but one person, are trained on here, where everybody was, and in new processes. Their answers must
    be the same: a cache that outlives a training would make every influence a false zero.
    """
    if subject.recipe.library_estimator is not None or (subject.recipe.dp is not None and subject.recipe.seed is None):
        return None
    name, apart = "remembers_nothing", 0.0
    alone = [without(subject, person) for person in draw_people(subject)]
    for fit in (list_probes(subject)[0][1], *alone):  # each in a process of its own
        used = fleet.fits(subject, [fit], label="checking that training remembers nothing")[0]
        fresh = fleet.alone(subject, fit)
        if fresh is None:
            return None
        if fresh.problem and not used.problem:
            text = f"training in a new process, without files that earlier trainings left, fails: {fresh.problem}"
            return Precondition(name, "inconclusive", text, {"between_processes": np.inf})
        apart = max(apart, np.inf if used.problem != fresh.problem else _measure_gap(subject, used, fresh))
    if apart <= max(BEYOND * noise, reproduces.DETERMINISTIC):
        return Precondition(name, "passed", "training in a new process gives the same model")
    text = (
        "training remembers what was trained before in the same process or in files: on the same people a new process "
        f"answers otherwise (by {apart:.2g}), so that a person who is left out may be known; keep nothing "
        "outside of the training function"
    )
    return Precondition(name, "inconclusive", text, {"between_processes": float(apart)})


def count_trainings(subject: Subject, more: Sequence[Fit] = ()) -> int:
    """Return how many trainings both controls make together with ``more`` calls, each counted once."""
    if subject.recipe.dp is not None and subject.recipe.seed is None:
        return 4 * SIDE + len({f.encoding for f in more})
    fits = [train_all(subject, repeat=r) for r in range(ALIKE if len(subject.classes) > 1 else 2)]
    if len(subject.classes) > 1:
        fits += [fit for _, fit, _ in list_probes(subject)]
    return len({f.encoding for f in [*fits, *more]})
