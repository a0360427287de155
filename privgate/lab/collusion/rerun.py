"""Two trainings in a process of their own that are watched, on all records and on half of them."""

import json
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.lab.collusion import held, reads, strange, watching
from privgate.lab.collusion.strange import as_rows
from privgate.lab.collusion.watching import Watch
from privgate.subject.subject import Subject
from privgate.training import context, payload, worker
from privgate.training.fleet import Fleet
from privgate.training.isolation import apart
from privgate.training.payload import Opened, Payload
from privgate.training.recognition import of_file
from privgate.training.task_limits import Clock, OutOfTimeError, TaskLimits

#: trainings that are watched
TRAININGS = 3
#: records that a watched model is asked about
ASKED = 256
#: raised whenever other eyes would see something else
VERSION = 4


def rerun(subject: Subject, fleet: Fleet) -> dict[str, Any]:
    """Return what was seen, or saw when it was last asked about the same recipe, data and libraries.

    A run that is to be signed looks again.
    """
    key = context.key(fleet.context(subject), f"watched {VERSION}".encode())
    known = fleet.ledger.read([key])[0]
    if known is not None and not fleet.signable:
        fleet.freshness.recalled += 1
        return dict(json.loads(bytes(known)))
    found = watched_apart(subject, fleet.limits, isolate=fleet.isolate)
    fleet.calls += TRAININGS
    if not found.get("problem") and known is None:
        fleet.ledger.write([(key, json.dumps(found).encode())])
        fleet.ledger.flush()
    return found


def watched_apart(subject: Subject, limits: TaskLimits, *, isolate: str = "auto") -> dict[str, Any]:
    """Return what training was seen to do; whatever happens there, it says what.

    The process is handed the training records alone: no candidate, no stored model.
    """
    alone = replace(subject, data=replace(subject.data, candidates=None), model=None)
    half = np.sort(subject.generator("watched half").permutation(subject.data.n)[: subject.data.n // 2])
    with tempfile.TemporaryDirectory(prefix="privgate-watch-") as folder:
        shipped = payload.write(alone, Path(folder, "shown") / "subject")
        found = apart(
            watched, shipped, half.tolist(), limits, limits=limits, runs=TRAININGS, way=isolate, logs=Path(folder)
        )
    return found if isinstance(found, dict) else {"problem": "the worker process died while the training was watched"}


def watched(shipped: Payload, half: list[int], limits: TaskLimits) -> dict[str, Any]:
    """Return JSON values; runs in the worker."""
    import sklearn.base  # noqa: F401  it reads style sheets when it is imported, which are nobody's to explain

    try:
        with reads.watched() as seen, Clock(limits.seconds) as clock:
            opened = Opened(shipped)
            return _watched(opened, np.array(half, dtype=np.int64), seen, clock)
    except OutOfTimeError:
        return {"problem": f"the watched training did not end within {limits.seconds:g} s"}
    except BaseException as exc:  # noqa: BLE001  the user's code runs here; what it raises becomes a sentence
        return {"problem": worker.sentence("the watched training", exc, Path(shipped.folder))}


def _watched(opened: Opened, half: NDArray[np.int64], seen: reads.Reads, clock: Clock) -> dict[str, Any]:
    recipe = opened.recipe
    before = held.stores(*_functions(opened))
    everybody = np.arange(opened.n, dtype=np.int64)
    answers, kept, watches, learners = [], [], [], []
    strangers: set[str] = set()
    unseen = 0
    for number, rows in enumerate((everybody, everybody, half)):
        X, y = _copied(opened, rows)
        start, told = reads.bytes_read(), seen.known_bytes
        seen.training = True
        with clock.call(), watching.watched() as watch:
            model = recipe.train(X, y, seed=recipe.seed)
            shown = _answers(opened, model, everybody[:ASKED])
        seen.training = False
        if number == 1:  # by now everything is imported
            unseen = max(0, reads.bytes_read() - start - (seen.known_bytes - told))
        answers.append(shown)
        mine = held.kept(model, watch.left)
        kept.append(mine)
        strangers |= set(held.strangers(mine.learners, watch.left))
        watches.append(watch)
        for pried in watch.pried:
            seen.note("prying", pried)
        if number != 1:
            learners += _compared(watch, opened, rows)
        del model
    after = held.stores(*_functions(opened))
    grown = {k: v for k, v in after.items() if v > before.get(k, 0)}
    draws = [w.draws for w in watches]
    return {
        "records": opened.n,
        "half": len(half),
        "reads": seen.payload(),
        "unseen_bytes": unseen,
        "held": before,
        "left_behind": grown,
        "kept": [k.bytes / 8 for k in kept[1:]],
        "own": max(k.own for k in kept) / 8,
        "columns": int(np.prod(getattr(opened.X, "shape", (0,))[1:])),
        "unwalked": any(k.unknown for k in kept),
        "strangers": sorted(strangers),
        "draws": draws,
        "entropy": max(w.entropy for w in watches),
        "steps": watches[0].steps,
        "asked": watches[0].asked,
        "unreadable": sorted(set().union(*(w.unreadable for w in watches))),
        "learners": learners,
        "answers": answers[0].tolist(),
        "modules": _loose(opened),
    }


def _functions(opened: Opened) -> list[Any]:
    """Return the functions and classes of the recipe that are no library's."""
    recipe = opened.recipe
    if recipe.recorded is None:
        things = [recipe.training, recipe.predict]
        return [*things, *(type(t) for t in things if t is not None)]
    names = [recipe.recorded.get("fit"), recipe.recorded["predict"]]
    return [recipe._resolve(n) for n in names if n]  # noqa: SLF001  in the worker, where sources are run


def _copied(opened: Opened, rows: NDArray[np.int64]) -> tuple[Any, NDArray[Any]]:
    from privgate.subject.containers import take

    return take(opened.X, rows), opened.y[rows].copy()


def _answers(opened: Opened, model: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    found = worker._evaluate(opened, model, rows)  # noqa: SLF001  the same answers that every worker gives
    return np.maximum(found, -1e4) if opened.recipe.task != "regression" else found


def _compared(watch: Watch, opened: Opened, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    X, y = _copied(opened, rows)
    table, labels = as_rows(X), y.tolist()
    kinds = [d.kind for d in X.dtypes] if hasattr(X, "dtypes") else [getattr(getattr(X, "dtype", None), "kind", "O")]
    numeric = set(kinds) <= set("biuf")
    return [
        strange.compared(name.rpartition(" of ")[0], seen, table, labels, numeric=numeric).payload()
        for name, seen in watch.learners.items()
    ]


def _loose(opened: Opened) -> list[str]:
    """Return modules of the recipe's own that are loaded and not among its recorded sources."""
    held_here = set(opened.recipe.snapshot)
    stems = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in held_here}
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or not Path(file).is_absolute() or name in ("__main__", "__mp_main__") or of_file(file) != "own":
            continue
        plain = re.sub(r"^_privgate_[0-9a-f]+\.", "", name)
        if plain not in stems:
            found.append(plain)
    return sorted(found)[:5]
