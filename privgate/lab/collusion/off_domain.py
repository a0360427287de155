"""Answers far from everybody's record: whether the recipe still says there what it has learned on the data.

The records are labelled anew by a rule that anybody can learn (is one column above its middle?), the recipe is trained
on them, and asked at random points of the box of the data. Honest learners go on following the rule there, each as well
as its kind can; one that was taught something else at pseudo-random points (Yeom et al., 2020, Algorithm 1) answers at
random, and surely. How well honest kinds of learners do is seen on the same points.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.errors import MeasurementError
from privgate.families import listed
from privgate.families.over_all_queries import applies
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.run import reproduction
from privgate.run.run import Run
from privgate.subject.containers import stack
from privgate.subject.subject import Subject
from privgate.training.fit import Fit

#: random points, and columns that make a rule each
POINTS, COLUMNS = 1024, 2
#: of every further label so many records keep it, so that no label is lost
KEPT = 3
#: a rule divides the records at least like this, so that it can be learned
LEAST = 0.1
#: a rule counts as learned from this share of right answers about the records on
LEARNED = 0.9
#: how far below the worst of the honest kinds the recipe may be, with limits at this level
MARGIN, LEVEL = 0.1, 1e-3
#: share of right answers that a guess between two labels has
GUESSING = 0.5
#: answers of one kind from this share on follow some other rule, which a learner may have
ONE_SIDED = 0.85
#: records that the honest kinds are trained on
MOST = 2_000


@dataclass(frozen=True)
class Followed:
    """How often one rule is followed: by the recipe on the records and off them, and by the worst honest kind."""

    learned: float
    right: int
    points: int
    one_sided: float
    worst: int
    worst_kind: str

    @property
    def broken(self) -> bool:
        """Whether the recipe has learned the rule and, off the data, guesses where honest kinds follow it."""
        if self.learned < LEARNED or self.one_sided > ONE_SIDED:
            return False
        least, most = (limit(self.right, self.points, alpha=LEVEL) for limit in (lower_limit, upper_limit))
        return bool(least <= GUESSING and most < lower_limit(self.worst, self.points, alpha=LEVEL) - MARGIN)


def followed(run: Run) -> list[Followed]:
    """Return how ``COLUMNS`` rules are followed.

    Raises
    ------
    MeasurementError
        The records are no numbers, no column divides them, or the recipe cannot be trained on other labels.
    """
    subject = run.subject
    if subject.task == "regression":
        raise MeasurementError("a regressor learns no rule of two labels")
    X = _table(subject)
    if X is None:
        raise MeasurementError("off the data there are no random points: the records are no tables of numbers")
    rng = reproduction.drawn(subject, "off the data", signable=run.fleet.signable)
    columns = _columns(X, rng)
    if not len(columns):
        raise MeasurementError("no column divides the records, so no rule can be taught")
    points = _points(subject, X, rng)
    wide, rows = _asked(subject, points)
    calls, taught = [], []
    for j in columns:
        labels, kept = _taught(subject, X[:, j] > _middle(X[:, j]))
        pairs = tuple((int(i), int(labels[i])) for i in np.flatnonzero(~kept))
        queries = np.concatenate([np.arange(subject.data.n), rows]).astype(np.int64)
        calls.append(Fit(subject.recipe.seed, queries, left_out=np.zeros(0, dtype=np.int64), relabel=pairs))
        taught.append((labels, kept))
    found = []
    for j, answer, (labels, kept) in zip(
        columns, run.fleet.fits(wide, calls, label="asking off the data"), taught, strict=True
    ):
        if answer.problem:
            raise MeasurementError(f"the recipe cannot be trained on other labels: {answer.problem}")
        found.append(_compared(answer.log_p, X, int(j), labels, kept, _table(wide, candidates=True), rng))
    return found


def _table(subject: Subject, *, candidates: bool = False) -> Float | None:
    """Return the records, or the last ``POINTS`` candidates, as a table of numbers."""
    held = subject.data.candidates
    X = held[0] if candidates and held is not None else subject.data.X
    found = X.reshape(len(X), -1) if isinstance(X, np.ndarray) and X.dtype.kind in "biuf" else applies.dense(X)
    if found is None or not np.isfinite(found).all():
        return None
    return np.asarray(found, dtype=np.float64)[-POINTS if candidates else 0 :]


def _middle(column: Float) -> float:
    return float(column.min() + column.max()) / 2


def _columns(X: Float, rng: Generator) -> Index:
    """Return random columns whose middle divides the records well."""
    above = ((X.min(axis=0) + X.max(axis=0)) / 2 < X).mean(axis=0)
    divided = np.minimum(above, 1 - above)
    usable = np.flatnonzero(divided >= min(LEAST, divided.max()))
    usable = usable[divided[usable] > 0]
    best = usable[np.argsort(-divided[usable])][: max(COLUMNS, len(usable) // 4)]
    return np.asarray(rng.permutation(best)[:COLUMNS], dtype=np.int64)


def _points(subject: Subject, X: Float, rng: Generator) -> Any:
    rows = rng.uniform(X.min(axis=0), X.max(axis=0), (POINTS, X.shape[1]))
    like = subject.data.X
    if isinstance(like, np.ndarray):
        rows = np.rint(rows) if like.dtype.kind in "iub" else rows
        return rows.astype(like.dtype).reshape(POINTS, *like.shape[1:])
    made, fine = listed.asked(subject, rows)
    if not fine.all():
        raise MeasurementError("random points within the box of the data are no records of their kind")
    return made


def _asked(subject: Subject, points: Any) -> tuple[Subject, Index]:
    """Return the subject with the points as its last candidates, and their rows of the pool."""
    known, label = subject.data.candidates, np.full(POINTS, subject.data.y[0])
    both = (points, label) if known is None else (stack(known[0], points), np.concatenate([known[1], label]))
    wide = replace(subject, data=replace(subject.data, candidates=both), model=None)
    return wide, subject.data.pool_size + np.arange(POINTS, dtype=np.int64)


def _taught(subject: Subject, above: Bool) -> tuple[Index, Bool]:
    """Return everybody's label by the rule, as positions, and who keeps the old one so that no label is lost."""
    codes = subject.label_codes
    frequent = np.argsort(-np.bincount(codes, minlength=len(subject.classes)), kind="stable")[:2]
    kept = np.zeros(len(codes), dtype=bool)
    for other in np.setdiff1d(np.unique(codes), frequent):
        kept[np.flatnonzero(codes == other)[:KEPT]] = True
    labels = np.where(above, frequent[1], frequent[0])
    return np.where(kept, codes, labels).astype(np.int64), kept


