"""Long closed forms and theorems in parts: each a call of the fleet, remembered, resumed, spread over workers.

What is short is done at once, where it always was. What is stated to be long is divided always in the same way, so that
a run that was interrupted finds the parts that it finished; the first seconds of it are done by the process that asks,
and only what is left then is worth starting workers for. A run that is to be signed writes parts and reads none.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.families import catalogue, certificates, packing
from privgate.families.certificate import Certificate, Certified, Units
from privgate.families.engine import Asked, Engine
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.training.parts import Part, Worked, unpacked

#: seconds of CPU stated, above which work is divided
LONG = 5.0
#: people from whom on a theorem's work is divided: what it takes is stated nowhere
MANY = 20_000
#: bytes of parameters of models without each person, above which work stays whole: parts are held twice
MOST = 2**29
#: parts, so that an interruption costs less than one in a hundred
PARTS = 128
#: seconds after which workers help
PATIENCE = 5.0

Told = tuple[dict[str, NDArray[Any]], dict[str, Any]]


def worth(engine: Engine, asked: Asked) -> bool:
    """Whether an engine's work is divided: it is long, and one person's answer does not depend on who else is asked."""
    if not _divisible(engine.divisible, asked.subject, asked.units, asked.fleet) or asked.queries is not None:
        return False
    if asked.changes and 8 * len(asked.units) * asked.subject.width * int(asked.subject.data.X.shape[1]) > MOST:
        return False
    cost = engine.cost(asked.subject, asked.units, asked.seeds, mode=asked.mode)
    return asked.mode == "all" and not cost.fits and cost.cpu_seconds > LONG and catalogue.named(engine.name) is engine


def _divisible(divisible: bool, subject: Subject, units: Index, fleet: Fleet | None) -> bool:  # noqa: FBT001  a property
    return divisible and fleet is not None and len(units) >= PARTS and subject.recipe.library_estimator is not None


def answers(engine: Engine, asked: Asked) -> tuple[Retrained, Index]:
    """Return what ``engine.answers`` returns, part by part; may raise ``Declined``."""
    found = _found(asked.subject, asked.fleet, _parts(engine, asked), f"answering by {engine.name}")
    made = [packing.retrained(arrays, told) for arrays, told in found]
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
            (packing.source(), *how, units),
            packing.key(asked.subject, ["part", *named], [units]),
            len(units),
        )
        for units in np.array_split(asked.units, PARTS)
    ]


def answered(subject: Subject, asks: tuple[Any, ...], kept: dict[Any, Any]) -> Told:
    """Return a part of an engine's work."""
    ours, name, seeds, changes, units = asks
    _same(ours)
    engine = catalogue.named(name)
    if (prepared := kept.get(name)) is None:
        prepared = kept[name] = engine.prepared(subject)
    none: Any = None  # no engine that is divided asks the fleet for anything
    asked = Asked(subject, units, seeds, none, changes=changes, common=prepared)
    made, handed_on = engine.answers(asked)
    return {**packing.arrays(made), "handed_on": handed_on}, packing.told(made)


def bound(
    certificate: Certificate,
    subject: Subject,
    units: Index,
    retrained: Retrained | None,
    fleet: Fleet | None,
    *,
    limit: float | None,
) -> Certified:
    """Return what ``certificate.bound`` returns, part by part where it is divisible and there are many people."""
    divided = certificates.ALL.get(certificate.name) is certificate and certificate.divisible
    if fleet is None or not _divisible(divided, subject, units, fleet) or len(units) < MANY:
        return certificate.bound(subject, units, retrained, limit=limit)
    if retrained is not None and sum(a.nbytes for a in retrained.changes.values()) > 2 * MOST:
        return certificate.bound(subject, units, retrained, limit=limit)
    parts = []
    for at in np.array_split(np.arange(len(units)), PARTS):
        some = None if retrained is None else retrained.select(np.isin(np.arange(len(units)), at))
        models = {} if some is None else packing.arrays(some)
        said = {} if some is None else packing.told(some)
        named = ["part", certificate.name, None if limit is None else repr(limit), said]
        key = packing.key(subject, named, [units[at], *(models[n] for n in sorted(models))])
        parts.append(
            Part(
                f"{__name__}:bounded",
                (packing.source(), certificate.name, limit, units[at], models, said),
                key,
                len(at),
            )
        )
    found = _found(subject, fleet, parts, f"bounding by {certificate.name}")
    return packing.joined([packing.certified(arrays, told) for arrays, told in found])


def bounded(subject: Subject, asks: tuple[Any, ...], kept: dict[Any, Any]) -> Told:
    """Return a part of a theorem's work."""
    ours, name, limit, units, models, said = asks
    _same(ours)
    certificate = certificates.ALL[name]
    if (prepared := kept.get(name)) is None:
        prepared = kept[name] = certificate.prepared(subject)
    retrained = packing.retrained(models, said) if models else None
    return packing.plain(certificate.certify(Units(subject, units, retrained, limit, prepared)))


def _same(ours: str) -> None:
    """Refuse to work where another privgate is installed; only a cluster's worker can have one."""
    if packing.source() != ours:
        raise SubjectError("a worker of the cluster has another version of privgate")


def _found(subject: Subject, fleet: Fleet, parts: list[Part], label: str) -> list[Told]:
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
