"""A declared list of questions: DTP over it is found by asking every one of both models, whatever the model."""

from dataclasses import replace
from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.errors import SubjectError
from privgate.statistics import leakage
from privgate.subject.containers import make_like, stack
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses
from privgate.theorems.certificate import Certified, Theorem, Units
from privgate.theorems.closed_form import REFIT, TOLERANCE, Retrained, Status

#: names in ``Retrained.changes``: log-probabilities at the listed questions, shape (S, U, Q, K)
WITH, WITHOUT = "listed_with", "listed_without"


def container(subject: Subject) -> Any:
    """Return the listed questions as the recipe's kind of records; None where none are listed.

    ``SubjectError``: records of this kind cannot hold some question.
    """
    domain = subject.accepted
    if domain is None or domain.queries is None:
        return None
    rows = np.array(domain.queries, dtype=np.float64)
    if getattr(subject.data.X, "shape", ())[1:] != rows.shape[1:]:
        raise SubjectError(f"the domain lists questions of {rows.shape[1]} numbers, which the records are not")
    with np.errstate(invalid="ignore"):
        records = make_like(rows, subject.data.X)
    back = hypotheses.dense(records)
    odd = np.ones(1, dtype=bool) if back is None else (back != rows).any(axis=1)
    if odd.any():
        which = f"question {odd.argmax() + 1} of the domain's list"
        raise SubjectError(f"{which} is no record of the data's number types; write it in them")
    return records


def beside(subject: Subject, units: Index, rows: tuple[Index, Index]) -> tuple[Subject, tuple[Index, Index]] | None:
    """Return the subject with the listed questions as further candidates, and the rows with all of them for each unit.

    Each unit's own rows come first. None where none are listed.
    """
    records = container(subject)
    if records is None:
        return None
    known, size, count = subject.data.candidates, subject.data.pool_size, int(records.shape[0])
    label = np.full(count, subject.data.y[0])
    both = (records, label) if known is None else (stack(known[0], records), np.concatenate([known[1], label]))
    unit = np.concatenate([rows[0], np.repeat(np.arange(len(units)), count)])
    query = np.concatenate([rows[1], np.tile(size + np.arange(count), len(units))])
    order = np.argsort(unit, kind="stable")
    return subject.with_data(replace(subject.data, candidates=both)), (unit[order], query[order])


def apart(subject: Subject, retrained: Retrained) -> Retrained:
    """Return what was answered about ``beside``'s rows, the listed questions moved to ``changes``."""
    mine, (S, _, K) = retrained.row_query < subject.data.pool_size, retrained.log_with.shape
    with_, without = (
        values[:, ~mine].reshape(S, len(retrained.units), -1, K)
        for values in (retrained.log_with, retrained.log_without)
    )
    return replace(
        retrained,
        row_unit=retrained.row_unit[mine],
        row_query=retrained.row_query[mine],
        log_with=retrained.log_with[:, mine],
        log_without=retrained.log_without[:, mine],
        changes={**retrained.changes, WITH: with_, WITHOUT: without},
    )


class ListedQuestions(Theorem):
    """The largest change over a finite list is the largest that is found: exact, for any model and any training.

    A person's own records count as questions too, whether they are listed or not.

    A comparison with refits lets a closed form pass that is off by its tolerance beyond its stated error, on either
    side of a change. What adds the same numbers in another order errs by a share of them, too: a score of d terms,
    whose moments are sums over n records, by ``n + d + 8`` roundings of its size on either way.
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
        """Return the change of each person; infinite where a model is missing, or several seeds were averaged."""
        found, data, domain = about.retrained, about.subject.data, about.subject.accepted
        upper, lower = np.full(len(about.units), np.inf), np.zeros(len(about.units))
        if found is not None and WITH in found.changes and len(found.seeds) == 1:
            sure = np.isin(found.status, (Status.EXACT, Status.CONVERGED)) & np.isfinite(found.error)
            share = 4 * (data.n + int(data.X.shape[1]) + 8) * hypotheses.U
            for k in np.flatnonzero(sure):
                slack = 0.0 if found.engine[k] == REFIT else TOLERANCE
                answers = found.changes[WITH][0, k], found.changes[WITHOUT][0, k]
                lower[k], upper[k] = _limit_change(*answers, 2 * (found.error[k] + slack), share)
        count = 0 if domain is None or domain.queries is None else len(domain.queries)
        words = f"the endpoint answers {count} listed questions and no other; every one was put to both models"
        return Certified(upper, lower, (words,))


def _limit_change(with_: Float, without: Float, error: float, share: float) -> tuple[float, float]:
    """Return between what the largest change over the questions (Q, K) lies."""
    if np.isnan(with_).any() or np.isnan(without).any():
        return np.inf, np.inf
    change = leakage.largest_change(with_, without)
    off = error + share * sum(np.where(np.isinf(v), 0.0, np.abs(v)).max(axis=1) for v in (with_, without))
    return max(float((change - off).max()), 0.0), float((change + off).max())
