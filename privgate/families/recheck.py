"""The re-check: every fast engine is compared with the user's own training function, in every run.

A fast wrong answer would approve unsafe models. 59 random units that all agree mean, with 95 % confidence, that fewer
than 5 % of all units are wrong (0.95^59 < 0.05); the worst units and those near a limit decide the verdict, so they are
looked at as well. Of an engine that only ranks people these trainings are all that is shown: its answers about whoever
was refitted give way to the refits.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Float, Index
from privgate.evidence import Precondition
from privgate.families.engine import Asked, Engine
from privgate.families.retrained import Retrained, Shown, Status
from privgate.statistics.leakage import largest_change
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit

WORST = 5
#: exp(-700) is the last probability that float64 holds in full; below it a released 0 and a tiny number are one
UNDERFLOW = -700.0


def recheck(engine: Engine, asked: Asked, made: Retrained) -> tuple[Precondition, Retrained]:
    """Compare an engine's answer with real training on chosen units.

    Parameters
    ----------
    asked : Asked
        ``limits``, ``drawn`` and ``asker`` say who is trained without, and what else these models are asked.
    made : Retrained
        What the engine answered.

    Returns
    -------
    Precondition
        ``passed``, or ``warned`` if any log-probability differs by more than the tolerance plus the unit's own error
        bound: then nothing of the engine's answer may be used.
    Retrained
        The same answers, with what stands behind each: see ``shown``.

    Notes
    -----
    The units depend on nothing that changes, so that an interrupted run finds its fits again in the ledger. In a run
    that is to be signed they follow from the ledger's secret: whoever makes recipe and data could vary them until
    nobody is looked at about whom an engine is wrong.
    """
    chosen = choose(asked, made)
    tolerance = engine.tolerance
    rows = [np.arange(a, b) for a, b in zip(*_edges(made, chosen), strict=True)]
    alive = ~np.isneginf(made.log_with[0]).all(axis=1)  # where no class has a probability, training may raise or not
    everything = np.unique(made.row_query[alive])
    own = [made.row_query[r] for r in rows]
    full, without = _trained(asked, made, chosen, own, everything, f"re-checking {engine.name}")
    worst, beyond, message = _with_error(made, full, everything, alive)
    wrong = ["the model with every record"] if beyond > tolerance else []
    for k, r, got in zip(chosen, rows, without, strict=True):
        gap = difference(made, int(k), r, got)
        worst = max(worst, gap)
        if gap > tolerance + np.nan_to_num(made.error[k], nan=0.0):
            wrong.append(f"unit {int(made.units[k])}")
            message = message or got.problem
    if wrong:
        text = f"{engine.name} disagrees with the training function by {worst:.3g} nats ({wrong[0]}); it was not used"
        text = f"{text}: {message}" if message else text
        return _told(engine, made, "warned", text, len(chosen), float(worst), tolerance, wrong), made
    extent = f"{len(chosen)} of {len(made.units)} people to {worst:.1e} nats"
    text = f"{engine.name} agrees with the training function on {extent}"
    told = _told(engine, made, "passed", text, len(chosen), float(worst), tolerance, wrong)
    if engine.certain:
        return told, made
    made = ranked(asked, made, chosen, real=len(made.seeds) == 1)
    return told, _as_refitted(made, rows, without, full, everything, alive) if len(made.seeds) == 1 else made


def ranked(asked: Asked, made: Retrained, chosen: Index, *, real: bool) -> Retrained:
    """Return an engine's ranking of people, those marked whose models were trained for real.

    A sample shows something only where its answers are those of real trainings, all that are judged (``real``).
    """
    shown = np.full(len(made.units), Shown.RANKED, dtype=object)
    if not real:
        shown[chosen] = Shown.COMPARED
        return replace(made, shown=shown)
    shown[chosen] = Shown.CHOSEN
    some = at_random(asked, made)
    shown[some[np.isin(some, chosen)]] = Shown.DRAWN
    return replace(made, shown=shown)


def _as_refitted(  # noqa: PLR0917  real answers, and where they belong
    made: Retrained, rows: list[Index], without: list[Answer], full: Answer, queries: Index, alive: NDArray[np.bool_]
) -> Retrained:
    """Return the answers with those of real models in the place of the engine's where both have a value."""
    log_with, log_without, error = made.log_with.copy(), made.log_without.copy(), made.error.copy()
    for r, got in zip(rows, without, strict=True):
        if got.problem or not len(r) or made.status[made.row_unit[r[0]]] in (Status.UNDEFINED, Status.FAILED):
            continue
        if not alive[r].all():
            continue
        log_with[0, r] = full.log_p[np.searchsorted(queries, made.row_query[r])]
        log_without[0, r], error[made.row_unit[r[0]]] = got.log_p, 0.0
    return replace(made, log_with=log_with, log_without=log_without, error=error)


