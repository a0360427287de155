"""Rerun a recipe in a worker process and record what its differential-privacy library really does."""

import hashlib
import inspect
import json
import math
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.evidence import Observation
from privgate.privacy_claims import watch_coupled, watch_replay
from privgate.privacy_claims.watch_sampling import Used, as_sets, is_again
from privgate.privacy_claims.watch_transcript import reseed, states
from privgate.subject.containers import take
from privgate.subject.own_modules import States
from privgate.subject.subject import Subject
from privgate.training import ledger, payload, worker
from privgate.training.fleet import Fleet
from privgate.training.isolation import apart
from privgate.training.payload import Opened, Payload
from privgate.training.task_limits import Clock, OutOfTimeError, TaskLimits

#: one rerun shows the parameters, a second one shows noise that repeats
RUNS = 2
#: reruns to the end in all; those on other records show what else they reach
RERUNS = RUNS + watch_replay.REPLAYS
#: records at which two reruns are compared
COMPARED = 64


def observe(subject: Subject, limits: TaskLimits, *, runs: int = RUNS, isolate: str = "auto") -> Observation:
    """Return what the recipe was seen to do in ``runs`` reruns without a seed, on its own training data.

    The reruns happen in a process of their own, scrubbed and limited as every worker is; whatever happens there, the
    observation says what.

    Parameters
    ----------
    subject : Subject
    limits : TaskLimits
        Time for one rerun and memory.
    runs : int
        At least 2: noise from a fixed seed shows only when it comes again. Where Opacus is at work, as many as
        ``watch_replay`` needs follow on other records.
    isolate : {"auto", "bubblewrap", "none"}
        See ``training.isolation.of``.
    """
    with tempfile.TemporaryDirectory(prefix="privgate-observe-") as folder:
        place = Path(folder, "shown")
        shipped = payload.write(subject, place / "subject")
        found = apart(
            watched,
            shipped,
            runs,
            limits,
            subject.data.units.owner,
            limits=limits,
            runs=runs + watch_replay.REPLAYS,
            way=isolate,
            logs=Path(folder),
        )
    try:
        return Observation.from_payload(found)
    except (TypeError, ValueError, KeyError):  # no answer, or one that no worker of ours gives
        return Observation(problem="the worker process died while the training was observed")


def remembered(subject: Subject, fleet: Fleet) -> Observation:
    """Return what ``observe`` sees, or saw when it was last asked about the same recipe, data, libraries and watchers.

    What could not be observed is tried again every time. Reruns that are made count among the fleet's calls.
    """
    name = _name(subject, fleet)
    if (known := fleet.ledger.read(name)) is not None:
        fleet.recalled += 1
        return Observation.from_payload(json.loads(known))
    seen = observe(subject, fleet.limits, isolate=fleet.isolate)
    fleet.calls += seen.runs + seen.replays
    if not seen.problem:
        fleet.ledger.write(name, json.dumps(seen.payload()).encode())
    return seen


def is_remembered(subject: Subject, fleet: Fleet) -> bool:
    """Return whether ``remembered`` needs no rerun."""
    return fleet.ledger.holds(_name(subject, fleet))


def _name(subject: Subject, fleet: Fleet) -> str:
    return ledger.name_answer(fleet.context(subject), b"observed:" + _watchers())


@cache
def _watchers() -> bytes:
    """Return a digest of the code that watches: other eyes may see something else."""
    here = Path(__file__).parent
    others = (Path(inspect.getfile(kind)) for kind in (Observation, States))
    files = sorted((*here.glob("watch_*.py"), here / "observe.py", *others))
    return digest.of_bytes(*(f.read_bytes() for f in files)).encode()


def watched(shipped: Payload, runs: int, limits: TaskLimits, units: NDArray[np.int64] | None = None) -> dict[str, Any]:
    """Return the payload of an ``Observation``; runs in the worker."""
    try:
        opened = Opened(shipped)
        opened.prepared["modules"] = States.now(opened.recipe)
        with Clock(limits.seconds) as clock:
            seen = []
            for number in range(runs):
                with clock.call():
                    seen.append(_run(opened, record=number == 0))
            found = summary(seen, opened.n)
            if _worth_replaying(found):
                found = (_replayed if found.library == "opacus" else _entered)(found, opened, seen[0], clock, units)
    except OutOfTimeError:
        return Observation(problem=f"the observed rerun did not end within {limits.seconds:g} s").payload()
    except BaseException as exc:  # noqa: BLE001  the user's code runs here; what it raises becomes a sentence
        return Observation(problem=worker.sentence("the observed rerun", exc)).payload()
    return found.payload()


