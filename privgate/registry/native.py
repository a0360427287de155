"""Storing a trained model by the flavor that opens it again, its environment, and opening it: in workers only."""

import contextlib
import importlib
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.registry import mlmodel
from privgate.registry.files import OLD_REPORTS, REPORTS, all_files, compare
from privgate.subject import accepted_questions, sources
from privgate.subject import release as releases
from privgate.subject.accepted_questions import Refusing
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.sources import find_version, providing, skops_io


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
    import mlflow.sklearn

    function = _function(model, serving)
    if not function:
        return _log_generic(model, serving, name=name, requirements=requirements)
    # a schema would refuse candidates beside which a column has another type
    alike = not hasattr(example, "columns") or list(example.dtypes) == list(questions.dtypes)
    signature = _signature(example, questions) if alike else None
    options = {"name": name, "signature": signature, "pip_requirements": requirements, "pyfunc_predict_fn": function}
    trusted = None if own_classes or serving.accepted is not None else _skops_types(model)
    if trusted is not None:
        options |= {"serialization_format": "skops", "skops_trusted_types": trusted or None}
        return mlflow.sklearn.log_model(model, **options)
    with sources.pickling_by_value([accepted_questions]):  # a serving machine needs no privgate
        held = model if serving.accepted is None else Refusing(model, serving.accepted)
        return mlflow.sklearn.log_model(held, serialization_format="cloudpickle", **options)


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
    usual = "predict_proba" if serving.release.exact else ""
    return "predict" if serving.release.form == "label" else usual


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
    with sources.pickling_by_value([releases, accepted_questions]):
        try:
            return mlflow.pyfunc.log_model(name=name, python_model=native, pip_requirements=requirements)
        except (TypeError, AttributeError) as exc:
            raise SubjectError(f"a model of type {type(model).__name__} cannot be stored: {exc}") from exc


# always recorded where installed: numbers change with their versions even if no source imports them by name
_BASE = ("numpy", "scipy", "scikit-learn", "pandas", "cloudpickle", "skops")


def record(imported: Iterable[str]) -> dict[str, Any]:
    """Return ``{"python": "3.11.9", "packages": {distribution: version}}`` of what a recipe imports."""
    names = {*providing(imported), *_BASE}
    versions = {name: version for name in sorted(names) if (version := find_version(name))}
    return {"python": platform.python_version(), "packages": versions}


def differences(recorded: Mapping[str, Any]) -> list[str]:
    """Return one sentence a difference between the recorded environment and this one; empty if they agree."""
    then, now = recorded.get("python"), platform.python_version()
    changes = [] if then == now else [f"recorded with Python {then}, running Python {now}"]
    for name, version in dict(recorded.get("packages", {})).items():
        if not (present := find_version(name)):
            changes.append(f"{name} {version} is not installed")
        elif present != version:
            changes.append(f"recorded with {name} {version}, running {present}")
    return changes


def requirements(recorded: Mapping[str, Any]) -> list[str]:
    """Return the environment as pip requirements, so that MLflow need not infer them by loading the model."""
    pinned = {"mlflow": find_version("mlflow"), **recorded["packages"]}
    return [f"{name}=={version}" for name, version in sorted(pinned.items()) if version]


#: keys of a flavor that name the files which its model is made of
_MADE_OF = ("model_path", "python_model", "data", "model_data", "pickled_model")


