"""Run a recipe once in a worker, and write down what its library of differential privacy really does.

Three wrappers look: at the noise that Opacus adds, at the batches that samplers draw, at what diffprivlib spends and
releases. They find mistakes. Whoever disguises a broken training is caught by the audit, or not.
"""

import inspect
import json
import math
import random
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from privgate import digest
from privgate.claims.watch import ERRORS, Watch
from privgate.evidence import Observation
from privgate.subject.containers import take
from privgate.subject.subject import Subject
from privgate.training import ledger, payload, worker
from privgate.training.fleet import Fleet
from privgate.training.isolation import apart
from privgate.training.payload import Opened, Payload
from privgate.training.task_limits import Clock, OutOfTimeError, TaskLimits

#: trainings that an observation makes at most: the second shows whether a training set that is drawn is drawn anew
RERUNS = 2
#: what Opacus leaves on parameters of a network while it trains
_PER_RECORD = ("grad_sample", "summed_grad", "_norm_sample")


class WatchError(RuntimeError):
    """The gate's own code that watches a training failed; no word about the training."""


def observe(subject: Subject, limits: TaskLimits, *, isolate: str) -> Observation:
    """Return what the recipe was seen to do without a seed, on its own training data, in a process of its own.

    ``limits`` are those of one training; ``isolate`` as for ``training.isolation.of``. ``WatchError``: the gate's own
    code failed in the worker.
    """
    with tempfile.TemporaryDirectory(prefix="privgate-observe-") as folder:
        shipped = payload.write(subject, Path(folder, "shown") / "subject")
        seen = apart(watched, shipped, limits, limits=limits, runs=RERUNS, way=isolate, logs=Path(folder))
    if isinstance(seen, dict) and "fault" in seen:
        raise WatchError(f"watching the training failed: {seen['fault']}")
    try:
        return Observation.model_validate(seen)
    except (TypeError, ValueError, KeyError):  # no answer, or one that no worker of ours gives
        return Observation(problem="the worker process died while the training was observed")


def read_or_observe(subject: Subject, fleet: Fleet) -> Observation:
    """Return what ``observe`` sees, or saw when it was last asked about the same recipe, data, libraries and watchers.

    What could not be observed is tried again every time. Trainings that are made count among the fleet's calls.
    """
    name = _name_observation(subject, fleet)
    if (known := fleet.ledger.read(name)) is not None:
        fleet.recalled += 1
        return Observation.model_validate_json(known)
    seen = observe(subject, fleet.limits, isolate=fleet.isolate)
    fleet.calls += seen.runs
    if not seen.problem:
        fleet.ledger.write(name, json.dumps(seen.payload()).encode())
    return seen


def is_known(subject: Subject, fleet: Fleet) -> bool:
    """Return whether ``read_or_observe`` needs no training."""
    return fleet.ledger.holds(_name_observation(subject, fleet))


def _name_observation(subject: Subject, fleet: Fleet) -> str:
    return ledger.name_answer(fleet.context(subject), b"observed:" + _watchers())


@cache
def _watchers() -> bytes:
    """Return a digest of the code that watches: other eyes may see something else."""
    files = (Path(inspect.getfile(part)) for part in (watched, Watch, Observation))
    return digest.of_bytes(*(f.read_bytes() for f in files)).encode()


# In the worker: one training under the three wrappers.


def watched(shipped: Payload, limits: TaskLimits) -> dict[str, Any]:
    """Return the payload of an ``Observation``, or the ``fault`` of ours that kept it from being made."""
    try:
        opened = Opened(shipped)
    except BaseException as exc:  # noqa: BLE001  the user's code is loaded here; what it raises becomes a sentence
        return Observation(problem=worker.sentence("loading the recipe", exc)).payload()
    watches, problem = list[Watch](), ""
    while not problem and len(watches) < RERUNS:
        with Watch() as watch:
            model, problem = _train(opened, limits)
        watches.append(watch)
        if len(watches) == 1:
            trained = model
        if watch.faults:
            return {"fault": watch.faults[0]}
        if not 0 < watch.used.records < opened.n:  # nothing was drawn
            break
    if problem:
        return Observation(problem=problem).payload()
    leftovers = "rerun" if has_leftovers(trained) else ""
    if (opened.root / "model.pkl").is_file() and has_leftovers(opened.model):
        leftovers = "stored"
    return summarize(watches, opened.n, leftovers).payload()


