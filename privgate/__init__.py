"""privgate: a pre-deployment privacy gate for the MLflow model registry."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from privgate.claim import Claim
    from privgate.data import TrainingData
    from privgate.domain import Domain
    from privgate.errors import PrivgateError
    from privgate.gate import evaluate
    from privgate.policy import Policy
    from privgate.recipe import Recipe
    from privgate.registry import log_model, log_recipe
    from privgate.release import Release
    from privgate.subject import Subject
    from privgate.verdict import Finding, Outcome, Verdict

# Where each public name lives; imported on first use, because importing privgate must stay cheap.
_HOME = {
    "Claim": "claim",
    "Domain": "domain",
    "Finding": "verdict",
    "Outcome": "verdict",
    "Policy": "policy",
    "PrivgateError": "errors",
    "Recipe": "recipe",
    "Release": "release",
    "Subject": "subject",
    "TrainingData": "data",
    "Verdict": "verdict",
    "evaluate": "gate",
    "log_model": "registry",
    "log_recipe": "registry",
}

__all__ = [
    "Claim",
    "Domain",
    "Finding",
    "Outcome",
    "Policy",
    "PrivgateError",
    "Recipe",
    "Release",
    "Subject",
    "TrainingData",
    "Verdict",
    "evaluate",
    "log_model",
    "log_recipe",
]


def _load(uri: str, **options: Any) -> Any:
    return import_module("privgate.registry").load_subject(uri, **options)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'privgate' has no attribute {name!r}")
    value = getattr(import_module(f"privgate.{_HOME[name]}"), name)
    if name == "Subject":
        # the registry is a floor above the subject, so the package root wires the two
        value.loader = staticmethod(_load)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
