"""Request to measurement: each metric names the function that answers it."""

from collections.abc import Callable
from importlib import import_module

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Request
from privgate.influence import modes
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
    if why := modes.refusal(bench, request):
        raise MeasurementError(why)
    return measuring(metric)(bench, request)
