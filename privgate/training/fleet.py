"""The fleet: runs calls of the training function in worker processes, each once, and remembers the answers."""

import hashlib
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from privgate import digest
from privgate.arrays import Index
from privgate.errors import UsageError
from privgate.subject.subject import Subject
from privgate.training import context, isolation, kept, payload, warm
from privgate.training.box import templates
from privgate.training.box.boxes import BoxPool
from privgate.training.context import Freshness, Recalled, same
from privgate.training.fit import Answer, Fit
from privgate.training.ledger import Ledger
from privgate.training.payload import Payload
from privgate.training.pools import Batch, LocalPool, Pool
from privgate.training.storage import LARGE, cache_folder
from privgate.training.task_limits import TaskLimits
from privgate.training.worker import WorkerSettings

Progress = Callable[[int, int, float], None]

_SPOOL = "privgate-fleet-"


class Fleet:
    """A memoised map over calls of the training function.

    Parameters
    ----------
    jobs : int, optional
        Worker processes on this machine; one a core if absent.
    ledger : str, Path or Ledger, optional
        Where answers are kept; see ``storage.place``. ``"none"`` forgets them with the process.
    progress : callable, optional
        ``progress(done, total, seconds_left)``, about ten times a second while training; seconds are NaN at first.
    time_limit : float
        Seconds for one call of the training function.
    memory_limit : int, optional
        Bytes of private memory for one worker; an even share of the machine's if absent.
    cluster : str or dask Client, optional
        ``tcp://…`` of a Dask scheduler, a Client, ``"spark"`` or a Spark master, or the name of a joblib backend.
    isolate : {"auto", "bubblewrap", "none"}
        Whether training code runs in boxes: where they can be made, or else not at all, or never. Workers of a cluster
        run as whoever started them.
    signable : bool
        The run is to be signed: nothing that decides alone rests on what was remembered; see ``freshness``.
    network : bool
        Whether a boxed recipe that declares that it needs the network gets it.
    """

    #: a class's defaults, for fleets that train otherwise
    signable = False
    isolate = "auto"
    _progress: Progress | None = None
    cluster: Any = None
    network = True
    _all_afresh = False

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
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if jobs is not None and jobs < 1:
            raise UsageError(f"jobs must be at least 1, not {jobs}")
        if not time_limit > 0:
            raise UsageError(f"the time limit must be above 0 seconds, not {time_limit!r}")
        self.jobs = jobs or cores
        #: see ``isolation.of``
        self.isolate = isolate
        self.signable = signable
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self.limits = TaskLimits(time_limit, _share(self.jobs) if memory_limit is None else memory_limit)
        self.cluster = cluster
        #: calls of the training function really made, in this process's lifetime; remembered answers do not count
        self.calls = 0
        #: what is being done, for whoever draws the progress
        self.activity = ""
        #: what the user's code printed, one file a worker; for the engineer, never part of a report
        self.logs = cache_folder() / "logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{id(self):x}"
        #: whether a recipe that declares that it needs the network gets it
        self.network = network
        self._progress = progress
        self._pool: Pool | None = None
        _sweep()
        #: what workers know of their surroundings beside what this process lets them
        self.environ: dict[str, str] = {}
        self._spool = Path(tempfile.mkdtemp(prefix=f"{_SPOOL}{os.getpid()}-"))
        self._payloads: dict[str, Payload] = {}
        self._contexts: dict[int, tuple[Subject, bytes]] = {}
        self._trained_on: dict[int, tuple[Subject, bytes]] = {}
        self._end = weakref.finalize(self, _tidy, self._spool, self.logs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        """Start what its workers are forked from, which imports their libraries beside whatever this process does next.

        Raises
        ------
        UsageError
            Boxes are demanded and cannot be made here.
        """
        if self.cluster is None:
            (warm if self.isolation == isolation.NONE else templates).begin()

    def begin_run(self) -> None:
        """Count and doubt as a fleet does that has just been made, and keep the workers."""
        self.calls, self.freshness = 0, Freshness()

    # -- the map ------------------------------------------------------------------------------------------------------

    def keys(self, subject: Subject, fits: Sequence[Fit]) -> list[bytes]:
        """Return the ledger key of every fit."""
        own = self.context(subject)
        return [context.key(own, f.encoding) for f in fits]

    def context(self, subject: Subject) -> bytes:
        """Return the digest of what every answer about a subject depends on."""
        if id(subject) not in self._contexts:
            self._contexts[id(subject)] = (subject, context.of(subject))
        return self._contexts[id(subject)][1]

    def drawn(self, subject: Subject, purpose: str) -> Generator:
        """Return randomness that nobody without the ledger's secret can foretell, and that a run with it repeats."""
        return digest.generator(self.ledger.drawn(purpose.encode(), self.context(subject)).hex(), digits=64)

    def missing(self, subject: Subject, fits: Sequence[Fit]) -> int:
        """Return how many different calls would have to be made now."""
        return len(self.untrained(subject, fits))

    def untrained(self, subject: Subject, fits: Sequence[Fit]) -> list[Fit]:
        """Return the different calls that would have to be made now: no answer is known, and no model that could."""
        different = dict(zip(self.keys(subject, fits), fits, strict=True))
        unknown = ~self.ledger.find(list(different))
        calls = [call for call, wanted in zip(different.values(), unknown, strict=True) if wanted]
        if kept.many(calls):
            return calls
        return [call for call, asks in zip(calls, self._asks(subject, calls), strict=True) if not asks]

    def fits(self, subject: Subject, fits: Sequence[Fit], *, label: str = "retraining") -> list[Answer]:
        """Return one answer a fit, in order; a failed one carries its problem, nothing is dropped.

        What is remembered is not trained again. What is trained is on disk before the next chunk starts. So an
        interruption costs at most one chunk a worker.
        """
        self.activity = label
        keys = self.keys(subject, fits)
        answers = self._known(subject, keys, fits)
        first: dict[bytes, int] = {}
        for i, (key, answer) in enumerate(zip(keys, answers, strict=True)):
            if answer is None:
                first.setdefault(key, i)
        if first:
            fresh = self._train(subject, list(first), [fits[i] for i in first.values()])
            answers = [fresh[k] if a is None else a for k, a in zip(keys, answers, strict=True)]
        return [a for a in answers if a is not None]

    def each(self, subject: Subject, fits: Sequence[Fit], *, label: str = "retraining") -> list[Callable[[], Answer]]:
        """Return what reads each answer of ``fits``: large ones stay in the ledger, of which one at a time is held."""
        self.activity, keys = label, self.keys(subject, fits)
        different, held = dict(zip(keys, fits, strict=True)), dict[bytes, Answer]()
        there = self.ledger.find(list(different)).tolist()
        known = [k for k, found in zip(different, there, strict=True) if found or k in self.freshness.instead]
        doubted = self.signable and (self._all_afresh or self.freshness.noisy)
        if all(8 * f.rows * subject.width < LARGE for f in fits) or (
            doubted and {*known} - self.freshness.fresh.keys()
        ):
            held |= zip(keys, self.fits(subject, fits, label=label), strict=True)
        else:
            held |= {k: _light(a) for k in known if (a := self._known(subject, [k], [different[k]])[0]) is not None}
            if rest := [k for k in different if k not in held]:
                held |= self._train(subject, rest, [different[k] for k in rest], held=_light)

        def read(key: bytes) -> Answer:
            if (answer := held[key]).problem or len(answer.log_p) == different[key].rows:
                return answer
            if (found := self._recall([key])[0]) is None:  # its file was damaged since, or says something else
                found = held[key] = self.fits(subject, [different[key]])[0]
            return found

        return [partial(read, key) for key in keys]

    def alone(self, subject: Subject, fit: Fit) -> Answer | None:
        """Return what a training answers in a process, and with files, of its own; None on a cluster."""
        if self.cluster is not None:
            return None
        most = self.limits
        with Fleet(1, "none", None, most.seconds, most.memory, isolate=self.isolate, network=self.network) as fresh:
            fresh.environ["TMPDIR"] = str(fresh._spool)  # what others left in files is elsewhere
            return fresh.fits(subject, [fit])[0]

    def _known(self, subject: Subject, keys: list[bytes], fits: Sequence[Fit]) -> list[Answer | None]:
        """Return what is remembered and may be used; what has to be trained afresh is, and compared, on the way."""
        known = self._recall(keys)
        # where training never repeats itself a comparison shows nothing, so nothing that was remembered is used
        if self.signable and (self._all_afresh or self.freshness.noisy):
            doubted = [
                Recalled(subject, k, f, a)
                for k, f, a in zip(keys, fits, known, strict=True)
                if a is not None and k not in self.freshness.fresh
            ]
            now = self._compared(doubted)
            return [now.get(k, a) for k, a in zip(keys, known, strict=True)]
        self.freshness.note(subject, keys, fits, known)
        return known

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """In a run that is to be signed, train everything in this block that this process has not trained itself."""
        before, self._all_afresh = self._all_afresh, True
        try:
            yield
        finally:
            self._all_afresh = before

    def spot_check(self) -> int:
        """In a run that is to be signed, train a random sample afresh of what was remembered and used.

        Returns how many of it cannot be compared, because training never repeats itself.
        """
        if not self.signable:
            return 0
        self.activity = "training a sample of what is remembered afresh"
        before = self.freshness.noisy
        self._compared(self.freshness.sample())
        return self.freshness.noisy - before

    def _compared(self, doubted: Sequence[Recalled]) -> dict[bytes, Answer]:
        """Return fresh answers, counting those that differ from what was remembered and would not differ by chance."""
        found: dict[bytes, Answer] = {}
        by_subject: dict[int, list[Recalled]] = {}
        for r in {r.key: r for r in doubted}.values():
            by_subject.setdefault(id(r.subject), []).append(r)
        for group in by_subject.values():
            subject = group[0].subject
            said = self.freshness.said
            before = {r.key: said.get(r.key) for r in group}
            now = self._train(subject, [r.key for r in group], [r.fit for r in group])
            found |= now
            said.update((k, told) for k, told in before.items() if told)  # the ledger keeps what it had
            odd = [r for r in group if not self._as_remembered(r, now[r.key])]
            self.freshness.instead |= {r.key: now[r.key] for r in odd}
            again = self._train(subject, [r.key for r in odd], [r.fit for r in odd], anew=True) if odd else {}
            settled = [r for r in odd if same(again[r.key], now[r.key], r.fit.tolerance)]
            noisy = len(odd) - len(settled)
            self.freshness.broken += [now[r.key].problem for r in settled if now[r.key].problem]
            self.freshness.compared += len(group)
            self.freshness.noisy += noisy
            self.freshness.different += len(odd) - noisy
        return found

    def _as_remembered(self, recalled: Recalled, now: Answer) -> bool:
        was = recalled.answer
        if was is None and (body := self.ledger.read([recalled.key])[0]) is not None:
            was = context.decode(body)[0]
            was = was if context.told(was) == recalled.digest else None
        return was is not None and same(was, now, recalled.fit.tolerance)

    def _recall(self, keys: Sequence[bytes]) -> list[Answer | None]:
        """Return what is remembered; what somebody put in the place of what was trained or read before is not.

        Earlier versions remembered failed trainings; they are trained again.
        """
        seen, bodies = self.freshness, self.ledger.read(keys)
        found = [None if body is None or (a := context.decode(body)[0]).problem else a for body in bodies]
        return [
            seen.instead[k]
            if k in seen.instead
            else (a if a is None or seen.first(k, a, signable=self.signable) else None)
            for k, a in zip(keys, found, strict=True)
        ]

    def keeps(self, subject: Subject, call: Fit) -> bool:
        """Whether every model of a call is kept, whatever it was asked, and would be believed."""
        return self._asks(subject, [call])[0]

    def _asks(self, subject: Subject, calls: Sequence[Fit]) -> list[bool]:
        """Return for which calls models would be asked, and nothing trained."""
        offered, _ = self._offered(subject, calls, kept.names(self._about(subject), calls))
        return [bool(call.models) and all(call.models) for call in offered]

    def _offered(self, subject: Subject, calls: Sequence[Fit], named: kept.Names) -> tuple[list[Fit], int]:
        code = bool(payload.code_of(subject))
        return kept.offered(calls, named, self.ledger, self.freshness, signable=self.signable, code=code)

    def _about(self, subject: Subject) -> bytes:
        """Return the digest of what every model of a subject depends on, wherever it is asked."""
        if id(subject) not in self._trained_on:
            self._trained_on[id(subject)] = (subject, kept.about(subject))
        return self._trained_on[id(subject)][1]

    def _train(
        self,
        subject: Subject,
        keys: list[bytes],
        fits: list[Fit],
        *,
        anew: bool = False,
        held: Callable[[Answer], Answer] | None = None,
    ) -> dict[bytes, Answer]:
        """Train what is not known yet; ``anew`` also what is, and was only asked elsewhere."""
        named: kept.Names = []
        if not anew and not kept.many(fits):
            named = kept.names(self._about(subject), fits)
            fits, taken = self._offered(subject, fits, named)
            self.freshness.recalled += taken
        run = Batch(self, self._ship(subject), keys, fits, named, held=held)
        try:
            return run.all()
        except BaseException:
            # Ctrl-C above all: what came back is kept, workers do not outlive the question
            self._stop(kill=True)
            raise
        finally:
            self.ledger.settle()

    # -- the stored model ---------------------------------------------------------------------------------------------

    def registered(self, subject: Subject, rows: Index, *, served: str = "") -> Answer:
        """Return the stored model's probabilities on pool rows; or what MLflow serves, asked as in ``asking``.

        Opened in a worker only.
        """
        # fresh noise is another answer each time: nothing to remember, and nothing to hold a ledger to
        model = None if served and subject.release.noise is not None else subject.digests.get("model")
        kind = f"served {served}:".encode() if served else b"registered:"
        key = context.key(self.context(subject), kind + str(model).encode() + rows.tobytes())
        seen = self.freshness
        known = None if model is None else self._recall([key])[0]
        if known is not None and not self.signable:
            seen.recalled += key not in seen.fresh
            return known
        if known is not None and key in seen.fresh:
            return known
        answer = self.pool.registered(self._ship(subject), rows, served=served)
        seen.fresh[key] = context.told(answer)
        seen.said.setdefault(key, seen.fresh[key])
        seen.trained += 1
        if known is not None:
            seen.compared += 1
            if not same(known, answer):
                seen.different += 1
                seen.broken += [answer.problem] * bool(answer.problem)
                seen.instead[key] = answer
        if model is not None and not answer.problem and not self.ledger.find([key])[0]:
            self.ledger.write([(key, context.encode(answer))])
            self.ledger.flush()
        return answer

    def examined(self, subject: Subject, by: str) -> dict[str, Any]:
        """Return what ``module:function`` says of the model, opened in a worker, or ``{"problem": sentence}``."""
        self.activity = "opening the model"
        found = self.pool.examined(self._ship(subject), by)
        return found if isinstance(found, dict) else {"problem": "the worker process died while it opened the model"}

    # -- workers ------------------------------------------------------------------------------------------------------

    @property
    def pool(self) -> Pool:
        """The worker processes, started when first needed."""
        if self._pool is None:
            self._pool = self._start()
        return self._pool

    @cached_property
    def isolation(self) -> str:
        """What stands between training code and this host: ``bubblewrap`` and its version, or ``none``.

        Raises
        ------
        UsageError
            Boxes are demanded and cannot be made here.
        """
        return isolation.of(self.isolate, cluster=self.cluster is not None)

    def isolation_of(self, subject: Subject) -> str:
        """Return what stands between a subject's code and this host: ``isolation``, and whether it has the network."""
        return isolation.of(self.isolate, cluster=self.cluster is not None, network=self._networked(subject))

    def _networked(self, subject: Subject) -> bool:
        """Whether training may use the network; code of scikit-learn and ours alone has no need of it."""
        return self.network and subject.recipe.network and bool(payload.code_of(subject))

    @cached_property
    def freshness(self) -> Freshness:
        """What was remembered, and what was trained all the same."""
        return Freshness()

    @property
    def workers(self) -> int:
        """Calls that can run at the same time; connects to the cluster if there is one."""
        return self.jobs if self.cluster is None else self.pool.slots

    def _start(self) -> Pool:
        if self.cluster is None:
            self.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.isolation != isolation.NONE:
                return BoxPool(self.jobs, self.limits, self.logs)
            settings = WorkerSettings(str(self.logs), self.limits.memory, folder=str(self._spool / "work"))
            settings = replace(settings, environ={**settings.environ, **self.environ})
            return LocalPool(self.jobs, self.limits, settings)
        from privgate.training import spark
        from privgate.training.clusters import DaskPool, JoblibPool

        if isinstance(self.cluster, str) and spark.is_master(self.cluster):
            return spark.SparkPool(self.cluster, self.limits)
        if isinstance(self.cluster, str) and "://" not in self.cluster:
            return JoblibPool(self.cluster, self.jobs, self.limits)
        return DaskPool(self.cluster, self.limits)

    def _ship(self, subject: Subject) -> Payload:
        model = "" if subject.model is None else str(subject.digests.get("model", id(subject.model)))
        name = self.context(subject).hex() + model
        if name not in self._payloads:
            # a box sees what belongs to one recipe's code, nothing of another's
            code = hashlib.sha256(payload.code_of(subject).encode()).hexdigest()[:16]
            shipped = payload.write(subject, self._spool / code / str(len(self._payloads)))
            payload.readable(self._spool / code)
            self._payloads[name] = replace(
                shipped, libraries=context.libraries_of(subject), network=self._networked(subject), model=model
            )
        return self._payloads[name]

    def report(self, done: int, total: int, seconds_left: float) -> None:
        """Tell whoever draws the progress."""
        if self._progress is not None:
            self._progress(done, total, seconds_left)

    def _stop(self, *, kill: bool) -> None:
        if self._pool is not None:
            self._pool.close(kill=kill)
        self._pool = None

    def close(self) -> None:
        """End the workers, write what is pending, and delete the copies of the data that workers used."""
        self._stop(kill=False)
        self.ledger.settle()
        self._end()
        _tidy(self._spool, self.logs)


def _light(answer: Answer) -> Answer:
    """Return an answer without its numbers where they are many."""
    return answer if answer.log_p.nbytes < LARGE else replace(answer, log_p=np.zeros((0, 0)))


def _tidy(spool: Path, logs: Path) -> None:
    """Delete the copies of the data that workers used, and logs that say nothing."""
    shutil.rmtree(spool, ignore_errors=True)
    if logs.is_dir():
        for path in logs.iterdir():
            if not path.stat().st_size:
                path.unlink()
        if not any(logs.iterdir()):
            logs.rmdir()


def _sweep() -> None:
    """Delete copies of data that killed runs of this user left behind."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SPOOL}*"):
        owner = path.name.removeprefix(_SPOOL).partition("-")[0]
        try:
            os.kill(int(owner), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except (ValueError, PermissionError):
            continue


def _share(jobs: int) -> int:
    """Return an even share of the machine's memory, in bytes."""
    return int(0.9 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / jobs)
