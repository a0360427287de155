"""One transaction for a promoting write and everything the guard asks about it, by the database's own equality.

While one of the guard's transactions lasts, all methods of MLflow's store are given its session: what is checked,
written and looked at again is committed at once, or not at all. Such writes wait for one another.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from privgate.errors import PolicyError, PrivgateError

# a database that does not answer for a moment has refused nothing: clients try again after 503
PASSING = "TEMPORARILY_UNAVAILABLE"
#: whether this thread's reads are the guard's: a read replica may lag behind what is about to be written
GUARDING: ContextVar[bool] = ContextVar("privgate_guarding", default=False)
#: what is done last before a transaction of this thread is committed; where it raises, nothing is
COMMITTING: ContextVar[Callable[[], None]] = ContextVar("privgate_committing", default=lambda: None)


@contextmanager
def refusing(doing: str) -> Iterator[None]:
    """Turn every doubt into MLflow's permission error: HTTP 403, which clients do not retry.

    Only a database that does not answer is said as what it is, which lets nothing through either.
    """
    from mlflow.exceptions import MlflowException

    guarding = GUARDING.set(True)
    try:
        yield
    except MlflowException as exc:
        if exc.get_http_status_code() < 500:  # MLflow's own words: no such version, already exists
            raise
        if exc.error_code == PASSING:
            why = f"privgate: {doing} was not verified: the database did not answer; try again"
            raise permission_denied(why, PASSING) from exc
        # MLflow gives its own reason as an error of the server's: such as a workspace whose names another has, too
        why = exc.message if exc.error_code == "INVALID_STATE" else f"it could not be verified ({exc.error_code})"
        raise permission_denied(f"privgate: {doing} refused: {why}") from exc
    except PrivgateError as exc:
        step = "To release a version: privgate check, then privgate guard sign, then try again"
        raise permission_denied(f"privgate: {doing} refused: {exc}. {step}") from exc
    except Exception as exc:  # whatever goes wrong in here must not let a write through
        raise permission_denied(f"privgate: {doing} refused: it could not be verified ({type(exc).__name__})") from exc
    finally:
        GUARDING.reset(guarding)


def permission_denied(message: str, code: str = "PERMISSION_DENIED") -> Any:
    """Return MLflow's error, by default that of HTTP 403."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import ErrorCode

    return MlflowException(message, ErrorCode.Value(code))


#: what the guard can answer for: equal names are equal bytes
_SUPPORTED, _DIALECTS = "SQLite and PostgreSQL", ("sqlite", "postgresql")
_TABLES = (*(f"registered_model{part}" for part in ("s", "_tags", "_aliases")), "model_versions", "model_version_tags")
_MOVE = int.from_bytes(b"privgate", "big")  # PostgreSQL's lock that each of the guard's transactions takes

_HELD: ContextVar[dict[int, Any] | None] = ContextVar("privgate_held_sessions", default=None)


def check_scheme(inner: str) -> None:
    """Raise ``PolicyError``, before anything is opened, for a registry whose equality of names is not known."""
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
    """Give a store's methods the guard's session while one of its transactions lasts, and never a replica's."""
    sessions = getattr(store, "ManagedSessionMaker", None)
    if sessions is None or "privgate_shares" in vars(store):
        return
    routed = "read_only" in inspect.signature(sessions).parameters

    @contextmanager
    def share(read_only: bool = True) -> Iterator[Any]:  # noqa: FBT001, FBT002  MLflow's
        held = (_HELD.get() or {}).get(id(store))
        if held is not None:
            yield held
            held.flush()  # where a session of its own would have been committed
            return
        with sessions(read_only=read_only and not GUARDING.get()) if routed else sessions() as session:
            yield session

    store.ManagedSessionMaker, store.privgate_shares = share, True


def in_workspace(name: str) -> AbstractContextManager[Any]:
    """Let MLflow's store act in another workspace than the request's, where MLflow has workspaces."""
    mlflow = sys.modules.get("mlflow.utils.workspace_context")
    return mlflow.ServerWorkspaceContext(name) if mlflow else nullcontext()


@contextmanager
def transaction(store: Any, model: str | None) -> Iterator[Any]:
    """Hold one session meanwhile, the rows of ``model`` (None: all) locked; None where that is another server's."""
    sessions = getattr(store, "ManagedSessionMaker", None)
    if sessions is None:
        COMMITTING.get()()
        yield None
        return
    problem: PrivgateError | None = None
    with sessions(read_only=False) as session:
        before = _HELD.set({**(_HELD.get() or {}), id(store): session})
        try:
            _lock(store, session, model)
            yield session
            COMMITTING.get()()
        except PrivgateError as exc:  # MLflow would say "internal error" instead of what it is
            session.rollback()
            problem = exc
        finally:
            _HELD.reset(before)
    if problem is not None:
        raise problem


def _lock(store: Any, session: Any, model: str | None) -> None:
    """Let nobody change this model, its versions or its aliases, nor the guard write anything else, meanwhile."""
    from mlflow.store.model_registry.dbmodels.models import SqlRegisteredModel
    from sqlalchemy import text

    if session.get_bind().dialect.name == "sqlite":
        session.execute(text("BEGIN IMMEDIATE"))
        return
    # after waiting, what others committed is read; what a copy rests on is a row of another model
    session.connection(execution_options={"isolation_level": "READ COMMITTED"})
    session.execute(text(f"SELECT pg_advisory_xact_lock({_MOVE})"))
    if model is None:  # no model is added meanwhile
        session.execute(text("LOCK TABLE registered_models IN EXCLUSIVE MODE"))
    else:
        # a renaming waits here, or has happened: then there is no such row any more
        store._get_query(session, SqlRegisteredModel).filter(SqlRegisteredModel.name == model).with_for_update().all()  # noqa: SLF001  with the workspace's filter
