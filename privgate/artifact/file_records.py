"""The metric ``artifact_records``: of how many records the file itself carries a trace of their own."""

from typing import Any

from privgate.artifact.keepers import KINDS
from privgate.errors import MeasurementError
from privgate.evidence import ArtifactPart, CarriedTrace, Count, Measurement, Request
from privgate.run.needs import Need
from privgate.run.run import Run

#: what is called in a worker, by name
_EXAMINE = "privgate.artifact.examine:examine"
#: lines that a report shows at most
_LINES = 40


def walked(run: Run) -> ArtifactPart:
    """Return what the model's file carries; where nothing is stored, what the model that the recipe trains would."""
    n, stored = run.subject.data.n, run.subject.model is not None
    said = run.fleet.examined(run.subject, _EXAMINE)
    why = str(said.get("problem", ""))
    if not why:
        try:
            return _read(said, n)
        except (KeyError, TypeError, ValueError) as exc:
            why = str(exc) or type(exc).__name__
    why = "".join(c for c in why if c.isprintable())[:200]
    return ArtifactPart(judged="file" if stored else "model", records=n, least=0, most=n, problem=why)


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


def asked(run: Run) -> bool:
    """Whether a file is walked in this run: wherever one is stored, and where a rule asks."""
    return run.subject.model is not None or Need.FILE in run.asked


def told(found: ArtifactPart) -> str:
    """Return what was found, one sentence."""
    what = {"file": "the file", "model": "the model that the recipe trains (nothing is stored)"}[found.judged]
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
