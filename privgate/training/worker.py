"""What happens inside a worker process: the only place where a recipe's code and a stored model are loaded."""

import gc
import importlib
import os
import re
import signal
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.errors import SubjectError, UsageError
from privgate.subject.containers import scale_of, take
from privgate.training import ledger, task_limits
from privgate.training.fit import Answer, Fit, failed, select
from privgate.training.payload import Opened, Payload
from privgate.training.task_limits import Clock, OutOfTimeError, TaskLimits, limit_memory

#: least time for importing what a recipe needs
LOADING_SECONDS = 120.0

_PRIVGATE = str(Path(__file__).resolve().parents[1])
#: files that are not the owner's: Python's, installed ones, ours, and what C code names by a relative path
_LIBRARIES = re.compile(
    rf"^[^/<]|^<(?!dynamic-code)|/(?:site|dist)-packages/|^(?:{re.escape(sysconfig.get_path('stdlib'))}|"
    rf"{re.escape(_PRIVGATE)})/"
)

_OPENED: dict[str, Opened] = {}
#: limits, captured output and the environment belong to the process, so it trains one model at a time
_ONE_AT_A_TIME = threading.Lock()
_OWN = False


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker process of ours is set up."""

    #: folder for what the user's code prints; empty to leave it
    logs: str = ""
    #: bytes; 0 for no limit
    memory: int = 0
    #: what it knows of that process's environment
    environ: Mapping[str, str] = field(default_factory=lambda: task_limits.of_worker(os.environ))
    #: where it makes an empty folder to work in, because libraries leave files there; empty to stay where it began
    folder: str = ""
    #: where it looks for modules; empty to look where it began
    path: tuple[str, ...] = ()


def start(settings: WorkerSettings) -> None:
    """Set up a worker process that is ours alone, before anything of the user's is loaded."""
    global _OWN  # noqa: PLW0603  the process is the state
    _OWN = True
    task_limits.watch_files()
    task_limits.scrub(settings.environ)
    tempfile.tempdir = None  # of where this process began
    time.tzset()
    np.random.seed()  # noqa: NPY002  forked workers begin with one state of the stream that a recipe may draw from
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it ends its workers
    limit_memory(settings.memory)
    if settings.logs:
        log = os.open(Path(settings.logs, f"worker-{os.getpid()}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for standard in (1, 2):
            os.dup2(log, standard)
    if settings.folder:
        sys.path[:] = [os.path.abspath(entry) for entry in settings.path or sys.path]  # noqa: PTH100  entries stay text
        Path(settings.folder).mkdir(exist_ok=True)
        os.chdir(tempfile.mkdtemp(dir=settings.folder))


def run_chunk(payload: Payload, fits: Sequence[Fit], limits: TaskLimits) -> list[Answer]:
    """Return one answer a fit, in order; whatever the user's code does, an answer says what."""
    with _guest(payload, limits) as clock:
        try:
            opened = _open(payload, limits, clock)
        except UsageError:
            raise
        except BaseException as exc:  # noqa: BLE001  the user's modules run here; what they raise becomes a sentence
            return [failed(sentence("loading the recipe", exc))] * len(fits)
        return [_answer(opened, fit, limits, clock) for fit in fits]


def registered(payload: Payload, queries: Index, limits: TaskLimits, *, served: str = "") -> Answer:
    """Return the stored model's log-probabilities on pool rows; what MLflow serves if ``served`` is a way of asking."""
    with _guest(payload, limits) as clock:
        started = time.perf_counter()
        try:
            opened = _open(payload, limits, clock)
            with clock.call():
                log_p = _served(opened, queries, served) if served else _evaluate(opened, opened.model, queries)
        except OutOfTimeError:
            return failed(f"the registered model did not answer within {limits.seconds:g} s")
        except BaseException as exc:  # noqa: BLE001  stored code runs here
            what = "the served model" if served else "the registered model"
            # a refusal, as of missing values, leaves the process as it was; nobody knows what anything else leaves
            return failed(sentence(what, exc), lasting=isinstance(exc, SubjectError | ValueError | TypeError))
        return Answer(log_p, seconds=time.perf_counter() - started)


def examined(payload: Payload, limits: TaskLimits, by: str, *given: Any) -> dict[str, Any]:
    """Return what ``module:function`` of ours says of the opened model as JSON, or ``{"problem": sentence}``."""
    with _guest(payload, limits) as clock:
        try:
            opened = _open(payload, limits, clock)
            with clock.call():
                return dict(_call_own(by, opened, *given))
        except BaseException as exc:  # noqa: BLE001  stored code runs here
            return {"problem": sentence("opening the model", exc)}


def _call_own(by: str, *given: Any) -> Any:
    """Return what ``module:function`` of ours says; by name, because it stands above."""
    module, _, name = by.partition(":")
    return getattr(importlib.import_module(module), name)(*given)


@contextmanager
def _guest(payload: Payload, limits: TaskLimits) -> Iterator[Clock]:
    """Limit what is called within; a process that is somebody else's is scrubbed, too, for so long.

    ``UsageError``: a worker of a cluster has other libraries than the answers are filed under.
    """
    from joblib import parallel_config

    wrong = [] if payload.packed is None or payload.digest in _OPENED else ledger.other_versions(payload.libraries)
    if wrong:
        raise UsageError(f"a worker of the cluster has other libraries: {', '.join(wrong)}; install the same")
    with ExitStack() as around:
        around.enter_context(_ONE_AT_A_TIME)
        if not _OWN:
            from threadpoolctl import threadpool_limits

            around.enter_context(task_limits.scrubbed())
            around.enter_context(threadpool_limits(1))
        around.enter_context(parallel_config(backend="sequential"))  # n_jobs=-1 starts no processes
        yield around.enter_context(Clock(limits.seconds))


def _open(payload: Payload, limits: TaskLimits, clock: Clock) -> Opened:
    """Return an opened payload; imports of large libraries are no part of any training."""
    with clock.call(max(limits.seconds, LOADING_SECONDS)):
        if payload.digest not in _OPENED:
            known = next((vars(o) for o in _OPENED.values() if o.model_name == payload.model), {})
            _OPENED.clear()  # one subject at a time: data may be large
            gc.collect()
            unpacked = None
            if payload.packed is not None:
                unpacked = tempfile.TemporaryDirectory(prefix="privgate-")
                payload = payload.unpack(Path(unpacked.name))
            opened = Opened(payload)
            opened.folder = unpacked  # deleted with it
            if unpacked is None and payload.model:  # other questions to the same model, which may take long to open
                vars(opened).update({k: v for k, v in known.items() if k in {"stored", "model"}})
            _OPENED[payload.digest] = opened
    return _OPENED[payload.digest]


def _answer(opened: Opened, fit: Fit, limits: TaskLimits, clock: Clock) -> Answer:
    started, what, lasting = time.perf_counter(), "training", False
    try:
        with clock.call():
            chosen = select(opened.X, opened.y, opened.n, opened.classes, fit)
            model = opened.recipe.train(*chosen, seed=fit.seed)
            what = "prediction"
            log_p = _evaluate(opened, model, fit.queries)
            if fit.reads[1]:
                log_p = np.concatenate([log_p, _call_own(fit.reads[0], opened, model, fit.reads[1])])
        return Answer(log_p, time.perf_counter() - started)
    except OutOfTimeError:
        traceback.print_exc()
        problem = f"{what} did not end within {limits.seconds:g} s"
    except MemoryError:
        traceback.print_exc()
        gc.collect()
        size = f"{limits.memory / 2**30:.3g} GiB" if limits.memory else "the machine has"
        problem = f"{what} needs more memory than {size}"
    except BaseException as exc:  # noqa: BLE001  the user's code may raise anything; it becomes a sentence, never a lost unit
        # a full disk or a busy device is the machine's trouble, not the unit's
        problem, lasting = sentence(what, exc), not (isinstance(exc, OSError) or "OutOfMemory" in type(exc).__name__)
    return failed(problem, lasting=lasting, seconds=time.perf_counter() - started)


def _evaluate(opened: Opened, model: Any, queries: Index) -> Float:
    records = take(opened.X, np.asarray(queries, dtype=np.int64))
    if opened.recipe.task == "regression":
        values = opened.recipe.predictions(model, records)
        if len(values) != len(queries):
            raise SubjectError(f"the regressor returned {len(values)} numbers for {len(queries)} records")
        return _in_deviations(opened, values)
    p = opened.recipe.probabilities(model, records, opened.classes)
    if len(p) != len(queries):
        raise SubjectError(f"the model returned {len(p)} rows of probabilities for {len(queries)} records")
    with np.errstate(divide="ignore"):
        return np.log(p)


def _served(opened: Opened, queries: Index, way: str) -> Float:
    records = take(opened.X, np.asarray(queries, dtype=np.int64))
    values: Float = _call_own("privgate.controls.served:ask_served", opened, records, way)
    return _in_deviations(opened, values[:, 0]) if opened.recipe.task == "regression" else values


def _in_deviations(opened: Opened, values: Float) -> Float:
    """Return a regressor's answers about the targets' mean, in their deviations: one tolerance fits all."""
    mean, deviation = scale_of(opened.y[: opened.n])
    return np.asarray((values - mean) / deviation)[:, None]


def sentence(what: str, exc: BaseException) -> str:
    """Return what a report says of an error: class and line of the owner's code.

    The message may quote data, so it stays in the worker's log, below ``privgate/logs`` in the operator's cache folder.
    """
    traceback.print_exception(exc)
    if isinstance(exc, OutOfTimeError):
        return f"{what} did not end within its time limit"
    files = _list_lines(exc)
    if not (isinstance(exc, SubjectError) and (not files or files[-1][0].startswith(_PRIVGATE))):
        return f"{what} raised {_describe(exc)}"
    # a sentence of ours holds no text of the data but what it cites of a cause
    cause = exc.__cause__
    cited = str(exc).replace(str(cause), _describe(cause)) if cause is not None and str(cause) else str(exc)
    return "".join(c for c in cited.strip().partition("\n")[0] if c.isprintable())[:200]


def _describe(exc: BaseException) -> str:
    """Return an error's class, the module that an import lacks, and the last line of the owner's code in it."""
    places = [
        f"line {line} of {'the function' if file.startswith('<') else Path(file).name}; "
        for file, line in _list_lines(exc)
        if not _LIBRARIES.search(file)
    ]
    absent = f" of {exc.name!r}" if isinstance(exc, ImportError) and exc.name else ""
    return f"{type(exc).__name__}{absent} ({''.join(places[-1:])}its message is in privgate's log)"


def _list_lines(exc: BaseException) -> list[tuple[str, int]]:
    return [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(exc.__traceback__)]
