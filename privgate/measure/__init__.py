"""Request to measurement: one file a family of metrics, one line each in the catalogue."""

from collections.abc import Callable
from importlib import import_module

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Request
from privgate.measure.bench import Bench

#: metric -> (module with ``measure(bench, request)``, whether it trains or opens the model)
CATALOGUE: dict[str, tuple[str, bool]] = {
    "dtp": ("dtp", True),
    "pdtp": ("dtp", True),
    "table": ("table", True),
    "generalization_gap": ("generalization_gap", True),
    "attack_tpr": ("attacks", True),
    "attack_advantage": ("attacks", True),
    "attack_accuracy": ("attacks", True),
    "dp_epsilon": ("dp", True),
    "dp_attack_accuracy_bound": ("dp", True),
    "dp_epsilon_lower_bound": ("audit", True),
    "deletion_capacity": ("deletion", True),
}


def trains(metric: str) -> bool:
    """Return whether a metric runs the training function or opens the stored model."""
    return CATALOGUE.get(metric, ("", True))[1]


def measure(bench: Bench, request: Request) -> Measurement:
    """Return what ``request`` asks for.

    Raises
    ------
    MeasurementError
        It has no value here; the gate makes an inconclusive finding of it.
    """
    if request.metric not in CATALOGUE:
        raise MeasurementError(f"no measurement is known for {request.metric!r}; known: {', '.join(CATALOGUE)}")
    module, _ = CATALOGUE[request.metric]
    function: Callable[[Bench, Request], Measurement] = import_module(f"privgate.measure.{module}").measure
    found = function(bench, request)
    if {"attacked", "records"} <= vars(bench).keys() and "attack_against_pdtp" not in bench.detail:
        # whichever was asked for first, the two are set against each other once both are there
        from privgate.measure import rotation

        bench.detail["attack_against_pdtp"] = rotation.against_pdtp(bench.attacked)
    return found
