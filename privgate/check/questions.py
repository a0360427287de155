"""Request to measurement: each metric names the function that answers it."""

from collections.abc import Callable
from importlib import import_module

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Request
from privgate.influence import leave_one_out, modes
from privgate.membership import board as boards
from privgate.membership import rotation
from privgate.policy.rules import METRICS, Metric
from privgate.run.run import Bench


def measuring(metric: Metric) -> Callable[[Bench, Request], Measurement]:
    """Return the function that measures a metric."""
    module, _, function = metric.measured_by.partition(":")
    found: Callable[[Bench, Request], Measurement] = getattr(import_module(f"privgate.{module}"), function)
    return found


def measure(bench: Bench, request: Request) -> Measurement:
    """Return what ``request`` asks for.

    Raises
    ------
    MeasurementError
        It has no value here; the gate makes an inconclusive finding of it.
    """
    if request.metric not in METRICS:
        raise MeasurementError(f"no measurement is known for {request.metric!r}; known: {', '.join(METRICS)}")
    metric = METRICS[request.metric]
    if why := modes.refusal(bench, request, metric.needs):
        raise MeasurementError(why)
    found = measuring(metric)(bench, request)
    both = bench.once(modes.used) == "all" and bench.made(boards.run) and bench.made(leave_one_out.table)
    if both and "attack_against_pdtp" not in bench.detail:
        # whichever was asked for first, the two are set against each other once both are there
        bench.detail["attack_against_pdtp"] = rotation.against_pdtp(
            bench.once(boards.run), bench.once(leave_one_out.table)
        )
    return found
