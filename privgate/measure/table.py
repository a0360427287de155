"""The measurement ``table``: how many expectations of a user's suite the per-unit table violates."""

from dataclasses import asdict
from typing import Any

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Request
from privgate.measure import suites
from privgate.measure.bench import Bench


def measure(bench: Bench, request: Request) -> Measurement:
    """Return the number of violated expectations.

    Raises
    ------
    MeasurementError
        The suite did not come with the policy, or one of its expectations could not be evaluated.
    """
    name = request.option("suite")
    text = bench.suites.get(name)
    if text is None:
        raise MeasurementError(f"the suite {name!r} did not come with the policy")
    file = name.partition("@")[0]
    frame = _frame(bench)
    results = suites.run(suites.parse(text, file), frame, file=file)
    errors = [e for e in results if e.error]
    if errors:
        raise MeasurementError(f"{file}: {len(errors)} expectations could not be evaluated, first {errors[0]}")
    violated = [e for e in results if not e.met]
    count = float(len(violated))
    return Measurement(
        request,
        value=count,
        low=count,
        high=count,
        unit="expectations",
        n=len(results),
        population=len(results),
        detail={"violated": [str(e) for e in violated], "expectations": [asdict(e) for e in results]},
    )


def _frame(bench: Bench) -> Any:
    """Return the per-unit table; every unit there is, so that none is missing from what the suite sees."""
    import pandas as pd

    frame = pd.DataFrame(dict(bench.records))
    if len(frame) != bench.n_units:
        raise MeasurementError(f"the per-unit table has {len(frame)} of {bench.n_units} units")
    return frame
