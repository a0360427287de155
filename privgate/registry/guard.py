"""The guarded registry store: MLflow's own store, whose promoting writes ask for a valid statement first.

The guard never evaluates. It looks at the row and its statement, and refuses with a sentence; whatever it cannot find
out, it refuses. Reads, and writes that promote nothing, are MLflow's own.
"""

import functools
import inspect
import os
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privgate import statement
from privgate.errors import PolicyError, PrivgateError, StatementError
from privgate.registry.guard_config import VARIABLE
from privgate.registry.watch import Watch
from privgate.trust import Row, check

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEME = "privgate:"
TAG = "privgate.statement"
#: setting an alias of this name is how anybody asks whether a registry is guarded
PROBE = "privgate-probe"

# sources that MLflow gives to prompts; such a version holds no model files, and a source never changes
_PROMPT_SOURCES = frozenset({"dummy-source", "prompt-template"})

# every writing method of MLflow 3.10 to 3.18; a store with one that is not listed could promote behind our back
_KNOWN_WRITES = frozenset(
    (
        *("create_registered_model", "update_registered_model", "rename_registered_model", "delete_registered_model"),
        *("set_registered_model_tag", "delete_registered_model_tag"),
        *("create_model_version", "update_model_version", "delete_model_version", "copy_model_version"),
        *("set_model_version_tag", "delete_model_version_tag", "transition_model_version_stage"),
        *("set_registered_model_alias", "delete_registered_model_alias"),
        *("create_prompt", "delete_prompt", "set_prompt_tag", "delete_prompt_tag"),
        *("create_prompt_version", "delete_prompt_version", "set_prompt_alias", "delete_prompt_alias"),
        *("set_prompt_version_tag", "delete_prompt_version_tag"),
        *("create_webhook", "update_webhook", "delete_webhook"),
    )
)
# a database that does not answer for a moment has refused nothing: clients try again after 503
_PASSING = "TEMPORARILY_UNAVAILABLE"
_TRIES = 3
#: whether this thread's reads are the guard's: a read replica may lag behind what is about to be written
_GUARDING: ContextVar[bool] = ContextVar("privgate_guarding", default=False)

_WRITES = ("create_", "set_", "update_", "delete_", "transition_", "rename_", "copy_", "promote_", "move_", "restore_")


def guarded(store_uri: str, tracking_uri: str | None = None) -> Any:
    """Return MLflow's store for ``privgate:<inner uri>``, guarded as the configuration file says.

    Raises
    ------
    PrivgateError
        The configuration cannot be used, or this MLflow's store can write in a way that is unknown here; the server
        then does not start.
    """
    inner = store_uri.removeprefix(SCHEME)
    watch = Watch(_configured())
    watch.guard()  # a server with an unusable configuration must not start
    store = _open(inner, tracking_uri)
    if unknown := sorted(_writes_of(store) - _KNOWN_WRITES):
        raise PolicyError(f"this MLflow's registry can write by {', '.join(unknown)}, unknown to privgate; update it")
    # the class is exchanged, not the object wrapped: workspaces, read replicas and later methods stay MLflow's own
    store.__class__ = _class_for(type(store))  # type: ignore[arg-type]  # classes hash
    store.privgate_watch = watch
    sessions = getattr(store, "ManagedSessionMaker", None)
    if sessions is not None and "read_only" in inspect.signature(sessions).parameters:
        store.ManagedSessionMaker = _primary_for_the_guard(sessions)
    return store


def _primary_for_the_guard(sessions: Callable[..., Any]) -> Callable[..., Any]:
    """Return a session maker that never lets the guard read from a replica: what it reads must be what is written."""

    def made(read_only: bool = True) -> Any:  # noqa: FBT001, FBT002  MLflow's
        return sessions(read_only=read_only and not _GUARDING.get())

    return made


def _writes_of(store: Any) -> set[str]:
    return {name for name in dir(type(store)) if name.startswith(_WRITES) and callable(getattr(type(store), name))}


def _configured() -> Path:
    path = os.environ.get(VARIABLE)
    if not path:
        raise PolicyError(f"the guarded store needs its configuration file: set {VARIABLE} to its path")
    return Path(path)


def _open(inner: str, tracking_uri: str | None) -> Any:
    """Return MLflow's own store, built by its builder: asking for the store itself would wait for our own lock."""
    from mlflow.tracking._model_registry import utils

    registry = utils._model_registry_store_registry  # noqa: SLF001  the only door
    server = sys.modules.get("mlflow.server.handlers")
    if server is not None and not inner.startswith(("http:", "https:", "databricks")):
        registry = server._model_registry_store_registry  # noqa: SLF001  ditto, of the server
    builder = registry.get_store_builder(inner)
    if "tracking_uri" in inspect.signature(builder).parameters:
        return builder(store_uri=inner, tracking_uri=tracking_uri)
    return builder(store_uri=inner)


