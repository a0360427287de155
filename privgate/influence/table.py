"""The measurement ``table``: how many expectations of a user's suite the per-unit table violates."""

from typing import Any

import numpy as np

from privgate.errors import MeasurementError
from privgate.evidence import BehindInfluence, Expectation, Kind, Measurement, Request
from privgate.influence import per_unit
from privgate.run import suites
from privgate.run.run import Run


def measure(run: Run, request: Request) -> Measurement:
    """Return the number of violated expectations: of the figures, and the least and most of figures and limits.

    A ``pdtp`` that is not exact (an engine's error, a mean over paired seeds) has limits, which an approval rests on:
    the suite sees the column with everybody's value, lower and upper limit in turn.

    Raises
    ------
    MeasurementError
        The suite did not come with the policy, or one of its expectations could not be evaluated.
    """
    name = request.option("suite")
    text = run.suites.get(name)
    if text is None:
        raise MeasurementError(f"the suite {name!r} did not come with the policy")
    file = name.partition("@")[0]
    frame, suite = _frame(run), suites.parse(text, file)
    counts: list[int] = []
    shown: tuple[Expectation, ...] = ()
    for column in _columns(frame):
        results = suites.run(suite, frame.assign(pdtp=frame[column]), file=file)
        if errors := [e for e in results if e.error]:
            raise MeasurementError(f"{file}: {len(errors)} expectations could not be evaluated, first {errors[0]}")
        counts.append(sum(not e.met for e in results))
        if not shown or counts[-1] > max(counts[:-1]):
            shown = results
    kind: Kind = "exact" if len(set(counts)) == 1 else "bound"
    if run.random_training:  # a single seed measures the seed, and has no limits
        kind = "confidence" if (frame.get("seeds", np.ones(1)) > 1).all() else "point"
    return Measurement(
        request,
        value=float(counts[0]),
        low=float(min(counts)),
        high=float(max(counts)),
        unit="expectations",
        kind=kind,
        confidence=0.95 if run.random_training else None,
        n=len(shown),
        population=len(shown),
        behind=BehindInfluence(violated=tuple(str(e) for e in shown if not e.met), expectations=shown),
    )


def _columns(frame: Any) -> list[str]:
    """Return the columns that stand for ``pdtp``: itself, and its limits where they are not the same."""
    others = [c for c in ("pdtp_low", "pdtp_high") if c in frame.columns and not frame[c].equals(frame["pdtp"])]
    return ["pdtp", *others]


def _frame(run: Run) -> Any:
    """Return the per-unit table; every unit there is, so that none is missing from what the suite sees."""
    import pandas as pd

    frame = pd.DataFrame(dict(run.once(per_unit.table)))
    if run.decided_by:
        few = f"{len(frame)} of {run.n_units} people were trained without"
        raise MeasurementError(f"not computed: already blocked by {run.decided_by} ({few}); --full measures everybody")
    if len(frame) != run.n_units:
        raise MeasurementError(f"the per-unit table has {len(frame)} of {run.n_units} units")
    return frame
