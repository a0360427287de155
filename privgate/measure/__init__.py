"""Request to measurement: one file a family of metrics, one line each in the catalogue."""

from collections.abc import Callable
from importlib import import_module

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Request
from privgate.measure.bench import Bench

#: metric -> module with ``measure(bench, request)``
CATALOGUE: dict[str, str] = {
    "dtp": "dtp",
    "pdtp": "dtp",
    "table": "table",
    "generalization_gap": "generalization_gap",
    "attack_tpr": "attacks",
    "attack_advantage": "attacks",
    "attack_accuracy": "attacks",
    "dp_epsilon": "dp",
    "dp_attack_accuracy_bound": "dp",
    "dp_epsilon_lower_bound": "audit",
    "deletion_capacity": "deletion",
}
#: metrics that speak about a claim of differential privacy; without one they do not apply
ABOUT_A_CLAIM = ("dp_epsilon", "dp_attack_accuracy_bound", "dp_epsilon_lower_bound", "deletion_capacity")


def measure(bench: Bench, request: Request) -> Measurement:
    """Return what ``request`` asks for.

    Raises
    ------
    MeasurementError
        It has no value here; the gate makes an inconclusive finding of it.
    """
    if request.metric not in CATALOGUE:
        raise MeasurementError(f"no measurement is known for {request.metric!r}; known: {', '.join(CATALOGUE)}")
    # a verifier or a guard reads policies, which name requests, and needs no engine
    from privgate.measure import modes

    if why := modes.refusal(bench, request):
        raise MeasurementError(why)
    module = CATALOGUE[request.metric]
    function: Callable[[Bench, Request], Measurement] = import_module(f"privgate.measure.{module}").measure
    found = function(bench, request)
    both = bench.mode == "all" and {"attacked", "records"} <= vars(bench).keys()
    if both and "attack_against_pdtp" not in bench.detail:
        # whichever was asked for first, the two are set against each other once both are there
        from privgate.measure import rotation

        bench.detail["attack_against_pdtp"] = rotation.against_pdtp(bench.attacked)
    return found