@contextmanager
def refusing(doing: str) -> "Iterator[None]":
    """Turn every doubt into MLflow's permission error: HTTP 403, which clients do not retry.

    Only a database that does not answer is said as what it is, which lets nothing through either.
    """
    from mlflow.exceptions import MlflowException

    guarding = _GUARDING.set(True)
    try:
        yield
    except MlflowException as exc:
        if exc.get_http_status_code() < 500:  # MLflow's own words: no such version, already exists
            raise
        if exc.error_code == _PASSING:
            raise _unavailable(f"privgate: {doing} was not verified: the database did not answer; try again") from exc
        raise _permission_denied(f"privgate: {doing} refused: it could not be verified ({exc.error_code})") from exc
    except (StatementError, PrivgateError) as exc:
        raise _permission_denied(
            f"privgate: {doing} refused: {exc}. "
            "To release a version: privgate check, then privgate sign, then try again"
        ) from exc
    except Exception as exc:  # whatever goes wrong in here must not let a write through
        raise _permission_denied(f"privgate: {doing} refused: it could not be verified ({type(exc).__name__})") from exc
    finally:
        _GUARDING.reset(guarding)


def _permission_denied(message: str) -> Any:
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

    return MlflowException(message, PERMISSION_DENIED)


def _unavailable(message: str) -> Any:
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE

    return MlflowException(message, TEMPORARILY_UNAVAILABLE)


def _set_meanwhile(exc: BaseException) -> bool:
    """Whether MLflow could not insert an alias because somebody else just did; the same call then updates it."""
    from sqlalchemy.exc import IntegrityError

    return isinstance(exc.__cause__, IntegrityError)


