"""One change to what is judged, and which parameters make a model lean less on single records."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from privgate import digest
from privgate.errors import UsageError
from privgate.influence.risky_removal import without
from privgate.subject import estimators
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.subject import Subject

# Which parameters of common learners make a model lean less on single records, and in which direction.

#: keys and positions that lead to a value inside the JSON form of a recipe
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Knob:
    """One parameter of a learner.

    Parameters
    ----------
    parameter : str
    strongest : float
        The last value tried: beyond it little is left of the model.
    weakest : float
        Where the search starts if the parameter is None or 0, which no logarithm knows.
    whole : bool
        Whether values are whole numbers.
    beside : tuple of (parameter, value)
        What else to set where the knob alone leaves a theorem without a word: the same model, trained to its minimum.
    """

    parameter: str
    strongest: float
    weakest: float
    whole: bool = False
    beside: tuple[tuple[str, str | float], ...] = ()

    def start(self, present: Any) -> float | None:
        """Return the value from which to go on; None where the present one leaves nothing to do or is no number."""
        if present is not None and (isinstance(present, bool) or not isinstance(present, int | float)):
            return None
        if present is not None and not np.isfinite(present):
            return None
        value = self.weakest if present is None or not present > 0 else float(present)
        beyond = value >= self.strongest if self.strongest > self.weakest else value <= self.strongest
        return None if beyond else value

    def between(self, start: float, part: float) -> float | int:
        """Return the value at a part of the way, 0 to 1, from ``start`` to the strongest, in equal factors."""
        value = float(np.exp(np.log(start) + part * (np.log(self.strongest) - np.log(start))))
        # three digits: the value is typed by people, and the last digits of a bisection mean nothing
        return round(value) if self.whole else float(f"{value:.3g}")


_C = Knob("C", 1e-5, 1.0)
_SMOOTHING = Knob("alpha", 100.0, 1.0)
_PENALTY = Knob("alpha", 1e4, 1e-3)
_DEPTH = Knob("max_depth", 1, 8, whole=True)
_LEAF = Knob("min_samples_leaf", 2000, 1, whole=True)
_RATE = Knob("learning_rate", 0.01, 0.1)
_FOREST = (_LEAF, _DEPTH)
#: fewer trees take less time, and the search measures more
_TREES = (*_FOREST, Knob("n_estimators", 20, 100, whole=True))
_ROUNDS = Knob("n_estimators", 5, 100, whole=True)
_L2 = Knob("reg_lambda", 1e4, 1.0)
_BOOSTING = (_LEAF, _DEPTH, _RATE)
_HISTOGRAMS = (Knob("l2_regularization", 1e4, 1.0), *_BOOSTING, Knob("max_iter", 5, 100, whole=True))
_LIGHTGBM = (_L2, Knob("min_child_samples", 2000, 20, whole=True), _DEPTH, _RATE, _ROUNDS)
_XGBOOST = (_L2, Knob("min_child_weight", 500, 1.0), _DEPTH, _RATE, _ROUNDS)

#: class name -> knobs, the one that costs least usefulness first
KNOBS: Mapping[str, tuple[Knob, ...]] = {
    "LogisticRegression": (Knob("C", 1e-5, 1.0, beside=(("solver", "newton-cholesky"), ("tol", 1e-8))),),
    "LinearSVC": (_C,),
    "SVR": (_C,),
    "ElasticNet": (Knob("alpha", 1e6, 1e-3),),
    "KernelRidge": (Knob("alpha", 1e8, 1.0),),
    "KNeighborsRegressor": (Knob("n_neighbors", 500, 5, whole=True),),
    # merging rare categories, and rare words
    "OneHotEncoder": (Knob("min_frequency", 200, 2, whole=True),),
    "OrdinalEncoder": (Knob("min_frequency", 200, 2, whole=True),),
    "CountVectorizer": (Knob("min_df", 100, 1, whole=True),),
    "TfidfVectorizer": (Knob("min_df", 100, 1, whole=True),),
    "SVC": (_C,),
    "SGDClassifier": (_PENALTY,),
    "Ridge": (Knob("alpha", 1e8, 1.0),),
    "Lasso": (Knob("alpha", 1e6, 1e-3),),
    "RidgeClassifier": (Knob("alpha", 1e8, 1.0),),
    "MLPClassifier": (_PENALTY, Knob("max_iter", 2, 200, whole=True)),
    "MLPRegressor": (_PENALTY, Knob("max_iter", 2, 200, whole=True)),
    "BernoulliNB": (_SMOOTHING,),
    "CategoricalNB": (_SMOOTHING,),
    "ComplementNB": (_SMOOTHING,),
    "MultinomialNB": (_SMOOTHING,),
    "GaussianNB": (Knob("var_smoothing", 10.0, 1e-9),),
    "LinearDiscriminantAnalysis": (Knob("shrinkage", 1.0, 0.01),),
    "KNeighborsClassifier": (Knob("n_neighbors", 500, 5, whole=True),),
    "DecisionTreeClassifier": _FOREST,
    "DecisionTreeRegressor": _FOREST,
    "ExtraTreesRegressor": _TREES,
    "RandomForestClassifier": _TREES,
    "ExtraTreesClassifier": _TREES,
    "RandomForestRegressor": _TREES,
    "GradientBoostingClassifier": (*_BOOSTING, _ROUNDS),
    "GradientBoostingRegressor": (*_BOOSTING, _ROUNDS),
    "HistGradientBoostingClassifier": _HISTOGRAMS,
    "HistGradientBoostingRegressor": _HISTOGRAMS,
    "LGBMClassifier": _LIGHTGBM,
    "LGBMRegressor": _LIGHTGBM,
    "XGBClassifier": _XGBOOST,
    "XGBRegressor": _XGBOOST,
}

#: class name -> what turns on early stopping on records that the learner itself sets aside
EARLY: Mapping[str, tuple[str, bool | int]] = {
    "HistGradientBoostingClassifier": ("early_stopping", True),
    "HistGradientBoostingRegressor": ("early_stopping", True),
    "GradientBoostingClassifier": ("n_iter_no_change", 5),
    "GradientBoostingRegressor": ("n_iter_no_change", 5),
    "MLPClassifier": ("early_stopping", True),
    "MLPRegressor": ("early_stopping", True),
    "SGDClassifier": ("early_stopping", True),
}

#: parameters of a training function, by name: what its author calls C or max_depth is taken for that
BY_NAME: Mapping[str, Knob] = {
    k.parameter: k
    for k in (
        _C,
        _PENALTY,
        _DEPTH,
        _LEAF,
        _RATE,
        _L2,
        _ROUNDS,
        Knob("l2", 1e4, 1e-3),
        Knob("weight_decay", 1.0, 1e-4),
        Knob("epochs", 1, 20, whole=True),
        Knob("min_child_samples", 2000, 20, whole=True),
    )
}


def sites(payload: Mapping[str, Any]) -> Iterator[tuple[Place, Knob, Any]]:
    """Yield (place, knob, present value) of every parameter of a recipe that is known to matter, outermost first.

    Parameters
    ----------
    payload : mapping
        ``Recipe.payload``: nothing that it names is imported.
    """
    if payload["kind"] == "function":
        for name, value in payload["params"].items():
            if name in BY_NAME:
                yield ("params", name), BY_NAME[name], value
        return
    for place, name, params in learners(payload):
        for knob in KNOBS.get(name, ()):
            # boosting libraries leave unset what they decide later: None stands for their default
            yield (*place, "params", knob.parameter), knob, params.get(knob.parameter)


def learners(payload: Mapping[str, Any]) -> Iterator[tuple[Place, str, Mapping[str, Any]]]:
    """Yield (place, class name, JSON parameters) of every estimator of a recipe, outermost first."""
    if payload["kind"] == "estimator":
        yield from _inside(payload["estimator"], ("estimator",))


def _inside(spec: Any, place: Place) -> Iterator[tuple[Place, str, Mapping[str, Any]]]:
    if isinstance(spec, list):
        for i, value in enumerate(spec):
            yield from _inside(value, (*place, i))
    if not isinstance(spec, Mapping):
        return
    if spec.get("!") != "estimator":
        yield from _inside(spec.get("value"), (*place, "value"))
        return
    yield place, str(spec["class"]).rpartition(":")[2].rpartition(".")[2], spec["params"]
    for key, value in spec["params"].items():
        yield from _inside(value, (*place, "params", key))


Kind = Literal["none", "parameters", "shards", "remove", "release"]


class Setting(BaseModel):
    """One value inside a recipe's JSON form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: Place
    value: bool | int | float | str | None


