"""The guard in the database: one transaction a promoting write, and its checks of rows, holders, statements, copies."""

import inspect
import os
import tempfile
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.errors import PolicyError, PrivgateError, StatementError
from privgate.guard import statement
from privgate.guard.config import WITHOUT, Watch, fold
from privgate.guard.verification import check, check_original, counting, is_copy
from privgate.registry.client import download
from privgate.registry.files import all_files
from privgate.registry.named import TAG, Row

#: MLflow's error code (HTTP 503) of a database that does not answer now: clients try again
UNAVAILABLE = "TEMPORARILY_UNAVAILABLE"
#: whether the guard is checking in this thread: then reads avoid a read replica, which may lag behind
_GUARDING: ContextVar[bool] = ContextVar("privgate_guarding", default=False)
#: function that this thread calls just before a commit; an exception from it rolls the transaction back
BEFORE_COMMIT: ContextVar[Callable[[], None]] = ContextVar("privgate_committing", default=lambda: None)


@contextmanager
def refusing(doing: str) -> Iterator[None]:
    """Turn every failed check and unexpected error into MLflow's HTTP 403, which clients do not retry.

    A database that does not answer gives HTTP 503, which refuses the write, too. ``doing`` names it in the message.
    """
    from mlflow.exceptions import MlflowException

    before = _GUARDING.set(True)
    try:
        yield
    except MlflowException as exc:
        if exc.get_http_status_code() < 500:  # MLflow's own words: no such version, already exists
            raise
        if exc.error_code == UNAVAILABLE:
            why = f"privgate: {doing} was not verified: the database did not answer; try again"
            raise permission_denied(why, UNAVAILABLE) from exc
        raise permission_denied(f"privgate: {doing} refused: it could not be verified ({exc.error_code})") from exc
    except PrivgateError as exc:
        step = "To release a version: privgate check, then privgate guard sign, then try again"
        raise permission_denied(f"privgate: {doing} refused: {exc}. {step}") from exc
    except Exception as exc:  # no unexpected error may let a write through
        raise permission_denied(f"privgate: {doing} refused: it could not be verified ({type(exc).__name__})") from exc
    finally:
        _GUARDING.reset(before)


def permission_denied(message: str, code: str = "PERMISSION_DENIED") -> Any:
    """Return an ``MlflowException`` of an error code, by default of HTTP 403."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import ErrorCode

    return MlflowException(message, ErrorCode.Value(code))


_LOCK = int.from_bytes(b"privgate", "big")  # id of the PostgreSQL advisory lock that every guard transaction takes

_SESSION_BY_STORE_ID: ContextVar[dict[int, Any] | None] = ContextVar("privgate_held_sessions", default=None)


_TABLES = (*(f"registered_model{part}" for part in ("s", "_tags", "_aliases")), "model_versions", "model_version_tags")


def check_equality(store: Any) -> None:
    """Raise ``PolicyError`` where a collation takes different names for equal: what is written could replace a tag."""
    from sqlalchemy import text

    tables = ", ".join(f"'{name}'" for name in _TABLES)
    query = f"SELECT name FROM sqlite_master WHERE name IN ({tables}) AND upper(sql) LIKE '%COLLATE%'"  # noqa: S608  ours
    if store.engine.dialect.name != "sqlite":
        query = (
            "SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "  # noqa: S608  ours
            "JOIN pg_collation k ON k.oid = a.attcollation JOIN pg_type t ON t.oid = a.atttypid "
            f"WHERE c.relname IN ({tables}) AND pg_table_is_visible(c.oid) AND "
            "(NOT k.collisdeterministic OR t.typname NOT IN ('varchar', 'text'))"  # citext has a plain collation
        )
    with store.engine.connect() as connection:
        odd = [str(row[0]) for row in connection.execute(text(query))]
    if odd:
        raise PolicyError(f"a collation of table {odd[0]} takes different names for equal; set it up as MLflow does")


def share_sessions(store: Any) -> None:
    """Patch a store: its methods use the session of the guard's transaction, and no replica while the guard checks."""
    sessions = store.ManagedSessionMaker
    routed = "read_only" in inspect.signature(sessions).parameters  # not before 3.14

    @contextmanager
    def share(read_only: bool = True) -> Iterator[Any]:  # noqa: FBT001, FBT002  MLflow's
        open_session = (_SESSION_BY_STORE_ID.get() or {}).get(id(store))
        if open_session is not None:
            yield open_session
            open_session.flush()  # the method expects its session to be committed here
            return
        with sessions(read_only=read_only and not _GUARDING.get()) if routed else sessions() as session:
            yield session

    store.ManagedSessionMaker = share


@contextmanager
def transaction(store: Any, model: str) -> Iterator[Any]:
    """Open a transaction that locks the rows of ``model``; yield its session."""
    problem: PrivgateError | None = None
    with store.ManagedSessionMaker(read_only=False) as session:
        before = _SESSION_BY_STORE_ID.set({**(_SESSION_BY_STORE_ID.get() or {}), id(store): session})
        try:
            _lock(session, model)
            yield session
            BEFORE_COMMIT.get()()
        except PrivgateError as exc:  # raised below: MLflow would turn it into "internal error" here
            session.rollback()
            problem = exc
        finally:
            _SESSION_BY_STORE_ID.reset(before)
    if problem is not None:
        raise problem


