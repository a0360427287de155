"""The subject: what is judged, named by digests."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate import digest
from privgate.errors import SubjectError
from privgate.subject import estimators, tasks
from privgate.subject.containers import scale_of
from privgate.subject.data import TrainingData
from privgate.subject.domain import Domain
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release


def _no_import(name: str) -> Any:
    raise SubjectError(f"labels are declared as {name}, which is no list of labels")


@dataclass(frozen=True, eq=False)
class Subject:
    """What is judged: a model version with its recipe and data, each named by digest.

    Parameters
    ----------
    recipe, data : Recipe, TrainingData
        What trained it.
    model : registered model, optional
        Its ``load()`` returns the stored model, in workers only; a local subject's is whatever the recipe trains.
    release : Release
        What a query to the deployed model returns.
    name, version, uri : str
        The registry's words; empty for a local subject.
    digests, detail : mapping
        ``model``, ``recipe``, ``data`` and more, each ``sha256:<hex>``; and JSON values for the report.
    beyond : str
        Why the served model may answer what the declared domain rules out; empty where it was seen to refuse it.
    """

    #: wired by the package root: the registry is a floor above this one
    loader: ClassVar[Callable[..., "Subject"]]

    recipe: Recipe
    data: TrainingData
    model: Any = None
    release: Release = field(default_factory=Release)
    name: str = ""
    version: str = ""
    uri: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    beyond: str = ""

    def __post_init__(self) -> None:
        numbers, release = self.task == "regression", self.release
        if numbers and self.data.y.dtype.kind not in "biuf":
            raise SubjectError("the recipe declares task='regression', but the targets are no numbers")
        if numbers and (release.form != "probabilities" or release.temperature != 1.0 or release.floor):
            raise SubjectError("a regressor releases its numbers, or these with noise: Release(noise=Laplace(scale))")
        if not numbers and release.noise is not None:
            raise SubjectError("noise is for numbers, and this recipe trains a classifier; declare task='regression'")
        object.__setattr__(self, "data", self.data.as_targets() if numbers else self.data)
        object.__setattr__(self, "release", release.resolved(self.classes) if release.floor else release)

    @classmethod
    def load(cls, uri: str, *, tracking_uri: str | None = None) -> "Subject":
        """Return the subject that a registry names; nothing of it is executed here."""
        return cls.loader(uri, tracking_uri=tracking_uri)

    @classmethod
    def local(cls, recipe: Recipe, data: TrainingData, *, release: Release | None = None, name: str = "local") -> Self:
        """Return a subject without a registry, for notebooks and tests."""
        digests = {"recipe": recipe.digest, "data": data.digest}
        return cls(recipe, data, release=release or Release(), name=name, digests=digests)

    @property
    def task(self) -> tasks.Task:
        """Whether the model names classes or predicts numbers."""
        return "regression" if self.recipe.task == "regression" else "classification"

    @property
    def answers(self) -> str:
        """What an answer is, in the words of ``Metric.answers``: probabilities, numbers, or numbers with noise."""
        if self.task == "classification":
            return "probabilities"
        return "numbers" if self.release.noise is None else "noisy numbers"

    @property
    def accepted(self) -> Domain | None:
        """Which questions a theorem may be about: the declared domain, None where the model answers others too."""
        return None if self.beyond else self.data.domain

    @property
    def width(self) -> int:
        """Numbers in one answer: one a class, or the one number of a regressor."""
        return 1 if self.task == "regression" else len(self.classes)

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Mean and standard deviation of a regressor's targets: what its answers are told in between rooms."""
        return scale_of(self.data.y)

    def comparable(self, answers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return probabilities from log-probabilities; a regressor's answers as they are."""
        return answers if self.task == "regression" else np.exp(answers)

    @property
    def classes(self) -> NDArray[Any]:
        """Sorted labels, shape (K,): those that the recipe declares, or else those of the training set."""
        return self.data.classes if self.declared_classes is None else self.declared_classes

    @cached_property
    def declared_classes(self) -> NDArray[Any] | None:
        """Sorted labels that one of ``privgate.models`` declares; None where labels are read off the data."""
        stated = estimators.decode((self.recipe.own_model or {}).get("classes"), _no_import)
        if stated is None:
            return None
        declared = np.unique(np.asarray(stated))
        return declared if np.isin(self.data.classes, declared).all() else None

    @property
    def training_digest(self) -> str:
        """Digest of recipe and data together: what a retrained model depends on."""
        return digest.of_json([self.recipe.digest, self.data.digest, *self.data.order])

    def generator(self, purpose: str) -> Generator:
        """Return randomness that is the same for the same recipe, data and purpose, on every machine."""
        key = hashlib.sha256(f"{self.training_digest}:{purpose}".encode())
        return digest.generator(key.hexdigest(), digits=32)

    def with_data(self, data: TrainingData) -> Self:
        """Return the same recipe on other data, without a stored model."""
        return replace(self, data=data, model=None, digests={"recipe": self.recipe.digest, "data": data.digest})

    @cached_property
    def label_codes(self) -> NDArray[np.int64]:
        """Position of each record's label in ``classes``, shape (n,)."""
        return np.asarray(np.searchsorted(self.classes, self.data.y), dtype=np.int64)
