"""A declared list of questions: DTP over it is found by asking every one of both models, whatever the model."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import SubjectError
from privgate.statistics import leakage
from privgate.subject.containers import stack
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses
from privgate.theorems.certificate import Certificate, Certified, Units
from privgate.theorems.closed_form import TOLERANCE
from privgate.theorems.hypotheses import Reach
from privgate.theorems.retrained import REFIT, Retrained, Status

#: names in ``Retrained.changes``: log-probabilities at the listed questions, shape (S, U, Q, K)
WITH, WITHOUT = "listed_with", "listed_without"


def container(subject: Subject) -> Any:
    """Return the listed questions as the recipe's kind of records; None where none are listed.

    Raises
    ------
    SubjectError
        Records of this kind cannot hold some question.
    """
    domain = subject.accepted
    if domain is None or domain.queries is None:
        return None
    rows = np.array(domain.queries, dtype=np.float64)
    shape: tuple[int, ...] = getattr(subject.data.X, "shape", ())
    if len(shape) != 2 or rows.shape[1] != shape[1]:
        raise SubjectError(f"the domain lists questions of {rows.shape[1]} numbers, which the records are not")
    made, held = hold(subject.with_data(replace(subject.data, domain=None)), rows)
    back = hypotheses.dense(made)
    if back is None or not held.all() or not np.array_equal(back, rows):
        odd = ~held if back is None or not held.all() else (back != rows).any(axis=1)
        k = int(np.flatnonzero(odd)[0])
        raise SubjectError(
            f"question {k + 1} of the domain's list is no record of the data's number types; write it in them"
        )
    return made


def beside(subject: Subject, units: Index, rows: tuple[Index, Index]) -> tuple[Subject, tuple[Index, Index]] | None:
    """Return the subject with the listed questions as further candidates, and the rows with all of them for each unit.

    Each unit's own rows come first. None where none are listed.
    """
    made = container(subject)
    if made is None:
        return None
    known, (row_unit, row_query) = subject.data.candidates, rows
    size, count = subject.data.pool_size, int(made.shape[0])
    label = np.full(count, subject.data.y[0])
    both = (made, label) if known is None else (stack(known[0], made), np.concatenate([known[1], label]))
    everyone = np.repeat(np.arange(len(units)), count)
    unit = np.concatenate([row_unit, everyone])
    query = np.concatenate([row_query, np.tile(size + np.arange(count), len(units))])
    order = np.argsort(unit, kind="stable")
    return subject.with_data(replace(subject.data, candidates=both)), (unit[order], query[order])


def apart(subject: Subject, found: Retrained) -> Retrained:
    """Return what was answered about ``beside``'s rows, the listed questions moved to ``changes``."""
    domain = subject.accepted
    assert domain is not None  # noqa: S101  ``beside`` listed them
    assert domain.queries is not None  # noqa: S101  ditto
    mine = found.row_query < subject.data.pool_size
    shape = (len(found.seeds), len(found.units), len(domain.queries), found.log_with.shape[2])
    return replace(
        found,
        row_unit=found.row_unit[mine],
        row_query=found.row_query[mine],
        log_with=found.log_with[:, mine],
        log_without=found.log_without[:, mine],
        changes={
            **found.changes,
            WITH: found.log_with[:, ~mine].reshape(shape),
            WITHOUT: found.log_without[:, ~mine].reshape(shape),
        },
    )


