"""The metrics ``dtp`` and ``pdtp``: from the per-unit table to one number."""

import numpy as np
from numpy.typing import NDArray

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Request
from privgate.measure import aggregate
from privgate.measure.bench import Bench
from privgate.retrain.retrained import Status

Float = NDArray[np.float64]

#: metric -> (value, low, high) columns of the per-unit table
_COLUMNS = {"dtp": ("dtp_lower", "dtp_lower", "dtp_upper"), "pdtp": ("pdtp", "pdtp_low", "pdtp_high")}


def measure(bench: Bench, request: Request) -> Measurement:
    """Return ``dtp`` or ``pdtp`` of the model, aggregated over units as the rule asks.

    ``low`` is a change at a query that was really evaluated; ``high`` of ``dtp`` is a theorem's bound, of ``pdtp`` the
    value plus its error. Infinity is a value: a unit whose retraining failed, or no certificate.
    """
    records = bench.records
    if len(records["unit"]) == 0:
        raise MeasurementError("no unit was measured; raise --max-retrains or the budget")
    value, low, high = (np.asarray(records[name], dtype=np.float64) for name in _COLUMNS[request.metric])
    found = _aggregated(request, value, low, high, bench.n_units)
    where = str(records["unit"][found.where]) if found.where >= 0 else ""
    return Measurement(
        request,
        found.value,
        found.low,
        found.high,
        unit="nats" if request.option("aggregate", "max") != "share_above" else "fraction",
        kind=_kind(bench, found, request.metric),
        confidence=found.confidence if found.confidence is not None else _confidence(bench),
        n=int((np.asarray(records["status"]) != Status.SCREENED).sum()),
        population=bench.n_units,
        where=where,
        assumptions=tuple(_assumptions(bench, request.metric)),
        detail={"claim": found.claim, "over_limit": {str(t): int((low > t).sum()) for t in bench.thresholds}},
    )


def _aggregated(request: Request, value: Float, low: Float, high: Float, population: int) -> aggregate.Aggregated:
    how = request.option("aggregate", "max")
    if how == "max":
        return aggregate.maximum(value, low, high, population)
    if how == "quantile":
        return aggregate.quantile(value, low, high, population, q=float(request.option("q")))
    if how == "share_above":
        return aggregate.share_above(value, low, high, population, threshold=float(request.option("threshold")))
    raise MeasurementError(f"unknown aggregate {how!r}; known: max, quantile, share_above")


def _random_training(bench: Bench) -> bool:
    return bool(bench.detail.get("seeds", {}).get("dependent", False))


def _confidence(bench: Bench) -> float | None:
    return 0.95 if _random_training(bench) else None


def _kind(bench: Bench, found: aggregate.Aggregated, metric: str) -> str:
    if _random_training(bench):
        # a single seed measures the seed, not the person: it neither blocks nor approves
        return "confidence" if len(bench.seeds) > 1 else "point"
    if found.confidence is not None:
        return "confidence"
    return "bound" if metric == "dtp" or found.low != found.high else "exact"


def _assumptions(bench: Bench, metric: str) -> list[str]:
    said = ["left out means: same initial state, randomness keyed by record, the record absent everywhere"]
    if metric == "pdtp":
        said.append("direct queries only: each unit is asked about with its own features")
    else:
        said += [a for note in bench.detail.get("certificates", ()) for a in note.get("assumptions", ())]
    return said
