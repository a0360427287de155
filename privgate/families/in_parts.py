"""What engines and theorems say as plain arrays and JSON values, and what names the question that they answer."""

import hashlib
import io
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import cases, digest
from privgate.arrays import Index
from privgate.errors import SubjectError
from privgate.families import catalogue
from privgate.families.certificate import Certificate, Certified
from privgate.families.engine import Asked, Engine
from privgate.families.retrained import Retrained, Status
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.training.payload import Part, Worked, unpacked

_PACKAGE = Path(__file__).resolve().parents[1]

Arrays = dict[str, NDArray[Any]]
Told = dict[str, Any]


@cache
def source() -> str:
    """Return the digest of every source file of this package: whatever computes, its change forgets."""
    return digest.of_bytes(*(p.read_bytes() for p in sorted(_PACKAGE.rglob("*.py"))))


def packing_key(subject: Subject, how: list[Any], arrays: list[NDArray[Any]]) -> bytes:
    """Return what names a question about a subject, beside what ``Fleet.context`` says of it."""
    domain = subject.data.effective_domain
    about = [source(), dict(subject.digests), None if domain is None else domain.payload(), subject.release.payload(),
             how]  # fmt: skip
    named = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for array in arrays:
        named.update(f"{array.dtype.str}{array.shape}".encode())
        named.update(np.ascontiguousarray(array).data)
    return named.digest()


def packing_arrays(made: Retrained) -> Arrays:
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


def packing_told(made: Retrained) -> Told:
    """Return what is no column."""
    return {"seeds": list(made.seeds), "reason": [[k, v] for k, v in made.reason.items()]}


def packing_retrained(columns: Arrays, said: Told) -> Retrained:
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
    arrays, told = cases.packed(made.cases)
    return {**columns, **arrays}, {"assumptions": list(made.assumptions), "detail": made.detail, "cases": told}


def certified(columns: Arrays, said: Told) -> Certified:
    """Return bounds from ``plain``."""
    return Certified(
        columns["upper"],
        columns["lower"],
        columns["exact"],
        tuple(said["assumptions"]),
        said["detail"],
        columns.get("questions"),
        cases.unpacked(columns, said["cases"]),
    )


# Long closed forms in parts: each a call of the fleet, remembered, resumed, spread over workers.
#
# What is short is done at once, where it always was. What is stated to be long is divided always in the same way, so
# that a run that was interrupted finds the parts that it finished; the first seconds of it are done by the process
# that asks, and only what is left then is worth starting workers for. A run that is to be signed writes parts and
# reads none.

#: seconds of CPU stated, above which work is divided
LONG = 5.0
#: bytes of parameters of models without each person, above which work stays whole: parts are held twice
MOST = 2**29
#: parts, so that an interruption costs less than one in a hundred
PARTS = 128
#: seconds after which workers help
PATIENCE = 5.0

InPartsTold = tuple[dict[str, NDArray[Any]], dict[str, Any]]


def worth(engine: Engine, asked: Asked) -> bool:
    """Whether an engine's work is divided: it is long, and one person's answer does not depend on who else is asked."""
    fleet: Fleet | None = asked.fleet  # an engine that is asked by itself has none
    if not engine.divisible or fleet is None or asked.queries is not None or len(asked.units) < PARTS:
        return False
    if asked.subject.recipe.library_estimator is None:
        return False
    if asked.changes and 8 * len(asked.units) * asked.subject.width * int(asked.subject.data.X.shape[1]) > MOST:
        return False
    cost = engine.cost(asked.subject, asked.units, asked.seeds, mode=asked.mode)
    return asked.mode == "all" and not cost.fits and cost.cpu_seconds > LONG and catalogue.named(engine.name) is engine


def answers(engine: Engine, asked: Asked) -> tuple[Retrained, Index]:
    """Return what ``engine.answers`` returns, part by part; may raise ``Declined``."""
    found = _found(asked.subject, asked.fleet, _parts(engine, asked), f"answering by {engine.name}")
    made = [packing_retrained(arrays, told) for arrays, told in found]
    handed_on = np.concatenate([arrays["handed_on"] for arrays, _ in found])
    return Retrained.concatenate(made), handed_on


def known(engine: Engine, asked: Asked) -> bool:
    """Return whether every part of an engine's work is remembered, and may be used."""
    keys = asked.fleet.part_keys(asked.subject, _parts(engine, asked))
    return not asked.fleet.signable and bool(asked.fleet.ledger.find(keys).all())


def _parts(engine: Engine, asked: Asked) -> list[Part]:
    how = (engine.name, asked.seeds, asked.changes)
    named = [engine.name, engine.version, list(asked.seeds), asked.changes, "full"]
    return [
        Part(
            f"{__name__}:answered",
            (source(), *how, units),
            packing_key(asked.subject, ["part", *named], [units]),
            len(units),
        )
        for units in np.array_split(asked.units, PARTS)
    ]