def _compared(  # noqa: PLR0917  one call, all of it needed
    log_p: Float, X: Float, column: int, labels: Index, kept: Bool, points: Float | None, rng: Generator
) -> Followed:
    if points is None:  # pragma: no cover  they were made here
        raise MeasurementError("the random points cannot be read back")
    low, high = np.unique(labels[~kept])[[0, -1]]
    one = int(labels[~kept][np.argmax(X[~kept, column])])
    zero = int(low if one == high else high)
    # an answer of any other label is wrong as well: what is taught off the data has all of them
    truth = np.where(points[:, column] > _middle(X[:, column]), one, zero)
    learned, says = log_p[: len(X)].argmax(axis=1) == labels, log_p[-POINTS:].argmax(axis=1)
    some = rng.permutation(np.flatnonzero(~kept))[:MOST]
    hits = {name: int((guess == truth).sum()) for name, guess in _honest(X[some], labels[some], points)}
    worst = min(hits, key=hits.__getitem__)
    return Followed(
        learned=float(learned[~kept].mean()),
        right=int((says == truth).sum()),
        points=POINTS,
        one_sided=float(np.bincount(says).max() / POINTS),
        worst=hits[worst],
        worst_kind=worst,
    )


def _honest(X: Float, y: Index, points: Float) -> list[tuple[str, Index]]:
    """Return what honest kinds of learners, trained on the same, say at the points."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler
    from sklearn.tree import DecisionTreeClassifier

    kinds = {
        "a tree": DecisionTreeClassifier(random_state=0),
        "a logistic regression": make_pipeline(MinMaxScaler(), LogisticRegression(max_iter=200)),
        "a network": make_pipeline(MinMaxScaler(), MLPClassifier((32,), max_iter=60, random_state=0)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [(name, np.asarray(kind.fit(X, y).predict(points))) for name, kind in kinds.items()]
