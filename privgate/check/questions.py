"""Request to measurement: each metric names the function that answers it, which is imported only where it measures."""

from importlib import import_module

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Precondition, Request
from privgate.policy.rules import METRICS
from privgate.run.needs import Need
from privgate.run.run import Run


def measure(run: Run, request: Request) -> Measurement:
    """Return what ``request`` asks for; ``MeasurementError`` where it has no value here."""
    metric, answers = METRICS[request.metric], run.subject.answers
    if answers not in metric.answers:
        how = ""
        if answers == "numbers" and "noisy numbers" in metric.answers:
            how = "; a regressor has it where its release adds noise: Release(noise=Laplace(scale))"
        wanted = " or ".join(sorted(metric.answers, reverse=True))
        what = f"{metric.name!r} is about {wanted}, and this model answers with {answers}{how}; nothing was measured"
        return Measurement(request, problem=what, applicable=False)
    module, _, function = metric.measured_by.partition(":")
    measured: Measurement = getattr(import_module(f"privgate.{module}"), function)(run, request)
    return measured


def answer(run: Run, request: Request, stopped: list[Precondition]) -> Measurement:
    """Return the measurement; one that could not be taken, or that something ``stopped``, says why and never passes."""
    needs = METRICS[request.metric].needs
    if Need.CLAIM in needs and run.subject.recipe.payload["dp"] is None:
        problem = (
            "the recipe claims no differential privacy; state it with Recipe(fit, dp=Claim(...)), or judge by a policy "
            "without this rule"
        )
        return Measurement(request, problem=problem, applicable=False)
    if stopped and Need.LOOKED not in needs:  # the file was looked at, which trains nothing
        why = f"not measured, because {stopped[0].message}"
        return Measurement(request, problem=why, stopped_by=stopped[0].name)
    try:
        return measure(run, request)
    except MeasurementError as exc:
        return Measurement(request, problem=str(exc))
