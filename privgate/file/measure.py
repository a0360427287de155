"""The metric ``file_records``: what of the training records the file itself holds."""

from typing import Any, Literal

from privgate.errors import MeasurementError
from privgate.evidence import ArtifactPart, CarriedTrace, Measurement, Precondition, Request
from privgate.file.look import KEYS
from privgate.run.needs import Need
from privgate.run.run import Run

STORED = "whole records, kept by a model that answers from them"
#: lines that a report shows at most
_LINES = 40


def look(run: Run, by: str = "look") -> ArtifactPart:
    """Return what stands in the stored files, in a pickle of what is trained where none are, or in the recipe.

    Stored code ran beside the worker that looks, so only the shape of its answer is believed.
    """
    n, answer = run.subject.data.n, run.fleet.examined(run.subject, f"privgate.file.look:{by}")
    judged: Literal["file", "model"] = "model" if run.subject.model is None else "file"
    try:
        if problem := answer.get("problem"):
            raise ValueError(problem)  # noqa: TRY301  one sentence for whatever is wrong
        least, size, unread = counts = [answer[name] for name in ("least", "size", "unread")]
        if any(type(v) is not int or v < 0 for v in counts) or least > n or unread > size:
            raise ValueError("the worker's answer about the file is none")  # noqa: TRY301  ditto
        may_hold, unknown, kept = (tuple(map(_clean, answer[name])) for name in ("may_hold", "unknown", "kept"))
        judged = "file" if answer["judged"] == "file" else "model"
    except (KeyError, TypeError, ValueError) as exc:
        problem = _clean(str(exc) or type(exc).__name__)
        return ArtifactPart(judged=judged, records=n, least=0, most=n, problem=problem)
    traces = [CarriedTrace(what=STORED, where=where) for where in kept[:_LINES]]
    return ArtifactPart(
        judged=judged, records=n, least=least, most=n if may_hold else max(least, min(n - 1, unread)),
        carried=tuple(traces), unknown=(*may_hold, *unknown), read=size - unread, size=size,
    )  # fmt: skip


def _clean(value: Any) -> str:
    return "".join(c for c in str(value) if c.isprintable())[:200]


def look_if_needed(run: Run) -> ArtifactPart | None:
    """Return what a look at the files showed, where any are stored, or a rule asks."""
    return run.compute(look) if run.subject.model is not None or Need.LOOKED in run.needs else None


def find_keys(run: Run) -> Precondition | None:
    """Return the finding that the model has a table of keys by which it may know records again, if it has."""
    sight = look_if_needed(run)
    tables = [u for u in (sight.unknown if sight else ()) if u.startswith(KEYS)]
    if not tables:
        return None
    text = (
        f"the model keeps {tables[0]}; it may answer whoever asks at one exact place, which no list of questions "
        "finds; keep no such table, or give what is public as a parameter: Recipe(params=…, public=…)"
    )
    return Precondition("keys", "inconclusive", text)


def count_records(run: Run, request: Request) -> Measurement:
    """Return how many training records stand in the file; the upper limit is no proof of forms that nobody knows."""
    sight = run.compute(look)
    if sight.problem:
        raise MeasurementError(f"the file {sight.bytes_said}")
    places = [c.where for c in sight.carried[:8]]
    several = any("input_example" in where or "sampler" in where for where in places)  # each takes a step of its own
    low, high = float(sight.least or 0), float(sight.most or 0)
    return Measurement(
        request, low, low, high, "records", "search", n=sight.records, population=sight.records,
        where=", ".join(places if several else places[:1] or sight.unknown[:1]),
        assumptions=(sight.read_said, *(f"unknown: {text}" for text in sight.unknown[:5])),
    )  # fmt: skip
