"""Storing a trained model by the flavor that opens it again, and the environment it was recorded in."""

import platform
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.subject import accepted_questions
from privgate.subject import release as releases
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.sources import providing, skops_io


@dataclass(frozen=True, eq=False)
class Serving:
    """What MLflow is to serve of a model."""

    #: whose ``predict`` gives the probabilities, or the model's ``predict_proba``
    recipe: Recipe
    #: what is handed out of them
    release: Release
    #: shape (K,): all labels that are declared, or that the training data have, sorted; not looked at for a regressor
    classes: NDArray[Any]
    #: the declared domain as JSON values: whatever lies outside is refused
    accepted: dict[str, Any] | None = None


def log(
    model: Any, *, name: str, example: Any, questions: Any, requirements: list[str], own_classes: bool, serving: Serving
) -> Any:
    """Log ``model`` into the active run and return MLflow's ``ModelInfo``."""
    function = _function(model, serving)
    if not function:
        return _log_generic(model, serving, name=name, requirements=requirements)
    # a schema would refuse candidates beside which a column has another type
    alike = not hasattr(example, "columns") or list(example.dtypes) == list(questions.dtypes)
    signature = _signature(example, questions) if alike else None
    options = {"name": name, "signature": signature, "pip_requirements": requirements, "pyfunc_predict_fn": function}
    return _log_sklearn(model, None if own_classes else _skops_types(model), serving.accepted, options)


def _function(model: Any, serving: Serving) -> str:
    """Return which function of a scikit-learn estimator is the declared release; empty if none is."""
    roots = {c.__module__.partition(".")[0] for c in type(model).__mro__}
    if "sklearn" not in roots or serving.recipe.predict is not None:
        return ""
    if serving.recipe.task == "regression":
        return "predict" if serving.release.exact else ""
    known = getattr(model, "classes_", None)
    if not hasattr(model, "predict_proba") or known is None or not np.array_equal(known, serving.classes):
        return ""
    if serving.release.form == "label":
        return "predict"
    return "predict_proba" if serving.release.exact else ""


def _signature(example: Any, questions: Any) -> Any:
    from mlflow.exceptions import MlflowException
    from mlflow.models import infer_signature, validate_schema
    from mlflow.types.schema import AnyType

    # a schema would turn texts into a frame, which no text pipeline reads
    if isinstance(example, list) or getattr(example, "ndim", 2) == 1:
        return None
    # nor does it accept categories, numbers with missing values or times of a zone, off which it was read
    kinds = example.dtypes if hasattr(example, "iloc") else ()
    if not all(isinstance(kind, np.dtype) or str(kind).startswith("string") for kind in kinds):
        return None
    try:
        signature = infer_signature(example)
        validate_schema(questions, signature.inputs)
    except (TypeError, ValueError, AttributeError, MlflowException):  # mixed input: serving works without one
        return None
    # uint64, durations and sparse arrays have no type of MLflow's, which would take one column of anything
    return None if any(isinstance(kind, AnyType) for kind in signature.inputs.input_types()) else signature


def _log_sklearn(
    model: Any, trusted: list[str] | None, accepted: dict[str, Any] | None, options: dict[str, Any]
) -> Any:
    import mlflow.sklearn

    if trusted is not None and accepted is None:
        return mlflow.sklearn.log_model(
            model, serialization_format="skops", skops_trusted_types=trusted or None, **options
        )
    with _by_value(accepted_questions):
        held = model if accepted is None else accepted_questions.Refusing(model, accepted)
        return mlflow.sklearn.log_model(held, serialization_format="cloudpickle", **options)


@contextmanager
def _by_value(*modules: Any) -> Iterator[None]:
    """Store classes of ours themselves: a serving machine needs those of the user, and not privgate."""
    import cloudpickle

    with ExitStack() as after:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
            after.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def _skops_types(model: Any) -> list[str] | None:
    """Return the types that opening this model must trust: it was trained here; None where skops cannot store it."""
    try:
        io = skops_io()
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "model.skops")
        try:
            io.dump(model, path)
            types = list(io.get_untrusted_types(file=path))
            io.load(path, trusted=types)
        except Exception:  # noqa: BLE001  skops raises a dozen kinds for what it cannot hold; cloudpickle then does
            return None
    return types


