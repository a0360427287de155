"""The metrics ``file_records`` and ``artifact_records``: what of the training records the file itself holds."""

from collections.abc import Callable
from typing import Any, Literal

from privgate.artifact.keepers import KINDS
from privgate.errors import MeasurementError
from privgate.evidence import ArtifactPart, CarriedTrace, Count, Measurement, Request
from privgate.run.needs import Need
from privgate.run.run import Run

#: what is called in a worker, by name
_EXAMINE, _LOOK = "privgate.artifact.examine:examine", "privgate.artifact.look:look"
_IN_RECIPE = "privgate.artifact.look:in_recipe"
#: lines that a report shows at most
_LINES = 40


def walked(run: Run) -> ArtifactPart:
    """Return what the model's file carries; where nothing is stored, what the model that the recipe trains would."""
    return _answered(run, _EXAMINE, "walked", lambda said: said)


def _answered(
    run: Run, by: str, how: Literal["walked", "bytes"], shaped: Callable[[dict[str, Any]], dict[str, Any]]
) -> ArtifactPart:
    """Return what a worker says of the model by one of our functions, or that it could not be asked."""
    n, stored = run.subject.data.n, run.subject.model is not None
    said = run.fleet.examined(run.subject, by)
    why = str(said.get("problem", ""))
    if not why:
        try:
            return _read(shaped(said), n).model_copy(update={"how": how})
        except (KeyError, TypeError, ValueError) as exc:
            why = str(exc) or type(exc).__name__
    why = "".join(c for c in why if c.isprintable())[:200]
    judged: Literal["file", "model"] = "file" if stored else "model"
    return ArtifactPart(judged=judged, how=how, records=n, least=0, most=n, problem=why)


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
        CarriedTrace(kind=c["kind"], what=KINDS[c["kind"]], where=text(c["where"]), least=count(c["least"]),
                     most=count(c["most"]), beside=count(c["beside"]))
        for c in said["carried"][:_LINES]
    )  # fmt: skip
    least, most, unknown = count(said["least"]), count(said["most"]), tuple(map(text, said["unknown"]))
    if count(said["n"]) != n or least > most or (unknown and most != n):
        raise ValueError("the worker's answer about the file is none")
    return ArtifactPart(
        judged="file" if said["judged"] == "file" else "model",
        records=n,
        least=least,
        most=most,
        carried=carried,
        unknown=unknown,
    )


def looked(run: Run) -> ArtifactPart:
    """Return what stands in the stored files, read as bytes; where none are stored, in a pickle of what is trained."""
    return _answered(run, _LOOK, "bytes", _shaped(run))


def _shaped(run: Run) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def shaped(said: dict[str, Any]) -> dict[str, Any]:
        kept = [{"kind": "stored_records", "where": k, "least": 0, "most": 0, "beside": 0} for k in said["kept"]]
        return {**said, "carried": kept, "most": run.subject.data.n if said["unknown"] else said["least"]}

    return shaped


def of_recipe(run: Run) -> ArtifactPart:
    """Return what the recipe's own sources and parameters hold."""
    return _answered(run, _IN_RECIPE, "bytes", _shaped(run))


def looked_at(run: Run) -> ArtifactPart | None:
    """Return what a look at the files showed, where any are stored, or a rule asks."""
    return run.once(looked) if run.subject.model is not None or Need.LOOKED in run.asked else None


def found(run: Run) -> ArtifactPart | None:
    """Return what is known of the file: what a rule asks for, else what its bytes show where one is stored."""
    if Need.FILE in run.asked:
        return run.once(walked)
    return looked_at(run)


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
    return Measurement(
        request,
        value=low,
        low=low,
        high=high,
        unit="records",
        kind="exact" if low == high else "bound",
        n=seen.records,
        population=seen.records,
        where=seen.carried[0].where if seen.carried else (seen.unknown[0] if seen.unknown else ""),
        assumptions=(
            "the file was read as bytes; its answers were not asked",
            *(f"unknown: {text}" for text in seen.unknown[:5]),
        ),
    )


def told(found: ArtifactPart) -> str:
    """Return what was found, one sentence."""
    what = {"file": "the file", "model": "the model that the recipe trains (nothing is stored)"}[found.judged]
    if found.how == "bytes":
        return f"{what} {found.bytes_said}"
    if found.problem:
        return f"{what} could not be walked: {found.problem}; it may carry everything"
    many, most = (f"{Count(n or 0, found.records)} of {found.records} records" for n in (found.least, found.most))
    if found.least == found.most:
        said = f"{what} carries traces of {many}" if found.least else f"{what} carries no trace of any single record"
    else:
        said = f"{what} carries traces of {many} for certain, and perhaps of {most}"
    first = found.carried[0] if found.carried else None
    return said + (f" ({first.what}: {first.where})" if first else "")


def records(run: Run, request: Request) -> Measurement:
    """Return of how many records, or of what share of them, the file carries a trace of their own.

    The lower limit counts what was found for certain; the upper one everybody of whom an array, a leaf or an unread
    part may be. What could not be walked may carry all of them.

    Raises
    ------
    MeasurementError
        The model could not be opened or walked.
    """
    found = run.once(walked)
    if found.problem:
        raise MeasurementError(told(found))
    share = request.option("of", "records") == "share"
    per = found.records if share else 1
    low, high = (found.least or 0) / per, (found.most or 0) / per
    return Measurement(
        request,
        value=low,
        low=low,
        high=high,
        unit="fraction" if share else "records",
        kind="exact" if low == high else "bound",
        n=found.records,
        population=found.records,
        where=found.carried[0].where if found.carried else "",
        assumptions=(
            "the file was judged, not its answers"
            if found.judged == "file"
            else "no file is stored: the model that the recipe trains was judged, as it would be stored",
            "a trace is a record itself, or what it alone brought in or made; sums over several records are none",
            *(f"unknown: {text}" for text in found.unknown[:5]),
        ),
    )
