"""In and out of the MLflow registry; MLflow itself is imported when something here is first used."""

from importlib import import_module
from typing import Any

_HOME = {
    **dict.fromkeys(("attach", "attached", "promote"), "attachments"),
    **dict.fromkeys(("adopt", "declare_people", "log_model", "log_recipe"), "log"),
    "load_subject": "load",
    "local_registry": "client",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'privgate.registry' has no attribute {name!r}")
    return getattr(import_module(f"privgate.registry.{_HOME[name]}"), name)
