"""Storing a trained model by the flavor that opens it natively again."""

import tempfile
from pathlib import Path
from typing import Any

from privgate.errors import SubjectError


def log(model: Any, *, name: str, example: Any, requirements: list[str], own_classes: bool) -> Any:
    """Log ``model`` into the active run and return MLflow's ``ModelInfo``.

    Parameters
    ----------
    model : any
        scikit-learn estimators and torch modules keep their own flavor; anything else is stored by cloudpickle behind
        MLflow's generic interface.
    name : str
        Name of the logged model.
    example : container
        A few records, for the column names and types of the signature only: no value of them is stored.
    requirements : list of str
        Pip requirements; given so that MLflow need not load the model to infer them.
    own_classes : bool
        The model may hold classes of a script, which only cloudpickle can store.
    """
    kind = _kind(model)
    if kind == "sklearn":
        return _log_sklearn(model, own_classes, name=name, signature=_signature(example), requirements=requirements)
    if kind == "pytorch":
        import mlflow.pytorch

        return mlflow.pytorch.log_model(model, name=name, serialization_format="pickle", pip_requirements=requirements)
    return _log_generic(model, name=name, requirements=requirements)


def _kind(model: Any) -> str:
    roots = {c.__module__.partition(".")[0] for c in type(model).__mro__}
    if "torch" in roots:
        return "pytorch"
    return "sklearn" if "sklearn" in roots else "generic"


def _signature(example: Any) -> Any:
    from mlflow.models import infer_signature

    try:
        return infer_signature(example)
    except (TypeError, ValueError, AttributeError):  # text, sparse or mixed input: serving works without one
        return None


def _log_sklearn(model: Any, own_classes: bool, *, name: str, signature: Any, requirements: list[str]) -> Any:  # noqa: FBT001  one caller
    import mlflow.sklearn

    options: dict[str, Any] = {"name": name, "signature": signature, "pip_requirements": requirements}
    trusted = None if own_classes else _skops_types(model)
    if trusted is None:
        return mlflow.sklearn.log_model(model, serialization_format="cloudpickle", **options)
    try:
        return mlflow.sklearn.log_model(
            model, serialization_format="skops", skops_trusted_types=trusted or None, **options
        )
    except TypeError:  # MLflow before skops came in
        return mlflow.sklearn.log_model(model, serialization_format="cloudpickle", **options)


def _skops_types(model: Any) -> list[str] | None:
    """Return the types that opening this model must trust: it was trained here; None where skops cannot store it."""
    try:
        import skops.io
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "model.skops")
        try:
            skops.io.dump(model, path)
            types = list(skops.io.get_untrusted_types(file=path))
            skops.io.load(path, trusted=types)
        except Exception:  # noqa: BLE001  skops raises a dozen kinds for what it cannot hold; cloudpickle then does
            return None
    return types


def _log_generic(model: Any, *, name: str, requirements: list[str]) -> Any:
    import mlflow.pyfunc

    # defined here so that cloudpickle stores the class itself: serving must not need privgate
    class Native(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is untyped here
        """Hold any object; answer with its probabilities or predictions."""

        def __init__(self, held: Any) -> None:
            self.privgate_native = held

        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            """Return probabilities where the object has them."""
            del context, params
            held = self.privgate_native
            for way in ("predict_proba", "predict"):
                if hasattr(held, way):
                    return getattr(held, way)(model_input)
            return held(model_input)

    Native.predict.__annotations__.clear()  # MLflow would read them as a schema
    try:
        return mlflow.pyfunc.log_model(name=name, python_model=Native(model), pip_requirements=requirements)
    except (TypeError, AttributeError) as exc:
        raise SubjectError(f"a model of type {type(model).__name__} cannot be stored: {exc}") from exc