def _lock(session: Any, model: str) -> None:
    """Lock a model, its versions and aliases, and every other write of the guard, until the transaction ends."""
    from mlflow.store.model_registry.dbmodels.models import SqlRegisteredModel
    from sqlalchemy import text

    if session.get_bind().dialect.name == "sqlite":
        session.execute(text("BEGIN IMMEDIATE"))
        return
    # reads see commits made while this waited; other models' rows count, too: a copy needs the signed version
    session.connection(execution_options={"isolation_level": "READ COMMITTED"})
    session.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    # a concurrent renaming waits here; after an earlier one no row matches
    session.query(SqlRegisteredModel).filter(SqlRegisteredModel.name == model).with_for_update().all()


#: MLflow keeps the rows of deleted versions
DELETED = "Deleted_Internal"


class GuardedRows:
    """How a guarded store looks at its own rows; mixed in before MLflow's store."""

    privgate_watch: Watch

    def _privgate_find_holders(self, name: str, session: Any, but: Collection[str] = ()) -> dict[str, str]:
        """Return protected alias -> version, as this registry answers readers."""
        aliases = sorted(self.privgate_watch.guard().aliases.difference(but))
        held = ((a, self._get_registered_model_alias(session, name, a)) for a in aliases)  # type: ignore[attr-defined]  # mixin
        return {alias: str(row.version) for alias, row in held if row is not None}

    def _privgate_read_row(self, name: str, version: str) -> tuple[Row, Mapping[str, str]]:
        """Return a row and its tags; the store's public methods would take three times as long."""
        with self.ManagedSessionMaker() as session:  # type: ignore[attr-defined]  # mixin
            kept = self._get_sql_model_version(session, name, version)  # type: ignore[attr-defined]  # mixin
            row = Row.read(name, kept, kept.storage_location or kept.source, kept.creation_time)
            return row, {str(tag.key): str(tag.value) for tag in kept.model_version_tags}

    def _privgate_check_before(self, name: str, version: str, target: str) -> Row | None:
        """Check and return the row before the transaction, if files are checked, which takes long; else None."""
        if not self.privgate_watch.guard().check_files:
            return None
        return self._privgate_check_release(name, version, target, None, files=True)

    def _privgate_check_release(
        self, name: str, version: str, target: str | None, before: Row | None, *, files: bool = False
    ) -> Row:
        """Check that a version may be released as a target, and return its row."""
        row, tags = self._privgate_read_row(name, version)
        if before is not None and row != before:
            raise StatementError("the version was replaced while it was being released")
        self._privgate_check(row, tags.get(TAG, ""), target, files=files)
        return row

    def _privgate_list_targets(self, name: str, version: str, session: Any) -> list[str | None]:
        """Return every protected alias or stage that a version holds, and None where its model is protected."""
        guard = self.privgate_watch.guard()
        if guard.excepts(name):
            return []
        held = super().get_model_version(name, version)  # type: ignore[misc]  # mixin
        holders = self._privgate_find_holders(name, session).items()
        stage = str(held.current_stage or "")
        return [
            *(alias for alias, holder in holders if holder == str(held.version)),
            *([stage] if fold(stage) in guard.stages else []),
            *([None] if guard.protects_model(name) else []),
        ]

    def _privgate_check_newer(self, name: str, version: str, text: str, claims: statement.Claims, session: Any) -> None:
        """Check that a statement may replace the one that the version carries."""
        row, tags = self._privgate_read_row(name, version)
        targets = self._privgate_list_targets(name, row.version, session)
        present, itself = self._privgate_read_claims(row, tags.get(TAG, "")), claims.is_about(row)
        if present is not None:
            if (itself or not present.passed) and claims.signed < present.signed:
                raise StatementError("the version carries a statement that was signed later")
            if claims.passed and not present.passed and claims.signed == present.signed:
                raise StatementError("the version was refused in the second in which this was signed")
            if claims.passed and not present.passed and claims.decided <= present.decided:
                raise StatementError("no later check than the one that refused the version is signed here; check again")
        if targets and claims.signed < _signed(tags.get(TAG, "")):
            raise StatementError("the version is released on a statement that was signed later")
        if not claims.passed and itself:
            return  # whose key counts may take an approval back
        for target in targets:
            self._privgate_check(row, text, target, files=False)

    def _privgate_read_claims(self, row: Row, text: str) -> statement.Claims | None:
        """Return the claims of a trusted statement about this row, or of a refusal of its files; else None."""
        claims = counting(text, self.privgate_watch.guard().trust, statement.now())
        other = claims is not None and not claims.is_about(row) and (claims.passed or claims.storage != row.storage)
        return None if other else claims

    def _privgate_check(self, row: Row, text: str, target: str | None, *, files: bool = True) -> None:
        guard = self.privgate_watch.guard()
        if guard.excepts(row.name):
            return
        terms = guard.terms(target, row.name)
        if not text:
            raise StatementError(f"there is no statement{WITHOUT}")
        claims = check(text, guard.trust, row, terms, target=target, now=statement.now())
        if is_copy(claims, row):
            check_original(claims, self._privgate_find_original(claims), guard.trust, statement.now())
        if guard.check_files and files:
            _compare_files(row, claims)

    def _privgate_find_original(self, claims: statement.Claims) -> tuple[Row, str] | None:
        """Return the row of the signed version and the statement that it carries; None if that row is gone."""
        from mlflow.exceptions import MlflowException

        try:
            row, tags = self._privgate_read_row(claims.name, claims.version)
        except MlflowException as exc:
            if exc.get_http_status_code() >= 500:
                raise
            return None
        return row, tags.get(TAG, "")

    # An approval and a refusal hold for every row that serves the same files. A released copy rests on the version that
    # was signed, which cannot be deleted then: the refusal would vanish with its row.

    def delete_model_version(self, name: str, version: str) -> Any:
        """Delete a version, unless a released copy rests on its statement."""
        with refusing(f"deleting {name!r} version {version}"), transaction(self, name) as session:
            self._privgate_refuse_removal(session, name, str(version))
            return super().delete_model_version(name, version)  # type: ignore[misc]  # mixin

    def delete_registered_model(self, name: str) -> Any:
        """Delete a model, unless released copies in other models rest on its statements."""
        with refusing(f"deleting {name!r}"), transaction(self, name) as session:
            self._privgate_refuse_removal(session, name, None)
            return super().delete_registered_model(name)  # type: ignore[misc]  # mixin

    def _privgate_refuse_removal(self, session: Any, name: str, version: str | None) -> None:
        """Refuse to remove a version, or a model if ``version`` is None, that a released copy rests on."""
        for copy, tags in self._privgate_list_copies(session, name, version):
            claims = counting(tags.get(TAG, ""), self.privgate_watch.guard().trust, statement.now())
            if claims is None or (claims.name, int(claims.version)) != (name, int(version or claims.version)):
                continue
            if self._privgate_list_targets(copy.name, copy.version, session):
                raise StatementError(
                    f"models:/{copy.name}/{copy.version} is released on the statement of models:/{name}/"
                    f"{claims.version}, whose refusal would be lost; withdraw or sign that first"
                )

    def _privgate_refuse_copies(self, session: Any, row: Row, tag: Any, claims: statement.Claims) -> None:
        """Write a refusal of ``row`` to every row that serves the same files and carries no later statement."""
        if claims.passed or not claims.is_about(row):
            return
        for copy, tags in self._privgate_list_copies(session, row.name, row.version):
            held = counting(tags.get(TAG, ""), self.privgate_watch.guard().trust, statement.now())
            if held is None or held.signed <= claims.signed:
                super().set_model_version_tag(copy.name, copy.version, tag)  # type: ignore[misc]  # mixin

    def _privgate_list_copies(self, session: Any, name: str, version: str | None) -> Iterator[tuple[Row, Any]]:
        """Yield the other rows, with tags, that serve the files of a version, or of any version of a model if None."""
        from mlflow.store.model_registry.dbmodels.models import SqlModelVersion
        from sqlalchemy import func

        storage = func.coalesce(SqlModelVersion.storage_location, SqlModelVersion.source)
        present, own = SqlModelVersion.current_stage != DELETED, [SqlModelVersion.name == name]
        own += [] if version is None else [SqlModelVersion.version == int(version)]
        mine = set(session.query(SqlModelVersion).filter(present, *own))
        places = {str(kept.storage_location or kept.source) for kept in mine}
        for kept in set(session.query(SqlModelVersion).filter(present, storage.in_(places))) - mine if places else ():
            yield self._privgate_read_row(kept.name, str(kept.version))


def _signed(text: str) -> datetime:
    """Return when a statement was signed; year 1 for an unreadable statement."""
    try:
        return statement.Claims.read(statement.Envelope.parse(text).statement).signed
    except StatementError:
        return datetime.min.replace(tzinfo=UTC)


def _compare_files(row: Row, claims: statement.Claims) -> None:
    """Raise ``StatementError`` if the stored files, all read here, differ from the signed digest."""
    location, destination = row.storage, os.environ.get("_MLFLOW_SERVER_ARTIFACT_DESTINATION")
    if location.startswith("mlflow-artifacts:") and destination:  # which clients reach through this server
        path = urllib.parse.unquote(urllib.parse.urlparse(location).path)
        location = f"{destination.removeprefix('privgate:').rstrip('/')}/{path.lstrip('/')}"
    with tempfile.TemporaryDirectory() as place:
        folder = download(location, Path(place), tracking_uri=None)
        if digest.of_manifest(all_files(folder, rows=claims.rows)) != claims.files:
            raise StatementError("the stored files are not those that were checked and signed")