def expected(units: int, limits: int, drawn: int) -> int:
    """Return about how many trainings a re-check of so many units makes, the one on all records among them."""
    near = WORST * (1 + limits)
    return min(units, round(drawn + near * max(0.0, 1 - drawn / max(units, 1)))) + 1


def observe(asked: Asked, made: Retrained) -> None:
    """Train without as many units as a re-check does, for the asker alone: where refits answered everything."""
    chosen = choose(asked, made)
    nothing = np.zeros(0, dtype=np.int64)
    _trained(asked, made, chosen, [nothing] * len(chosen), nothing, "comparing certificates")


def _trained(  # noqa: PLR0917  one call of the fleet for two askers
    asked: Asked, made: Retrained, chosen: Index, own: list[Index], everything: Index, label: str
) -> tuple[Answer, list[Answer]]:
    """Return the model with every record at ``everything``, and those without each chosen unit at its ``own`` rows.

    What an asker wants to know beside that is asked of the same models, and told to it.
    """
    subject, asker, extra = asked.subject, asked.asker, [everything[:0]] * len(chosen)
    if asker is not None:
        subject, extra = asker.ask(subject, made, chosen)
    queries = np.unique(np.concatenate([everything, *extra]))
    fits = [Fit(made.seeds[0], queries, left_out=np.zeros(0, dtype=np.int64))]
    for k, mine, more in zip(chosen.tolist(), own, extra, strict=True):
        fits.append(_refit(subject, made, k, np.concatenate([mine, more])))
    full, *without = asked.fleet.fits(subject, fits, label=label)
    if asker is not None and not full.problem:
        for k, mine, more, got in zip(chosen, own, extra, without, strict=True):
            if made.status[k] in (Status.UNDEFINED, Status.FAILED) or not len(more):
                continue  # infinite whatever a certificate says
            if got.problem:
                asker.told(int(made.units[k]), np.array([np.inf]))
            else:
                expected = full.log_p[np.searchsorted(queries, more)]
                asker.told(int(made.units[k]), _gaps(expected, got.log_p[len(mine) :]))
    if full.problem:
        return full, without
    shown = replace(full, log_p=full.log_p[np.searchsorted(queries, everything)])
    return shown, [
        a if a.problem else replace(a, log_p=a.log_p[: len(mine)]) for a, mine in zip(without, own, strict=True)
    ]


def _refit(subject: Subject, made: Retrained, k: int, queries: Index) -> Fit:
    """Return the training without one unit of ``made``."""
    return Fit(made.seeds[0], queries, left_out=subject.data.units[int(made.units[k])])


def choose(asked: Asked, made: Retrained) -> Index:
    """Return positions in ``made.units`` to be refitted: random ones, the worst, and those nearest each limit."""
    some, claimed = at_random(asked, made), _claimed(made)
    sure = np.isin(made.status[claimed], (Status.EXACT, Status.CONVERGED))
    live, dead = claimed[sure], claimed[~sure]
    pdtp = _pdtp(made)[live]
    near = [live[np.argsort(np.abs(pdtp - limit), kind="stable")[:WORST]] for limit in asked.limits]
    worst = live[np.argsort(-pdtp, kind="stable")[:WORST]]
    return np.unique(np.concatenate([some, worst, dead[:WORST], *near])).astype(np.int64)


