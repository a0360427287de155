"""Which parameters of common learners make a model lean less on single records, and a recipe with one turned."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from privgate.subject import estimators, sources
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.subject import Subject

Direction = Literal["lower", "higher"]
#: parameter, the direction in which it protects, and at most six values from weak to strong
Knob = tuple[str, Direction, tuple[float, ...]]

_C: Knob = ("C", "lower", (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4))  # inverse of the penalty
_RIDGE: Knob = ("alpha", "higher", (10.0, 100.0, 1e3, 1e4, 1e5, 1e6))  # penalty of squares
_PENALTY: Knob = ("alpha", "higher", (1e-3, 0.01, 0.1, 1.0, 10.0, 100.0))  # penalty
_SMOOTHING: Knob = ("alpha", "higher", (2.0, 5.0, 10.0, 20.0, 50.0, 100.0))  # counts added to each cell
_LEAF: Knob = ("min_samples_leaf", "higher", (5, 20, 50, 100, 300, 1000))  # records
_DEPTH: Knob = ("max_depth", "lower", (6, 4, 3, 2, 1))  # questions
_RATE: Knob = ("learning_rate", "lower", (0.05, 0.03, 0.02, 0.01))  # share of a step
_ROUNDS: Knob = ("n_estimators", "lower", (80, 50, 30, 20, 10, 5))  # trees
_L2: Knob = ("reg_lambda", "higher", (3.0, 10.0, 100.0, 1e3, 1e4))  # penalty
_NEIGHBOURS: Knob = ("n_neighbors", "higher", (10, 20, 50, 100, 200, 500))  # records
_FOREST = (_LEAF, _DEPTH)
_BOOSTING = (_LEAF, _DEPTH, _RATE, _ROUNDS)
#: penalty, records, questions, share of a step, trees
_HISTOGRAMS: tuple[Knob, ...] = (
    ("l2_regularization", "higher", _L2[2]),
    _LEAF,
    _DEPTH,
    _RATE,
    ("max_iter", "lower", _ROUNDS[2]),
)
#: penalty, and passes over the data
_NETWORK: tuple[Knob, ...] = (_PENALTY, ("max_iter", "lower", (100, 50, 20, 10, 5, 2)))

#: records in a leaf
_LIGHTGBM: tuple[Knob, ...] = (_L2, ("min_child_samples", "higher", (50, 100, 300, 1000)), _DEPTH, _ROUNDS)
#: weight in a leaf, which of a balanced label is a quarter a record
_XGBOOST: tuple[Knob, ...] = (_L2, ("min_child_weight", "higher", (5.0, 20.0, 100.0, 500.0)), _DEPTH, _ROUNDS)
#: class names -> their knobs, the one that costs least usefulness first
_OF_CLASSES: tuple[tuple[str, tuple[Knob, ...]], ...] = (
    ("LogisticRegression LinearSVC SVC SVR", (_C,)),
    ("Ridge RidgeClassifier KernelRidge", (_RIDGE,)),
    ("SGDClassifier Lasso ElasticNet", (_PENALTY,)),
    ("MLPClassifier MLPRegressor", _NETWORK),
    ("BernoulliNB CategoricalNB ComplementNB MultinomialNB", (_SMOOTHING,)),
    ("GaussianNB", (("var_smoothing", "higher", (1e-6, 1e-3, 0.01, 0.1, 1.0, 10.0)),)),
    ("LinearDiscriminantAnalysis", (("shrinkage", "higher", (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)),)),
    ("KNeighborsClassifier KNeighborsRegressor", (_NEIGHBOURS,)),
    ("TfidfVectorizer CountVectorizer", (("min_df", "higher", (5, 10, 20, 50, 100, 300)),)),  # texts with a word
    ("DecisionTreeClassifier DecisionTreeRegressor RandomForestClassifier RandomForestRegressor", _FOREST),
    ("ExtraTreesClassifier ExtraTreesRegressor", _FOREST),
    ("GradientBoostingClassifier GradientBoostingRegressor", _BOOSTING),
    ("HistGradientBoostingClassifier HistGradientBoostingRegressor", _HISTOGRAMS),
    ("LGBMClassifier LGBMRegressor", _LIGHTGBM),
    ("XGBClassifier XGBRegressor", _XGBOOST),
)
KNOBS: Mapping[str, tuple[Knob, ...]] = {name: own for names, own in _OF_CLASSES for name in names.split()}
#: what a theorem wants beside the knob: the same model, trained to its minimum; it knows no words of texts, and this
#: solver takes hours for as many columns
BESIDE: Mapping[str, Mapping[str, float | str]] = {"LogisticRegression": {"solver": "newton-cholesky", "tol": 1e-8}}
#: parameters of a training function, by name: what its author calls C or max_depth is taken for that
BY_NAME: Mapping[str, Knob] = {k[0]: k for k in (_C, _PENALTY, *_BOOSTING, _L2, ("epochs", "lower", (10, 5, 3, 2, 1)))}

#: keys and positions that lead to the parameters of one learner inside the JSON form of a recipe
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Change:
    """One parameter turned, and what a theorem wants beside it."""

    #: of the learner's parameters in the recipe
    place: Place
    #: its class, or the name of the training function
    learner: str
    #: parameter to JSON value; None before where it is unset
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def diff(self) -> list[str]:
        """The change as lines of a diff of the recipe."""
        lines = []
        for name, value in self.after.items():
            lines += [f"- {self.learner}: {name} = {self.before[name]!r}", f"+ {self.learner}: {name} = {value!r}"]
        return lines

    @property
    def says(self) -> str:
        """The change as one phrase."""
        return ", ".join(f"{self.learner} {n} {self.before[n]!r} becomes {v!r}" for n, v in self.after.items())

    def change(self, subject: Subject) -> Subject:
        """Return the changed subject, a local one: its model is whatever its recipe trains."""
        return Subject.local(self.applied(subject.recipe), subject.data, release=subject.release, name=subject.name)

    def applied(self, recipe: Recipe) -> Recipe:
        """Return the recipe with the change made to it."""
        payload = copy.deepcopy(dict(recipe.payload))
        inside: Any = payload
        for key in self.place:
            inside = inside[key]
        inside.update(self.after)
        if recipe.recorded is not None:
            return Recipe.read(payload, recipe.root)
        known = partial(sources.resolve, root=None)  # what a live recipe names, its author imported
        if payload["kind"] == "function":
            return replace(recipe, params={k: estimators.decode(v, known) for k, v in payload["params"].items()})
        return replace(recipe, training=estimators.decode(payload["estimator"], known), params={})


@dataclass(frozen=True)
class Floor:
    """Answers below a floor are released as it. The file holds exact numbers, so this and a statement go together."""

    #: as ``Release`` takes it
    floor: Any

    @property
    def diff(self) -> list[str]:
        """Both steps, and what of the floor has to be declared."""
        rare = "" if self.floor is True else "; declare a tenth of each rare event's rate as known without these data"
        return [
            f"+ log_model, log_recipe: release=Release(floor={self.floor!r}){rare}",
            "+ privgate check: --file-not-downloadable, if nobody who may ask the model can get its file",
        ]

    @property
    def says(self) -> str:
        """Both steps as one phrase."""
        return f"Release(floor={self.floor!r}), and --file-not-downloadable where nobody who may ask can get the file"

    def change(self, subject: Subject) -> Subject:
        """Return the subject with that release, a local one."""
        return Subject.local(subject.recipe, subject.data, release=Release(floor=self.floor), name=subject.name)


def find_floor(subject: Subject) -> Floor | None:
    """Return the floor that may help a subject; None where it does not release exact probabilities.

    That of a rare label is a tenth of its share to one digit, a suggestion: an endpoint that read it off the data would
    tell who is in them.
    """
    if subject.task != "classification" or not subject.release.exact:
        return None
    usual = min(0.01, 1 / (20 * (K := len(subject.classes))))
    shares = np.bincount(subject.label_codes, minlength=K) / subject.data.n  # 0 of a declared label that nobody has
    tenths = {k: float(f"{share / 10:.0e}") for k, share in zip(subject.classes.tolist(), shares, strict=True)}
    return Floor({k: low for k, low in tenths.items() if 0 < low < usual} or True)


def find_changes(payload: Mapping[str, Any]) -> Iterator[list[Change]]:
    """Yield for each knob of a recipe its changes, from weak to strong; nothing that the recipe names is imported."""
    learners = list(_list_learners(payload.get("estimator"), ("estimator",)))
    if payload["kind"] == "function":
        learners = [(("params",), str(payload["fit"]).rpartition(":")[2], payload["params"])]
    texts = any(name.endswith("Vectorizer") for _, name, _ in learners)
    for place, learner, params in learners:
        by_name = [BY_NAME[name] for name in params if name in BY_NAME]
        for name, direction, values in by_name if payload["kind"] == "function" else KNOBS.get(learner, ()):
            present = params.get(name)  # boosting libraries leave unset what they decide later
            if present is not None and (isinstance(present, bool) or not isinstance(present, int | float)):
                continue
            if isinstance(present, float) and present < 1 and isinstance(values[0], int):
                continue  # a share of the records, which no count is known to exceed
            if present is not None and direction == "lower" and present <= 0:
                present = None  # as LightGBM has no limit of depth
            stronger = [v for v in values if present is None or (v < present if direction == "lower" else v > present)]
            settled = {} if texts or payload["kind"] == "function" else BESIDE.get(learner, {})
            after = [{name: v, **{k: w for k, w in settled.items() if params.get(k) != w}} for v in stronger]
            if after:
                yield [Change(place, learner, {k: params.get(k) for k in a}, a) for a in after]


def _list_learners(spec: Any, place: Place) -> Iterator[tuple[Place, str, Mapping[str, Any]]]:
    """Yield (place of its parameters, name, parameters) of every learner of a recipe, outermost first."""
    if isinstance(spec, list):
        for i, value in enumerate(spec):
            yield from _list_learners(value, (*place, i))
    if not isinstance(spec, Mapping):
        return
    if spec.get("!") != "estimator":
        yield from _list_learners(spec.get("value"), (*place, "value"))
        return
    yield (*place, "params"), str(spec["class"]).rpartition(":")[2].rpartition(".")[2], spec["params"]
    for key, value in spec["params"].items():
        yield from _list_learners(value, (*place, "params", key))
