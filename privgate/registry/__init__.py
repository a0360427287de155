"""In and out of the MLflow registry; MLflow itself is imported when something here is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privgate.registry.attachments import attach as attach
    from privgate.registry.attachments import attached as attached
    from privgate.registry.attachments import promote as promote
    from privgate.registry.client import local_registry as local_registry
    from privgate.registry.load import load_subject as load_subject
    from privgate.registry.log import adopt as adopt
    from privgate.registry.log import declare_people as declare_people
    from privgate.registry.log import log_model as log_model
    from privgate.registry.log import log_recipe as log_recipe

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
