"""What engines and theorems computed before, from the ledger: for runs that nobody is to sign.

Trainings are remembered call by call; closed forms and theorems cost no training, and at 50,000 people still seconds.
An entry is found only by exactly what it was computed from: recipe, data, domain, release, units, the models that a
theorem compares, and the very source files of this package that compute it. A run that is to be signed computes.
"""

import hashlib
import io
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families import in_parts, packing
from privgate.families.certificate import Certificate, Certified
from privgate.families.engine import Asked, Engine
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: units below which computing again is as quick
WORTH = 2_000
#: bytes of one entry
MOST = 64 * 2**20


def known(engine: Engine, asked: Asked) -> bool:
    """Return whether ``answers`` finds what it is asked, and computes nothing."""
    if in_parts.worth(engine, asked):
        return in_parts.known(engine, asked)
    return _kept(engine, asked) and bool(asked.fleet.ledger.find([_asked(engine, asked)])[0])


def answers(engine: Engine, asked: Asked) -> tuple[Retrained, Index]:
    """Return what ``engine.answers`` returns, from the ledger where it is remembered; what is long, part by part."""
    if in_parts.worth(engine, asked):
        return in_parts.answers(engine, asked)
    if not _kept(engine, asked):
        return engine.answers(asked)
    key = _asked(engine, asked)
    if (found := _read(asked.fleet, key)) is not None:
        arrays, told = found
        return packing.retrained(arrays, told), arrays["handed_on"]
    made, handed_on = engine.answers(asked)
    _write(asked.fleet, key, {**packing.arrays(made), "handed_on": handed_on}, packing.told(made))
    return made, handed_on


def _kept(engine: Engine, asked: Asked) -> bool:
    if len(asked.units) < WORTH or asked.queries is not None or asked.fleet.signable:
        return False
    return not engine.cost(asked.subject, asked.units, asked.seeds, mode=asked.mode).fits


def _asked(engine: Engine, asked: Asked) -> bytes:
    how = [engine.name, engine.version, list(asked.seeds), asked.changes, asked.mode, "full"]
    how += [list(asked.limits)] if engine.limited else []
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
    models = {} if retrained is None else packing.arrays(retrained)
    if any(a.dtype == object for a in models.values()):  # trees, which their places in memory do not name
        return certificate.bound(subject, units, retrained, limit=limit)
    told = {} if retrained is None else packing.told(retrained)
    how = [certificate.name, None if limit is None else repr(limit), told]
    key = _key(subject, fleet, how, [units, *(models[name] for name in sorted(models))])
    if (found := _read(fleet, key)) is not None:
        return packing.certified(*found)
    made = certificate.bound(subject, units, retrained, limit=limit)
    _write(fleet, key, *packing.plain(made))
    return made


def _key(subject: Subject, fleet: Fleet, how: list[Any], arrays: list[NDArray[Any]]) -> bytes:
    return hashlib.sha256(fleet.context(subject) + packing.key(subject, how, arrays)).digest()


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
