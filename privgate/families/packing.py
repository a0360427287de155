"""What engines and theorems say as plain arrays and JSON values, and what names the question that they answer."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.families.certificate import Certified
from privgate.families.retrained import Retrained, Status
from privgate.subject.subject import Subject

_PACKAGE = Path(__file__).resolve().parents[1]

Arrays = dict[str, NDArray[Any]]
Told = dict[str, Any]


@cache
def source() -> str:
    """Return the digest of every source file of this package: whatever computes, its change forgets."""
    return digest.of_bytes(*(p.read_bytes() for p in sorted(_PACKAGE.rglob("*.py"))))


def key(subject: Subject, how: list[Any], arrays: list[NDArray[Any]]) -> bytes:
    """Return what names a question about a subject, beside what ``Fleet.context`` says of it."""
    domain = subject.data.effective_domain
    about = [source(), dict(subject.digests), None if domain is None else domain.payload(), subject.release.payload(),
             how]  # fmt: skip
    named = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for array in arrays:
        named.update(f"{array.dtype.str}{array.shape}".encode())
        named.update(np.ascontiguousarray(array).data)
    return named.digest()


def arrays(made: Retrained) -> Arrays:
    """Return the columns of retrained models."""
    plain = {n: getattr(made, n) for n in ("units", "row_unit", "row_query", "log_with", "log_without", "error")}
    text = {"status": made.status.astype(str), "engine": made.engine.astype(str)}
    return {**plain, **text, **{f"changes.{name}": _once(name, value) for name, value in made.changes.items()}}


def _once(name: str, value: NDArray[Any]) -> NDArray[Any]:
    """Return an array without its repetitions: parameters of the model with everybody are the same beside each unit."""
    alike = name.endswith("_with") and value.shape[1] > 1 and value.dtype != object and (value == value[:, :1]).all()
    return value[:, :1] if alike else value


def _each(value: NDArray[Any], units: int) -> NDArray[Any]:
    return np.broadcast_to(value, (value.shape[0], units, *value.shape[2:])) if value.shape[1] == 1 else value


def told(made: Retrained) -> Told:
    """Return what is no column."""
    return {"seeds": list(made.seeds), "reason": [[k, v] for k, v in made.reason.items()]}


def retrained(columns: Arrays, said: Told) -> Retrained:
    """Return retrained models from ``arrays`` and ``told``."""
    plain = {n: columns[n] for n in ("units", "row_unit", "row_query", "log_with", "log_without", "error")}
    return Retrained(
        **plain,
        seeds=tuple(said["seeds"]),
        status=np.array([Status(s) for s in columns["status"].tolist()], dtype=object),
        engine=columns["engine"].astype(object),
        reason={int(k): v for k, v in said["reason"]},
        changes={
            n.removeprefix("changes."): _each(v, len(columns["units"]))
            for n, v in columns.items()
            if n.startswith("changes.")
        },
    )


def plain(made: Certified) -> tuple[Arrays, Told]:
    """Return bounds as arrays and JSON values."""
    columns = {"upper": made.upper, "lower": made.lower, "exact": made.exact}
    if made.questions is not None:
        columns["questions"] = made.questions
    return columns, {"assumptions": list(made.assumptions), "detail": made.detail}


def certified(columns: Arrays, said: Told) -> Certified:
    """Return bounds from ``plain``."""
    return Certified(
        columns["upper"],
        columns["lower"],
        columns["exact"],
        tuple(said["assumptions"]),
        said["detail"],
        columns.get("questions"),
    )
