"""One database transaction around each promoting write and the guard's checks of it.

During the transaction all methods of MLflow's store use its session: reads, write and checks are committed together,
or not at all. Promoting writes wait for one another. Only databases where equal names are equal bytes are supported.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from privgate.errors import PolicyError, PrivgateError

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
        # INVALID_STATE carries MLflow's own reason, such as two workspaces with the same names
        why = exc.message if exc.error_code == "INVALID_STATE" else f"it could not be verified ({exc.error_code})"
        raise permission_denied(f"privgate: {doing} refused: {why}") from exc
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


#: databases in which equal names are equal bytes
_SUPPORTED, _DIALECTS = "SQLite and PostgreSQL", ("sqlite", "postgresql")
_TABLES = (*(f"registered_model{part}" for part in ("s", "_tags", "_aliases")), "model_versions", "model_version_tags")
_LOCK = int.from_bytes(b"privgate", "big")  # id of the PostgreSQL advisory lock that every guard transaction takes

_SESSION_BY_STORE_ID: ContextVar[dict[int, Any] | None] = ContextVar("privgate_held_sessions", default=None)


def check_scheme(inner: str) -> None:
    """Raise ``PolicyError``, before a connection, for a registry whose database may take different names for equal."""
    scheme = inner.partition(":")[0].partition("+")[0].lower()
    if scheme not in {*_DIALECTS, "http", "https"}:
        raise PolicyError(
            f"the guard cannot answer for a registry of kind {scheme!r}, which may take different names for equal; "
            f"supported are {_SUPPORTED}"
        )


def check_equality(store: Any) -> None:
    """Raise ``PolicyError`` where a collation of the database takes different names for equal."""
    engine = getattr(store, "engine", None)
    if engine is None:
        return
    from sqlalchemy import text

    if engine.dialect.name not in _DIALECTS:
        raise PolicyError(f"the guard cannot answer for {engine.dialect.name}; supported are {_SUPPORTED}")
    tables = ", ".join(f"'{name}'" for name in _TABLES)
    if engine.dialect.name == "sqlite":
        query = f"SELECT name FROM sqlite_master WHERE name IN ({tables}) AND upper(sql) LIKE '%COLLATE%'"  # noqa: S608  ours
    else:
        query = (
            "SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "  # noqa: S608  ours
            "JOIN pg_collation k ON k.oid = a.attcollation JOIN pg_type t ON t.oid = a.atttypid "
            f"WHERE c.relname IN ({tables}) AND pg_table_is_visible(c.oid) AND "
            "(NOT k.collisdeterministic OR t.typname NOT IN ('varchar', 'text'))"  # citext has a plain collation
        )
    with engine.connect() as connection:
        odd = [str(row[0]) for row in connection.execute(text(query))]
    if odd:
        raise PolicyError(
            f"a collation of table {odd[0]} takes different names for equal, and the guard cannot answer for that; "
            f"supported are {_SUPPORTED} as MLflow sets them up"
        )


def share_sessions(store: Any) -> None:
    """Patch a store: its methods use the session of the guard's transaction, and no replica while the guard checks."""
    sessions = getattr(store, "ManagedSessionMaker", None)
    if sessions is None or "privgate_shares" in vars(store):
        return
    routed = "read_only" in inspect.signature(sessions).parameters

    @contextmanager
    def share(read_only: bool = True) -> Iterator[Any]:  # noqa: FBT001, FBT002  MLflow's
        open_session = (_SESSION_BY_STORE_ID.get() or {}).get(id(store))
        if open_session is not None:
            yield open_session
            open_session.flush()  # the method expects its session to be committed here
            return
        with sessions(read_only=read_only and not _GUARDING.get()) if routed else sessions() as session:
            yield session

    store.ManagedSessionMaker, store.privgate_shares = share, True


def in_workspace(name: str) -> AbstractContextManager[Any]:
    """Return a context in which MLflow's store acts in this workspace; it does nothing in an MLflow without them."""
    mlflow = sys.modules.get("mlflow.utils.workspace_context")
    return mlflow.ServerWorkspaceContext(name) if mlflow else nullcontext()


@contextmanager
def transaction(store: Any, model: str | None) -> Iterator[Any]:
    """Open a transaction that locks the rows of ``model`` (None: all); yield its session, None at a remote store."""
    sessions = getattr(store, "ManagedSessionMaker", None)
    if sessions is None:
        BEFORE_COMMIT.get()()
        yield None
        return
    problem: PrivgateError | None = None
    with sessions(read_only=False) as session:
        before = _SESSION_BY_STORE_ID.set({**(_SESSION_BY_STORE_ID.get() or {}), id(store): session})
        try:
            _lock(store, session, model)
            yield session
            BEFORE_COMMIT.get()()
        except PrivgateError as exc:  # raised below: MLflow would turn it into "internal error" here
            session.rollback()
            problem = exc
        finally:
            _SESSION_BY_STORE_ID.reset(before)
    if problem is not None:
        raise problem


def _lock(store: Any, session: Any, model: str | None) -> None:
    """Lock a model, its versions and aliases, and every other write of the guard, until the transaction ends."""
    from mlflow.store.model_registry.dbmodels.models import SqlRegisteredModel
    from sqlalchemy import text

    if session.get_bind().dialect.name == "sqlite":
        session.execute(text("BEGIN IMMEDIATE"))
        return
    # reads see commits made while this waited; other models' rows count, too: a copy needs the signed version
    session.connection(execution_options={"isolation_level": "READ COMMITTED"})
    session.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    if model is None:  # no model is added meanwhile
        session.execute(text("LOCK TABLE registered_models IN EXCLUSIVE MODE"))
    else:
        # a concurrent renaming waits here; after an earlier one no row matches
        store._get_query(session, SqlRegisteredModel).filter(SqlRegisteredModel.name == model).with_for_update().all()  # noqa: SLF001  with the workspace's filter
