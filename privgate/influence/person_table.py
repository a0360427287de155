"""The per-person table of a classifier: what the model gives away about each person, one row each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.cases import Kept, needed
from privgate.controls import strangers
from privgate.errors import MeasurementError
from privgate.evidence import CertificateNote, Count, Precondition
from privgate.influence import left_out, per_person, question_search
from privgate.run import pool as pools
from privgate.run import refit
from privgate.run.needs import Need
from privgate.run.run import Noted, Run
from privgate.theorems import catalogue
from privgate.theorems.theorem import Certified


def measure_direct(run: Run) -> Mapping[str, Float]:
    """Return what ``measure_influence`` says of the measured people, with lower limits that other seeds confirm."""
    refits, people = run.compute(left_out.retrained), run.compute(left_out.leave_out).people
    own = per_person.measure_influence(refits, run.subject.release, people=people)
    low = np.where(refits.lost, np.inf, own["pdtp_low"])
    return {**own, "pdtp_low": per_person.confirm_at_other_seeds(run, refits.units, low)}


def list_people(run: Run) -> Mapping[str, NDArray[Any]]:
    """Return the per-person table, one row a person in the data's order; columns of ``evidence.COLUMNS`` and more.

    Beside the promised columns: ``pdtp_low`` and ``pdtp_high`` (nats: numerical error; where training draws, what other
    seeds show; without a recorded seed the confidence limits of the mean over runs, corrected over labels and units).
    """
    refits, direct = run.compute(left_out.retrained), run.compute(measure_direct)
    lower, upper = run.compute(limit_every_question)
    return {
        "unit": run.subject.data.person_names[refits.units],
        "label": list_labels(run, refits.units),
        "pdtp": np.where(refits.lost, np.inf, direct["pdtp"]),
        "dtp_lower": lower,
        "dtp_upper": np.maximum(upper, lower),
        "error": np.where(refits.lost, 0.0, 2 * refits.error),
        "noise_floor": direct["noise_floor"],
        **per_person.list_origins(refits),
        "pdtp_low": direct["pdtp_low"],
        "pdtp_high": np.where(refits.lost, np.inf, direct["pdtp_high"]),
    }


def list_labels(run: Run, units: Index) -> NDArray[Any]:
    """Return each person's label as text; "mixed" where a person's records differ."""
    data = run.subject.data
    if data.groups is None:
        return np.asarray(data.y[units]).astype(str)
    labels = [np.unique(data.y[data.units[u]]) for u in units]
    return np.array([str(own[0]) if len(own) == 1 else "mixed" for own in labels])


# Every question: what theorems limit, and what a search can show.


def limit_every_question(run: Run) -> tuple[Float, Float]:
    """Return DTP of each person at the worst question asked and at most, shape (U,), nats."""
    refits, direct, bound = run.compute(left_out.retrained), run.compute(measure_direct), run.compute(certify)[0]
    # a few people who break a rule are no sign of a store
    decided = run.compute(left_out.leave_out).decided_by
    if not np.isfinite(bound.upper).all() and not decided:
        run.compute(nothing_moves)
    lower = np.maximum(direct["pdtp_low"], bound.lower)
    # certificates speak about exact probabilities; what is released instead is bounded by nothing here
    upper = np.where(refits.lost | (not _limits_release(run)), np.inf, np.maximum(bound.upper, 0.0))
    if Need.EVERY_QUERY not in run.needs or decided:
        return lower, upper
    seeds = refits.seeds
    raised = question_search.raise_lower(run, refits.units, direct["pdtp"], lower, upper, seeds=seeds)
    # what one pair of trainings answers elsewhere may be the noise of the seed, and no other was tried
    return lower if run.at_seed else raised, upper


def _limits_release(run: Run) -> bool:
    """Whether what theorems limit is what decides: exact probabilities, or those above a floor alone."""
    return run.subject.release.exact or run.subject.release.alone


def certify(run: Run) -> tuple[Certified, NDArray[Any], Sequence[str]]:
    """Return the best certificate for each measured person, whose it is, and why others do not apply."""
    refits = run.compute(left_out.retrained)
    return catalogue.bound(
        run.subject,
        refits.units,
        refits if Need.EVERY_QUERY in run.needs else None,  # else two models a person are read for no rule
        limit=run.thresholds[-1] if run.thresholds else None,
        fleet=run.fleet,
    )


def list_cases(run: Run) -> tuple[Kept, ...]:
    """Return the cases that upper limits rest on: of the measured people, and of everybody where a theorem limits all.

    None where something else is released than the probabilities that theorems are about.
    """
    if not _limits_release(run):
        return ()
    everybody = run.compute(left_out.limit_everybody)
    return needed((*run.compute(certify)[0].cases, *(() if everybody is None else everybody.cases)), run.n_units)


def list_notes(run: Run) -> tuple[CertificateNote, ...]:
    """Return which theorem spoke, and why the others did not."""
    bound, by, because = run.compute(certify)
    notes = []
    for name, theorem in catalogue.THEOREMS.items():
        spoke = int((by == name).sum())
        silent = [text.removeprefix(name).strip() for text in because if text.startswith(f"{name} ")]
        notes.append(
            CertificateNote(
                name=name,
                applies=spoke > 0,
                units=spoke,
                because=silent[0] if silent else "",
                source=theorem.source,
                assumptions=bound.assumptions if spoke else (),
            )
        )
    return tuple(notes)


# What speaks against the table.


def nothing_moves(run: Run) -> Noted:
    """Return the finding that nobody who was left out moved an answer, though training depends on its data, if so.

    A store of the records it knows passes other controls. "Nothing" is below a thousandth of relabelling one.
    """
    refits = run.compute(left_out.retrained)
    live = ~refits.lost[refits.row_unit]
    if not live.any():
        return Noted()  # nobody has a model without them: without limit, which is no false zero
    moved = float(np.abs(np.exp(refits.log_with[:, live]) - np.exp(refits.log_without[:, live])).max())
    if moved > 1e-3 * run.moved_by_record:
        return Noted()
    people = Count(int((~refits.lost).sum()), len(refits.lost))
    text = (
        f"leaving out moved the answer about none of {people} people, though relabelling records moves answers: "
        "training without a person may have been answered from a store, and nothing is shown"
    )
    detail = {"moved": moved, "moved_by_record": run.moved_by_record}
    return Noted((Precondition("leave_one_out_moves", "inconclusive", text, detail),))


def contradicted(run: Run) -> Noted:
    """Return the finding that members' answers contradict the measured influence, if they do; see ``check_answers``."""
    answers = _list_answers(run)
    text, detail = ("", {}) if answers is None else run.fleet.compute(run.subject, strangers.check_answers, *answers)
    if not text or pools.built(run.subject.data).refusal:
        return Noted()  # nothing about candidates counts, and whoever asks about them is told
    return Noted((Precondition("answers", "inconclusive", text, detail),))


