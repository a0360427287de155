"""Request to measurement: one file a family of metrics, one line each in the catalogue."""

from collections.abc import Callable
from importlib import import_module

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Request
from privgate.influence import leave_one_out, modes
from privgate.membership import board as boards
from privgate.run.run import Bench

#: metric -> module with ``measure(bench, request)``
CATALOGUE: dict[str, str] = {
    "dtp": "influence.dtp",
    "pdtp": "influence.dtp",
    "table": "influence.table",
    "generalization_gap": "membership.generalization_gap",
    "attack_tpr": "membership.measure",
    "attack_advantage": "membership.measure",
    "attack_accuracy": "membership.measure",
    "dp_epsilon": "privacy_claims.measure",
    "dp_attack_accuracy_bound": "privacy_claims.measure",
    "dp_epsilon_lower_bound": "privacy_claims.measure_audit",
    "deletion_capacity": "privacy_claims.deletion",
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

    if why := modes.refusal(bench, request):
        raise MeasurementError(why)
    module = CATALOGUE[request.metric]
    function: Callable[[Bench, Request], Measurement] = import_module(f"privgate.{module}").measure
    found = function(bench, request)
    both = bench.once(modes.used) == "all" and bench.made(boards.run) and bench.made(leave_one_out.table)
    if both and "attack_against_pdtp" not in bench.detail:
        # whichever was asked for first, the two are set against each other once both are there
        from privgate.membership import rotation

        bench.detail["attack_against_pdtp"] = rotation.against_pdtp(
            bench.once(boards.run), bench.once(leave_one_out.table)
        )
    return found