@dataclass(frozen=True)
class StoredModel:
    """A verified private copy of the registered model's files."""

    #: the copy
    folder: Path
    #: MLflow flavor that opens it natively, for example ``"sklearn"``
    flavor: str
    #: source snapshot: a model may be made of the user's own classes
    root: Path | None
    #: every file, as verified; checked again before every opening, because retrained code runs beside the copy
    files: tuple[tuple[str, str], ...]

    def load(self) -> Any:
        """Return the native model (runs stored code; workers only); ``SubjectError``: what opens it is missing."""
        return self._load_both()[1]

    def _load_both(self) -> tuple[Any, Any]:
        """Return what MLflow serves from, and the native model in it."""
        if any(name.endswith(".skops") for name, _ in self.files):
            with contextlib.suppress(ImportError):
                skops_io()
        try:
            with self._importable():
                return self._open()
        except (ImportError, AttributeError) as exc:
            why = f"{exc}; install what it needs, or import the missing file in the training function"
            raise SubjectError(f"the stored {self.flavor} model cannot be opened: {why}") from exc

    @contextlib.contextmanager
    def _importable(self) -> Iterator[None]:
        """Import from the recipe's sources, and leave no compiled code beside what was verified."""
        compare(dict(self.files), all_files(self.folder), "model")
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            with sources.importing_from(self.root):
                yield
        finally:
            sys.dont_write_bytecode = before

    @property
    def servable(self) -> bool:
        """Whether MLflow can serve it at all: there is a python_function flavor."""
        return mlmodel.SERVED in mlmodel.read(self.folder)[0]

    def serve(self, questions: Iterable[Any], *, again: bool) -> list[Any]:
        """Return what MLflow's own interface returns for each container of records (runs stored code; workers only).

        Opened ``again``, noise that is drawn from a fixed state shows.
        """
        import mlflow.exceptions

        try:
            with self._importable():
                model = _served.__wrapped__(self.folder) if again else _served(self.folder)
                if getattr(model.metadata.signature, "params", None):
                    raise SubjectError("the served model takes parameters, which may choose answers; log it without")
                return [model.predict(_as_sent(X, model.metadata.signature)) for X in questions]
        except mlflow.exceptions.MlflowException as exc:
            if not str(exc).startswith("Failed to enforce schema"):
                raise
            raise SubjectError(  # what MLflow says shows records
                "the model's signature refuses some records; log it with one that accepts them, or without"
            ) from exc

    def held(self) -> tuple[Any, Any, tuple[tuple[str, Path], ...], tuple[tuple[str, Path], ...]]:
        """Return all that MLflow serves from, the native model in it, its own files and all others (workers only)."""
        root, native = self._load_both()
        flavors, _ = mlmodel.read(self.folder)
        served = flavors.get(mlmodel.SERVED) or next(iter(flavors.values()))
        named = [str(served[k]).rstrip("/") for k in _MADE_OF if served.get(k)]
        kept = [(n, self.folder / n) for n, _ in self.files if not n.startswith((f"{REPORTS}/", OLD_REPORTS))]
        mine = tuple(file for file in kept if any(file[0] == m or file[0].startswith(f"{m}/") for m in named))
        return root, native, mine, tuple(file for file in kept if file not in mine)

    def _open(self) -> tuple[Any, Any]:
        """Return what MLflow serves from, and the native model out of it: no other one can reproduce in its place."""
        if not self.servable:
            native = importlib.import_module(f"mlflow.{self.flavor}").load_model(str(self.folder))
            return native, native

        model = _served(self.folder)
        root = vars(model).get("_PyFuncModel__model_impl", model)
        if model.metadata.flavors[mlmodel.SERVED].get("loader_module") == "mlflow.pyfunc.model":
            own = model.unwrap_python_model()
            native = getattr(own, "privgate_native", None)
            return root, OwnModel(model, own) if native is None else native
        try:
            native = model.get_raw_model()
        except NotImplementedError:
            return root, model
        return root, native.model if type(native).__name__ == Refusing.__name__ else native

    def answering(self, questions: Iterable[Any]) -> list[bool]:
        """Return which questions an interface answers that answers the first (runs stored code; workers only)."""
        import mlflow.pyfunc

        ways = list[Any]()
        with self._importable():
            if self.servable:
                served = _served(self.folder)
                ways.append(lambda X: served.predict(_as_sent(X, served.metadata.signature)))
            with contextlib.suppress(ImportError, AttributeError, mlflow.exceptions.MlflowException):
                native = importlib.import_module(f"mlflow.{self.flavor}").load_model(str(self.folder))
                ways += [f for f in (getattr(native, k, None) for k in ("predict_proba", "predict")) if callable(f)]
            first, *others = questions  # a way that does not answer about a record inside refuses nothing
            ways = [way for way in ways if _answered(way, first)]
            return [bool(ways), *(any(_answered(way, X) for way in ways) for X in others)]


class OwnModel:
    """A PythonModel as its author knows it: with its own attributes, asked as MLflow asks it or as it is written."""

    def __init__(self, served: Any, own: Any) -> None:
        self._served, self._own = served, own

    def __getattr__(self, name: str) -> Any:
        """Return what the author's object holds."""
        return getattr(self.__dict__["_own"], name)

    def predict(self, *records: Any, **named: Any) -> Any:
        """Answer records; with a context beside them, as the author's own function does."""
        return (self._own if len(records) + len(named) > 1 else self._served).predict(*records, **named)


@lru_cache(maxsize=1)
def _served(folder: Path) -> Any:
    import mlflow.pyfunc
    from mlflow.tracing import provider

    if not hasattr(provider, "_trace_disabled_lock"):  # newer ones make none, and where tracing is off they hang
        provider.disable()
    # the suppressed warnings are about versions of libraries, and MLflow reads every library's files for them
    return mlflow.pyfunc.load_model(str(folder), suppress_warnings=True)


def _answered(way: Any, X: Any) -> bool:
    with contextlib.suppress(Exception):  # whatever it raises, it does not answer
        way(X)
        return True
    return False


def _as_sent(X: Any, signature: Any) -> Any:
    if signature is None or not hasattr(X, "iloc"):
        return X
    kinds = {name: dtype.categories.dtype for name, dtype in X.dtypes.items() if str(dtype) == "category"}
    return X.astype({name: object if dtype.kind == "O" else dtype for name, dtype in kinds.items()}) if kinds else X
