"""One configuration file: what is protected, by which policy, whose statements count, what is written down."""

import fcntl
import hashlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from privgate.documents import LARGE, DocumentError, strict_json, strict_yaml
from privgate.errors import PolicyError, StatementError, UsageError
from privgate.guard import lookalikes, release_table, statement
from privgate.guard.checks import Terms
from privgate.guard.lookalikes import fold, is_plain, looks_like
from privgate.guard.release_table import AcceptedRow, ReleaseRow, Table, Text, Written
from privgate.guard.truststore import TrustStore

#: what a line of the audit log may be about
EVENTS = ("asked", "refused", "approved", "released", "withdrawn", "renamed", "wrong")
#: a sentence may quote what somebody sent; a line is not for that
_LONGEST = 2_000
_TAIL = 256 << 10  # more than any line


@dataclass(frozen=True)
class AuditLog:
    """A file of events that any number of processes of a host append to, one line of JSON each, never changed.

    Each line names the digest of the line before it, so that a line that was changed or taken out of the middle shows.
    That the end was cut off shows only to who kept a later digest: keep the log where no user may write.
    """

    #: the file; made if absent, for its owner and group only. Moving it away begins a new one
    path: Path

    def record(self, event: str, **said: str) -> None:
        """Append one event of ``EVENTS``, on disk at return; ``StatementError``: what it is about must not happen."""
        if event not in EVENTS:
            raise ValueError(f"no event {event!r}")
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            with os.fdopen(handle, "r+b") as log:
                fcntl.flock(log, fcntl.LOCK_EX)  # given back when it is closed
                tail = os.pread(log.fileno(), _TAIL, max(0, os.fstat(log.fileno()).st_size - _TAIL))
                last = tail[tail.rstrip(b"\n").rfind(b"\n") + 1 :]
                if last and not last.endswith(b"\n"):  # a process was killed while it wrote
                    log.write(b"\n")
                content = {
                    "at": statement.stamp(statement.now()),
                    "event": event,
                    **{k: v[:_LONGEST] for k, v in said.items() if v},
                    "host": socket.gethostname(),
                    "previous": _digest(last),
                }
                log.write(json.dumps(content, separators=(",", ":")).encode() + b"\n")
                log.flush()
                os.fsync(log.fileno())
        except OSError as exc:
            raise StatementError(f"audit log {self.path} cannot be written: {exc.strerror}") from exc

    def lines(self) -> Iterator[dict[str, Any]]:
        """Give every event, oldest first; ``StatementError``: a line is none, or was changed, or one before it was."""
        previous = _digest(b"")
        try:
            with self.path.open("rb") as log:
                for number, line in enumerate(log, 1):
                    yield _read_event(line, previous, f"audit log {self.path}, line {number}")
                    previous = _digest(line)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise StatementError(f"audit log {self.path} cannot be read: {exc.strerror}") from exc


def _read_event(line: bytes, previous: str, where: str) -> dict[str, Any]:
    try:
        event = strict_json.loads(line)
    except DocumentError as exc:
        raise StatementError(f"{where} {exc}") from exc
    if not isinstance(event, dict) or event.get("event") not in EVENTS:
        raise StatementError(f"{where} is no event")
    if event.get("previous") != previous:
        raise StatementError(f"{where} does not follow the line before it: something was changed or taken out")
    return event


def _digest(line: bytes) -> str:
    return "sha256:" + hashlib.sha256(line.rstrip(b"\n")).hexdigest() if line.strip() else ""


VARIABLE = "PRIVGATE_GUARD"


class _Protected(Written):
    aliases: list[Text] = Field(default_factory=list)
    stages: list[Text] = Field(default_factory=list)
    models: list[Text] = Field(default_factory=list)
    except_: list[Text] = Field(default_factory=list, alias="except")


class _File(Written):
    schema_: str = Field(alias="schema")  # first: what is wrong with it is said first
    registry: Text
    trust: str
    protected: _Protected
    accept_advisory: bool = False
    accept_unboxed: bool = False
    check_files: bool = False
    audit_log: str | None = None


class _Named(_File):
    schema_: Literal["privgate/guard/v1"] = Field(alias="schema")
    policy: str | dict[str, str]


