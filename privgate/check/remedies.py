"""What would make a blocked or undecided model pass: each step with its expected effect and its cost, measured here."""

from dataclasses import replace
from typing import Any

import numpy as np

from privgate.check.plan import first_engine
from privgate.errors import MeasurementError
from privgate.evidence import NextStep
from privgate.families import bound as bounds
from privgate.influence import leave_one_out, modes
from privgate.run.needs import Need
from privgate.run.run import Run
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import plan
from privgate.training.fit import Fit

#: how much more smoothing is tried, in this order
FACTORS = (2.0, 3.0, 5.0, 10.0, 20.0)


def steps(run: Run) -> tuple[NextStep, ...]:
    """Return steps for the leave-one-out rules of a policy, cheapest first; empty where nothing is over a limit.

    Nothing is promised: an effect is what was computed for exactly this recipe and data.
    """
    if not run.made(leave_one_out.table) or not run.thresholds:
        return ()
    limit = min(run.thresholds)
    records = run.once(leave_one_out.table)
    over = int((np.asarray(records["dtp_lower" if Need.EVERY_QUERY in run.asked else "pdtp_low"]) > limit).sum())
    found = [_smooth_more(run, limit), _remove(run, over), _measure_all(run)]
    return tuple(step for step in found if step is not None)


def _remove(run: Run, over: int) -> NextStep | None:
    if not over:
        return None
    engine, n = first_engine(run), len(run.once(leave_one_out.table)["unit"])
    each = engine.cost(run.subject, np.arange(run.n_units, dtype=np.int64), run.seeds)
    among = f"{n} who were measured before the verdict was decided" if run.decided_by else f"{n}"
    cost = f"about {max(each.cpu_seconds, 0.1):.1f} s a removal" if not each.fits else f"{each.fits} retrains a removal"
    return NextStep(
        action="remove the riskiest people from the training data (`privgate remove-risky`) and train again",
        effect=f"{over} of {among} are above the limit now; the largest risk can rise again after a removal, so it is "
        "recomputed each time",
        cost=cost,
    )


def _measure_all(run: Run) -> NextStep | None:
    coverage = leave_one_out.coverage(run)
    missing = coverage.n_units - coverage.n_measured
    if missing <= 0 or run.decided_by:  # nothing that is seen of others takes a violation back
        return None
    everybody = np.arange(run.n_units, dtype=np.int64)
    how = "--mode all" if run.once(modes.used) == "screen" else "no --budget and no --max-retrains"
    try:
        estimate = plan.estimate(run.subject, plan.leave_out_fits(run.subject, everybody, run.seeds), run.fleet)
        cost = estimate.sentence
    except MeasurementError as exc:
        cost = f"unknown: {exc}"
    return NextStep(
        action=f"measure everybody: {how}",
        effect=f"{missing} people who were not looked at are, and a rule on the largest value can be decided",
        cost=cost,
    )


def _smooth_more(run: Run, limit: float) -> NextStep | None:
    """Try more smoothing, where a theorem gives DTP without training: naive Bayes from counts."""
    subject = run.subject
    estimator = subject.recipe.library_estimator
    # a parameter of that name: Sharded computes an alpha that nobody can set
    present = None if estimator is None else estimator.get_params(deep=False).get("alpha")
    highest = float(np.max(run.once(leave_one_out.table)["dtp_upper"]))
    if Need.EVERY_QUERY not in run.asked or not isinstance(present, float | int) or highest <= limit:
        return None
    units = np.arange(run.n_units, dtype=np.int64)
    worst = np.sort(np.argsort(-np.asarray(run.once(leave_one_out.table)["dtp_upper"]), kind="stable")[:100]).astype(
        np.int64
    )
    for factor in FACTORS:
        other = with_parameter(subject, alpha=float(present) * factor)
        theorems = [c for c in bounds.applicable(other)[0] if not c.needs_retrained]
        if not theorems:
            return None
        # the riskiest first: most factors that are too small are refused by a few units
        if bounds.bound(other, worst, None, limit=limit)[0].upper.max() > limit:
            continue
        largest = float(bounds.bound(other, units, None, limit=limit)[0].upper.max())
        if largest <= limit:
            return NextStep(
                action=f"smooth more: alpha {present:g} becomes {present * factor:g}",
                effect=f"the largest influence on any answer falls from {np.exp(highest):.3g}- to "
                f"{np.exp(largest):.3g}-fold ({highest:.3g} to {largest:.3g} nats){_accuracy(run, other)}",
                cost="one training",
            )
    return None


def with_parameter(subject: Subject, **parameters: Any) -> Subject:
    """Return the same subject with other parameters of its library estimator, as a local one."""
    recipe = Recipe(subject.recipe.library_estimator.set_params(**parameters), seed=subject.recipe.payload["seed"])
    return replace(Subject.local(recipe, subject.data), release=subject.release)


def _accuracy(run: Run, other: Subject) -> str:
    """Return what the change costs in accuracy on people outside the data; empty without candidates."""
    data = run.subject.data
    if data.candidates is None:
        return ""
    rows = np.arange(data.n, data.n + len(data.candidates[1]), dtype=np.int64)
    fit = Fit(run.subject.recipe.payload["seed"], rows, left_out=np.zeros(0, dtype=np.int64))
    now, then = (run.fleet.fits(s, [fit], label="trying a remedy")[0] for s in (run.subject, other))
    if now.problem or then.problem:
        return ""
    truth = np.asarray(data.candidates[1])
    right = [float((run.subject.classes[a.log_p.argmax(axis=1)] == truth).mean()) for a in (now, then)]
    return f"; accuracy on candidates {right[0]:.3f} becomes {right[1]:.3f}"