class ListedQuestions(Certificate):
    """The largest change over a finite list is the largest that is found: exact, for any model and any training.

    A person's own records count as questions too, whether they are listed or not.

    Notes
    -----
    A re-check lets a fast engine pass that is off by its tolerance beyond its stated error, on either side of a change.
    What adds the same numbers in another order errs by a share of them, too: a score of d terms, whose moments are sums
    over n records, by ``n + d + 8`` roundings of its size on either way.
    """

    name = "listed_questions"
    source = "docs/mathematics.md, section 0"
    needs_retrained = True

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        domain = subject.accepted
        if domain is None or domain.queries is None:
            return "the recipe is not asked from a declared list, Domain(queries=…)"
        if not subject.release.exact:
            return f"the release is {subject.release.form}; the list is compared as exact probabilities"
        return ""

    def certify(self, about: Units) -> Certified:
        """Return the change of each of the units; infinite where a model is missing, or several seeds were averaged."""
        found, U = about.retrained, len(about.units)
        upper, lower = np.full(U, np.inf), np.zeros(U)
        domain = about.subject.accepted
        if found is not None and WITH in found.changes and len(found.seeds) == 1:
            sure = np.isin(found.status, (Status.EXACT, Status.CONVERGED)) & np.isfinite(found.error)
            share = 4 * (about.subject.data.n + int(about.subject.data.X.shape[1]) + 8) * hypotheses.U
            for k in np.flatnonzero(sure):
                pair = found.changes[WITH][0, k], found.changes[WITHOUT][0, k]
                slack = 0.0 if found.engine[k] == REFIT else TOLERANCE
                lower[k], upper[k] = _largest(*pair, error=2 * (found.error[k] + slack), share=share)
        count = 0 if domain is None or domain.queries is None else len(domain.queries)
        said = f"the endpoint answers {count} listed questions and no other; every one was put to both models"
        return Certified(upper, lower, (said,), {"questions": count})


def _largest(with_: Float, without: Float, *, error: float, share: float) -> tuple[float, float]:
    """Return between what the largest change over the questions (Q, K) lies."""
    if np.isnan(with_).any() or np.isnan(without).any():
        return np.inf, np.inf
    change = leakage.largest_change(with_, without)
    size = sum(np.where(np.isinf(v), 0.0, np.abs(v)).max(axis=1) for v in (with_, without))
    off = error + share * size
    return max(float((change - off).max()), 0.0), float((change + off).max())


# Rows of numbers as records of the recipe's kind.


def hold(subject: Subject, rows: Float) -> tuple[Any, NDArray[np.bool_]]:
    """Return (questions as the recipe's kind of records, which of ``rows`` (Q, d) they are).

    Those that the records' number type cannot hold inside the declared domain are dropped.
    """
    like, reach = subject.data.X, reach_of(subject)
    kind = np.asarray(like).dtype if not hasattr(like, "toarray") else like.dtype
    rows = _held(np.nan_to_num(rows), kind, reach)
    fine = np.asarray(np.isfinite(rows).all(axis=1)) & (True if reach is None else reach.inside(rows))
    made = make_like(rows[fine], like)
    back = hypotheses.dense(made)
    if back is None or not np.array_equal(back, rows[fine]):
        fine = np.zeros(len(rows), dtype=bool)
        made = make_like(rows[fine], like)
    return made, fine


def make_like(rows: Float, like: Any) -> Any:
    """Return rows in the kind of container, and of the types, that the recipe is given."""
    if hasattr(like, "iloc"):
        import pandas as pd

        return pd.DataFrame(rows, columns=like.columns).astype(like.dtypes.to_dict())
    if hasattr(like, "tocsr"):
        import scipy.sparse as sp

        return sp.csr_matrix(rows.astype(like.dtype))
    return rows.astype(np.asarray(like).dtype)


def _held(rows: Float, kind: np.dtype[Any], reach: Reach | None) -> Float:
    """Return the nearest questions that a number type holds, inside a box if it holds any there."""
    if kind.kind in "iub":
        low, high = (0.0, 1.0) if kind.kind == "b" else (float(np.iinfo(kind).min), float(np.iinfo(kind).max))
        rows = np.clip(np.rint(rows), low, min(high, 2.0**53))
        if reach is not None and reach.low is not None and reach.high is not None:
            rows = np.clip(rows, np.ceil(reach.low), np.floor(reach.high))
        return rows
    short = rows.astype(kind)
    if reach is not None and reach.low is not None and reach.high is not None:
        # an end of the box may lie between two numbers of single precision
        short = np.where(short < reach.low, np.nextafter(short, kind.type(np.inf)), short)
        short = np.where(short > reach.high, np.nextafter(short, kind.type(-np.inf)), short)
    return short.astype(np.float64)


def reach_of(subject: Subject) -> Reach | None:
    """Return the declared domain as a set of vectors, where it is one."""
    domain, X = subject.accepted, subject.data.X
    if domain is None:
        return None
    made = Reach.of(domain, X.shape[1])
    return None if isinstance(made, str) else made
