"""Class counts with and without a unit, and the posteriors they give: what the counting naive Bayes engines share.

A class-conditional log-likelihood that is a function of counts of its own class changes, when a unit is left out, only
in the classes that the unit's records have: one for a record, a few for a person. Everything else is looked up in the
full model.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families.closed_form import NO_VALUE, VANISHED, ClosedForm, Form, Joint, Removal, Scores, normalized
from privgate.families.engine import Asked, Declined, LibraryEngine
from privgate.families.over_all_queries import applies
from privgate.families.retrained import Retrained, Seeds, Shadows, Status
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: nats by which taking a unit's features off a sum may be wrong before the unit is handed on; units in the last place
#: that a sum of many may have lost
SURE, LOST = 1e-5, 32.0


@dataclass(frozen=True, eq=False)
class Prior:
    """Class priors, learnt from the counts or fixed by the recipe.

    Parameters
    ----------
    counts : float64 array of shape (K,)
        Records of each class.
    fixed : float64 array of shape (K,) or None
        Log-priors that do not depend on the data.
    listed : bool
        Whether the recipe lists one prior a class: training then fails where a class is missing.
    """

    counts: Float
    fixed: Float | None
    listed: bool

    def log(self, counts: Float) -> Float:
        """Return log-priors up to a constant for class counts of shape (..., K); -inf for a class without records."""
        with np.errstate(divide="ignore"):
            learnt = np.log(counts)
        if self.fixed is None:
            return np.asarray(learnt)
        return np.where(counts > 0, self.fixed, -np.inf)


def prior_of(estimator: Any, subject: Subject) -> Prior:
    """Return the prior that scikit-learn's discrete naive Bayes classes use (``_update_class_log_prior``)."""
    K = len(subject.classes)
    counts = np.bincount(subject.label_codes, minlength=K).astype(np.float64)
    learnt, fixed = applies.prior(estimator)
    uniform = None if learnt else np.full(K, -np.log(K))
    return Prior(counts, uniform if fixed is None else fixed, listed=fixed is not None)


def prior_refusal(estimator: Any, subject: Subject) -> str:
    """Return why the priors cannot be reproduced; empty if they can."""
    if estimator.class_prior is None:
        return ""
    array = np.asarray(estimator.class_prior, dtype=np.float64)
    fine = array.shape == (len(subject.classes),) and (array >= 0).all()
    return "" if fine else "class_prior does not list one probability for each class"


class ClassModel(ABC):
    """A log-likelihood of features given the class, with and without the records of a unit."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers that one row touches: sets the block size."""

    def prepare(self, removal: Removal) -> Any:
        """Return whatever the other two methods share for the units of one block."""
        return removal

    @abstractmethod
    def scores(self, queries: Index, unit: Index, prepared: Any) -> tuple[Float, Float | None]:
        """Return log p(x | c) of the full model at pool rows, shape (Q, K), and the same without each row's unit.

        The second is None where only the classes that lose records change. ``unit`` (Q,) indexes ``removal.first``.
        """

    def without(self, queries: Index, pair: Index, removal: Removal, prepared: Any) -> Float | None:
        """Return log p(x | c) without the records of each pair, shape (C,); None where ``scores`` said it all.

        ``pair`` (C,) indexes ``removal``.
        """
        return None

    def doubt(self, queries: Index, pair: Index, removal: Removal) -> Float | None:
        """Return what rounding may do to ``without``, nats, shape (C,); None where counts are exact, or made anew."""
        return None

    def missing(self, subject: Subject, units: Index) -> Mapping[int, str]:
        """Return position in ``units`` -> why the model without that unit has no value."""
        return {}

    def representatives(self, rows: Index, labels: Index) -> tuple[Index, Index] | None:
        """Return (first, inverse) of training records that share one answer; None where looking costs more."""
        return None


class OnSubsets(NamedTuple):
    """Models on subsets of the pool."""

    log_p: Float  # (N, P, K)
    prior: Prior
    failed: NDArray[np.bool_] | None = None  # (N,) training or evaluation would raise
    why: str = ""


