"""The metric ``file_records``: what of the training records the file itself holds."""

from typing import Any, Literal

from privgate.errors import MeasurementError
from privgate.evidence import ArtifactPart, CarriedTrace, Measurement, Precondition, Request
from privgate.file import record_keys
from privgate.run.needs import Need
from privgate.run.run import Run

STORED = "whole records, kept by a model that answers from them"
#: lines that a report shows at most
_LINES = 40


def look(run: Run) -> ArtifactPart:
    """Return what stands in the stored files, read as bytes; where none are stored, in a pickle of what is trained."""
    return _ask_worker(run, "privgate.file.look:look")


def look_at_recipe(run: Run) -> ArtifactPart:
    """Return what the recipe's own sources and parameters hold."""
    return _ask_worker(run, "privgate.file.look:look_at_recipe")


def _ask_worker(run: Run, by: str) -> ArtifactPart:
    """Return what a worker says of the model's bytes; stored code ran beside it, so only the shape is believed."""
    n, answer = run.subject.data.n, run.fleet.examined(run.subject, by)
    why = str(answer.get("problem", ""))
    try:
        if not why:
            return _read_answer(answer, n)
    except (KeyError, TypeError, ValueError) as exc:
        why = str(exc) or type(exc).__name__
    judged: Literal["file", "model"] = "model" if run.subject.model is None else "file"
    return ArtifactPart(judged=judged, how="bytes", records=n, least=0, most=n, problem=_clean(why))


def _clean(value: Any) -> str:
    return "".join(c for c in str(value) if c.isprintable())[:200]


def _read_answer(answer: dict[str, Any], n: int) -> ArtifactPart:
    least, size, unread = counts = [answer[name] for name in ("least", "size", "unread")]
    if any(type(v) is not int or v < 0 for v in counts) or least > n or unread > size:
        raise ValueError("the worker's answer about the file is none")
    may_hold, unknown, kept = (tuple(map(_clean, answer[name])) for name in ("may_hold", "unknown", "kept"))
    return ArtifactPart(
        judged="file" if answer["judged"] == "file" else "model",
        how="bytes",
        records=n,
        least=least,
        most=n if may_hold else max(least, min(n - 1, unread)),
        carried=tuple(
            CarriedTrace(kind="stored_records", what=STORED, where=where, least=0, most=0) for where in kept[:_LINES]
        ),
        unknown=(*may_hold, *unknown),
        read=size - unread,
        size=size,
    )


def look_if_needed(run: Run) -> ArtifactPart | None:
    """Return what a look at the files showed, where any are stored, or a rule asks."""
    return run.once(look) if run.subject.model is not None or Need.LOOKED in run.asked else None


def find_keys(run: Run) -> Precondition | None:
    """Return the finding that the model has a table of keys by which it may know records again, if it has."""
    sight = look_if_needed(run)
    tables = [u for u in (sight.unknown if sight else ()) if u.startswith(record_keys.KEYS)]
    if not tables:
        return None
    text = (
        f"the model keeps {tables[0]}; it may answer whoever asks at one exact place, which no list of questions "
        "finds; keep no such table, or give what is public as a parameter: Recipe(params=…, public=…)"
    )
    return Precondition("keys", "inconclusive", text)


def count_records(run: Run, request: Request) -> Measurement:
    """Return how many training records stand in the file; the upper limit is no proof of forms that nobody knows.

    Raises
    ------
    MeasurementError
        The files could not be read at all.
    """
    sight = run.once(look)
    if sight.problem:
        raise MeasurementError(f"the file {sight.bytes_said}")
    places = [c.where for c in sight.carried[:8]]
    several = any("input_example" in where or "sampler" in where for where in places)  # each takes a step of its own
    low, high = float(sight.least or 0), float(sight.most or 0)
    return Measurement(
        request,
        value=low,
        low=low,
        high=high,
        unit="records",
        kind="search",
        n=sight.records,
        population=sight.records,
        where=", ".join(places if several else places[:1] or sight.unknown[:1]),
        assumptions=(sight.read_said, *(f"unknown: {text}" for text in sight.unknown[:5])),
    )


def describe_sight(sight: ArtifactPart) -> str:
    """Return what was found, one sentence."""
    what = {"file": "the file", "model": "the model that the recipe trains (nothing is stored)"}[sight.judged]
    return f"{what} {sight.bytes_said}"
