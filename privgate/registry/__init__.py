"""In and out of the MLflow registry; MLflow itself is imported when something here is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privgate.registry.attaching import attach, promote
    from privgate.registry.client import local_registry
    from privgate.registry.load import load_subject
    from privgate.registry.log import adopt, declare_people, log_model, log_recipe
    from privgate.registry.reports import attached, in_use

_HOME = {
    "adopt": "log",
    "attach": "attaching",
    "attached": "reports",
    "declare_people": "log",
    "in_use": "reports",
    "load_subject": "load",
    "local_registry": "client",
    "log_model": "log",
    "log_recipe": "log",
    "promote": "attaching",
}

__all__ = [
    "adopt",
    "attach",
    "attached",
    "declare_people",
    "in_use",
    "load_subject",
    "local_registry",
    "log_model",
    "log_recipe",
    "promote",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'privgate.registry' has no attribute {name!r}")
    return getattr(import_module(f"privgate.registry.{_HOME[name]}"), name)