def _list_answers(run: Run) -> tuple[Float, Float, Float, Float] | None:
    """Return how right models are: about members left out, without and with them, about members, and about candidates.

    One record a person. None where people were not drawn at random, or candidates cannot be compared with.
    """
    subject, refits = run.subject, run.compute(left_out.retrained)
    if subject.data.candidates is None or run.averaged or left_out.count_missing(run):
        return None
    try:
        trial = pools.built(subject.data).alone
    except MeasurementError:
        return None
    n, members = subject.data.n, subject.data.units.first
    everybody = refit.train_on_all(subject, refits.seeds[:1], run.fleet)[0]
    right = _measure_right(run, everybody, np.arange(len(trial)))
    first = np.zeros(len(refits.row_unit), dtype=bool)
    first[np.unique(refits.row_unit, return_index=True)[1]] = True  # later rows may lie beside records
    rows = first & ~refits.lost[refits.row_unit] & trial[np.minimum(refits.row_query, n - 1)]
    queries = refits.row_query[rows]
    without, with_ = (_measure_right(run, side[0][rows], queries) for side in (refits.log_without, refits.log_with))
    return without, with_, right[members[trial[members]]], right[n:][trial[n:]]


def _measure_right(run: Run, answers: Float, queries: NDArray[Any]) -> Float:
    """Return the probability of each row's own label, or how close a number comes to its target, shape (R,)."""
    subject, truth = run.subject, run.subject.data.pool_labels[queries]
    if subject.task == "regression":
        mean, deviation = subject.scale
        return np.asarray(-np.abs(answers[:, 0] - (truth.astype(np.float64) - mean) / deviation))
    code = np.clip(np.searchsorted(subject.classes, truth), 0, len(subject.classes) - 1)
    return np.asarray(np.exp(answers[np.arange(len(queries)), code]))
