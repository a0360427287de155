"""What a guarded server must not do for its clients: run code of theirs as the user who may write everything.

MLflow's assistant lets whoever connects over loopback, everybody behind a proxy on the same host, set the address of a
language model and have its answers run as commands. Custom scorers are Python that clients store and the server's jobs
run. Either rewrites the guard's configuration or its database; a guarded server has none of them.
"""

import os
import sys
from types import ModuleType

from privgate.errors import PolicyError

#: where MLflow's command line tells its workers what the registry is
_REGISTRY = "_MLFLOW_SERVER_REGISTRY_STORE"
_ASSISTANT = "mlflow.server.assistant.api"
_SCORERS = "MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS"


def leave_out_assistant() -> None:
    """Give this process's web application an assistant without routes, if it is to serve a guarded registry.

    Called while MLflow's server is being imported, before its routes are put together.
    """
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
    """Refuse to guard a registry whose server runs what clients say.

    Raises
    ------
    PolicyError
        It does; the sentence says what to set.
    """
    if os.environ.get(_SCORERS, "false").lower() in {"true", "1"}:
        raise PolicyError(f"{_SCORERS} lets clients run code as this server, past any guard; unset it")
    router = getattr(sys.modules.get(_ASSISTANT), "assistant_router", None)
    if _serves_guarded() and getattr(router, "routes", None):
        raise PolicyError(
            "this server's assistant lets clients run commands as this server, past any guard, and could not be left "
            "out; start the server by: mlflow server --registry-store-uri privgate:<inner uri>"
        )


def _serves_guarded() -> bool:
    return os.environ.get(_REGISTRY, "").startswith("privgate:")
