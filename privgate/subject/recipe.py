"""The recipe: everything needed to train the model again."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.documents import strict_json
from privgate.errors import SubjectError
from privgate.subject import estimators, sources, tasks
from privgate.subject.claim import Claim
from privgate.subject.estimators import is_class_of, is_number_type
from privgate.subject.tasks import aligned, numbers

#: classes that went with 0.1.0
GONE = {"KeyedForest", "FrozenEncoder", "Floored", "RandomTrees", "BallLogistic", "KeyedDropout", "TorchTraining"}


@dataclass(frozen=True, eq=False)
class Recipe:
    """Everything needed to train the model again.

    Parameters
    ----------
    training : callable or estimator
        ``fit(X, y, *, seed, **params) -> model`` at the top level of a module, script or notebook, or a
        ``functools.partial`` of it; or an unfitted estimator or pipeline (anything with ``fit`` and ``get_params``).
    params : mapping
        Hyperparameters: keyword arguments of the function, or ``set_params`` of the estimator.
    seed : int, optional
        Given to the function, or set as every ``random_state`` of the estimator. A recipe trained with differential
        privacy must have none: a recorded seed lets every reader regenerate the noise.
    predict : callable, optional
        ``predict(model, X)``, for retrained models and the registered model alike: probabilities of shape (n, K) in the
        order of the sorted labels, or a regressor's numbers of shape (n,). ``predict_proba`` or ``predict`` if absent.
    dp : Claim, optional
        The differential-privacy claim.
    network : bool
        Training needs the network; said in report and statement. Without it a boxed training finds none.
    public : mapping from parameter to text, optional
        Parameters that owe nothing to the people in the data, and where each comes from; or paths of files that
        training opens, with their people and their author. Page one repeats the text; privgate cannot check it.
    task : {"classification", "regression"}, optional
        Whether targets are labels or numbers. Read off scikit-learn estimators; a function needs it if its targets
        could be either.
    """

    training: Any
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    predict: Any = None
    dp: Claim | None = None
    network: bool = False
    task: str | None = None
    public: Mapping[str, str] = field(default_factory=dict)
    #: set when the recipe was read back: JSON form and folder of the source snapshot; nothing is imported then
    recorded: Mapping[str, Any] | None = field(default=None, repr=False)
    root: Path | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.recorded is not None:
            return
        training, params = self.training, self.params
        while isinstance(training, partial):
            if training.args:
                raise SubjectError("the partial gives arguments by position, where X and y go; give them by name")
            params, training = {**training.keywords, **params}, training.func
        object.__setattr__(self, "training", training)
        object.__setattr__(self, "params", params)
        if not (callable(training) or self.is_estimator):
            raise SubjectError(f"{sources.FORM}, not {type(training).__name__}")
        self._check_origins()
        whole: Any = self.seed  # people give text, or half a number
        if whole is not None and not (isinstance(whole, int | np.integer) and 0 <= whole < 2**32):
            raise SubjectError(f"seed must be a whole number in [0, 2^32), not {self.seed!r}")
        if self.task is None and self.predict is None and self.is_estimator:
            own = tasks.of_estimator(training)
            object.__setattr__(self, "task", own if own == "regression" else None)
        if self.task not in (None, *tasks.TASKS):
            raise SubjectError(f"no task {self.task!r}; it is one of {', '.join(tasks.TASKS)}")
        if not self.is_estimator:
            sources.check_training(training, params)
        elif unknown := set(params) - set(training.get_params() if params else ()):
            raise SubjectError(f"{type(training).__name__} has no parameter {min(unknown)!r}")
        if any(getattr(function, "__module__", None) == "__main__" for function in (training, self.predict)):
            sources.collect(self._references())  # refused before anything is trained or logged

    def _check_origins(self) -> None:
        for name, value in self.params.items():
            if estimators.is_fitted(value):
                raise SubjectError(f"parameter {name!r} is fitted, and what it learned is not stored; fit it inside")
        for name, words in self.public.items():
            if not str(words).strip():
                raise SubjectError(f"public[{name!r}] must say in words where the parameter comes from")

    @property
    def refusal(self) -> str:
        """Why nothing can be judged of a model that this trains, known without training; empty if nothing is known."""
        known, predicts = self._known_estimator, self.payload["predict"] is not None
        return "" if known is None else tasks.refusal(known, self.task or "", predicts=predicts)

    def unclear_task(self, y: NDArray[Any]) -> str:
        """Return why the recipe must declare its task, labels or numbers; empty if it does, or if ``y`` decides."""
        if self.task is not None:
            return ""
        known = tasks.of_estimator(self._known_estimator) == "classification"
        return tasks.unclear_task(np.asarray(y), classifier=known)

    @property
    def _known_estimator(self) -> Any:
        if self.recorded is not None:
            return self.estimator_of("sklearn.", "privgate.models:")
        return self.training if self.is_estimator else None

    @property
    def is_estimator(self) -> bool:
        """Whether this is an estimator (or pipeline) rather than a function."""
        if self.recorded is not None:
            return bool(self.recorded["kind"] == "estimator")
        return estimators.is_estimator(self.training)

    @cached_property
    def payload(self) -> Mapping[str, Any]:
        """The JSON form: ``recipe.json`` without digests of data and model."""
        if self.recorded is not None:
            return self.recorded
        declared = {"network": self.network, "task": self.task, "public": dict(self.public)}
        common = {
            "schema": "privgate/recipe/v1",
            "seed": self.seed,
            "predict": None if self.predict is None else estimators.reference(self.predict),
            "dp": None if self.dp is None else self.dp.payload(),
            # what is not declared is not written: digests of recipes from before there was a choice stay
            **{k: v for k, v in declared.items() if v},
        }
        if self.is_estimator:
            estimator = _configured(self.training, self.params)
            return {**common, "kind": "estimator", "estimator": estimators.encode(estimator), "params": {}}
        params = {k: estimators.encode(v) for k, v in self.params.items()}
        return {**common, "kind": "function", "fit": estimators.reference(self.training), "params": params}

    @cached_property
    def snapshot(self) -> Mapping[str, bytes]:
        """Relative path -> content of every source file that belongs to the recipe (user code only)."""
        if self.root is not None:
            held = (p for p in sorted(self.root.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
            return {p.relative_to(self.root).as_posix(): p.read_bytes() for p in held}
        return sources.collect(self._references())

    def _references(self) -> list[str]:
        return [*estimators.references([self.payload.get("estimator"), *self.payload["params"].values()]), *self._named]

    @property
    def _named(self) -> list[str]:
        return [r for r in (self.payload.get("fit"), self.payload["predict"]) if isinstance(r, str)]

    @cached_property
    def digest(self) -> str:
        """Digest of the JSON form and of every source file."""
        files = {name: digest.of_bytes(content) for name, content in self.snapshot.items()}
        return digest.of_json([dict(self.payload), files])

    @classmethod
    def read(cls, payload: Mapping[str, Any], root: Path | None) -> Self:
        """Return a recipe from its JSON form and the folder of its source snapshot; nothing of it is imported here."""
        if payload.get("schema") != "privgate/recipe/v1":
            raise SubjectError(f"recipe.json has schema {payload.get('schema')!r}, and not privgate/recipe/v1")
        if payload.get("made_by"):
            raise SubjectError("the recipe says made_by, which went with 0.1.0; make it in the training function")
        dp = None if payload["dp"] is None else Claim.from_payload(payload["dp"])
        about = {"seed": payload["seed"], "network": bool(payload.get("network")), "task": payload.get("task")}
        if gone := GONE.intersection(re.findall(r"privgate\.[\w.]+:(\w+)", json.dumps(dict(payload)))):
            said = "which went with 0.1.0, the last version that knew it: the changelog says what to use instead"
            raise SubjectError(f"the recipe names {min(gone)!r}, {said}")
        return cls(None, **about, dp=dp, recorded=dict(payload), root=root)

    # in workers only: these run the user's code

    def _resolve(self, ref: str) -> Any:
        return sources.resolve(ref, self.root)

    @property
    def estimator(self) -> Any:
        """An unfitted estimator, seeded; None for a function.

        Importing a user's own class runs the user's code, so engines ask ``library_estimator`` instead.
        """
        if not self.is_estimator:
            return None
        if self.recorded is None:
            from sklearn.base import clone

            estimator = _configured(clone(self.training), self.params)
        else:
            estimator = estimators.decode(self.recorded["estimator"], self._resolve)
        return estimators.set_seed(estimator, self.seed)

    @property
    def library_estimator(self) -> Any:
        """The estimator if made of scikit-learn's and our own classes alone, released by ``predict_proba``; or None."""
        return None if self.payload["predict"] is not None else self.estimator_of("sklearn.", "privgate.models:")

    def estimator_of(self, *homes: str) -> Any:
        """Return the estimator if all that it names are classes of estimators at places like ``"sklearn."``; else None.

        The process that asks makes it, and theorems fit it there, outside any box: whoever wrote the recipe may name
        such classes and nothing that their modules import, no files, and no modules of these names in its snapshot.
        """
        if not self.is_estimator:
            return None
        spec = self.payload["estimator"]
        with strict_json.reading("the recipe's estimator cannot be made", SubjectError):
            named = estimators.references(spec)
            if estimators.names_files(spec) or not all(r.startswith(homes) or is_number_type(r) for r in named):
                return None
        if self.recorded is None:
            return self.estimator
        whole = isinstance(spec, Mapping) and spec.get("!") == "estimator"
        if not whole or self._shadows_libraries:
            return None
        classes = estimators.find_classes(spec, lambda ref: sources.resolve(ref, None))
        if not all(is_number_type(r) or is_class_of(homes, thing) for r, thing in classes.items()):
            return None
        with strict_json.reading("the recipe's estimator cannot be made", SubjectError):
            return estimators.set_seed(estimators.decode(spec, classes.__getitem__), self.seed)

    @property
    def own_model(self) -> Mapping[str, Any] | None:
        """The recorded constructor arguments of one of ``privgate.models``, with its name as ``"class"``; else None."""
        spec = self.payload.get("estimator")
        if not self.is_estimator or self.payload["predict"] is not None or not isinstance(spec, Mapping):
            return None
        home, _, name = str(spec.get("class")).partition(":")
        ours = home == "privgate.models" and not self._shadows_libraries
        return {**spec["params"], "class": name} if ours else None

    @property
    def _shadows_libraries(self) -> bool:
        """Whether the snapshot brings modules of its own by the names of those that theorems speak about."""
        return any(part.split("/")[0].split(".")[0] in ("sklearn", "privgate") for part in self.snapshot)

    def train(self, X: Any, y: NDArray[Any], *, seed: int | None) -> Any:
        """Run the training function; only ever called in a worker."""
        if self.is_estimator:
            estimator = estimators.set_seed(self.estimator, seed)
            with estimators.seeded(estimator, seed):
                return estimator.fit(X, y)
        if self.recorded is None:
            function, params = self.training, dict(self.params)
        else:
            function = self._resolve(self.recorded["fit"])
            params = {k: estimators.decode(v, self._resolve) for k, v in self.recorded["params"].items()}
        return function(X, y, seed=seed, **params)

    def answerless(self, model: Any) -> str:
        """Return why a trained model answers nothing that could be judged; empty if it does."""
        wanted = "predict" if self.task == "regression" else "predict_proba"
        if self.payload["predict"] is not None or hasattr(model, wanted):
            return ""
        return f"{type(model).__name__} has no {wanted}; give the recipe predict=fn(model, X)"

    def probabilities(self, model: Any, X: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
        """Return the released probabilities of a model for queries X, float64 of shape (n, K), by sorted ``classes``.

        A class that the model does not know has 0. ``SubjectError``: other numbers of classes, NaN or negative numbers.
        """
        predict = self._predict(model)
        raw = np.asarray(predict(model, X) if predict is not None else model.predict_proba(X), dtype=np.float64)
        return aligned(raw, getattr(model, "classes_", None) if predict is None else None, classes)

    def predictions(self, model: Any, X: Any) -> NDArray[np.float64]:
        """Return a regressor's finite answers, float64 of shape (n,); ``SubjectError``: there are others."""
        predict = self._predict(model)
        raw = predict(model, X) if predict is not None else model.predict(X)
        return numbers(np.asarray(raw, dtype=np.float64))

    def _predict(self, model: Any) -> Any:
        if why := self.answerless(model):
            raise SubjectError(why)
        predict = self.predict if self.recorded is None else self.recorded["predict"]
        return self._resolve(predict) if isinstance(predict, str) else predict


def _configured(estimator: Any, params: Mapping[str, Any]) -> Any:
    return estimator.set_params(**dict(params)) if params else estimator
