"""One configuration file: what is protected, by which policy, whose statements count, what is written down."""

import hashlib
import os
import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, ValidationInfo
from pydantic_core import PydanticKnownError

from privgate.documents import LARGE, DocumentError, strict_json, strict_yaml
from privgate.errors import PolicyError, StatementError, UsageError
from privgate.guard import statement
from privgate.guard.keys import TrustStore

VARIABLE = "PRIVGATE_GUARD"
#: names that may be released: a database, a shell and an eye read one name each
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,255}")
#: said where a model that holds no training data may be meant
WITHOUT = "; prompts, and models without training data, pass by a pattern under 'except' in the guard's 'protected'"


def is_name(text: str) -> bool:
    """Whether a model, alias or stage of this name may be released."""
    return _NAME.fullmatch(text) is not None


def refuse_name(text: str) -> None:
    """Raise ``StatementError`` for the name of a model, alias or stage that nothing is released under."""
    if not is_name(text):
        raise StatementError(
            f"{text[:80]!a} cannot be released: protected names are of ASCII letters, digits, '.', '_' and '-', with a "
            "letter or digit first, 256 at most; rename it"
        )


def fold(name: str) -> str:
    """Return what one name is in any case and width."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


Text = Annotated[str, Field(min_length=1)]
_OneOrMany = Annotated[list[Text], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]


class _Written(BaseModel):
    """What an operator writes: nothing unknown, nothing of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NamedPolicy(NamedTuple):
    """A policy by the name in its file, its digest, and the files that it rests on."""

    name: str
    digest: str
    files: tuple[Path, ...] = ()


def _resolve(name: object, info: ValidationInfo) -> NamedPolicy:
    if not isinstance(name, str):
        raise PydanticKnownError("string_type")
    if not name:
        raise PydanticKnownError("string_too_short", {"min_length": 1})
    return NamedPolicy(*info.context(name))  # type: ignore[misc]  # given below: reads a policy once


_Policy = Annotated[NamedPolicy, PlainValidator(_resolve)]


class Row(_Written):
    """A row in force: of which models (patterns) and targets (none is all that are protected)."""

    models: _OneOrMany = Field(min_length=1)
    aliases: _OneOrMany = []
    #: what its models answer with, by the operator's word
    task: Literal["classification", "regression"]
    policy: _Policy
    #: the operator's statement whether users of these models can get their files
    file: Literal["downloadable", "not downloadable"] = "downloadable"

    @property
    def demands(self) -> tuple[str, str, bool]:
        """Digest, task, and whether the file is withheld."""
        return self.policy.digest, self.task, self.file == "not downloadable"

    def is_for(self, model: str, target: str | None) -> bool:
        """Return whether a row is about a model and a target, both folded; None is any target."""
        targets = [fold(alias) for alias in self.aliases]
        return (target is None or not targets or target in targets) and _matches(model, _lower(self.models))


class Earlier(_Written):
    """A policy by which some models were released, and which was changed since."""

    models: _OneOrMany = Field(min_length=1)
    policy: _Policy
    signed_before: Annotated[date, Field(strict=False)]
    until: Annotated[date, Field(strict=False)]

    def counts(self, digest: str, signed: datetime, now: datetime) -> bool:
        """Whether a statement under this policy still counts."""
        begin, end = (datetime.combine(d, t, UTC) for d, t in ((self.signed_before, time.min), (self.until, time.max)))
        return digest == self.policy.digest and signed < begin <= now <= end


#: what stood in files of 0.1, and what stands for it now
_ROWS = (
    "; each policy is a row of releases, as {models: '*', task: classification, policy: NAME}; what needs no statement "
    "is named by protected: {except: [...]}"
)


class _Protected(_Written):
    aliases: list[Text] = []
    stages: list[Text] = []
    models: list[Text] = []
    except_: list[Text] = Field([], alias="except")