def _worth_replaying(seen: Observation) -> bool:
    return not seen.problem and not seen.broken


def _secret(opened: Opened) -> bool:
    """Whether the claim keeps the number of records secret."""
    claim = opened.recipe.payload["dp"]
    return claim is not None and claim["adjacency"] == "add_remove"


def _entered(
    seen: Observation, opened: Opened, first: dict[str, Any], clock: Clock, units: NDArray[np.int64] | None
) -> Observation:
    """Return the observation of a budget accountant with what neighbours show."""
    from privgate.privacy_claims.watch_noise import BudgetWatch
    from privgate.privacy_claims.watch_transcript import restore

    rows = np.arange(opened.n, dtype=np.int64)
    own_X, own_y = take(opened.X, rows), opened.y[rows]

    def train(X: Any, y: NDArray[Any], **options: Any) -> tuple[Any, dict[str, str]]:
        opened.prepared["modules"].restore()  # a rerun would read what the first training kept in them
        with clock.call(), BudgetWatch(**options) as watch:
            restore(first["start"])
            model = opened.recipe.train(X, y.copy(), seed=None)
        return watch, _released(opened, model, own_X)

    people = rows if units is None else units
    held = (first["diffprivlib"], first["leaves"])
    others = (made for _, made in watch_replay.other_data(own_X, own_y, people, np.random.default_rng(0)))
    seen = replace(seen, rows=int(np.bincount(people).max()))  # what one record changes is converted to a person's
    return watch_coupled.entered(seen, held, train, (own_X, own_y), others, secret=_secret(opened))


def _replayed(
    seen: Observation, opened: Opened, first: dict[str, Any], clock: Clock, units: NDArray[np.int64] | None
) -> Observation:
    """Return the observation with what reruns on other records show."""
    from privgate.privacy_claims.watch_opacus import OpacusWatch
    from privgate.privacy_claims.watch_transcript import EnoughError, restore

    rows = np.arange(opened.n, dtype=np.int64)
    own_X, own_y = take(opened.X, rows), opened.y[rows]

    def train(X: Any, y: NDArray[Any], **options: Any) -> tuple[Any, dict[str, str]]:
        opened.prepared["modules"].restore()
        with clock.call(), OpacusWatch(**options) as watch:
            try:
                restore(options["replay"].start)
                model = opened.recipe.train(X, y.copy(), seed=None)
            except EnoughError:
                return watch, {}
            watch.finish()
        return watch, _released(opened, model, own_X)

    replays = watch_replay.Replays(
        watch_replay.First(first["opacus"], first["leaves"], first["transcript"]),
        train,
        own_X,
        own_y,
        rows if units is None else units,
        secret=_secret(opened),
    )
    return watch_replay.checked(seen, replays)


def _released(opened: Opened, model: Any, X: Any) -> dict[str, str]:
    """Return all that a trained object carries, and what it answers to fixed questions."""
    from privgate.privacy_claims.watch_opacus import OpacusWatch
    from privgate.privacy_claims.watch_transcript import leaves

    shown = _answers(opened, model, X)
    # the accountant of all estimators that were given none counts what others spent
    ours = (OpacusWatch, *(m.BudgetAccountant for m in (sys.modules.get("diffprivlib"),) if m is not None))
    return {**leaves(model, skip=ours), ".answers": hashlib.sha256(shown.tobytes()).hexdigest()}


def _answers(opened: Opened, model: Any, X: Any) -> NDArray[np.float64]:
    """Return what a model answers to the first records: probabilities, or a regressor's numbers."""
    asked = take(X, np.arange(min(COMPARED, opened.n)))
    if opened.recipe.task == "regression":
        return opened.recipe.predictions(model, asked)
    return opened.recipe.probabilities(model, asked, opened.classes)


