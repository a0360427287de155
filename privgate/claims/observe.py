"""Run a recipe in a worker under ``Watch``, and return what its library of differential privacy really does."""

import json
import math
import random
import sys
from typing import Any

import numpy as np

from privgate.claims.watch import ERRORS, Watch
from privgate.evidence import Observation
from privgate.subject.containers import take
from privgate.subject.subject import Subject
from privgate.training import ledger, worker
from privgate.training.fleet import Fleet
from privgate.training.payload import Opened, Payload
from privgate.training.task_limits import Clock, OutOfTimeError, TaskLimits

#: trainings of one observation: a seed that stands in the code is that of both
RERUNS = 2
#: attributes of a network's parameters in which Opacus keeps gradients of single records while it trains
_RECORD_GRADIENTS = ("grad_sample", "summed_grad", "_norm_sample")


def observe(subject: Subject, fleet: Fleet) -> Observation:
    """Return what the recipe did without a seed, on its own training data, in a process of its own."""
    seen = fleet.train_apart(subject, watch_trainings, runs=RERUNS)
    if isinstance(seen, dict) and "fault" in seen:
        # the gate's own code failed, which says nothing of the training
        raise RuntimeError(f"watching the training failed: {seen['fault']}")
    try:
        return Observation.model_validate(seen)
    except (TypeError, ValueError, KeyError):  # no answer, or one that the training's code forged
        return Observation(problem="the worker process died while the training was observed")


def read_or_observe(subject: Subject, fleet: Fleet) -> Observation:
    """Return the ledger's observation of the same recipe, data, libraries and watching code, else a new one.

    The ledger keeps no observation that has a problem. New trainings count among the fleet's calls.
    """
    name = _name_observation(subject, fleet)
    if (stored := fleet.ledger.read(name)) is not None:
        fleet.recalled += 1
        return Observation.model_validate_json(stored)
    seen = observe(subject, fleet)
    fleet.calls += seen.runs
    if not seen.problem:
        fleet.ledger.write(name, json.dumps(seen.payload()).encode())
    return seen


def is_known(subject: Subject, fleet: Fleet) -> bool:
    """Return whether ``read_or_observe`` needs no training."""
    return fleet.ledger.read(_name_observation(subject, fleet)) is not None


def _name_observation(subject: Subject, fleet: Fleet) -> str:
    # other code, or another library, may see something else
    return ledger.name_answer(fleet.context(subject), b"observed:" + ledger.digest_package())


def watch_trainings(shipped: Payload, limits: TaskLimits) -> dict[str, Any]:
    """Return, in the worker, the payload of an ``Observation``, or as ``fault`` an error of the gate's own code."""
    try:
        opened = Opened(shipped)
    except BaseException as exc:  # noqa: BLE001  the user's code is loaded here; what it raises becomes a sentence
        return Observation(problem=worker.sentence("loading the recipe", exc)).payload()
    watches, models = list[Watch](), list[Any]()
    while len(watches) < RERUNS:
        with Watch() as watch:
            model, problem = _train(opened, limits)
        if watch.faults:
            return {"fault": watch.faults[0]}
        if problem:
            return Observation(problem=problem).payload()
        watches.append(watch)
        models.append(model)
    mark_fixed_seeds(watches[0], watches[1])
    leftovers = "rerun" if has_leftovers(models[0]) else ""
    if (opened.root / "model.pkl").is_file() and has_leftovers(opened.model):
        leftovers = "stored"
    return summarize_trainings(watches, opened.n, leftovers).payload()


def mark_fixed_seeds(watch: Watch, other: Watch) -> None:
    """Count noise and batches whose seed two reruns share as no secret: whoever reads the code knows that seed."""
    for step in watch.noised_steps:
        step.secret &= step.seed is None or step.seed not in {s.seed for s in other.noised_steps}
    for drawn in watch.samplers:
        if drawn.kind == "poisson" and drawn.seed in {d.seed for d in other.samplers}:
            drawn.kind = "unknown"


def _train(opened: Opened, limits: TaskLimits) -> tuple[Any, str]:
    """Return the model that the recipe trains, and an empty text, or else None and the problem."""
    X, y = take(opened.X, np.arange(opened.n, dtype=np.int64)), opened.y[: opened.n].copy()
    # random seeds: where ``is_guessable`` finds a small one, the training itself has set it
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


def has_leftovers(model: Any) -> bool:
    """Return whether a network within ``model`` still carries gradients or activations of single records."""
    torch: Any = sys.modules.get("torch")
    todo, visited = [model] if torch else [], set[int]()
    while todo:
        value = todo.pop()
        if id(value) in visited or isinstance(value, type):
            continue
        visited.add(id(value))
        if isinstance(value, torch.nn.Module):
            if any(getattr(p, name, None) is not None for p in value.parameters() for name in _RECORD_GRADIENTS):
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


def summarize_trainings(watches: list[Watch], records: int, leftovers: str) -> Observation:
    """Return the first watched training as an observation; of the others only how many records they drew from."""
    watch, runs = watches[0], len(watches)
    steps = watch.noised_steps
    if watch.spends and not steps:
        return Observation(
            library="diffprivlib", runs=runs, records=records, steps=watch.releases + watch.updates,
            noiseless_steps=watch.noiseless_releases + watch.updates, spends=tuple(watch.spends),
            hazards=tuple(watch.hazards),
        )  # fmt: skip
    if watch.spends or not steps:
        plain = f", but {watch.updates} plain updates of a model" if watch.updates else ""
        problem = f"no library of differential privacy was seen at work in the rerun{plain}"
        if watch.spends:
            problem = "two libraries of differential privacy were at work; their guarantees are not composed here"
        return Observation(runs=runs, records=records, problem=problem)
    batches, secret_steps = watch.used_batches, [s for s in steps if s.secret]
    numbers = sum(s.numbers for s in secret_steps)
    noise_share = math.sqrt(sum(s.squares for s in secret_steps) / numbers) if numbers else math.nan
    error = 1 / math.sqrt(2 * numbers) if numbers else math.nan
    batches_per_step = max(s.batches for s in steps)
    # one release of the sum of k batches is post-processing of k releases with 1/√k of its noise each
    stated = min(s.stated_multiplier for s in steps) / math.sqrt(batches_per_step)
    updates = max(watch.updates, len(steps))
    return Observation(
        library="opacus", runs=runs, records=records,
        steps=updates * batches_per_step if batches.kind == "poisson" else updates,
        noise_multiplier=stated * (noise_share if noise_share < 1 - ERRORS * error else 1.0) if numbers else 0.0,
        noise_stated=stated, noise_share=noise_share, noise_error=error, noiseless_steps=updates - len(secret_steps),
        max_grad_norm=max(s.clipping_norm for s in steps), sampling=batches.kind, sample_rate=batches.rate,
        passes=batches.passes if batches.kind == "shuffled" else 0,
        populations=tuple(w.used_batches.records for w in watches), leftovers=leftovers,
        problem="; ".join(dict.fromkeys(watch.unaccounted)),
    )  # fmt: skip
