"""Where the goldens meet what is likely to move: how bounds, an engine's answers and commands are asked for."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
#: certificates that are gone -> who speaks in their place
RETIRED = {"linear_softmax": "newton", "lipschitz": "newton", "strong_convexity": "newton"}


def module(name: str, *folder: str) -> Any:
    """Return a module of the tests, which are no package."""
    place = str(TESTS.joinpath(*folder))
    if place not in sys.path:
        sys.path.insert(0, place)
    sys.modules.setdefault("tests", types.ModuleType("tests")).__path__ = [str(TESTS)]  # another distribution has one
    return importlib.import_module(name)


def instance(name: str, seed: int) -> Any:
    """Return a small subject of the family of a certificate, the same for the same seed."""
    from sklearn.base import clone

    from privgate import Recipe, Subject

    families = module("families", "theorems").FAMILIES
    subject = families[RETIRED.get(name, name)](np.random.default_rng(seed)).subject
    if name != "strong_convexity":
        return subject
    estimator = clone(subject.recipe.training).set_params(fit_intercept=False)
    return Subject.local(Recipe(estimator), subject.data)


def bounds(name: str, subject: Any) -> tuple[Any, Any] | None:
    """Return (lower, upper) of everybody over all questions, nats, by one certificate; None where it is silent."""

    from privgate.theorems import catalogue
    from privgate.theorems.closed_form import RefitRequest
    from privgate.theorems.theorem import Units

    InProcess, answer = module("in_process").InProcess, module("leaving_out").answer

    certificate = catalogue.THEOREMS.get(name) or catalogue.THEOREMS[RETIRED[name]]
    if certificate.refusal(subject):
        return None
    units, made, fleet = np.arange(len(subject.data.units)), None, None
    if certificate.needs_retrained:
        fleet = InProcess()
        made = answer(RefitRequest(subject, units, (None,), fleet), changes=True).retrained
    found = certificate.certify(Units(subject, units, made, limit=1.0, fleet=fleet))
    return found.lower, found.upper


def engine_cases() -> list[tuple[str, Any]]:
    """Return (name of an engine, subject) for each case of the laws of engines."""
    from privgate import Recipe, Subject, TrainingData

    laws = module("test_every_engine", "theorems")
    X, y, _rng = laws.design(26)  # the seed of its data when its row was kept
    return [("logistic-26", Subject.local(Recipe(laws.ESTIMATOR), TrainingData(X, y, one_record_each=True)))]


def engine(name: str, subject: Any) -> tuple[Any, Any] | None:
    """Return (low, high) of everybody's PDTP, nats, by one engine; None where it declines or hands somebody on."""
    from privgate.statistics.leakage import largest_change
    from privgate.theorems.catalogue import CLOSED_FORMS as ALL
    from privgate.theorems.closed_form import RefitRequest

    InProcess = module("in_process").InProcess

    one = next((e for e in ALL if e.name == name), None)
    if one is None or one.supports(subject):
        return None
    units = np.arange(len(subject.data.units))
    made, left = one.answers(RefitRequest(subject, units, (None,), InProcess()))
    if len(left):
        return None
    own = np.zeros(len(units))
    np.maximum.at(own, made.row_unit, largest_change(made.log_with[0], made.log_without[0]))
    return np.maximum(own - made.error, 0.0), np.where(made.status == "undefined", np.inf, own + made.error)