def at_random(asked: Asked, made: Retrained) -> Index:
    """Return positions in ``made.units`` drawn before anything is looked at, ``asked.drawn`` at most."""
    claimed, subject, fleet = _claimed(made), asked.subject, asked.fleet
    rng = digest.generator(subject.training_digest)
    # nobody but the ledger's owner knows whom it draws, and a run that is to be signed finds the trainings of another
    if fleet.signable or not subject.recipe.is_estimator or fleet.ledger.lasting:
        rng = fleet.drawn(subject, "recheck")
    before = claimed[np.isin(made.units[claimed], asked.first)]
    others = claimed[~np.isin(claimed, before)]
    more = rng.choice(others, size=min(max(asked.drawn - len(before), 0), len(others)), replace=False)
    return np.asarray(np.concatenate([before, more])[: asked.drawn])


def _claimed(made: Retrained) -> Index:
    return np.flatnonzero(made.status != Status.SCREENED)  # a ranking claims nothing


def _pdtp(made: Retrained) -> Float:
    change = np.zeros(len(made.row_unit))
    for with_, without in zip(made.log_with, made.log_without, strict=True):
        change = np.maximum(
            change, largest_change(np.nan_to_num(with_, nan=-np.inf), np.nan_to_num(without, nan=-np.inf))
        )
    worst = np.zeros(len(made.units))
    np.maximum.at(worst, made.row_unit, change)
    return worst


def _edges(made: Retrained, chosen: Index) -> tuple[Index, Index]:
    return np.searchsorted(made.row_unit, chosen), np.searchsorted(made.row_unit, chosen, side="right")


def _with_error(made: Retrained, full: Answer, queries: Index, alive: NDArray[np.bool_]) -> tuple[float, float, str]:
    """Return how far the engine's full model is from a real one: at most, beyond each unit's own error, and why."""
    if full.problem:
        return np.inf, np.inf, full.problem
    expected = full.log_p[np.searchsorted(queries, made.row_query[alive])]
    gap = _gaps(made.log_with[0, alive], expected)
    allowed = np.nan_to_num(made.error, nan=0.0)[made.row_unit[alive]]
    return float(gap.max(initial=0.0)), float((gap - allowed).max(initial=0.0)), ""


def difference(made: Retrained, k: int, rows: Index, got: Answer) -> float:
    """Return how far the engine is from a real fit for one unit; 0 where both say that there is no value."""
    if made.status[k] in (Status.UNDEFINED, Status.FAILED):
        infinite = bool(got.problem) or bool(np.isinf(largest_change(made.log_with[0, rows], got.log_p)).any())
        return 0.0 if infinite else np.inf
    return np.inf if got.problem else _largest(made.log_without[0, rows], got.log_p)


def _largest(ours: Float, theirs: Float) -> float:
    if ours.shape != theirs.shape:
        return np.inf
    return float(_gaps(ours, theirs).max(initial=0.0))


def _gaps(ours: Float, theirs: Float) -> Float:
    """Return the largest difference of a log-probability in each row, shape (R,)."""
    if ours.shape != theirs.shape:
        return np.full(len(ours), np.inf)
    gap = np.abs(np.maximum(ours, UNDERFLOW) - np.maximum(theirs, UNDERFLOW))
    return np.asarray(np.nan_to_num(gap, nan=np.inf).max(axis=-1, initial=0.0))


def _told(  # noqa: PLR0917  the fields of a re-check
    engine: Engine, made: Retrained, outcome: Any, text: str, fits: int, gap: float, allowed: float, wrong: list[str]
) -> Precondition:
    detail = {
        "engine": engine.name,
        "version": engine.version,
        "units_checked": fits,
        "units": len(made.units),
        "worst_difference": gap,
        "tolerance": allowed,
        "wrong": wrong[:10],
    }
    return Precondition(f"recheck_{engine.name}", outcome, text, detail)