class GuardedWrites:
    """The writes that can promote; mixed in before MLflow's store."""

    privgate_watch: Watch

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> Any:
        """Set an alias; a protected one needs a statement."""
        if name == PROBE:
            raise _permission_denied("privgate: probe: gate active")
        doing = f"alias {alias!r} of {name!r} version {version}"
        with refusing(doing):
            asked = statement.fold(alias) in self.privgate_watch.guard().aliases
            before = self._privgate_released(name, str(version), alias) if asked else None
        for left in reversed(range(_TRIES)):
            try:
                done = super().set_registered_model_alias(name, alias, version)  # type: ignore[misc]  # mixin
                break
            except Exception as exc:
                if not (left and _set_meanwhile(exc)):
                    raise
        if before is not None:
            with refusing(doing):
                withdraw = functools.partial(super().delete_registered_model_alias, name, alias)  # type: ignore[misc]  # mixin
                self._privgate_unchanged(before, withdraw)
        return done

    def transition_model_version_stage(
        self,
        name: str,
        version: str,
        stage: str,
        archive_existing_versions: bool,  # noqa: FBT001  MLflow's
    ) -> Any:
        """Move to a stage; a protected one needs a statement."""
        doing, move = f"stage {stage!r} of {name!r} version {version}", super().transition_model_version_stage  # type: ignore[misc]  # mixin
        with refusing(doing):
            asked = statement.fold(stage) in self.privgate_watch.guard().stages
            before = self._privgate_released(name, str(version), stage) if asked else None
        done = move(name, version, stage, archive_existing_versions)
        if before is not None:
            with refusing(doing):
                self._privgate_unchanged(before, functools.partial(move, name, version, "None", False))  # noqa: FBT003  MLflow's
        return done

    def create_model_version(self, name: str, source: str, *args: Any, **kwargs: Any) -> Any:
        """Add a version; entering a protected model needs the statement of the version that is copied."""
        with refusing(f"a new version of {name!r}"):
            if self.privgate_watch.guard().protects_model(name) and source not in _PROMPT_SOURCES:
                tags = kwargs.get("tags") or (args[1] if len(args) > 1 else None) or []
                text = next((t.value for t in tags if t.key == TAG), "")
                self._privgate_check(Row(name, "", source, self._privgate_storage(source)), text, None)
        return super().create_model_version(name, source, *args, **kwargs)  # type: ignore[misc]  # mixin

    def rename_registered_model(self, name: str, new_name: str) -> Any:
        """Rename; never onto a protected name, and never what is in production: aliases move with the name."""
        with refusing(f"renaming {name!r} to {new_name!r}"):
            guard = self.privgate_watch.guard()
            if guard.protects_model(name) or guard.protects_model(new_name):
                raise StatementError("protected models are not renamed; copy a signed version instead")
            held = super().get_registered_model(name)  # type: ignore[misc]  # mixin
            if in_use := [a for a in held.aliases if statement.fold(a) in guard.aliases]:
                raise StatementError(
                    f"it holds protected alias {in_use[0]!r}, which would move with it; delete that first"
                )
            for version in self._privgate_versions(name):
                if statement.fold(version.current_stage or "") in guard.stages:
                    raise StatementError(
                        f"version {version.version} is in stage {version.current_stage}; move it first"
                    )
        return super().rename_registered_model(name, new_name)  # type: ignore[misc]  # mixin

    def set_model_version_tag(self, name: str, version: str, tag: Any) -> Any:
        """Set a tag; one that claims to be a statement must be signed by a key that counts."""
        if tag.key == TAG:
            with refusing(f"the statement of {name!r} version {version}"):
                envelope = statement.Envelope.parse(tag.value)
                claims = statement.Claims.read(envelope.statement)
                moments = (claims.signed, statement.now())
                self.privgate_watch.guard().trust.verify(envelope, "verdict", model=claims.name, moments=moments)
        return super().set_model_version_tag(name, version, tag)  # type: ignore[misc]  # mixin

    def delete_model_version_tag(self, name: str, version: str, key: str) -> Any:
        """Delete a tag; not the statement of a version that is released."""
        if key == TAG:
            with refusing(f"deleting the statement of {name!r} version {version}"):
                guard = self.privgate_watch.guard()
                held = super().get_model_version(name, version)  # type: ignore[misc]  # mixin
                released = [a for a in held.aliases if statement.fold(a) in guard.aliases]
                if released or statement.fold(held.current_stage or "") in guard.stages or guard.protects_model(name):
                    raise StatementError("the version is released on it; withdraw the version first")
        return super().delete_model_version_tag(name, version, key)  # type: ignore[misc]  # mixin

    # -- what the checks need ------------------------------------------------------------------------------------

    def _privgate_row(self, name: str, version: str) -> tuple[Row, str]:
        """Return a row and the statement that it carries.

        An SQL store is asked for just these: its public methods read aliases and all else too, three times as long.
        """
        sessions, find = (getattr(self, n, None) for n in ("ManagedSessionMaker", "_get_sql_model_version"))
        if sessions is None or find is None:
            held = super().get_model_version(name, version)  # type: ignore[misc]  # mixin
            storage = str(super().get_model_version_download_uri(name, version))  # type: ignore[misc]  # mixin
            row = Row(name, str(held.version), str(held.source), storage, int(held.creation_timestamp))
            return row, str(held.tags.get(TAG, ""))
        with sessions() as session:
            kept = find(session, name, version)
            storage = str(kept.storage_location or kept.source)
            row = Row(name, str(kept.version), str(kept.source), storage, int(kept.creation_time))
            return row, next((str(tag.value) for tag in kept.model_version_tags if tag.key == TAG), "")

    def _privgate_released(self, name: str, version: str, target: str) -> Row:
        """Check that a version may be released as a target, and return its row."""
        row, text = self._privgate_row(name, version)
        if row.source not in _PROMPT_SOURCES:
            self._privgate_check(row, text, target)
        return row

    def _privgate_unchanged(self, before: Row, withdraw: Callable[[], object]) -> None:
        """Look again after the write, and withdraw it unless the row is certainly the one that was checked."""
        now: Row | None = None
        for _ in range(_TRIES):
            try:
                now = self._privgate_row(before.name, before.version)[0]
            except Exception as exc:  # noqa: BLE001  whatever it is, an unverified row must not stay released
                if getattr(exc, "error_code", "") == _PASSING:
                    time.sleep(0.2)
                    continue
            break
        if now != before:
            withdraw()
            raise StatementError("the version was replaced, or could not be read again, while it was being released")

    def _privgate_check(self, row: Row, text: str, target: str | None) -> None:
        guard = self.privgate_watch.guard()
        claims = check(text, guard.trust, row, guard.terms(target), target=target, now=statement.now())
        if guard.check_files:
            _compare_files(row, claims)

    def _privgate_storage(self, source: str) -> str:
        """Return where the files of a new version would lie, as the store itself finds out."""
        from mlflow import MlflowClient
        from mlflow.store.artifact.utils.models import _parse_model_uri

        if not source.startswith("models:"):
            return source
        parsed = _parse_model_uri(source)
        if parsed.model_id is not None:
            return str(MlflowClient().get_logged_model(parsed.model_id).artifact_location)
        return str(super().get_model_version_download_uri(parsed.name, parsed.version))  # type: ignore[misc]  # mixin

    def _privgate_versions(self, name: str) -> list[Any]:
        quoted = name.replace("'", "''")
        found: list[Any] = []
        token = None
        while True:
            page = super().search_model_versions(f"name='{quoted}'", max_results=1000, page_token=token)  # type: ignore[misc]  # mixin
            found += page
            token = page.token
            if not token:
                return found


def _compare_files(row: Row, claims: statement.Claims) -> None:
    """Recompute the digest of the stored files; only where the operator asks for it, since it reads all of them."""
    from mlflow.artifacts import download_artifacts

    from privgate import digest
    from privgate.registry import layout

    with tempfile.TemporaryDirectory() as place:
        folder = Path(download_artifacts(artifact_uri=_seen_from_server(row.storage), dst_path=place))
        if digest.of_manifest(layout.all_files(folder)) != claims.files:
            raise StatementError("the stored files are not those that were checked and signed")


def _seen_from_server(location: str) -> str:
    """Return where a location that clients reach through this server really is."""
    destination = os.environ.get("_MLFLOW_SERVER_ARTIFACT_DESTINATION")
    if not location.startswith("mlflow-artifacts:") or not destination:
        return location
    return f"{destination.rstrip('/')}/{urllib.parse.urlparse(location).path.lstrip('/')}"


@functools.cache
def _class_for(inner: type) -> type:
    """Return the guarded kind of a store class."""
    made: Callable[..., type] = type
    return made(f"Guarded{inner.__name__}", (GuardedWrites, inner), {})