def _log_generic(model: Any, serving: Serving, *, name: str, requirements: list[str]) -> Any:
    import mlflow.pyfunc

    # defined here so that cloudpickle stores the class itself: serving must not need privgate
    class Native(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is untyped here
        """Hold any object; answer with the declared release of its probabilities."""

        def __init__(self, held: Any, serving: Serving, classes: Any, accepted: Any) -> None:
            self.privgate_native, self.privgate_classes, self.accepted = held, classes, accepted
            self.privgate_predict, self.privgate_release = serving.recipe.predict, serving.release

        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            """Return one row a record: a column a class in the order of the sorted labels, or the label alone."""
            del context, params
            held, classes = self.privgate_native, self.privgate_classes
            if self.accepted is not None:
                self.accepted.refuse(model_input)
            own = None
            if self.privgate_predict is not None:
                p = np.asarray(self.privgate_predict(held, model_input), dtype=np.float64)
            elif classes is None:
                p = np.asarray(held.predict(model_input), dtype=np.float64)
            else:
                p, own = np.asarray(held.predict_proba(model_input), dtype=np.float64), getattr(held, "classes_", None)
            if classes is None:  # a regressor
                return self.privgate_release.answered(p.reshape(len(p)))
            if p.ndim == 1:
                p = np.column_stack([1.0 - p, p])
            if own is not None and p.shape[1] == len(own) != len(classes):  # a label that this model never saw
                full = np.zeros((len(p), len(classes)))
                full[:, np.searchsorted(classes, own)] = p
                p = full
            shown = self.privgate_release.shown(p)
            return classes[shown.argmax(axis=1)] if self.privgate_release.form == "label" else shown

    Native.predict.__annotations__.clear()  # MLflow would read them as a schema
    Native.__init__.__annotations__.clear()  # they name modules of ours
    classes = None if serving.recipe.task == "regression" else serving.classes
    accepted = None if serving.accepted is None else accepted_questions.AcceptedQuestions(serving.accepted)
    native = Native(model, serving, classes, accepted)
    with _by_value(releases, accepted_questions):
        try:
            return mlflow.pyfunc.log_model(name=name, python_model=native, pip_requirements=requirements)
        except (TypeError, AttributeError) as exc:
            raise SubjectError(f"a model of type {type(model).__name__} cannot be stored: {exc}") from exc


# always recorded where installed: numbers change with their versions even if no source imports them by name
_BASE = ("numpy", "scipy", "scikit-learn", "pandas", "cloudpickle", "skops")


def record(imported: Iterable[str]) -> dict[str, Any]:
    """Return ``{"python": "3.11.9", "packages": {distribution: version}}`` of what a recipe imports."""
    names = {*providing(imported), *_BASE}
    versions = {name: version for name in sorted(names) if (version := _installed(name)) is not None}
    return {"python": platform.python_version(), "packages": versions}


def _installed(distribution: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(distribution)
    return None


def differences(recorded: Mapping[str, Any]) -> list[str]:
    """Return one sentence a difference between the recorded environment and this one; empty if they agree."""
    then, now = recorded.get("python"), platform.python_version()
    changes = [] if then == now else [f"recorded with Python {then}, running Python {now}"]
    for name, version in dict(recorded.get("packages", {})).items():
        if (present := _installed(name)) is None:
            changes.append(f"{name} {version} is not installed")
        elif present != version:
            changes.append(f"recorded with {name} {version}, running {present}")
    return changes


def requirements(recorded: Mapping[str, Any]) -> list[str]:
    """Return the environment as pip requirements, so that MLflow need not infer them by loading the model."""
    pinned = {"mlflow": _installed("mlflow"), **recorded["packages"]}
    return [f"{name}=={version}" for name, version in sorted(pinned.items()) if version]
