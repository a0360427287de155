"""privgate: a pre-deployment privacy gate for the MLflow model registry.

log_model, log_recipe   put a model with its recipe, or the recipe alone, into the registry
Recipe                  how the model was trained: an estimator or a function, its seed, its claim
TrainingData            records and labels, whose each record is, and candidates of the same population
Domain                  what the endpoint accepts
Release                 what the endpoint answers; Laplace and Gaussian are noise that it adds
Claim                   the differential privacy that the training claims
Subject                 a model version with all of this; Subject.load(uri) reads one
Policy                  the rules; Policy.load(name or file) reads them
evaluate                measures the subject, and judges it by the policy
Budget, Fleet           what a run may cost, and where it trains
Verdict                 what came out; Finding is one rule of it, Outcome its word
PrivgateError           what every error of ours is

Each has a page of its own: help(privgate.Recipe). The command is `privgate --help`.
"""

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from privgate.version import __version__ as __version__

if TYPE_CHECKING:
    from privgate.advice.search import evaluate as evaluate
    from privgate.errors import PrivgateError as PrivgateError
    from privgate.evidence.verdict import Finding as Finding
    from privgate.evidence.verdict import Outcome as Outcome
    from privgate.evidence.verdict import Verdict as Verdict
    from privgate.policy import Policy as Policy
    from privgate.registry import log_model as log_model
    from privgate.registry import log_recipe as log_recipe
    from privgate.run.run import Budget as Budget
    from privgate.subject.claim import Claim as Claim
    from privgate.subject.data import TrainingData as TrainingData
    from privgate.subject.domain import Domain as Domain
    from privgate.subject.recipe import Recipe as Recipe
    from privgate.subject.release import Gaussian as Gaussian
    from privgate.subject.release import Laplace as Laplace
    from privgate.subject.release import Release as Release
    from privgate.subject.subject import Subject as Subject
    from privgate.training.fleet import Fleet as Fleet

#: public name -> where it lives; imported on first use, because importing privgate must stay cheap.
#: There is no __all__: with one, help(privgate) would print the pages of all of them.
HOMES = {
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


def _load(uri: str, **options: Any) -> Any:
    return import_module("privgate.registry").load_subject(uri, **options)


def _foresee(subject: Any) -> Iterator[str]:
    yield from import_module("privgate.check.plan").foresee(subject)


def _open_door(name: str, /, *given: Any, **options: Any) -> Any:
    return getattr(import_module("privgate.evaluation.notebook"), name)(*given, **options)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'privgate' has no attribute {name!r}")
    value = getattr(import_module(f"privgate.{HOMES[name]}"), name)
    if name == "Subject":
        # the registry is a floor above the subject, and checks above the registry, so the package root wires them
        value.loader = staticmethod(_load)
    if name == "log_model":
        import_module("privgate.registry.log").FORESEEING.append(_foresee)
    if name == "Verdict":
        value.doors.update({door: partial(_open_door, door) for door in ("report", "plot", "overview")})
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(HOMES)