def _run(opened: Opened, *, record: bool) -> dict[str, Any]:
    """Train once under all watches that are installed."""
    from privgate.privacy_claims.watch_noise import BudgetWatch

    found: dict[str, Any] = {}
    rows = np.arange(opened.n, dtype=np.int64)
    X = take(opened.X, rows)
    with suppress(ImportError):
        import torch  # noqa: F401  its generator is seeded where it is there
    reseed()
    opened.prepared["modules"].restore()
    with ExitStack() as stack:
        # a library that cannot be imported beside the others cannot be at work either
        with suppress(ImportError):
            import opacus  # noqa: F401  only whether it is there

            from privgate.privacy_claims.watch_opacus import OpacusWatch
            from privgate.privacy_claims.watch_transcript import Transcript

            found["transcript"] = Transcript() if record else None
            found["opacus"] = stack.enter_context(OpacusWatch(record=found["transcript"]))
        with suppress(ImportError):
            found["diffprivlib"] = stack.enter_context(BudgetWatch())
        found["start"] = states()
        model = opened.recipe.train(X, opened.y[rows].copy(), seed=None)
        if "opacus" in found:
            found["opacus"].finish()
    shown = _answers(opened, model, X)
    found["model"] = hashlib.sha256(np.ascontiguousarray(shown).tobytes()).hexdigest()
    if record and "diffprivlib" in found and found["diffprivlib"].spends:
        found["leaves"] = _released(opened, model, X)
    elif record and "opacus" in found and found["opacus"].steps:
        from privgate.privacy_claims.watch_transcript import leftovers

        found["leaves"] = _released(opened, model, X)
        found["leftovers"] = "rerun" if leftovers(model) else ""
        if (opened.root / "model.pkl").is_file():
            found["leftovers"] = "stored" if leftovers(opened.model) else ""
    return found


def summary(seen: list[dict[str, Any]], records: int) -> Observation:
    """Return the worst of several watched runs as one observation."""
    same = len(seen) > 1 and len({run["model"] for run in seen}) == 1
    opacus = [run["opacus"] for run in seen if "opacus" in run]
    budgets = [run["diffprivlib"] for run in seen if "diffprivlib" in run]
    steps, spends = any(w.steps for w in opacus), any(w.spends for w in budgets)
    if steps and spends:
        text = "two libraries of differential privacy were at work; their guarantees are not composed here"
        return Observation(runs=len(seen), records=records, problem=text)
    if spends:
        worst = max(budgets, key=lambda w: sum(e for e, _ in w.spends))
        return Observation(
            library="diffprivlib",
            runs=len(seen),
            records=records,
            steps=len(worst.spends),
            spends=tuple(worst.spends),
            hazards=tuple(dict.fromkeys(h for w in budgets for h in w.hazards)),
            bypassed_updates=max((w.bypassed + len(w.plain) for w in opacus), default=0),
            same_model_twice=same,
        )
    if not steps:
        bypassed = max((w.bypassed + len(w.plain) for w in opacus), default=0)
        text = "no library of differential privacy was seen at work in the rerun"
        if bypassed:
            text += f", but {bypassed} plain updates of a model"
        return Observation(runs=len(seen), records=records, bypassed_updates=bypassed, problem=text)
    leftovers = next((run["leftovers"] for run in seen if "leftovers" in run), "")
    return _of_opacus(opacus, records, same=same, leftovers=leftovers)


def _same_batches(sampled: list[Used]) -> bool:
    """Whether two runs drew the same Poisson batches, by more than accident: who is in which is known."""
    drawn = [(as_sets(s.entries or []), s.records, s.rate) for s in sampled if s.kind == "poisson"]
    return any(is_again(one, *other) for (one, *_), other in combinations(drawn, 2))


def _of_opacus(watches: list[Any], records: int, *, same: bool, leftovers: str) -> Observation:
    from privgate.privacy_claims.watch_noise import repeats

    sampled = [w.sampling(records) for w in watches]
    kinds = {"unknown" if _same_batches(sampled) else s.kind for s in sampled}
    unknown = tuple(dict.fromkeys(text for w in watches for text in (*w.unknown, w.doubt) if text))
    return Observation(
        library="opacus",
        runs=len(watches),
        records=records,
        steps=max(s.steps for s in sampled),
        # one release of the sum of k batches is post-processing of k releases with 1/√k of its noise each
        noise_multiplier=min((w.noise_multiplier for w in watches), default=math.nan)
        / math.sqrt(max(s.together for s in sampled)),
        noiseless_steps=max(sum(s.zero for s in w.steps) for w in watches),
        max_grad_norm=max(s.norm for w in watches for s in w.steps),
        unclipped_steps=max(sum(not s.clipped for s in w.steps) for w in watches),
        sampling=kinds.pop() if len(kinds) == 1 else "unknown",
        sample_rate=max(s.rate for s in sampled),
        passes=max(s.passes for s in sampled),
        bypassed_updates=max(w.bypassed for w in watches),
        noise_repeats=repeats([[s.noise for s in w.steps] for w in watches]),
        noise_defect=next((w.defect for w in watches if w.defect), ""),
        by_number=watch_coupled.NOBODY_LEFT,
        same_model_twice=same,
        leftovers=leftovers,
        problem="; ".join(unknown),
    )
