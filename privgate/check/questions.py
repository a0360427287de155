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


def meaningless(metric: Metric, answers: str) -> str:
    """Return that a metric says nothing about what this model answers with, and what would."""
    how = ""
    if answers == "numbers" and "noisy numbers" in metric.answers:
        how = "; a regressor has it where its release adds noise: Release(noise=Laplace(scale))"
    wanted = " or ".join(sorted(metric.answers, reverse=True))
    return f"{metric.name!r} is about {wanted}, and this model answers with {answers}{how}; nothing was measured"


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
    if run.subject.answers not in metric.answers:
        return Measurement(request, problem=meaningless(metric, run.subject.answers), applicable=False)
    if why := modes.refusal(run, request, metric.needs):
        raise MeasurementError(why)
    return measuring(metric)(run, request)
