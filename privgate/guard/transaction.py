"""One database transaction around each promoting write and the guard's checks of it.

During the transaction all methods of MLflow's store use its session: reads, write and checks are committed together,
or not at all. Promoting writes wait for one another. Only databases where equal names are equal bytes are supported.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
