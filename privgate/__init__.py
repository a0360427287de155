"""privgate: a pre-deployment privacy gate for the MLflow model registry."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from privgate.version import __version__ as __version__

if TYPE_CHECKING:
    from privgate.advice.search import evaluate
    from privgate.errors import PrivgateError
    from privgate.evidence.verdict import Finding, Outcome, Verdict
    from privgate.policy import Policy
    from privgate.registry import log_model, log_recipe
    from privgate.run.run import Budget
    from privgate.subject.claim import Claim
    from privgate.subject.data import TrainingData
    from privgate.subject.domain import Domain
    from privgate.subject.recipe import Recipe
    from privgate.subject.release import Gaussian, Laplace, Release
    from privgate.subject.subject import Subject
    from privgate.training.fleet import Fleet

# Where each public name lives; imported on first use, because importing privgate must stay cheap.
_HOME = {
    "Budget": "run.run",
    "Claim": "subject.claim",
    "Domain": "subject.domain",
    "Finding": "evidence.verdict",
    "Fleet": "training.fleet",
    "Gaussian": "subject.release",
    "Laplace": "subject.release",
    "Outcome": "evidence.verdict",
    "Policy": "policy",
    "PrivgateError": "errors",
    "Recipe": "subject.recipe",
    "Release": "subject.release",
    "Subject": "subject.subject",
    "TrainingData": "subject.data",
    "Verdict": "evidence.verdict",
    "evaluate": "advice.search",
    "log_model": "registry",
    "log_recipe": "registry",
}

__all__ = [
    "Budget",
    "Claim",
    "Domain",
    "Finding",
    "Fleet",
    "Gaussian",
    "Laplace",
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


def _door(name: str) -> Callable[..., Any]:
    def opened(*given: Any, **options: Any) -> Any:
        return getattr(import_module("privgate.evaluation.notebook"), name)(*given, **options)

    return opened


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'privgate' has no attribute {name!r}")
    value = getattr(import_module(f"privgate.{_HOME[name]}"), name)
    if name == "Subject":
        # the registry is a floor above the subject, so the package root wires the two
        value.loader = staticmethod(_load)
    if name == "Verdict":
        value.doors.update({door: _door(door) for door in ("report", "plot", "overview")})
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
