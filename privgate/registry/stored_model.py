"""The stored model: opened in workers only, with the recipe's own sources importable while it is."""

import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from privgate.errors import SubjectError
from privgate.registry import mlmodel
from privgate.registry.files import OLD_REPORTS, REPORTS, all_files, compare
from privgate.subject import sources
from privgate.subject.accepted_questions import Refusing
from privgate.subject.sources import skops_io

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
            why = f"{exc}; install what it needs, or name the missing source file in Recipe(sources=...)"
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
                    raise SubjectError(
                        "the served model takes parameters, which may choose what is returned; log it without them"
                    )
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