def _train(opened: Opened, limits: TaskLimits) -> tuple[Any, str]:
    """Return what the recipe trains, or why it does not; whatever is raised here is the training's own."""
    X, y = take(opened.X, np.arange(opened.n, dtype=np.int64)), opened.y[: opened.n].copy()
    # from the operating system, so that a seed which is seen is one that training sets
    if torch := sys.modules.get("torch"):
        torch.seed()
    np.random.seed(None)  # noqa: NPY002  the user's
    random.seed()
    try:
        with Clock(limits.seconds) as clock, clock.call():
            return opened.recipe.train(X, y, seed=None), ""
    except OutOfTimeError:
        return None, f"the observed rerun did not end within {limits.seconds:g} s"
    except BaseException as exc:  # noqa: BLE001  the user's code runs here; what it raises becomes a sentence
        return None, worker.sentence("the observed rerun", exc)


def has_leftovers(thing: Any) -> bool:
    """Return whether gradients or activations of single records hang on a network that ``thing`` holds."""
    torch: Any = sys.modules.get("torch")
    todo, known = [thing] if torch else [], set[int]()
    while todo:
        value = todo.pop()
        if id(value) in known or isinstance(value, type):
            continue
        known.add(id(value))
        if isinstance(value, torch.nn.Module):
            if any(getattr(p, name, None) is not None for p in value.parameters() for name in _PER_RECORD):
                return True
            if any(vars(m).get("activations") for m in value.modules()):
                return True
        elif isinstance(value, dict):
            todo += value.values()
        elif isinstance(value, list | tuple | set):
            todo += value
        elif type(value).__module__.partition(".")[0] not in ("torch", "numpy", "builtins"):
            todo += getattr(value, "__dict__", {}).values()
    return False


def summarize(watches: list[Watch], records: int, leftovers: str) -> Observation:
    """Return the first of several watched trainings as an observation; the others show how many records were drawn."""
    watch, runs = watches[0], len(watches)
    if not watch.noisings and watch.spends:
        return Observation(
            library="diffprivlib",
            runs=runs,
            records=records,
            steps=watch.releases + watch.updates,
            noiseless_steps=watch.silent + watch.updates,
            spends=tuple(watch.spends),
            hazards=tuple(watch.hazards),
        )
    text = ""
    if watch.spends:
        text = "two libraries of differential privacy were at work; their guarantees are not composed here"
    elif not watch.noisings:
        plain = f", but {watch.updates} plain updates of a model" if watch.updates else ""
        text = f"no library of differential privacy was seen at work in the rerun{plain}"
    if text:
        return Observation(runs=runs, records=records, problem=text)
    drawn, noisy = watch.used, [n for n in watch.noisings if n.secret]
    numbers = sum(n.numbers for n in noisy)
    measured = math.sqrt(sum(n.squares for n in noisy) / numbers) if numbers else math.nan
    error = 1 / math.sqrt(2 * numbers) if numbers else math.nan
    together = max(n.batches for n in watch.noisings)
    # one release of the sum of k batches is post-processing of k releases with 1/√k of its noise each
    stated = min(n.stated for n in watch.noisings) / math.sqrt(together)
    steps = max(watch.updates, len(watch.noisings))
    return Observation(
        library="opacus",
        runs=runs,
        records=records,
        steps=steps * together if drawn.kind == "poisson" else steps,
        noise_multiplier=stated * (measured if measured < 1 - ERRORS * error else 1.0) if numbers else 0.0,
        noise_stated=stated,
        noise_share=measured,
        noise_error=error,
        noiseless_steps=steps - len(noisy),
        max_grad_norm=max(n.norm for n in watch.noisings),
        sampling=drawn.kind,
        sample_rate=drawn.rate,
        passes=drawn.passes if drawn.kind == "shuffled" else 0,
        populations=tuple(w.used.records for w in watches),
        leftovers=leftovers,
        problem="; ".join(dict.fromkeys(watch.unknown)),
    )
