"""Ensembles of trees with and without each person, compared at every question: proven, refuted by a question, or open.

The ensembles are constant on boxes. A search proposes a partition of the accepted questions, the kernel bounds each of
its boxes (``kernel/cells``), and real models answer the question at which a search saw most.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import MOST, Kept
from privgate.engines import cell_partitions
from privgate.engines.cell_partitions import Effort
from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.trees import covered_trees, refits
from privgate.families.trees.ensemble import Ensemble, case_of, everybody, joined
from privgate.families.trees.keyed_forest import Patched
from privgate.subject.subject import Subject

#: boxes looked at for everybody, in each search
FIRST = 100
#: boxes looked at, in each search, for a person whose bounds lie on both sides of the limit; the next for whoever is
#: still open when everybody had the one before
MORE = (2_000, 20_000, 200_000)
#: boxes looked at for all such people together
TOGETHER = 10_000_000


class TreeCells(Certificate):
    """The largest change between the ensemble that was trained on everybody and the one trained without a person.

    Effort goes first to people whose bounds lie on both sides of the limit, nearest first. Whoever is above it is
    refuted by a question put to both real models, never by scores; who is undecided when the effort is spent is open.
    """

    name = "tree_cells"
    source = "docs/mathematics.md, section 13"
    needs_retrained = True

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        return covered_trees.unfit(subject)

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of ``units``; infinite where there are no trees to compare."""
        subject, U = about.subject, len(about.units)
        reach = covered_trees.reach(subject)
        assert not isinstance(reach, str)  # noqa: S101  applies() said so
        d = int(np.asarray(subject.data.X).shape[1])
        upper, seen = np.full(U, np.inf), np.zeros(U)
        questions, boxes = np.full((U, d), np.nan), 0
        pairs, kept = _pairs(about), _Cases()
        for k in sorted(pairs):
            found = _worst(pairs[k], subject, Effort(FIRST, 1.0 if about.limit is None else about.limit))
            upper[k], seen[k], questions[k], boxes = found.upper, found.attained, found.question, boxes + found.boxes
            kept.take(k, found)
        lower = np.zeros(U)
        if about.limit is not None:
            left = TOGETHER
            for k, more in ((k, m) for m in MORE for k in _undecided(upper, seen, about.limit, pairs)):
                if left <= 0:
                    break
                found = _worst(pairs[k], subject, Effort(min(more, left), about.limit, settle=True))
                left, boxes = left - found.boxes, boxes + found.boxes
                kept.take(k, found if found.upper < upper[k] else None)
                upper[k] = min(upper[k], found.upper)
                if found.attained > seen[k]:
                    seen[k], questions[k] = found.attained, found.question
            lower = _asked(about, questions, np.flatnonzero(seen > about.limit))
        cases, told = kept.together(about.units), {"boxes": boxes}
        for case in cases:  # what the kernel says of all together is what counts
            mine = np.isin(about.units, case.units)
            upper[mine] = np.maximum(upper[mine], case.high)
        if about.limit is not None:
            proven, refuted = upper <= about.limit, lower > about.limit
            told["proven"], told["refuted"] = int(proven.sum()), int(refuted.sum())
            told["open"] = int((~proven & ~refuted).sum())
        return Certified(
            np.maximum(upper, lower),
            lower,
            attained(lower, np.maximum(upper, lower)),
            (
                ("any question is allowed" if reach is None else reach.words()) + _lost(subject),
                "training repeats itself: both ensembles are those that the library trains",
            ),
            told,
            questions,
            cases,
        )


def _lost(subject: Subject) -> str:
    columns = np.flatnonzero(covered_trees.missing(subject)).tolist()
    if not columns:
        return "; no value of a question is missing"
    return f"; values of columns {', '.join(map(str, columns[:10]))}{'…' if len(columns) > 10 else ''} may be missing"


Ensembles = Sequence[tuple[Ensemble, Ensemble]]


def _pairs(about: Units) -> dict[int, Ensembles]:
    """Return the ensembles with and without each unit, one pair a seed; units without a model are left out."""
    found = about.retrained
    if found is None or refits.WITH not in found.changes:
        return {}
    with_, without = found.changes[refits.WITH], found.changes[refits.WITHOUT]
    return {
        k: [(a, b.expanded() if isinstance(b, Patched) else b) for a, b in zip(with_[:, k], without[:, k], strict=True)]
        for k in range(len(about.units))
        if all(e is not None for e in without[:, k])
    }


