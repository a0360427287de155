"""Request to measurement: each metric names the function that answers it."""

from collections.abc import Callable
from importlib import import_module

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Request
from privgate.influence import modes
from privgate.policy.rules import METRICS, Metric
from privgate.run.run import Run


def measuring(metric: Metric) -> Callable[[Run, Request], Measurement]:
    """Return the function that measures a metric."""
    module, _, function = metric.measured_by.partition(":")
    found: Callable[[Run, Request], Measurement] = getattr(import_module(f"privgate.{module}"), function)
    return found


def measure(run: Run, request: Request) -> Measurement:
    """Return what ``request`` asks for.

    Raises
    ------
    MeasurementError
        It has no value here; the gate makes an inconclusive finding of it.
    """
    if request.metric not in METRICS:
        raise MeasurementError(f"no measurement is known for {request.metric!r}; known: {', '.join(METRICS)}")
    metric = METRICS[request.metric]
    if why := modes.refusal(run, request, metric.needs):
        raise MeasurementError(why)
    return measuring(metric)(run, request)