class Change(BaseModel):
    """What is done to a subject; nothing at all is the model as it stands.

    Parameters
    ----------
    says : str
        For people, one phrase.
    settings : tuple of Setting
        Parameters of the recipe.
    shards : int
        Wrapped in ``privgate.models.Sharded`` with so many; 0 for not.
    dtp : float
        What the shards are clipped to, nats.
    removed : tuple of int
        Positions of people left out of training: as telling as their names.
    release : mapping, optional
        Another release.
    games : str
        Why a good number would not be a good model; empty for honest changes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    says: str
    kind: Kind = "none"
    settings: tuple[Setting, ...] = ()
    shards: int = 0
    dtp: float = 0.0
    removed: tuple[int, ...] = ()
    release: dict[str, Any] | None = None
    games: str = ""


class Rehearsal(Subject):
    """A subject whose randomness is not that of a check: what the search has looked at decides no verdict."""

    @property
    def training_digest(self) -> str:
        """As of the subject, and different from it."""
        return digest.of_json([super().training_digest, "advice"])


def changed(subject: Subject, change: Change) -> Subject:
    """Return the subject with a change made to it, as a local one: its model is whatever its recipe trains."""
    recipe = _recipe(subject, change)
    data = without(subject.data, np.array(change.removed, dtype=np.int64)) if change.removed else subject.data
    release = subject.release if change.release is None else Release.from_payload(dict(change.release))
    return Subject.local(recipe, data, release=release, name=subject.name)


def rehearsed(subject: Subject) -> Rehearsal:
    """Return the same subject for the search."""
    return Rehearsal(subject.recipe, subject.data, None, subject.release, subject.name, digests=subject.digests)


def _recipe(subject: Subject, change: Change) -> Recipe:
    recipe = subject.recipe
    if not (change.settings or change.shards):
        return recipe
    payload = copy.deepcopy(dict(recipe.payload))
    for setting in change.settings:
        _set(payload, setting.place, estimators.encode(setting.value))
    if change.shards:
        payload["estimator"] = _sharded(payload["estimator"], change, subject.classes, recipe.seed)
    if recipe.recorded is not None:
        return Recipe.read(payload, recipe.root)
    if payload["kind"] == "function":
        params = {k: estimators.decode(v, _known) for k, v in payload["params"].items()}
        return replace(recipe, params=params)
    held = estimators.decode(payload["estimator"], _known)
    return replace(recipe, training=held, params={})


def _set(payload: dict[str, Any], place: Place, value: Any) -> None:
    inside: Any = payload
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value


def _sharded(base: Any, change: Change, classes: NDArray[Any], seed: int | None) -> dict[str, Any]:
    from privgate.models import Sharded

    made = Sharded(None, shards=change.shards, dtp=change.dtp, classes=classes, random_state=seed or 0)
    spec: dict[str, Any] = estimators.encode(made)
    spec["params"]["base"] = base
    return spec


def _known(name: str) -> Any:
    """Return what a live recipe names: it was imported by whoever wrote it."""
    from privgate.subject import sources

    found = sources.resolve(name, None)
    if found is None:
        raise UsageError(f"{name} of the recipe cannot be found again")
    return found
