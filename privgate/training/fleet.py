"""The fleet: runs calls of the training function in worker processes, each once, and remembers the answers."""

import contextlib
import hashlib
import math
import os
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.random import Generator

from privgate import digest
from privgate.arrays import Index
from privgate.errors import UsageError
from privgate.subject.subject import Subject
from privgate.training import isolation, payload
from privgate.training import ledger as ledgers
from privgate.training.clusters import DaskPool
from privgate.training.fit import Answer, Fit
from privgate.training.ledger import Ledger
from privgate.training.payload import Payload
from privgate.training.pools import Batch, Pool
from privgate.training.sandbox.workers import SandboxPool, find_plain_server
from privgate.training.task_limits import TaskLimits
from privgate.training.worker import WorkerSettings

Progress = Callable[[int, int, float], None]

_SPOOL = "privgate-fleet-"


class Fleet:
    """A remembering map over calls of the training function.

    Parameters
    ----------
    jobs : int, optional
        Worker processes on this machine; one a core if absent.
    ledger : str, Path or Ledger, optional
        Where answers are kept; ``"none"`` forgets them with the process.
    progress : callable, optional
        ``progress(done, total, seconds_left)``, about ten times a second; seconds are NaN at first.
    time_limit : float
        Seconds for one call of the training function.
    memory_limit : int, optional
        Bytes of private memory for one worker; an even share of the machine's if absent.
    cluster : str or dask Client, optional
        ``tcp://…`` of a Dask scheduler, or a Client; its workers run as whoever started them.
    isolate : {"auto", "bubblewrap", "none"}
        Whether training code runs in a sandbox: where one can be made, always, or never.
    signable : bool
        The run is to be signed: nobody without the ledger's key can foretell what it asks.
    network : bool
        Whether a recipe that declares that it needs the network gets it in a sandbox.
    """

    def __init__(  # noqa: PLR0917  the order is part of the interface
        self,
        jobs: int | None = None,
        ledger: str | Path | Ledger | None = None,
        progress: Progress | None = None,
        time_limit: float = 3600.0,
        memory_limit: int | None = None,
        cluster: Any = None,
        *,
        isolate: str = "auto",
        signable: bool = False,
        network: bool = True,
    ) -> None:
        if jobs is not None and jobs < 1:
            raise UsageError(f"jobs must be at least 1, not {jobs}")
        if not 0 < time_limit < math.inf:
            raise UsageError(f"the time limit must be seconds above 0, and finite, not {time_limit!r}")
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.isolate, self.signable, self.network, self.cluster = isolate, signable, network, cluster
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        if memory_limit is None:
            memory_limit = int(0.9 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / self.jobs)
        self.limits = TaskLimits(time_limit, memory_limit)
        #: calls of the training function really made, in this process's lifetime; remembered answers do not count
        self.calls = 0
        #: answers that other runs have trained
        self.recalled = 0
        #: what is being done, for whoever draws the progress
        self.activity = ""
        #: what the user's code printed, one file a worker; for the engineer, never part of a report
        self.logs = ledgers.cache_folder() / "logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{id(self):x}"
        #: tells whoever draws the progress
        self.report: Progress = progress or (lambda _done, _total, _seconds: None)
        self._pool: Pool | None = None
        _sweep()
        self._spool = Path(tempfile.mkdtemp(prefix=f"{_SPOOL}{os.getpid()}-"))
        #: what workers know of their surroundings beside what this process lets them
        self._environ: dict[str, str] = {}
        self._payloads: dict[str, Payload] = {}
        self._contexts: dict[int, tuple[Subject, bytes]] = {}
        #: names of what this process has trained
        self._trained: set[str] = set()
        #: what no file holds: failed trainings, which this run does not try again, and answers of the stored model
        self._held: dict[str, Answer] = {}
        weakref.finalize(self, _tidy, self._spool, self.logs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        """Start what workers without a sandbox are forked from, which imports beside what this process does next."""
        if self.cluster is None and self.isolation == isolation.NONE:
            find_plain_server()

    def names(self, subject: Subject, fits: Sequence[Fit]) -> list[str]:
        """Return the name in the ledger of every fit's answer."""
        own = self.context(subject)
        return [ledgers.name_answer(own, f.encoding) for f in fits]

    def context(self, subject: Subject) -> bytes:
        """Return the digest of what every answer about a subject depends on, the sandbox among it."""
        if id(subject) not in self._contexts:
            sandboxed = self.isolation != isolation.NONE
            sandbox = "none" if not sandboxed else isolation.NETWORKED if self._networked(subject) else "sandbox"
            self._contexts[id(subject)] = (subject, ledgers.digest_subject(subject, sandbox))
        return self._contexts[id(subject)][1]

    def drawn(self, subject: Subject, purpose: str) -> Generator:
        """Return randomness that nobody without the ledger's key can foretell, and that a run with it repeats."""
        return digest.generator(self.ledger.drawn(purpose.encode(), self.context(subject)).hex(), digits=64)

    def fits(self, subject: Subject, fits: Sequence[Fit], *, label: str = "retraining") -> list[Answer]:
        """Return one answer a fit, in order; a failed one carries its problem, nothing is dropped.

        What is remembered is not trained again. An interruption costs at most one chunk a worker.
        """
        self.activity, names = label, self.names(subject, fits)
        different = dict(zip(names, fits, strict=True))
        answers = {name: known for name in different if (known := self._recall(name)) is not None}
        if calls := [(name, fit) for name, fit in different.items() if name not in answers]:
            try:
                answers |= Batch(self.pool, self._ship(subject), calls, self._remember, self.report).run()
            except BaseException:
                self._stop()  # Ctrl-C above all: what came back is kept, workers do not outlive the question
                raise
        return [answers[name] for name in names]

    def read_models(
        self, subject: Subject, seed: int | None, left_out: Sequence[Index], reads: tuple[str, int]
    ) -> list[Answer]:
        """Return what of ours reads off the models without some rows each, behind one row of answers."""
        first = np.zeros(1, dtype=np.int64)
        return self.fits(subject, [Fit(seed, first, rows, reads=reads) for rows in left_out], label="reading models")

    def alone(self, subject: Subject, fit: Fit) -> Answer | None:
        """Return what a training answers in a process, and with files, of its own; None on a cluster."""
        if self.cluster is not None:
            return None
        name = ledgers.name_answer(self.context(subject), b"alone" + fit.encoding)
        if (known := self._recall(name)) is not None:
            return known
        most = self.limits
        with Fleet(1, "none", None, most.seconds, most.memory, isolate=self.isolate, network=self.network) as fresh:
            fresh._environ["TMPDIR"] = str(fresh._spool)  # what others left in files is elsewhere
            return self._remember(name, fresh.fits(subject, [fit])[0])

    def _recall(self, name: str) -> Answer | None:
        if name in self._held:
            return self._held[name]
        body = self.ledger.read(name)
        self.recalled += body is not None and name not in self._trained
        return None if body is None else ledgers.decode(body)

    def _remember(self, name: str, answer: Answer) -> Answer:
        """Write what was trained now; a failed one is held for this run, unless the machine may have been the cause."""
        self.calls += 1
        self._trained.add(name)
        if not answer.problem:
            self.ledger.write(name, ledgers.encode(answer))
        elif answer.lasting:
            self._held[name] = answer
        return answer

    def registered(self, subject: Subject, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's probabilities on pool rows; or what MLflow serves, if that is a way of asking.

        It is opened in a worker, once in each run: what is served depends on libraries that no recipe names.
        """
        kind = f"registered {served} {subject.digests.get('model')}:".encode()
        name = ledgers.name_answer(self.context(subject), kind + rows.tobytes())
        if name in self._held:
            return self._held[name]
        answer = self.pool.registered(self._ship(subject), rows, served=served)
        noisy = served and subject.release.noise is not None  # fresh noise is another answer each time
        if "model" in subject.digests and not noisy and not answer.problem:
            self._held[name] = answer
        return answer

    def examined(self, subject: Subject, by: str, *given: Any) -> dict[str, Any]:
        """Return what ``module:function`` says of the model, opened in a worker, or ``{"problem": sentence}``."""
        self.activity = "opening the model"
        said = self.pool.examined(self._ship(subject), by, *given)
        return said if isinstance(said, dict) else {"problem": "the worker process died while it opened the model"}

    def compute(self, subject: Subject, function: Callable[..., Any], *given: Any) -> Any:
        """Return the JSON value that a function of ours makes, if one can, in a worker that has met nobody's code."""
        if self.cluster is not None:  # whose workers have met it; nor do a million records go anywhere for this
            settings, libraries = WorkerSettings(memory=self.limits.memory), (function.__module__, "sklearn.ensemble")
            own = find_plain_server().start_worker(settings, libraries, guest=False)
            said = own.ask_last(function, *given, seconds=self.limits.seconds)
        else:
            said = cast("SandboxPool", self.pool).compute(self._ship(subject), function, *given)
        return function(*given) if said is None else said

    def train_apart(self, subject: Subject, function: Callable[..., Any], *, runs: int) -> Any:
        """Return the JSON value that a function of ours makes of a subject, in a process of its own on this machine.

        It trains so often, and without the network. None where the process died, hung or lied.
        """
        most = self.limits
        with Fleet(1, "none", None, most.seconds, most.memory, isolate=self.isolate, network=False) as fresh:
            return cast("SandboxPool", fresh.pool).train_apart(fresh._ship(subject), function, runs=runs)

    def close_model(self) -> None:
        """Free the memory of the stored model, which is opened anew where it is asked again."""
        if isinstance(self._pool, SandboxPool):
            self._pool.close_model()

    @property
    def pool(self) -> Pool:
        """The worker processes, started when first needed."""
        if self._pool is None and self.cluster is not None:
            self._pool = DaskPool(self.cluster, self.limits)
        elif self._pool is None:
            settings = None
            if self.isolation == isolation.NONE:
                settings = WorkerSettings(str(self.logs), self.limits.memory, folder=str(self._spool / "work"))
                settings = replace(settings, environ={**settings.environ, **self._environ}, path=tuple(sys.path))
            self.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._pool = SandboxPool(self.jobs, self.limits, self.logs, settings)
        return self._pool

    @cached_property
    def isolation(self) -> str:
        """What stands between training code and this host; ``UsageError`` where a demanded box cannot be made."""
        return isolation.choose_isolation(self.isolate, cluster=self.cluster is not None)

    def isolation_of(self, subject: Subject) -> str:
        """Return what stands between a subject's code and this host: ``isolation``, and whether it has the network."""
        networked = self.isolation != isolation.NONE and self._networked(subject)
        return f"{self.isolation} {isolation.NETWORKED}" if networked else self.isolation

    def _networked(self, subject: Subject) -> bool:
        """Whether training may use the network; code of scikit-learn and ours alone has no need of it."""
        return self.network and subject.recipe.network and bool(payload.code_of(subject))

    @property
    def workers(self) -> int:
        """Calls that can run at the same time; connects to the cluster if there is one."""
        return self.jobs if self.cluster is None else self.pool.slots

    def _ship(self, subject: Subject) -> Payload:
        model = "" if subject.model is None else str(subject.digests.get("model", id(subject.model)))
        name = self.context(subject).hex() + model
        if name not in self._payloads:
            # a box sees what belongs to one recipe's code, nothing of another's
            code = hashlib.sha256(payload.code_of(subject).encode()).hexdigest()[:16]
            shipped = payload.write(subject, self._spool / code / str(len(self._payloads)))
            payload.readable(self._spool / code)
            self._payloads[name] = replace(
                shipped, libraries=ledgers.libraries_of(subject), network=self._networked(subject), model=model
            )
        return self._payloads[name]

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = None

    def close(self) -> None:
        """End the workers, and delete the copies of the data that they used."""
        self._stop()
        _tidy(self._spool, self.logs)


def _tidy(spool: Path, logs: Path) -> None:
    """Delete the copies of the data that workers used, and logs that say nothing."""
    shutil.rmtree(spool, ignore_errors=True)
    for path in logs.glob("*"):
        if not path.stat().st_size:
            path.unlink()
    with contextlib.suppress(OSError):  # it holds something, or never was
        logs.rmdir()


def _sweep() -> None:
    """Delete copies of data that killed runs of this user left behind."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SPOOL}*"):
        try:
            os.kill(int(path.name.removeprefix(_SPOOL).partition("-")[0]), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except (ValueError, PermissionError):
            continue
