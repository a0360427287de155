"""Request to measurement: each metric names the function that answers it."""

from collections.abc import Callable
from importlib import import_module

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Request
from privgate.influence import modes
from privgate.policy.rules import METRICS, Metric
from privgate.run.run import Run

Measure = Callable[[Run, Request], Measurement]
#: metric -> the function that measures it, imported only when something is measured: who verifies needs no engine
MEASURED: dict[str, str] = {
    "dtp": "privgate.influence.dtp_measures:every_query",
    "deletion_capacity": "privgate.claims.capacity:measure",
    "attack_advantage": "privgate.membership.attack_measures:advantage",
    "dp_epsilon": "privgate.claims.epsilon:epsilon",
    "dp_attack_accuracy_bound": "privgate.claims.epsilon:attack_accuracy",
    "attack_tpr": "privgate.membership.attack_measures:members_found",
    "dp_epsilon_lower_bound": "privgate.claims.audit:measure",
    "attack_accuracy": "privgate.membership.attack_measures:accuracy",
    "generalization_gap": "privgate.membership.attack_measures:measure_gap",
    "sensitivity": "privgate.influence.sensitivities:measure",
    "table": "privgate.influence.per_unit:measure",
    "pdtp": "privgate.influence.dtp_measures:direct_queries",
    "file_records": "privgate.file.measure:count_records",
    "attribute_advantage": "privgate.membership.sensitive:advantage",
    "robust_advantage": "privgate.membership.distance:advantage",
}


def measuring(metric: str) -> Measure:
    """Return the function that measures a metric."""
    module, _, function = MEASURED[metric].partition(":")
    found: Measure = getattr(import_module(module), function)
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
    return measuring(metric.name)(run, request)
