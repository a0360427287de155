"""What engines and theorems computed before, from the ledger: for runs that nobody is to sign.

Trainings are remembered call by call; closed forms and theorems cost no training, and at 50,000 people still seconds.
An entry is found only by exactly what it was computed from: recipe, data, domain, release, units, the models that a
theorem compares, and the very source files of this package that compute it. A run that is to be signed computes.
"""

import hashlib
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.families.certificate import Certificate, Certified
from privgate.families.engine import Asked, Engine
from privgate.families.retrained import Index, Retrained, Status
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: units below which computing again is as quick
WORTH = 2_000
#: bytes of one entry
MOST = 64 * 2**20
_PACKAGE = Path(__file__).resolve().parents[1]


def known(engine: Engine, asked: Asked) -> bool:
    """Return whether ``answers`` finds what it is asked, and computes nothing."""
    return _kept(engine, asked) and bool(asked.fleet.ledger.find([_asked(engine, asked)])[0])


def answers(engine: Engine, asked: Asked) -> tuple[Retrained, Index]:
    """Return what ``engine.answers`` returns, from the ledger where it is remembered."""
    if not _kept(engine, asked):
        return engine.answers(asked)
    key = _asked(engine, asked)
    if (found := _read(asked.fleet, key)) is not None:
        arrays, told = found
        return _retrained(arrays, told), arrays["handed_on"]
    made, handed_on = engine.answers(asked)
    _write(asked.fleet, key, {**_arrays(made), "handed_on": handed_on}, _told(made))
    return made, handed_on


def _kept(engine: Engine, asked: Asked) -> bool:
    if len(asked.units) < WORTH or asked.queries is not None or asked.fleet.signable:
        return False
    return not engine.cost(asked.subject, asked.units, asked.seeds, mode=asked.mode).fits


def _asked(engine: Engine, asked: Asked) -> bytes:
    how = [engine.name, engine.version, list(asked.seeds), asked.changes, asked.mode, asked.precision]
    return _key(asked.subject, asked.fleet, how, [asked.units])


def bound(
    certificate: Certificate,
    subject: Subject,
    units: Index,
    retrained: Retrained | None,
    fleet: Fleet | None,
    *,
    limit: float | None,
) -> Certified:
    """Return what ``certificate.bound`` returns, from the ledger where it is remembered."""
    if fleet is None or len(units) < WORTH or fleet.signable:
        return certificate.bound(subject, units, retrained, limit=limit)
    models = {} if retrained is None else _arrays(retrained)
    if any(a.dtype == object for a in models.values()):  # trees, which their places in memory do not name
        return certificate.bound(subject, units, retrained, limit=limit)
    told = {} if retrained is None else _told(retrained)
    how = [certificate.name, None if limit is None else repr(limit), told]
    key = _key(subject, fleet, how, [units, *(models[name] for name in sorted(models))])
    if (found := _read(fleet, key)) is not None:
        arrays, told = found
        return Certified(
            arrays["upper"],
            arrays["lower"],
            arrays["exact"],
            tuple(told["assumptions"]),
            told["detail"],
            arrays.get("questions"),
        )
    made = certificate.bound(subject, units, retrained, limit=limit)
    arrays = {"upper": made.upper, "lower": made.lower, "exact": made.exact}
    if made.questions is not None:
        arrays["questions"] = made.questions
    _write(fleet, key, arrays, {"assumptions": list(made.assumptions), "detail": made.detail})
    return made


@cache
def _source() -> str:
    """Return the digest of every source file of this package: whatever computes, its change forgets."""
    return digest.of_bytes(*(p.read_bytes() for p in sorted(_PACKAGE.rglob("*.py"))))


def _key(subject: Subject, fleet: Fleet, how: list[Any], arrays: list[NDArray[Any]]) -> bytes:
    domain = subject.data.effective_domain
    about = [
        _source(),
        fleet.context(subject).hex(),
        dict(subject.digests),
        None if domain is None else domain.payload(),
        subject.release.payload(),
        how,
    ]
    named = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for array in arrays:
        named.update(f"{array.dtype.str}{array.shape}".encode())
        named.update(np.ascontiguousarray(array).data)
    return named.digest()


def _arrays(made: Retrained) -> dict[str, NDArray[Any]]:
    plain = {n: getattr(made, n) for n in ("units", "row_unit", "row_query", "log_with", "log_without", "error")}
    text = {"status": made.status.astype(str), "engine": made.engine.astype(str)}
    return {**plain, **text, **{f"changes.{name}": value for name, value in made.changes.items()}}


def _told(made: Retrained) -> dict[str, Any]:
    return {"seeds": list(made.seeds), "reason": [[k, v] for k, v in made.reason.items()]}


def _retrained(arrays: dict[str, NDArray[Any]], told: dict[str, Any]) -> Retrained:
    plain = {n: arrays[n] for n in ("units", "row_unit", "row_query", "log_with", "log_without", "error")}
    return Retrained(
        **plain,
        seeds=tuple(told["seeds"]),
        status=np.array([Status(s) for s in arrays["status"].tolist()], dtype=object),
        engine=arrays["engine"].astype(object),
        reason={int(k): v for k, v in told["reason"]},
        changes={n.removeprefix("changes."): v for n, v in arrays.items() if n.startswith("changes.")},
    )


def _read(fleet: Fleet, key: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
    body = fleet.ledger.read([key])[0]
    if body is None:
        return None
    fleet.freshness.recalled += 1  # a run that took anything as it was remembered cannot be signed
    with np.load(io.BytesIO(body), allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    return arrays, json.loads(str(arrays.pop("told")))


def _write(fleet: Fleet, key: bytes, arrays: dict[str, NDArray[Any]], told: dict[str, Any]) -> None:
    """Remember it, unless it is large, or holds what JSON does not carry unchanged."""
    text = json.dumps(told, default=str)
    size = sum(a.nbytes for a in arrays.values())
    if size > MOST or json.loads(text) != _listed(told) or any(a.dtype == object for a in arrays.values()):
        return
    body = io.BytesIO()
    named: dict[str, Any] = {"told": np.array(text), **arrays}
    np.savez(body, **named)
    fleet.ledger.write([(key, body.getvalue())])
    fleet.ledger.flush()


def _listed(value: Any) -> Any:
    """Return the value with tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {k: _listed(v) for k, v in value.items()}
    return [_listed(v) for v in value] if isinstance(value, list | tuple) else value
