"""Long closed forms in parts: each a call of the fleet, remembered, resumed, spread over workers.

What is short is done at once, where it always was. What is stated to be long is divided always in the same way, so that
a run that was interrupted finds the parts that it finished; the first seconds of it are done by the process that asks,
and only what is left then is worth starting workers for. A run that is to be signed writes parts and reads none.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.families import catalogue, packing
from privgate.families.engine import Asked, Engine
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.training.parts import Part, Worked, unpacked

#: seconds of CPU stated, above which work is divided
LONG = 5.0
#: bytes of parameters of models without each person, above which work stays whole: parts are held twice
MOST = 2**29
#: parts, so that an interruption costs less than one in a hundred
PARTS = 128
#: seconds after which workers help
PATIENCE = 5.0

Told = tuple[dict[str, NDArray[Any]], dict[str, Any]]


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
