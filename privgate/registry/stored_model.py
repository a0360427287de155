"""The stored model: opened in workers only, with the recipe's own sources importable while it is."""

import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privgate.documents import door, strict_yaml
from privgate.errors import SubjectError
from privgate.registry import layout
from privgate.subject import sources


@dataclass(frozen=True)
class StoredModel:
    """A verified private copy of the registered model's files.

    Parameters
    ----------
    folder : Path
        The copy.
    flavor : str
        MLflow flavor that opens it natively, for example ``"sklearn"``.
    root : Path or None
        Source snapshot: a model may be made of the user's own classes.
    files : tuple of (path, sha256)
        What was verified; checked again before every opening, because retrained code runs beside the copy.
    """

    folder: Path
    flavor: str
    root: Path | None
    files: tuple[tuple[str, str], ...]

    def load(self) -> Any:
        """Return the native model object (runs stored code; workers only).

        Raises
        ------
        DigestMismatchError
            A file changed since it was verified.
        SubjectError
            The flavor's library is not installed, or the model needs a class that nobody recorded.
        """
        layout.compare(dict(self.files), layout.model_files(self.folder), "model")
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            with sources.importing_from(self.root):
                return self._open()
        except (ImportError, AttributeError) as exc:
            raise SubjectError(
                f"the stored {self.flavor} model cannot be opened: {exc}; install what it needs, or name the missing "
                "source file in Recipe(sources=...)"
            ) from exc
        finally:
            sys.dont_write_bytecode = before

    @property
    def servable(self) -> bool:
        """Whether MLflow can serve it at all: there is a python_function flavor."""
        return "python_function" in _flavors(self.folder)[0]

    def serve(self, X: Any) -> Any:
        """Return what a query to MLflow's own interface returns for records ``X`` (runs stored code; workers only).

        Raises
        ------
        DigestMismatchError
            A file changed since it was verified.
        SubjectError
            Who asks can choose what is returned, or the signature refuses the records.
        """
        import mlflow.exceptions
        import mlflow.pyfunc

        layout.compare(dict(self.files), layout.model_files(self.folder), "model")
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            with sources.importing_from(self.root):
                model = mlflow.pyfunc.load_model(str(self.folder))
                if getattr(model.metadata.signature, "params", None):
                    raise SubjectError(
                        "the served model takes parameters, by which who asks can choose what is returned; log it "
                        "without inference parameters"
                    )
                return model.predict(_as_sent(X, model.metadata.signature))
        except mlflow.exceptions.MlflowException as exc:
            if not str(exc).startswith("Failed to enforce schema"):
                raise
            # its beginning shows records; its end names a column and two types
            why = re.sub(r"['\"].*", "…", str(exc).rpartition("Error: ")[2].partition("\n")[0])
            why = why.removeprefix("Incompatible input types for ").partition(". Hint")[0][:90].rstrip(". ")
            raise SubjectError(
                f"the model's signature refuses some records ({why}); log it with one that accepts them, or without"
            ) from exc
        finally:
            sys.dont_write_bytecode = before

    def _open(self) -> Any:
        if self.flavor != "python_function":
            return importlib.import_module(f"mlflow.{self.flavor}").load_model(str(self.folder))
        import mlflow.pyfunc

        model = mlflow.pyfunc.load_model(str(self.folder))
        native = getattr(model.unwrap_python_model(), "privgate_native", None) if _is_python_model(model) else None
        return model if native is None else native


def _as_sent(X: Any, signature: Any) -> Any:
    """Return records as a client sends them: where a schema asks for text, a column of categories is text."""
    if signature is None or not hasattr(X, "iloc"):
        return X
    kinds = {name: dtype.categories.dtype for name, dtype in X.dtypes.items() if str(dtype) == "category"}
    return X.astype({name: object if dtype.kind == "O" else dtype for name, dtype in kinds.items()}) if kinds else X


def _is_python_model(model: Any) -> bool:
    return bool(model.metadata.flavors["python_function"].get("loader_module") == "mlflow.pyfunc.model")


def flavor_of(folder: Path) -> str:
    """Return the flavor that gives back the native model, from the MLmodel file.

    Raises
    ------
    SubjectError
        No MLmodel file, no flavor, or one that points into privgate's own folder.
    """
    flavors, content = _flavors(folder)
    native = [name for name in flavors if name != "python_function"]
    if not flavors:
        raise SubjectError("the MLmodel file lists no flavor; log the model again")
    for value in _texts(content):
        if value.strip("./").split("/")[0] == layout.FOLDER and "/" in value:
            raise SubjectError(f"the MLmodel file points into privgate's own folder ({value!r}); log the model again")
    return str(native[0]) if native else "python_function"


def _flavors(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return flavors and the whole content of the MLmodel file."""
    path = folder / "MLmodel"
    if not path.is_file():
        raise SubjectError("the logged model has no MLmodel file; log it again")
    try:
        content = strict_yaml.as_mlflow_reads(door.content(path).decode("utf-8"))
        flavors = dict(content["flavors"])
    except (OSError, *door.GARBLED) as exc:
        raise SubjectError(f"the MLmodel file cannot be read: {door.why(exc)}; log the model again") from exc
    return flavors, content


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]
