"""Adversaries who know all about somebody but one feature, what anybody guesses without the model, and theorem 5."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.lab.attributes.sensitive_values import Attribute
from privgate.run.run import Run
from privgate.subject.data import TrainingData

# Adversaries who know everything about somebody but one feature, and ask the model with every value put in.
#
# What each sees of the model is one table: the log-likelihood of the known target under the model's answer, for every
# value. Of a regressor that is a normal density of the residual with the published training error; of a classifier the
# probability of the label, so that its inversion asks about every value and reads every label's confidence.

#: log-likelihoods are taken to be at least this, so that priors still tell equally impossible values apart
FLOOR = -1e6


@dataclass(frozen=True, eq=False)
class Seen:
    """What an adversary sees.

    Parameters
    ----------
    likelihood : float64 array of shape (P, m)
        Log-likelihood of each person's known target if the feature had each value.
    prior : float64 array of shape (m,)
    usual : float
        Log-likelihood at which a membership oracle says "member": that of a residual of the published training error,
        or of the published mean training loss.
    residual : float64 array of shape (P, m), optional
        Of a regressor: targets less answers, in deviations of the training targets.
    right : bool array of shape (P, m), optional
        Of a classifier: whether the label that it names with each value is the known one.
    confidence : float64 array of shape (P, m), optional
        Of a classifier: log-probability of the label that it names.
    known : float64 array of shape (P, q), optional
        Every other feature and the target, as numbers.
    """

    likelihood: Float
    prior: Float
    usual: float
    residual: Float | None = None
    right: Bool | None = None
    confidence: Float | None = None
    known: Float | None = None


class Adversary(ABC):
    """Guesses one feature of each person; -1 for no guess, which is never right."""

    name: str
    title: str
    source: str

    @abstractmethod
    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the position of the guessed value, shape (P,)."""


class Inversion(Adversary):
    """Adversary 4: the likeliest value, by prior times density of the error; model inversion of a classifier."""

    name = "inversion"
    title = "Model inversion (prior and likelihood)"
    source = "Yeom et al. (2020), Adversary 4; Fredrikson et al. (2014, 2015)"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the first of the likeliest values."""
        del rng
        return _best(np.log(seen.prior) + np.maximum(seen.likelihood, FLOOR))


class UniformOracle(Adversary):
    """Adversary 6: a random value, said if a membership oracle (Adversary 2) calls the record with it a member."""

    name = "uniform_oracle"
    title = "Membership oracle, one random value"
    source = "Yeom et al. (2020), Adversary 6"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the random value or nothing."""
        tried = rng.integers(0, len(seen.prior), len(seen.likelihood))
        member = seen.likelihood[np.arange(len(tried)), tried] >= seen.usual
        return np.where(member, tried, -1).astype(np.int64)


class QueryingOracle(Adversary):
    """Adversary 7: every value in the order of its prior, until a membership oracle (Adversary 2) says "member"."""

    name = "querying_oracle"
    title = "Membership oracle, every value"
    source = "Yeom et al. (2020), Adversary 7"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the most frequent of the values that the oracle accepts; nothing if it accepts none."""
        del rng
        accepted = seen.likelihood >= seen.usual
        weight = np.where(accepted, seen.prior, -1.0)
        return np.where(accepted.any(axis=1), _best(weight), -1).astype(np.int64)


class Confidence(Adversary):
    """Of the values with which the model names the known label, the most confident; where none does, the least.

    A model is sure of its members: where only one value gives the known label it was the member's own, and where none
    does, the answer that it is least sure of is nearest to what it learned.
    """

    name = "confidence"
    title = "Confidence of the label named"
    source = "Mehnaz et al. (2022), CSMIA"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the value; of a regressor nothing."""
        del rng
        if seen.right is None or seen.confidence is None:
            return np.full(len(seen.likelihood), -1, dtype=np.int64)
        some = seen.right.any(axis=1, keepdims=True)
        confidence = np.maximum(seen.confidence, FLOOR)
        return _best(np.where(some, np.where(seen.right, confidence, -np.inf), -confidence))