class _Tabled(_File):
    schema_: Literal["privgate/guard/v2"] = Field(alias="schema")
    releases: Annotated[list[ReleaseRow], Field(min_length=1)]
    still_accepted: list[AcceptedRow] = Field(default_factory=list)


@dataclass(frozen=True)
class Guard:
    """What a guarded registry enforces."""

    #: id that statements must name; choose one a registry, never reuse it
    registry: str
    #: keys that count
    trust: TrustStore
    #: folded target -> (name, digest): ``"*"`` is for every target that is not listed; empty where a table says it
    policies: Mapping[str, tuple[str, str]]
    #: protected ones, as they are written
    aliases: frozenset[str]
    #: protected ones, folded: MLflow knows four, by any case
    stages: frozenset[str]
    #: patterns of registered models that only released versions may enter
    models: tuple[str, ...]
    #: whether a statement counts although checker and signer were one user, or although training code ran as the
    #: checker; whether every promotion recomputes file digests in the call path
    accept_advisory: bool = False
    accept_unboxed: bool = False
    check_files: bool = False
    #: where the guarded store records what it releases, refuses and withdraws
    audit_log: AuditLog | None = None
    #: by which policy which models are released; without one a target alone decides
    table: Table | None = None
    #: what was read; a change in one of them is a change of the guard
    files: tuple[Path, ...] = ()
    #: patterns of models that need no statement, by the operator's word: prompts, and what holds no training data
    excepted: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the guard that a file describes; ``PolicyError``, ``StatementError``: it cannot be used."""
        try:
            given = strict_yaml.read(path)
            tabled = isinstance(given, dict) and given.get("schema") == "privgate/guard/v2"
            raw = (_Tabled if tabled else _Named).model_validate(given)
        except ValidationError as exc:
            first = exc.errors()[0]
            place = ".".join(str(p) for p in first["loc"])
            raise PolicyError(f"{path}: {place}: {first['msg'].lower()}") from exc
        except OSError as exc:
            raise PolicyError(f"{path} cannot be read: {exc.strerror}") from exc
        except DocumentError as exc:
            raise PolicyError(exc.of(path)) from exc
        named, table, targets = dict[str, str](), None, (*raw.protected.aliases, *raw.protected.stages)
        by_name = partial(policy_named, folder=path.parent)
        if isinstance(raw, _Tabled):
            today = statement.now().date()
            table = release_table.read(raw.releases, raw.still_accepted, targets, by_name, today=today)
        else:
            named = raw.policy if isinstance(raw.policy, dict) else {"*": raw.policy}
        policies = {fold(target): by_name(name) for target, name in named.items()}
        used = [f for _, _, files in policies.values() for f in files] + list(table.files if table is not None else ())
        guard = cls(
            registry=raw.registry,
            trust=TrustStore.load(path.parent / raw.trust),
            policies={target: (name, digest) for target, (name, digest, _) in policies.items()},
            aliases=frozenset(raw.protected.aliases),
            stages=frozenset(fold(s) for s in raw.protected.stages),
            models=tuple(raw.protected.models),
            accept_advisory=raw.accept_advisory,
            accept_unboxed=raw.accept_unboxed,
            check_files=raw.check_files,
            audit_log=AuditLog(path.parent / raw.audit_log) if raw.audit_log else None,
            table=table,
            files=(path, path.parent / raw.trust, *used),
            excepted=tuple(raw.protected.except_),
        )
        for target in (*targets, *(t for t in named if t != "*")):
            if not is_plain(target):
                raise PolicyError(
                    f"{path}: {target!r} cannot be protected: other aliases may look or count the same; "
                    "name aliases and stages by ASCII letters, digits, _ and -"
                )
        if not (guard.aliases or guard.stages or guard.models):
            raise PolicyError(f"{path}: protected names no alias, stage or model; a guard must guard something")
        return guard

    def alias_meant(self, alias: str) -> str:
        """Return the protected alias that ``alias`` is, or may be taken for as any odd name is; else empty."""
        if alias in self.aliases:
            return alias
        if not is_plain(alias):
            return min(self.aliases, default="")
        return next((a for a in sorted(self.aliases) if looks_like(a) == looks_like(alias)), "")

    def protects_model(self, name: str) -> bool:
        """Whether only released versions may enter this model; a database may find it by another spelling, too."""
        folded = fold(name)
        return not self.excepts(name) and any(fnmatchcase(folded, fold(pattern)) for pattern in self.models)

    def excepts(self, name: str) -> bool:
        """Whether this very name, and no other spelling of it, needs no statement."""
        return any(fnmatchcase(name, pattern) for pattern in self.excepted)

    def model_meant(self, name: str) -> str:
        """Return the protected pattern that a name is not under, and that its readers would take it for; else empty."""
        if self.protects_model(name):
            return ""
        seen = lookalikes.looks(name)
        return next((p for p in self.models if lookalikes.taken_for(seen, p)), "")

    def terms(self, target: str | None, model: str) -> Terms:
        """Return what a statement must meet for a target, None to enter a model; ``PolicyError``: by no policy."""
        if self.table is not None:
            row, name = self.table.row(model, target), fold(model)
            earlier = tuple(e for e in self.table.earlier if e.is_for(name))
            terms = Terms(self.registry, row.digest, row.policy, self.accept_advisory, row.task, row.withheld, earlier)
            return replace(terms, accept_unboxed=self.accept_unboxed)
        policy = self.policies.get(fold(target)) if target is not None else None
        policy = policy or self.policies.get("*")
        if policy is None:
            raise PolicyError(f"the guard names no policy for {target!r}; add it, or '*' for all others")
        return Terms(self.registry, policy[1], policy[0], self.accept_advisory, accept_unboxed=self.accept_unboxed)

    def demands(self, target: str, model: str, digest: str) -> None:
        """Raise ``UsageError``, before anything is trained, where another policy releases a target of a model."""
        if (terms := self.terms(target, model)).policy_digest != digest:
            raise UsageError(f"the guard releases {model!r} as {target!r} by policy {terms.policy!r}; ask for that")


def policy_named(name: str, folder: Path) -> tuple[str, str, tuple[Path, ...]]:
    """Return name, digest and files of a policy: shipped, of a file, or of a digest; ``PolicyError``: of none."""
    if re.fullmatch("sha256:[0-9a-f]{64}", name):
        return name[:19], name, ()
    try:
        from privgate.policy import Policy
    except ImportError as exc:  # privgate-verify has none
        raise PolicyError(
            f"policy {name!r} cannot be read, because this installation only verifies; name it by its digest sha256:…, "
            "which `privgate policy explain` prints"
        ) from exc
    path = folder / name
    policy = Policy.load(path if os.path.isfile(path) else name)  # noqa: PTH113  no file has some names: no error here
    return policy.name, policy.digest, policy.files


#: the guard of the decision that is being made
_ONE: ContextVar[tuple["Watch", Guard] | None] = ContextVar("privgate_one_reading", default=None)


class Watch:
    """The guard, read again when a file changes that it rests on; so revoking a key needs no restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamps: Any = None
        self._guard: Guard | None = None

    def guard(self) -> Guard:
        """Return the guard in force; ``PrivgateError``: while its files cannot be used, and nothing is promoted."""
        if (held := _ONE.get()) is not None and held[0] is self:
            return held[1]
        with self._lock:
            if self._guard is None or self._stamps is None or _seen(self._guard.files) != self._stamps:
                self._guard = None
                files = Guard.load(self.path).files
                # read once more after looking at the files: what is kept is never older than its stamps
                self._stamps = _seen(files)
                fresh = Guard.load(self.path)
                if fresh.files != files:
                    self._stamps = None
                self._guard = fresh
            return self._guard

    @contextmanager
    def held(self) -> Iterator[Guard]:
        """Give the guard in force, which answers all questions meanwhile: one decision, one reading."""
        before = _ONE.set(None)  # what was held before may have changed while this waited for its turn
        try:
            _ONE.set((self, guard := self.guard()))
            yield guard
        finally:
            _ONE.reset(before)


def _seen(files: tuple[Path, ...]) -> Any:
    """Return what the files are and hold: by stamps alone, two writes in one tick of a file system's clock are one."""
    try:
        return [
            (s.st_mtime_ns, s.st_ctime_ns, s.st_ino, hashlib.sha256(strict_json.content(f, LARGE)).digest())
            for f, s in ((f, f.stat()) for f in files)
        ]
    except (OSError, DocumentError):
        return None  # reading it again says what is wrong