@dataclass(frozen=True, eq=False)
class _Apart:
    """The kernel's bound of one unit, nats; a change that scores attain, the question (d,), and boxes looked at.

    Beside them a case for each seed, empty where the kernel refused one.
    """

    upper: float
    attained: float
    question: Float
    boxes: int
    cases: tuple[kernel.Case, ...] = ()


class _Cases:
    """The cases of people, put together to one a seed: so many single ones would say who is who."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[kernel.Case, ...]] = {}
        self.bytes = 0

    def take(self, k: int, found: _Apart | None) -> None:
        """Keep a person's cases, in the place of earlier ones; nobody's where all are too large to be kept."""
        if found is None or self.bytes > MOST // 2:
            return
        for sign, several in ((-1, self.of.get(k, ())), (1, found.cases)):
            self.bytes += sign * sum(a.nbytes for case in several for a in case.arrays.values())
        self.of[k] = found.cases
        if self.bytes > MOST // 2:
            self.of = {}

    def together(self, units: Index) -> tuple[Kept, ...]:
        """Return a case a seed, or more where the models with everybody differ, with the kernel's limits."""
        made = list[Kept]()
        for seed in range(max((len(c) for c in self.of.values()), default=0)):
            alike: dict[str, list[int]] = {}
            for k in (k for k in sorted(self.of) if len(self.of[k]) > seed):
                alike.setdefault(everybody(self.of[k][seed]), []).append(k)
            made += [Kept.of(joined([self.of[k][seed] for k in ks]), units[ks], seed=seed) for ks in alike.values()]
        return tuple(made)


def _worst(pairs: Ensembles, subject: Subject, effort: Effort) -> _Apart:
    """Return the bound of one unit under the worst seed."""
    d, found, cases = int(np.asarray(subject.data.X).shape[1]), list[_Apart](), list[kernel.Case]()
    box, whole = covered_trees.boxes(subject)
    for one, other in pairs:
        try:
            made = cell_partitions.proposed(case_of((one, other), box, whole=whole), effort)
            upper, question = float(kernel.limits(made.case).high[0]), made.questions[0]
        except kernel.Refused:
            found.append(_Apart(np.inf, 0.0, np.full(d, np.nan), 0))
            continue
        if one.width:
            question = np.where(question[d:] > 0, np.nan, question[:d])
        found.append(_Apart(upper, float(made.attained[0]), question, made.boxes))
        cases.append(made.case)
    most = max(found, key=lambda f: f.attained)
    each = tuple(cases) if len(cases) == len(found) else ()
    return _Apart(max(f.upper for f in found), most.attained, most.question, sum(f.boxes for f in found), each)


def _undecided(upper: Float, seen: Float, limit: float, pairs: dict[int, Ensembles]) -> list[int]:
    """Return the units on both sides of the limit, nearest first; no more effort helps where there is no bound."""
    open_ = [k for k in pairs if np.inf > upper[k] > limit >= seen[k]]
    return sorted(open_, key=lambda k: (upper[k] - limit, k))


def _asked(about: Units, questions: Float, units: Index) -> Float:
    """Return the change of real models, shape (U,), nats, at the questions of some units; 0 for the others."""
    lower = np.zeros(len(about.units))
    subject, retrained = about.subject, about.retrained
    if not len(units) or retrained is None or about.fleet is None:
        return lower
    reach = covered_trees.reach(subject)
    kind = np.asarray(subject.data.X).dtype if not hasattr(subject.data.X, "iloc") else np.dtype(np.float64)
    whole_numbers = kind.kind != "f" and bool(np.isfinite(questions[units]).all())
    put = questions[units].astype(kind if whole_numbers or kind.kind == "f" else np.float64)
    inside = (
        np.ones(len(units), dtype=bool)
        if reach is None or isinstance(reach, str)
        else reach.inside(np.where(np.isnan(put), 0.0 if reach.low is None else reach.low, put).astype(np.float64))
    )
    nobody, members = np.zeros(0, dtype=np.int64), about.members
    for seed in retrained.seeds:
        asks = [(nobody, put), *((members[k], put[i : i + 1]) for i, k in enumerate(units.tolist()))]
        whole, *less = refits.asked_at(about.fleet, subject, seed, asks)
        for i, (k, made) in enumerate(zip(units.tolist(), less, strict=True)):
            if whole.problem or made.problem or not inside[i]:
                continue
            with np.errstate(invalid="ignore"):
                gap = np.abs(whole.log_p[i] - made.log_p[0])
            lower[k] = max(lower[k], float(np.nan_to_num(gap, nan=0.0, posinf=np.inf).max()))
    return lower
