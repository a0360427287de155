"""Class counts with and without a unit, and the posteriors they give: what the counting naive Bayes engines share.

A class-conditional log-likelihood that is a function of counts of its own class changes, when a unit is left out, only
in the classes that the unit's records have: one for a record, a few for a person. Everything else is looked up in the
full model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privgate.engines import design
from privgate.retrain.retrained import Index, Retrained, Shadows, Status
from privgate.subject import Subject

Float = NDArray[np.float64]

VANISHED = "without the unit one class has no record left"
NO_VALUE = "every class has probability 0 at one of the queries (0/0)"

#: numbers handled at once: 8 MB of float64 stay near the processor
BLOCK = 1_000_000


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
    if estimator.class_prior is not None:
        with np.errstate(divide="ignore"):
            return Prior(counts, np.log(np.asarray(estimator.class_prior, dtype=np.float64)), listed=True)
    return Prior(counts, None if estimator.fit_prior else np.full(K, -np.log(K)), listed=False)


def prior_refusal(estimator: Any, subject: Subject) -> str:
    """Return why the priors cannot be reproduced; empty if they can."""
    prior = estimator.class_prior
    if prior is None:
        return ""
    array = np.asarray(prior, dtype=np.float64)
    if array.shape != (len(subject.classes),) or not (array >= 0).all():
        return "class_prior does not list one probability for each class"
    return ""


def smoothing(estimator: Any) -> Any:
    """Return alpha as scikit-learn uses it: raised to 1e-10 where ``force_alpha`` is off."""
    alpha = estimator.alpha if np.isscalar(estimator.alpha) else np.asarray(estimator.alpha, dtype=np.float64)
    return alpha if estimator.force_alpha else np.maximum(alpha, 1e-10)


@dataclass(frozen=True, eq=False)
class Removal:
    """Which classes lose which records when units are left out: one pair for each (unit, class) that loses some.

    Parameters
    ----------
    label : int64 array of shape (T,)
        Class of each pair.
    start : int64 array of shape (T + 1,)
        Pair p loses ``rows[start[p]:start[p + 1]]``.
    rows : int64 array
        Training records.
    first : int64 array of shape (U + 1,)
        Unit u has pairs ``first[u] .. first[u + 1] - 1``.
    """

    label: Index
    start: Index
    rows: Index
    first: Index

    @property
    def lost(self) -> Index:
        """Number of records that each pair loses, shape (T,)."""
        return np.diff(self.start)

    @property
    def single(self) -> bool:
        """Whether every pair loses exactly one record."""
        return len(self.rows) == len(self.label)

    def sums(self, X: NDArray[Any]) -> Float:
        """Return the sum of the lost records' features of each pair, shape (T, d)."""
        lost = X[self.rows].astype(np.float64, copy=False)
        return lost if self.single or not len(lost) else np.asarray(np.add.reduceat(lost, self.start[:-1], axis=0))


