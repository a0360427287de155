"""The guarded store: MLflow's own, whose promoting writes ask for a valid statement first, and evaluate nothing."""

import functools
import importlib
import inspect
import os
import sys
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from privgate.errors import PolicyError, StatementError
from privgate.guard import statement
from privgate.guard.checks import TAG, counting
from privgate.guard.config import VARIABLE, Watch, fold
from privgate.guard.rows import DELETED
from privgate.guard.transaction import (
    check_equality,
    check_scheme,
    permission_denied,
    refusing,
    share_sessions,
    transaction,
)
from privgate.guard.writes import GuardedWrites, RecordedWrites

# MLflow's assistant lets every client over loopback, so every client behind a proxy on this host, set the address of a
# language model and run its answers as commands. Custom scorers are Python that clients store and the server's
# jobs run. Either rewrites the guard's configuration or its database; a guarded server has none of them.

#: where MLflow's command line tells its workers what the registry is
_REGISTRY = "_MLFLOW_SERVER_REGISTRY_STORE"
_ASSISTANT = "mlflow.server.assistant.api"
_SCORERS = "MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS"


def leave_out_assistant() -> None:
    """Give a guarded server's web application an assistant without routes, before its routes are put together."""
    if not _serves_guarded():
        return
    guard_workspaces()
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
    router = getattr(sys.modules.get(_ASSISTANT), "assistant_router", None)
    if _serves_guarded() and getattr(router, "routes", None):
        raise PolicyError(
            "this server's assistant lets clients run commands as this server, past any guard, and could not be left "
            "out; start the server by: mlflow server --registry-store-uri privgate:<inner uri>"
        )


def guard_workspaces() -> None:
    """Refuse to move or delete a guarded workspace: MLflow does not ask the registry's store before it does."""
    for module, name in (("sqlalchemy_store", "SqlAlchemyStore"), ("rest_store", "RestWorkspaceStore")):
        try:
            kind = getattr(importlib.import_module(f"mlflow.store.workspace.{module}"), name)
        except ModuleNotFoundError:  # an older MLflow, which has no workspaces
            return
        if not hasattr(kind.delete_workspace, "__wrapped__"):
            kind.delete_workspace = _looking_first(kind.delete_workspace)


def _looking_first(delete: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(delete)
    def delete_workspace(store: Any, workspace_name: str, *args: Any, **kwargs: Any) -> Any:
        share_sessions(store)
        with refusing(f"deleting workspace {workspace_name!r}"), transaction(store, None) as session:
            held = "what another server knows" if session is None else _held(session, workspace_name)
            if held and (session is not None or "RESTRICT" not in {*args, *kwargs.values()}):
                raise StatementError(f"it holds {held}; withdraw and delete that first")
            return delete(store, workspace_name, *args, **kwargs)

    return delete_workspace


def _held(session: Any, workspace: str) -> str:
    """Return what a workspace holds that must not be moved or deleted with it; empty if nothing."""
    from mlflow.store.model_registry.dbmodels.models import SqlRegisteredModel

    guard, now = watch_configured().guard(), statement.now()
    for model in session.query(SqlRegisteredModel).filter(SqlRegisteredModel.workspace == workspace):
        if guard.excepts(model.name):
            continue
        if guard.protects_model(model.name):
            return f"protected model {model.name!r}"
        for alias in (a.alias for a in model.registered_model_aliases if guard.alias_meant(a.alias)):
            return f"protected alias {alias!r} of {model.name!r}"
        for kept in (v for v in model.model_versions if v.current_stage != DELETED):
            if fold(kept.current_stage or "") in guard.stages:
                return f"version {kept.version} of {model.name!r} in stage {kept.current_stage}"
            said = [counting(tag.value, guard.trust, now) for tag in kept.model_version_tags if tag.key == TAG]
            if any(claims is not None and not claims.passed for claims in said):
                return f"a refusal of {model.name!r} version {kept.version}"
    return ""


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

    ``PrivgateError``: the configuration cannot be used, or clients may write it, the database may take different names
    for equal, or this MLflow's store can write in a way that is unknown here; no call to the registry then succeeds.
    """
    inner = store_uri.removeprefix(SCHEME)
    watch = watch_configured()
    watch.guard()  # a server with an unusable configuration must not start
    check_scheme(inner)
    check_runs_nothing()
    _check_places(inner, watch)
    store = _open(inner, tracking_uri)
    check_equality(store)
    kind = type(store)
    writes = {name for name in dir(kind) if name.startswith(_WRITES) and callable(getattr(kind, name))}
    if unknown := sorted(writes - _KNOWN_WRITES):
        raise PolicyError(f"this MLflow's registry can write by {', '.join(unknown)}, unknown to privgate; update it")
    # the class is exchanged, not the object wrapped: workspaces, read replicas and later methods stay MLflow's own
    store.__class__ = _guard_class(kind)  # type: ignore[arg-type]  # classes hash
    store.privgate_watch = watch
    share_sessions(store)
    guard_workspaces()
    return store


def _check_places(inner: str, watch: Watch) -> None:
    """Refuse a server that serves artifacts to where the guard's own files lie: its clients may write them."""
    guard = watch.guard()
    own = [*guard.files, *([guard.audit_log.path] if guard.audit_log is not None else [])]
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


def _open(inner: str, tracking_uri: str | None) -> Any:
    """Return MLflow's own store, built by its builder: asking for the store itself would wait for our own lock."""
    from mlflow.tracking._model_registry import utils

    # older versions make it when they are imported
    make = getattr(utils, "_get_store_registry", lambda: utils._model_registry_store_registry)  # noqa: SLF001  the only door
    registry = make()
    server = sys.modules.get("mlflow.server.handlers")
    if server is not None and not inner.startswith(("http:", "https:", "databricks")):
        registry = server._model_registry_store_registry  # noqa: SLF001  ditto, of the server
    builder = registry.get_store_builder(inner)
    if "tracking_uri" in inspect.signature(builder).parameters:
        return builder(store_uri=inner, tracking_uri=tracking_uri)
    return builder(store_uri=inner)


@functools.cache
def _guard_class(inner: type) -> type:
    kind = type(f"Guarded{inner.__name__}", (RecordedWrites, GuardedWrites, inner), {})
    for name in _KNOWN_WRITES & {*dir(inner)}:
        setattr(kind, name, _sized(getattr(kind, name), tuple(inspect.signature(getattr(inner, name)).parameters)))
    return kind


#: characters of a name in a request, and of any other text in it: a database takes no longer names
_MOST = {"name": 256, "new_name": 256, "alias": 256, "version": 256, "stage": 256}
_MOST_TEXT = 1 << 20


def _sized(write: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    """Return a write that refuses what is too long first, before any other work and outside any transaction."""

    @functools.wraps(write)
    def sized(*args: Any, **kwargs: Any) -> Any:
        for name, given in (*zip(names, args, strict=False), *kwargs.items()):
            text = getattr(given, "value", given)
            if isinstance(text, str) and len(text) > (most := _MOST.get(name, _MOST_TEXT)):
                raise permission_denied(f"privgate: refused: {name} has {len(text)} characters, at most {most} may be")
        return write(*args, **kwargs)

    return sized


leave_out_assistant()  # while MLflow reads its plugins, before its server puts its routes together
