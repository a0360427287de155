"""The metric ``file_records``: what of the training records the file itself holds."""

from typing import Any, Literal

from privgate.artifact import record_keys
from privgate.errors import MeasurementError
from privgate.evidence import ArtifactPart, CarriedTrace, Measurement, Precondition, Request
from privgate.run.needs import Need
from privgate.run.run import Run

#: what is called in a worker, by name
_LOOK = "privgate.artifact.look:look"
_IN_RECIPE = "privgate.artifact.look:in_recipe"
STORED = "whole records, kept by a model that answers from them"
#: lines that a report shows at most
_LINES = 40


def _answered(run: Run, by: str) -> ArtifactPart:
    """Return what a worker says of the model's bytes by one of our functions, or that it could not be asked."""
    n, stored = run.subject.data.n, run.subject.model is not None
    said = run.fleet.examined(run.subject, by)
    why = str(said.get("problem", ""))
    if not why:
        try:
            return _read(said, n)
        except (KeyError, TypeError, ValueError) as exc:
            why = str(exc) or type(exc).__name__
    why = "".join(c for c in why if c.isprintable())[:200]
    judged: Literal["file", "model"] = "file" if stored else "model"
    return ArtifactPart(judged=judged, how="bytes", records=n, least=0, most=n, problem=why)


def _read(said: dict[str, Any], n: int) -> ArtifactPart:
    """Return what a worker found, nothing of which is believed beyond its shape: stored code ran beside it.

    Raises
    ------
    ValueError
        It is none of ours.
    """

    def count(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= n:
            raise ValueError("the worker's answer about the file is none")
        return value

    def text(value: Any) -> str:
        return "".join(c for c in str(value) if c.isprintable())[:200]

    carried = tuple(
        CarriedTrace(kind="stored_records", what=STORED, where=text(where), least=0, most=0)
        for where in said["kept"][:_LINES]
    )
    least, unknown = count(said["least"]), tuple(map(text, said["unknown"]))
    if count(said["n"]) != n:
        raise ValueError("the worker's answer about the file is none")
    return ArtifactPart(
        judged="file" if said["judged"] == "file" else "model",
        how="bytes",
        records=n,
        least=least,
        most=n if unknown else least,
        carried=carried,
        unknown=unknown,
    )


def looked(run: Run) -> ArtifactPart:
    """Return what stands in the stored files, read as bytes; where none are stored, in a pickle of what is trained."""
    return _answered(run, _LOOK)


def of_recipe(run: Run) -> ArtifactPart:
    """Return what the recipe's own sources and parameters hold."""
    return _answered(run, _IN_RECIPE)


def looked_at(run: Run) -> ArtifactPart | None:
    """Return what a look at the files showed, where any are stored, or a rule asks."""
    return run.once(looked) if run.subject.model is not None or Need.LOOKED in run.asked else None


def keyed(run: Run) -> Precondition | None:
    """Return the finding that the model has a table of keys by which it may know records again, if it has."""
    seen = looked_at(run)
    found = [u for u in (seen.unknown if seen else ()) if u.startswith(record_keys.KEYS)]
    if not found:
        return None
    text = (
        f"the model keeps {found[0]}; it may answer whoever asks at one exact place, which no list of questions finds; "
        "keep no such table, or give what is public as a parameter: Recipe(params=…, public=…)"
    )
    return Precondition("keys", "inconclusive", text)


def in_the_file(run: Run, request: Request) -> Measurement:
    """Return how many training records stand in the file; the upper limit counts everybody where a part is unknown.

    Raises
    ------
    MeasurementError
        The files could not be read at all.
    """
    seen = run.once(looked)
    if seen.problem:
        raise MeasurementError(f"the file {seen.bytes_said}")
    low, high = float(seen.least or 0), float(seen.most or 0)
    named = [c.where for c in seen.carried[:8]]
    several = any("input_example" in where or "sampler" in where for where in named)  # each takes a step of its own
    return Measurement(
        request,
        value=low,
        low=low,
        high=high,
        unit="records",
        kind="exact" if low == high else "bound",
        n=seen.records,
        population=seen.records,
        where=", ".join(named if several else named[:1] or seen.unknown[:1]),
        assumptions=(
            "the file was read as bytes; its answers were not asked",
            *(f"unknown: {text}" for text in seen.unknown[:5]),
        ),
    )


def told(found: ArtifactPart) -> str:
    """Return what was found, one sentence."""
    what = {"file": "the file", "model": "the model that the recipe trains (nothing is stored)"}[found.judged]
    return f"{what} {found.bytes_said}"
