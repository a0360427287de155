"""The guarded store: MLflow's own, whose promoting writes ask for a valid statement first, and evaluate nothing."""

import os
import sys
import urllib.parse
from pathlib import Path
from types import ModuleType
from typing import Any

from privgate.errors import PolicyError
from privgate.guard.config import VARIABLE, Watch
from privgate.guard.rows import check_equality, share_sessions
from privgate.guard.writes import GuardedWrites, RecordedWrites

# MLflow's assistant lets every client over loopback, so every client behind a proxy on this host, set the address of a
# language model and run its answers as commands. Custom scorers are Python that clients store and the server's
# jobs run. Either rewrites the guard's configuration or its database; a guarded server has none of them.

#: where MLflow's command line tells its workers what the registry is
_REGISTRY = "_MLFLOW_SERVER_REGISTRY_STORE"
_ASSISTANT = "mlflow.server.assistant.api"
_SCORERS, _WORKSPACES = "MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS", "MLFLOW_ENABLE_WORKSPACES"


def leave_out_assistant() -> None:
    """Give a guarded server's web application an assistant without routes, before its routes are put together."""
    if not _serves_guarded():
        return
    try:
        from fastapi import APIRouter
    except ImportError:  # an older MLflow, which has no assistant
        return
    empty = ModuleType(_ASSISTANT, "Left out by privgate.")
    empty.assistant_router = APIRouter()  # type: ignore[attr-defined]  # all that MLflow's application asks of it
    sys.modules[_ASSISTANT] = empty


def check_runs_nothing() -> None:
    """Refuse a server that runs what clients say; the ``PolicyError`` says what to set."""
    if os.environ.get(_SCORERS, "false").lower() in {"true", "1"}:
        raise PolicyError(f"{_SCORERS} lets clients run code as this server, past any guard; unset it")
    if os.environ.get(_WORKSPACES, "false").lower() in {"true", "1"}:
        raise PolicyError("workspaces hold models of equal names, and no guard knows them; give each a server instead")
    if _serves_guarded() and getattr(getattr(sys.modules.get(_ASSISTANT), "assistant_router", None), "routes", None):
        raise PolicyError(
            "this server's assistant lets clients run commands as this server, past any guard, and could not be left "
            "out; start the server by: mlflow server --registry-store-uri privgate:<inner uri>"
        )


def _serves_guarded() -> bool:
    return os.environ.get(_REGISTRY, "").startswith("privgate:")


SCHEME = "privgate:"
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
#: where MLflow's server writes what clients upload (3.10 to 3.18)
_DESTINATIONS = ("_MLFLOW_SERVER_ARTIFACT_DESTINATION", "_MLFLOW_SERVER_ARTIFACT_ROOT")
_WRITES = ("create_", "set_", "update_", "delete_", "transition_", "rename_", "copy_", "promote_", "move_", "restore_")


def guarded_store(store_uri: str, tracking_uri: str | None = None) -> Any:
    """Return MLflow's store for ``privgate:<inner uri>``, guarded as the configuration file says.

    ``PrivgateError``: the configuration cannot be used, or clients may write it, the database is another, workspaces
    are on, or this MLflow's store can write in a way that is unknown here; no call to the registry then succeeds.
    """
    del tracking_uri
    inner = store_uri.removeprefix(SCHEME)
    watch = watch_configured()
    watch.guard()  # a server with an unusable configuration must not start
    if inner.partition(":")[0].partition("+")[0].lower() not in {"sqlite", "postgresql"}:
        raise PolicyError("other databases may take different names for equal; supported are SQLite and PostgreSQL")
    check_runs_nothing()
    _check_places(inner, watch)
    from mlflow.server.handlers import ModelRegistryStoreRegistryWrapper

    # its builder: asking for the store itself would wait for our own lock
    store = ModelRegistryStoreRegistryWrapper._get_sqlalchemy_store(inner)  # noqa: SLF001  it knows of replicas
    check_equality(store)
    kind = type(store)
    writes = {name for name in dir(kind) if name.startswith(_WRITES) and callable(getattr(kind, name))}
    if unknown := sorted(writes - _KNOWN_WRITES):
        raise PolicyError(f"this MLflow's registry can write by {', '.join(unknown)}, unknown to privgate; update it")
    # the class is exchanged, not the object wrapped: read replicas and later methods stay MLflow's own
    store.__class__ = type(f"Guarded{kind.__name__}", (RecordedWrites, GuardedWrites, kind), {})
    store.privgate_watch = watch
    share_sessions(store)
    return store


def _check_places(inner: str, watch: Watch) -> None:
    """Refuse a server that serves artifacts to where the guard's own files lie: its clients may write them."""
    guard = watch.guard()
    own = [*guard.files, *([guard.audit_log] if guard.audit_log is not None else [])]
    if inner.startswith("sqlite"):
        named, _, query = inner.partition(":///")[2].partition("?")
        if named.startswith("file:") or "uri=" in query.lower():
            raise PolicyError(f"the database {inner!r:.200} is named by an address; name its file by the path alone")
        own.append(Path(urllib.parse.unquote(named)))
    for variable in _DESTINATIONS:
        place = _local(os.environ.get(variable, "").removeprefix(SCHEME))
        for path in own:
            if place is not None and path.resolve().is_relative_to(place):
                raise PolicyError(
                    f"{path} lies below {place}, where any client may write artifacts; keep the guard's configuration, "
                    "audit log and database elsewhere"
                )


def _local(uri: str) -> Path | None:
    """Return the folder that an artifact destination means on this machine; None for a store elsewhere."""
    parsed = urllib.parse.urlsplit(uri)
    if not uri or parsed.scheme not in {"", "file"}:
        return None
    if parsed.netloc not in {"", "localhost"} or (parsed.scheme and (parsed.query or parsed.fragment)):
        raise PolicyError(f"artifacts go to {uri!r:.200}, which is no plain path; name the folder by its path alone")
    return Path(urllib.parse.unquote(parsed.path) if parsed.scheme else uri).resolve()


def watch_configured() -> Watch:
    """Return the guard of the file that the environment names; ``PolicyError``: it names none."""
    if not (path := os.environ.get(VARIABLE)):
        raise PolicyError(f"the guarded store needs its configuration file: set {VARIABLE} to its path")
    return Watch(Path(path))


leave_out_assistant()  # while MLflow reads its plugins, before its server puts its routes together