class LabelOnly(Adversary):
    """From labels alone: people for whom only one value gives the known label teach a tree, which guesses others."""

    name = "label_only"
    title = "Labels alone, taught by clear cases"
    source = "Mehnaz et al. (2022), LOMIA"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the value; the most frequent one where no case is clear, of a regressor nothing."""
        if seen.right is None or seen.known is None:
            return np.full(len(seen.likelihood), -1, dtype=np.int64)
        clear = seen.right.sum(axis=1) == 1
        own = _best(seen.right.astype(np.float64))
        if not clear.any():
            return np.full(len(own), int(seen.prior.argmax()), dtype=np.int64)
        from sklearn.tree import DecisionTreeClassifier

        tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=int(rng.integers(2**31)))
        taught = tree.fit(seen.known[clear], own[clear]).predict(seen.known)
        return np.asarray(np.where(clear, own, taught), dtype=np.int64)


#: every adversary that a regressor's answers are enough for, strongest first
ALL: tuple[Adversary, ...] = (Inversion(), QueryingOracle(), UniformOracle())
#: those that read the labels which a classifier names
OF_LABELS: tuple[Adversary, ...] = (Confidence(), LabelOnly())


def of(seen: Seen) -> tuple[Adversary, ...]:
    """Return the adversaries for which a model's answers are enough."""
    return ALL if seen.right is None else (*ALL, *OF_LABELS)


def normal(residual: Float, deviation: float) -> Float:
    """Return the log-density of normal residuals less its constant, which is the same for every value."""
    return np.asarray(-0.5 * (residual / deviation) ** 2)


def _best(score: Float) -> Index:
    return np.asarray(score.argmax(axis=1), dtype=np.int64)


# What anybody guesses without the model: the feature from all others and the target, learned from people outside.


def guesses(run: Run, attribute: Attribute, rows: Index, learn: NDArray[np.bool_]) -> Index:
    """Return the guessed value of each pool row, learned from those of ``rows`` that ``learn`` marks; all shape (U,).

    A forest on every other column, categories as codes, and the target. It sees no answer of the model.
    """
    from sklearn.ensemble import RandomForestClassifier

    table = known_of(run.subject.data, attribute.column, rows)
    known = learn & (attribute.codes[rows] >= 0)
    if len(np.unique(attribute.codes[rows][known])) < 2:
        return np.full(len(rows), int(np.argmax(attribute.prior)), dtype=np.int64)
    forest = RandomForestClassifier(100, min_samples_leaf=5, random_state=0, n_jobs=1)
    forest.fit(table[known], attribute.codes[rows][known])
    return np.asarray(forest.predict(table), dtype=np.int64)


def known_of(data: TrainingData, column: str | int, rows: Index) -> NDArray[np.float64]:
    """Return every feature but one, categories as codes, and the target of some pool rows."""
    X, y = data.pool()
    return np.column_stack([*_others(X, column, rows), _codes(np.asarray(y)[rows])])


def _others(X: Any, column: str | int, rows: Index) -> list[NDArray[np.float64]]:
    if hasattr(X, "iloc"):
        return [_codes(np.asarray(X[c])[rows]) for c in X.columns if c != column]
    return [_codes(np.asarray(X)[rows, j]) for j in range(X.shape[1]) if j != column]


def _codes(values: NDArray[Any]) -> NDArray[np.float64]:
    if values.dtype.kind in "biuf":
        return np.nan_to_num(values.astype(np.float64), nan=-1e9)
    return np.unique(values.astype(str), return_inverse=True)[1].astype(np.float64)


# Theorem 5 of Yeom et al. (2020): what inversion gains where errors are normal; a check, not a certificate.


def theorem_5(influence: float, inside: float, outside: float) -> float:
    """Return the advantage of Adversary 4 on a feature of two equally frequent values.

    Parameters
    ----------
    influence : float
        tau, by how much the feature moves the answer.
    inside, outside : float
        Standard errors on members and on other people, in the same unit; above 0.

    Examples
    --------
    >>> round(theorem_5(2.0, 1.0, 2.0), 4)
    0.1499
    >>> theorem_5(2.0, 1.0, 1.0), theorem_5(0.0, 1.0, 2.0)
    (0.0, 0.0)
    """
    return 0.5 * (
        math.erf(influence / (2 * math.sqrt(2) * inside)) - math.erf(influence / (2 * math.sqrt(2) * outside))
    )