class CountingEngine(LibraryEngine, ClosedForm):
    """A closed form of naive Bayes; it says what it covers and gives the model and the prior."""

    def model(self, subject: Subject) -> tuple[ClassModel, Prior]:
        """Return the log-likelihoods and the prior."""
        raise NotImplementedError

    def prepared(self, subject: Subject) -> tuple[ClassModel, Prior]:
        """Return the log-likelihoods and the prior."""
        return self.model(subject)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return every unit, exactly; handed on is who holds so much of a sum that taking it off leaves no digits.

        The posterior without a unit of a class c that loses m of its N_c records is ``prior(N_c - m) p'(x | c)``,
        normalized; ``p'`` comes from the decremented counts, all other classes from the full model.

        Notes
        -----
        Time O(R (d + K)) for R (unit, query) rows. Equal records of one class share one answer (the contingency-table
        route) where the model can name them cheaply.
        """
        subject, units = asked.subject, asked.units
        model, prior = self.model(subject) if asked.common is None else asked.common
        shared = None
        if asked.queries is None and subject.data.groups is None:
            shared = model.representatives(units, subject.label_codes)
        kept = units if shared is None else units[shared[0]]
        form = Form(_joint(model, prior), model.width, undefined=model.missing(subject, kept))
        made, left = self.evaluated(form, replace(asked, units=kept))
        if shared is None:
            return made, left
        if len(left):
            raise Declined("sums of features are not exact, and some have no digits left without one person")
        return _repeated(made, units, shared[1]), left

    def on_subsets(self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float) -> OnSubsets | None:
        """Return models on subsets; None where there is no fast way.

        Parameters
        ----------
        label : int64 array of shape (P,)
            Class of each pool record.
        totals : float64 array of shape (N, K)
            Class counts of each subset.
        """
        raise NotImplementedError

    def subsets(self, subject: Subject, masks: NDArray[np.bool_], seeds: Seeds, fleet: Fleet) -> Shadows | None:
        """Return models on subsets of the pool; None if a candidate has a label that no training record has."""
        del fleet
        classes = subject.classes
        y = subject.data.pool_labels if subject.data.candidates is not None else subject.data.y
        label = np.minimum(np.searchsorted(classes, y), len(classes) - 1).astype(np.int64)
        if not np.array_equal(classes[label], y):
            return None
        totals = masks.astype(np.float64) @ (label[:, None] == np.arange(len(classes))).astype(np.float64)
        made = self.on_subsets(subject, masks, label, totals)
        return None if made is None else _shadows(self.name, made, masks, seeds, totals)


def _joint(model: ClassModel, prior: Prior) -> Joint:
    log_prior = prior.log(prior.counts)

    def joint(lost: Removal, unit: Index, query: Index) -> Scores:
        prepared = model.prepare(lost)
        full, rest = model.scores(query, unit, prepared)
        without = (full if rest is None else rest) + log_prior
        row, pair = lost.pairs_of(unit)
        label = lost.label[pair]
        left = prior.counts[label] - lost.lost[pair]
        touched = model.without(query[row], pair, lost, prepared)
        base = np.log(left) if prior.fixed is None else prior.fixed[label]
        value = without[row, label] - log_prior[label] if touched is None else touched
        without[row, label] = np.where(left > 0, value + base, -np.inf)
        sure = np.ones(len(query), dtype=bool)
        doubt = model.doubt(query[row], pair, lost)
        if doubt is not None:
            np.logical_and.at(sure, row, doubt <= SURE)
        return Scores(full + log_prior, without, sure)

    return joint


def taken_off(
    x: Float, pair: Index, removal: Removal, X: Float, table: tuple[Float, Float, NDArray[np.bool_]]
) -> Float | None:
    """Return how far ``sum_j x_j ln(left_j / sum left)`` may be off where a unit leaves ``left``, nats, shape (C,).

    Parameters
    ----------
    x : float64 array of shape (C, d)
        Queries, not negative.
    pair : int64 array of shape (C,)
        Indexes ``removal``.
    X : float64 array of shape (P, d)
    table : (counts (K, d), smoothing (d,), whether a feature's sums are exact (d,))
    """
    counts, smoothing, exact = table
    if exact.all():
        return None
    before = counts[removal.label]
    left = np.maximum(before - removal.sums(X), 0.0) + smoothing
    off = LOST * applies.U * np.where(exact, 0.0, before)
    whole = off.sum(axis=1) / left.sum(axis=1)
    return np.asarray(np.einsum("ij,ij->i", x, (off / left)[pair]) + x.sum(axis=1) * whole[pair])


def _repeated(made: Retrained, units: Index, of: Index) -> Retrained:
    """Return the answers of units of one record that share those of ``made``; ``of`` (U,) says which."""
    reason: dict[int, str] = {}
    if made.reason:
        for u in np.flatnonzero(np.isin(of, list(made.reason))).tolist():
            reason[u] = made.reason[int(of[u])]
    return Retrained.of(
        made.engine[of],
        units,
        made.seeds,
        (np.arange(len(units), dtype=np.int64), units),
        made.log_with[:, of],
        made.log_without[:, of],
        status=made.status[of],
        error=made.error[of],
        reason=reason,
    )


def sums_on_subsets(X: Float, masks: NDArray[np.bool_], label: Index, K: int) -> Float:
    """Return the sums of features of each (model, class), shape (N, K, d): one matrix product a class."""
    return np.stack([masks[:, label == c].astype(np.float64) @ X[label == c] for c in range(K)], 1)


def linear_on_subsets(X: Float, weight: Float, constant: Float) -> Float:
    """Return log-probabilities (N, P, K) of models with joint log-probabilities w . x + b."""
    return log_posteriors(np.stack([X @ w.T + b for w, b in zip(weight, constant, strict=True)]))


def log_posteriors(joint: Float) -> Float:
    """Return log-probabilities of models from their joint log-probabilities, both of shape (N, P, K)."""
    return normalized(joint.reshape(-1, joint.shape[-1])).reshape(joint.shape)


def by_class(joint: Float, *, axis: int) -> Float:
    """Return log-posteriors from joint log-probabilities with classes along ``axis``; overwrites ``joint``.

    Where other axes follow, all of it runs along them, and not along a handful of classes.
    """
    top = joint.max(axis=axis, keepdims=True)
    nowhere = np.isneginf(top)
    with np.errstate(invalid="ignore", divide="ignore"):
        joint -= np.where(nowhere, 0.0, top)
        joint -= np.log(np.exp(joint).sum(axis=axis, keepdims=True))
    if nowhere.any():
        joint[np.broadcast_to(nowhere, joint.shape)] = -np.inf
    return joint


def _shadows(name: str, made: OnSubsets, masks: NDArray[np.bool_], seeds: Seeds, totals: Float) -> Shadows:
    """Return models on subsets; where training would raise they are FAILED."""
    log_p = made.log_p
    reason = {} if made.failed is None else {int(i): made.why for i in np.flatnonzero(made.failed)}
    if made.prior.listed:
        reason |= {int(i): VANISHED for i in np.flatnonzero(totals.min(axis=1) == 0)}
    dead = np.isneginf(log_p[:, :, 0])  # where this is false, which is nearly everywhere, some class has a probability
    if dead.any():
        dead[dead] = np.isneginf(log_p[dead]).all(axis=1)
    reason |= {int(i): NO_VALUE for i in np.flatnonzero(dead.any(axis=1)) if int(i) not in reason}
    status = np.full(len(masks), Status.EXACT, dtype=object)
    for i in reason:
        status[i] = Status.FAILED
        log_p[i] = np.nan
    each = tuple(seeds) * len(masks) if len(seeds) == 1 else tuple(seeds)
    return Shadows(masks, log_p, each, status, name, reason)