class _File(_Written):
    schema_: Literal["privgate/guard/v2"] = Field(alias="schema")  # first, to be said first
    registry: Text
    trust: str
    protected: _Protected
    accept_advisory: bool = False
    accept_unboxed: bool = False
    check_files: bool = False
    audit_log: str | None = None
    releases: list[Row] = Field(min_length=1)
    still_accepted: list[Earlier] = []


@dataclass(frozen=True)
class Terms:
    """What must hold here."""

    #: configured id of this registry
    registry: str
    #: of the resolved policy in force for the target
    policy_digest: str
    #: its name, for sentences
    policy: str = ""
    #: whether a statement counts although checker and signer were one user
    accept_advisory: bool = False
    #: task of the model, by the operator's word; empty if not configured. A statement without a task is older than
    #: tasks: it is about a classifier, unless its policy is for regressors
    task: str = ""
    #: whether the operator states that no user of this model can get its file
    withheld: bool = False
    #: policies whose older statements still count
    earlier: tuple[Earlier, ...] = ()
    #: whether a statement counts although the training code ran as the checker, with nothing between the two
    accept_unboxed: bool = False


@dataclass(frozen=True)
class Guard:
    """What a guarded registry enforces."""

    #: id that statements must name; choose one a registry, never reuse it
    registry: str
    #: keys that count
    trust: TrustStore
    #: protected ones, as they are written; stages folded, because MLflow knows four, by any case
    aliases: frozenset[str] = frozenset()
    stages: frozenset[str] = frozenset()
    #: patterns of registered models that only released versions may enter
    models: tuple[str, ...] = ()
    #: as in `Terms`
    accept_advisory: bool = False
    accept_unboxed: bool = False
    #: whether every promotion recomputes file digests in the call path
    check_files: bool = False
    #: where the guarded store records what it releases, refuses and withdraws
    audit_log: Path | None = None
    #: by which policy which models are released, and by which they were
    rows: tuple[Row, ...] = ()
    earlier: tuple[Earlier, ...] = ()
    #: what was read; a change in one of them is a change of the guard
    files: tuple[Path, ...] = ()
    #: patterns of models that need no statement, by the operator's word: prompts, and what holds no training data
    excepted: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the guard that a file describes; ``PolicyError``, ``StatementError``: it cannot be used."""
        with strict_json.reading(f"{path} cannot be read", PolicyError):
            given = strict_yaml.read(path)
        try:
            raw = _File.model_validate(given, context=cache(partial(policy_named, folder=path.parent)))
        except ValidationError as exc:
            first = exc.errors()[0]
            where = ".".join(map(str, first["loc"]))
            what = f"{where}: {first['msg'].lower()}" if where else "expected keys with values, as schema and registry"
            if where == "schema" or where.endswith(".task"):
                what += _ROWS
            raise PolicyError(f"{path}: {what}") from exc
        protected, rows, earlier = raw.protected, raw.releases, raw.still_accepted
        if not (protected.aliases or protected.stages or protected.models):
            raise PolicyError(f"{path}: protected names no alias, stage or model; a guard must guard something")
        guarded = {fold(target) for target in (*protected.aliases, *protected.stages)}
        for row in rows:
            if odd := [target for target in row.aliases if fold(target) not in guarded]:
                raise PolicyError(f"releases: the row of {row.models[0]!r} names {odd[0]!r}, which is not protected")
        for before in earlier:
            if before.signed_before > min(before.until, statement.now().date()):
                why = f"{before.policy.name!r} is for what is signed already; signed_before lies ahead"
                raise PolicyError(f"still_accepted: {why}")
        policies = (*(row.policy for row in rows), *(row.policy for row in earlier))
        same = {"registry", "accept_advisory", "accept_unboxed", "check_files"}
        return cls(
            **raw.model_dump(include=same),
            trust=TrustStore.load(path.parent / raw.trust),
            aliases=frozenset(protected.aliases),
            stages=frozenset(fold(s) for s in protected.stages),
            models=tuple(protected.models),
            audit_log=path.parent / raw.audit_log if raw.audit_log else None,
            rows=tuple(rows),
            earlier=tuple(earlier),
            files=(path, path.parent / raw.trust, *(file for policy in policies for file in policy.files)),
            excepted=tuple(protected.except_),
        )

    def alias_meant(self, alias: str) -> str:
        """Return the protected alias that ``alias`` is, in any case and width; else empty."""
        return alias if alias in self.aliases else next((a for a in self.aliases if fold(a) == fold(alias)), "")

    def protects_model(self, name: str) -> bool:
        """Whether only released versions may enter this model, in any case and width of its name."""
        return not self.excepts(name) and _matches(fold(name), map(fold, self.models))

    def excepts(self, name: str) -> bool:
        """Return whether the very name, and no other spelling of it, needs no statement."""
        return is_name(name) and _matches(name, self.excepted)

    def terms(self, target: str | None, model: str) -> Terms:
        """Return what a statement must meet for a target, None to enter a model; ``PrivgateError``: nothing will do."""
        refuse_name(model)
        refuse_name(target or model)
        rows = [row for row in self.rows if row.is_for(fold(model), None if target is None else fold(target))]
        if not rows:
            where = f" as {target!r}" if target is not None else ""
            step = f"add a row to 'releases'{WITHOUT}"
            raise PolicyError(f"the guard's table names no policy for {model!r}{where}; {step}")
        if len({row.demands for row in rows}) > 1:
            raise PolicyError(f"rows of the guard's table demand different things of {model!r}; tell them apart")
        earlier = tuple(e for e in self.earlier if _matches(fold(model), _lower(e.models)))
        digest, task, withheld = rows[0].demands
        about = self.registry, digest, rows[0].policy.name, self.accept_advisory, task, withheld, earlier
        return Terms(*about, self.accept_unboxed)

    def demands(self, target: str, model: str, digest: str) -> None:
        """Raise ``UsageError``, before anything is trained, where another policy releases a target of a model."""
        if (terms := self.terms(target, model)).policy_digest != digest:
            raise UsageError(f"the guard releases {model!r} as {target!r} by policy {terms.policy!r}; ask for that")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _lower(patterns: Iterable[str]) -> list[str]:
    """Return patterns for folded names; another star than ours stays what it is, and matches nothing."""
    return [pattern.lower() if pattern.isascii() else pattern for pattern in patterns]


def policy_named(name: str, folder: Path) -> NamedPolicy:
    """Return a policy: shipped, of a file, or of a digest; ``PolicyError``: of none."""
    if re.fullmatch("sha256:[0-9a-f]{64}", name):
        return NamedPolicy(name[:19], name)
    try:
        from privgate.policy import Policy
    except ImportError as exc:  # privgate-verify has none
        raise PolicyError(
            f"policy {name!r} cannot be read, because this installation only verifies; name it by its digest sha256:…, "
            "which `privgate policy explain` prints"
        ) from exc
    path = folder / name
    policy = Policy.load(path if os.path.isfile(path) else name)  # noqa: PTH113  no file has some names: no error here
    return NamedPolicy(policy.name, policy.digest, policy.files)


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
            if self._guard is None or _seen(self._guard.files) != self._stamps:
                self._guard = None
                files = Guard.load(self.path).files
                # read once more after looking at the files: what is kept is never older than its stamps
                stamps, guard = _seen(files), Guard.load(self.path)
                self._stamps, self._guard = stamps if guard.files == files else None, guard
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


def _seen(files: tuple[Path, ...]) -> object:
    """Return what the files hold."""
    try:
        return [(f, hashlib.sha256(strict_json.content(f, LARGE)).digest()) for f in files]
    except (OSError, DocumentError):
        return object()  # equal to nothing: reading it again says what is wrong