def removal(subject: Subject, units: Index, labels: Index, K: int) -> Removal:
    """Return what the classes lose when each of ``units`` is left out."""
    unit, rows = design.unit_rows(subject, units)
    edges = np.arange(len(units) + 1, dtype=np.int64)
    if subject.data.groups is None:
        return Removal(labels[rows], edges, rows, edges)
    key = unit * K + labels[rows]
    order = np.argsort(key, kind="stable")
    pairs, start = np.unique(key[order], return_index=True)
    first = np.searchsorted(pairs // K, edges).astype(np.int64)
    return Removal(pairs % K, np.append(start, len(rows)).astype(np.int64), rows[order], first)


class ClassModel(Protocol):
    """A log-likelihood of features given the class, with and without the records of a unit."""

    @property
    def width(self) -> int:
        """Numbers that one row touches: sets the block size."""
        ...

    def prepare(self, removal: Removal) -> Any:
        """Return whatever the other two methods share for the units of one block."""
        ...

    def scores(self, queries: Index, unit: Index, prepared: Any) -> tuple[Float, Float | None]:
        """Return log p(x | c) of the full model at pool rows, shape (Q, K), and the same without each row's unit.

        The second is None where only the classes that lose records change. ``unit`` (Q,) indexes ``removal.first``.
        """
        ...

    def without(self, queries: Index, pair: Index, removal: Removal, prepared: Any) -> Float | None:
        """Return log p(x | c) without the records of each pair, shape (C,); None where ``scores`` said it all.

        ``pair`` (C,) indexes ``removal``.
        """
        ...

    def missing(self, subject: Subject, units: Index) -> Mapping[int, str]:
        """Return position in ``units`` -> why the model without that unit has no value."""
        ...

    def representatives(self, rows: Index, labels: Index) -> tuple[Index, Index] | None:
        """Return (first, inverse) of training records that share one answer; None where looking costs more."""
        ...


def leave_out(
    name: str,
    model: ClassModel,
    prior: Prior,
    *,
    subject: Subject,
    units: Index,
    seeds: tuple[int | None, ...],
    queries: tuple[Index, Index] | None,
) -> Retrained:
    """Return posteriors with and without each unit, exactly.

    The posterior without a unit of a class c that loses m of its N_c records is ``prior(N_c - m) p'(x | c)``,
    normalised; ``p'`` comes from the decremented counts, all other classes from the full model.

    Notes
    -----
    Time O(R (d + K)) for R (unit, query) rows, in blocks; memory is that of the answer. Equal records of one class
    share one answer (the contingency-table route) where the model can name them cheaply.
    """
    labels = subject.label_codes
    row_unit, row_query = design.unit_rows(subject, units) if queries is None else queries
    seeds = seeds[:1]
    missing = dict(model.missing(subject, units))
    shared = model.representatives(row_query, labels) if queries is None and subject.data.groups is None else None
    if shared is not None:
        first, inverse = shared
        kept, index = np.asarray(units)[first], np.arange(len(first), dtype=np.int64)
        with_, without = _evaluate(model, prior, subject, kept, (index, row_query[first]))
        with_, without = with_[inverse], without[inverse]
    else:
        with_, without = _evaluate(model, prior, subject, units, (row_unit, row_query))
    status = np.full(len(units), Status.EXACT, dtype=object)
    vanish = _vanishing(subject, units, labels, prior.counts)
    reason = {int(u): VANISHED for u in np.flatnonzero(vanish)}
    dead_rows = np.isneginf(with_).all(axis=1) | np.isneginf(without).all(axis=1)
    reason |= {int(u): NO_VALUE for u in np.unique(row_unit[dead_rows]) if int(u) not in reason} | missing
    lost = sorted(missing) + (np.flatnonzero(vanish).tolist() if prior.listed else [])
    if lost:  # training raises there: no class keeps a probability
        without[np.isin(row_unit, lost)] = -np.inf
    for u in reason:
        status[u] = Status.UNDEFINED
    return Retrained(
        units=np.asarray(units, dtype=np.int64),
        seeds=seeds,
        row_unit=row_unit,
        row_query=row_query,
        log_with=with_[None],
        log_without=without[None],
        error=np.zeros(len(units)),
        status=status,
        engine=np.full(len(units), name, dtype=object),
        reason=reason,
    )


def _evaluate(
    model: ClassModel, prior: Prior, subject: Subject, units: Index, at: tuple[Index, Index]
) -> tuple[Float, Float]:
    """Return log-posteriors (R, K) with and without the unit of each row; ``at`` is (row_unit, row_query)."""
    row_unit, row_query = at
    labels, K = subject.label_codes, len(prior.counts)
    log_prior = prior.log(prior.counts)
    with_, without = np.empty((len(row_query), K)), np.empty((len(row_query), K))
    for part, rows in _blocks(row_unit, len(units), max(model.width, K)):
        query = row_query[rows]
        lost = removal(subject, units[part], labels, K)
        own = row_unit[rows] - part.start
        prepared = model.prepare(lost)
        full, rest = model.scores(query, own, prepared)
        joint = full + log_prior
        changed = joint.copy() if rest is None else rest + log_prior
        pairs = np.diff(lost.first)[own]
        row = np.repeat(np.arange(len(query), dtype=np.int64), pairs)
        pair = lost.first[own][row] + np.arange(len(row)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        label = lost.label[pair]
        left = prior.counts[label] - lost.lost[pair]
        with np.errstate(divide="ignore", invalid="ignore"):
            touched = model.without(query[row], pair, lost, prepared)
            base = np.log(left) if prior.fixed is None else prior.fixed[label]
            value = changed[row, label] - log_prior[label] if touched is None else touched
            changed[row, label] = np.where(left > 0, value + base, -np.inf)
        with_[rows], without[rows] = normalized(joint), normalized(changed)
    return with_, without


def _blocks(row_unit: Index, n_units: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Yield (units, rows) slices with at most about ``BLOCK`` numbers each, never less than one unit."""
    ends = np.searchsorted(row_unit, np.arange(n_units + 1))
    unit = 0
    while unit < n_units:
        stop = int(np.searchsorted(ends, ends[unit] + max(BLOCK // max(width, 1), 1), side="right")) - 1
        stop = min(max(stop, unit + 1), n_units)
        yield slice(unit, stop), slice(int(ends[unit]), int(ends[stop]))
        unit = stop


def normalized(joint: Float) -> Float:
    """Return log-posteriors from joint log-probabilities of shape (R, K); -inf everywhere where all are -inf."""
    top = joint.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = joint - np.where(np.isneginf(top), 0.0, top)
        total = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return np.where(np.isneginf(top), -np.inf, shifted - total)


def _vanishing(subject: Subject, units: Index, labels: Index, counts: Float) -> NDArray[np.bool_]:
    """Return which units hold every record of some class, shape (U,)."""
    if subject.data.groups is None:
        return np.asarray(counts[labels[units]] <= 1)
    lost = removal(subject, units, labels, len(counts))
    alone = lost.lost >= counts[lost.label]
    return np.asarray(np.bincount(np.repeat(np.arange(len(units)), np.diff(lost.first)), alone, len(units)) > 0)


def subset_counts(subject: Subject, masks: NDArray[np.bool_]) -> tuple[Index, Float] | None:
    """Return (class of each pool row, class counts of each mask (N, K)); None if a candidate has an unknown label."""
    classes = subject.classes
    y = subject.data.pool()[1] if subject.data.candidates is not None else subject.data.y
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if not np.array_equal(classes[codes], y):
        return None
    hot = (codes[:, None] == np.arange(len(classes))).astype(np.float64)
    return codes.astype(np.int64), masks.astype(np.float64) @ hot


def shadows(
    name: str,
    joint: Float,
    *,
    masks: NDArray[np.bool_],
    seeds: tuple[int | None, ...],
    failed: NDArray[np.bool_],
    totals: Float,
    prior: Prior,
    why: str,
) -> Shadows:
    """Return models on subsets from their joint log-probabilities (N, P, K); training that would raise is FAILED."""
    log_p = normalized(joint.reshape(-1, joint.shape[-1])).reshape(joint.shape)
    return answered(name, log_p, masks=masks, seeds=seeds, totals=totals, prior=prior, failed=failed, why=why)


def answered(
    name: str,
    log_p: Float,
    *,
    masks: NDArray[np.bool_],
    seeds: tuple[int | None, ...],
    totals: Float,
    prior: Prior,
    failed: NDArray[np.bool_] | None = None,
    why: str = "",
) -> Shadows:
    """Return models on subsets from their log-probabilities (N, P, K), which it may overwrite; see ``shadows``."""
    reason = {} if failed is None else {int(i): why for i in np.flatnonzero(failed)}
    if prior.listed:
        gone = totals.min(axis=1) == 0
        reason |= {int(i): VANISHED for i in np.flatnonzero(gone)}
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