def answered(subject: Subject, asks: tuple[Any, ...], kept: dict[Any, Any]) -> InPartsTold:
    """Return a part of an engine's work."""
    ours, name, seeds, changes, units = asks
    _same(ours)
    engine = catalogue.named(name)
    if (prepared := kept.get(name)) is None:
        prepared = kept[name] = engine.prepared(subject)
    none: Any = None  # no engine that is divided asks the fleet for anything
    asked = Asked(subject, units, seeds, none, changes=changes, common=prepared)
    made, handed_on = engine.answers(asked)
    return {**packing_arrays(made), "handed_on": handed_on}, packing_told(made)


def _same(ours: str) -> None:
    """Refuse to work where another privgate is installed; only a cluster's worker can have one."""
    if source() != ours:
        raise SubjectError("a worker of the cluster has another version of privgate")


def _found(subject: Subject, fleet: Fleet, parts: list[Part], label: str) -> list[InPartsTold]:
    """Return what all parts say: what is remembered, then what the first seconds give, then what workers give."""
    keys = fleet.part_keys(subject, parts)
    known = fleet.recalled_parts(keys)
    here, started = Worked(subject), time.monotonic()
    done, total = sum(p.units for p, k in zip(parts, known, strict=True) if k is not None), sum(p.units for p in parts)
    before, several = done, fleet.jobs > 1 or fleet.cluster is not None
    fleet.activity = label
    for i, part in enumerate(parts):
        took = time.monotonic() - started
        if several and took > PATIENCE:
            break
        if known[i] is None:
            known[i] = made = here.answer(part)
            fleet.keep_part(keys[i], made)
            done += part.units
            fleet.report(done, total, (time.monotonic() - started) * (total - done) / (done - before))
    todo = [i for i, k in enumerate(known) if k is None]
    if todo:
        others = fleet.computed(subject, [keys[i] for i in todo], [parts[i] for i in todo], label=label)
        for i in todo:
            answer = others[keys[i]]
            known[i] = here.answer(parts[i]) if answer.problem else answer
    return [unpacked(k.log_p) for k in known if k is not None]


# What engines and theorems computed before, from the ledger: for runs that nobody is to sign.
#
# Trainings are remembered call by call; closed forms and theorems cost no training, and at 50,000 people still
# seconds. An entry is found only by exactly what it was computed from: recipe, data, domain, release, units, the
# models that a theorem compares, and the very source files of this package that compute it. A run that is to be signed
# computes.

#: units below which computing again is as quick
WORTH = 2_000
#: bytes of one entry
REMEMBERED_MOST = 64 * 2**20


def remembered_known(engine: Engine, asked: Asked) -> bool:
    """Return whether ``answers`` finds what it is asked, and computes nothing."""
    if worth(engine, asked):
        return known(engine, asked)
    return _kept(engine, asked) and bool(asked.fleet.ledger.find([_asked(engine, asked)])[0])


def remembered_answers(engine: Engine, asked: Asked) -> tuple[Retrained, Index]:
    """Return what ``engine.answers`` returns, from the ledger where it is remembered; what is long, part by part."""
    if worth(engine, asked):
        return answers(engine, asked)
    if not _kept(engine, asked):
        return engine.answers(asked)
    key = _asked(engine, asked)
    if (found := _read(asked.fleet, key)) is not None:
        arrays, told = found
        return packing_retrained(arrays, told), arrays["handed_on"]
    made, handed_on = engine.answers(asked)
    _write(asked.fleet, key, {**packing_arrays(made), "handed_on": handed_on}, packing_told(made))
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
        return certificate.bound(subject, units, retrained, limit=limit, fleet=fleet)
    models = {} if retrained is None else packing_arrays(retrained)
    if any(a.dtype == object for a in models.values()):  # trees, which their places in memory do not name
        return certificate.bound(subject, units, retrained, limit=limit, fleet=fleet)
    told = {} if retrained is None else packing_told(retrained)
    how = [certificate.name, None if limit is None else repr(limit), told]
    key = _key(subject, fleet, how, [units, *(models[name] for name in sorted(models))])
    if (found := _read(fleet, key)) is not None:
        return certified(*found)
    made = certificate.bound(subject, units, retrained, limit=limit, fleet=fleet)
    _write(fleet, key, *plain(made))
    return made


def _key(subject: Subject, fleet: Fleet, how: list[Any], arrays: list[NDArray[Any]]) -> bytes:
    return hashlib.sha256(fleet.context(subject) + packing_key(subject, how, arrays)).digest()


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
    if size > REMEMBERED_MOST or json.loads(text) != _listed(told) or any(a.dtype == object for a in arrays.values()):
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
