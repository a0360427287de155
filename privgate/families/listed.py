"""Questions that nobody's record is: where a bound over a whole domain is compared with real models.

Corners of the declared domain, constant columns at both ends, other people's values mixed, random points: what a
theorem covers and direct queries never ask.
"""

import contextlib
import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import SubjectError
from privgate.families import refit
from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.engine import TOLERANCE
from privgate.families.over_all_queries import applies
from privgate.families.over_all_queries.accepted_range import Reach
from privgate.families.retrained import Retrained, Status
from privgate.statistics import leakage
from privgate.subject.containers import stack, take
from privgate.subject.subject import Subject

#: domains of at most so many corners are asked at all of them
CORNERS = 64
#: random questions of each kind
RANDOM = 64
#: columns that are moved one by one
_COLUMNS = 16
#: columns of which odd values are tried
_ODD_COLUMNS = 24
#: features from which on fewer of them are
_WIDE = 2_000


def shared(subject: Subject, rng: Generator) -> Float:
    """Return questions that concern everybody, shape (Q, d); none where records are not tables of numbers."""
    X = applies.dense(subject.data.X)
    if X is None:
        return np.zeros((0, 0))
    mixed = np.column_stack([rng.choice(column, RANDOM) for column in X.T])
    reach = _reach(subject)
    if reach is None:
        return mixed
    d, made = X.shape[1], [mixed]
    if reach.low is not None and reach.high is not None:
        low, high = reach.low, reach.high
        if 2**d <= CORNERS:
            made.append(np.array(list(itertools.product(*zip(low, high, strict=True)))))
        else:
            ends = rng.random((CORNERS, d)) < 0.5
            ends[:2] = [[False], [True]]
            made.append(np.where(ends, high, low))
        made.append(low + (high - low) * rng.random((RANDOM, d)))
    limit = reach.length if reach.length is not None else reach.norm
    if limit is not None:
        made.append(np.zeros((1, d)))
        single = np.zeros((min(d, CORNERS), d))
        single[np.arange(len(single)), rng.permutation(d)[: len(single)]] = np.floor(limit)
        made.append(single)
        share = rng.dirichlet(np.full(d, 0.3), RANDOM)
        made.append(np.floor(limit * share) if reach.length is not None else limit * share)
    rows = np.concatenate(made)
    rows = np.floor(rows + 0.5) if reach.whole else rows
    listing = None if subject.accepted is None else subject.accepted.queries
    return rows if listing is None else np.array(listing, dtype=np.float64)  # nothing else is answered


def around(subject: Subject, units: Index) -> tuple[Float, Index]:
    """Return each unit's own first record with constant columns, and single others, at the ends of the domain.

    Returns
    -------
    questions : float64 array of shape (Q, d)
    owner : int64 array of shape (Q,)
        Position in ``units``.
    """
    X, reach = applies.dense(subject.data.X), _reach(subject)
    if X is None or reach is None or reach.low is None or reach.high is None:
        return np.zeros((0, 0 if X is None else X.shape[1])), np.zeros(0, dtype=np.int64)
    own = X[subject.data.units.first[units]]
    constant = np.asarray((X[0] == X).all(axis=0))
    columns = np.flatnonzero(constant)[: max(1, min(_COLUMNS, _WIDE // len(constant)))]
    made = []
    for end in (reach.low, reach.high):
        made.append(np.where(constant, end, own))
        made += [np.where(np.arange(len(constant)) == j, end, own) for j in columns]
    return np.concatenate(made), np.tile(np.arange(len(units)), len(made))


def odd(domain: Mapping[str, Any], X: Any, rng: Generator) -> Iterator[tuple[str, Any]]:
    """Yield (in words, one record of ``X`` with one value that a domain, as JSON values, may rule out)."""
    if isinstance(X, list):
        yield from (("empty", [""]), ("of unknown words", ["no_such_word"]), ("long", ["no such word " * 1_000]))
    if len(getattr(X, "shape", ())) != 2:
        return
    names = list(getattr(X, "columns", range(X.shape[1])))
    for j in rng.permutation(len(names))[:_ODD_COLUMNS].tolist():
        for what, value in _odd_values(domain, j, names[j]):
            yield f"column {names[j]!r} {what}", _changed(take(X, rng.integers(int(X.shape[0]), size=1)), j, value)
    rows = applies.dense(take(X, rng.integers(int(X.shape[0]), size=8)))
    if rows is not None:
        yield from (("several columns together", made_like(made[None], X)) for made in _odd_rows(domain, rows, rng))


def _odd_rows(domain: Mapping[str, Any], rows: Float, rng: Generator) -> Iterator[Float]:
    """Yield questions of which each number is one that is answered, and which a domain rules out as a whole."""
    d = rows.shape[1]
    for limit, power in ((domain.get("max_length"), 1), (domain.get("norm"), 2)):
        if limit is not None:  # as many small numbers as it takes, one more, and many more
            each = np.ceil(limit * 1.01 / d ** (1 / power)) if power == 1 else limit * 1.01 / d**0.5
            yield from (np.full(d, each), np.full(d, 2 * each), np.where(np.arange(d) < max(2, d // 2), limit, 0.0))
    for block in domain.get("blocks", ()):
        made = rows[0].copy()
        made[list(block)[:2]] = 1.0
        yield made
    if domain.get("queries") is not None:
        known = np.array(domain["queries"], dtype=np.float64)
        for _ in range(16):  # others' values mixed, the middle of two, and a step beside one
            one, other = known[rng.integers(len(known), size=2)]
            yield from (np.where(rng.random(d) < 0.5, one, other), (one + other) / 2, one + 1e-3 * (other - one))
        yield from rows
    sides = domain.get("box") or [(0, v - 1) for v in domain.get("categories") or ()]
    if sides:
        low, high = np.array(sides, dtype=np.float64).T
        yield from (high + 1, low - 1, np.where(rng.random(d) < 0.5, high + 1, rows[0]))
        for k in np.array_split(rng.permutation(d), min(d, 32)):  # every column of a wide table, some at a time
            yield np.where(np.isin(np.arange(d), k), high + 1, rows[0])


def _odd_values(domain: Mapping[str, Any], j: int, name: Any) -> Iterator[tuple[str, Any]]:
    column: Mapping[str, Any] = next((c for c in domain.get("columns") or () if c["name"] == name), {})
    box, counts, most = domain.get("box"), domain.get("categories"), domain.get("max_length") or domain.get("norm")
    ends = column.get("ends") if column else box[j] if box else None if most is None else (0.0, most)
    values = column.get("values") or (range(counts[j]) if counts else ())
    yield from (("missing", np.nan), ("infinite", np.inf), ("far below", -1e300), ("far above", 1e300), ("below 0", -1))
    if ends is not None:
        low, high = ends
        yield from (("below its range", np.nextafter(low, -np.inf)), ("above its range", np.nextafter(high, np.inf)))
        yield from (("below its range", np.floor(low) - 1), ("above its range", np.ceil(high) + 1))
    elif values and not any(isinstance(v, str) for v in values):
        yield from (("of an unknown category", max(values) + 1), ("between two categories", min(values) + 0.5))
    else:
        yield from (("of an unknown category", "no such category"), ("empty", ""))


def _changed(record: Any, j: int, value: Any) -> Any:
    """Return a record with another value in a column, in the column's own type where that holds it."""
    if hasattr(record, "iloc"):
        made, own = record.copy(), record.dtypes.iloc[j]
        made[record.columns[j]] = np.array([value], dtype=own if _type_holds(own, value) else None)
        return made
    table = np.array(record.toarray() if hasattr(record, "toarray") else record)
    if not _type_holds(table.dtype, value):
        table = table.astype(object if isinstance(value, str) else np.float64)
    table[0, j] = value
    return type(record)(table) if hasattr(record, "toarray") and table.dtype != object else table


def _type_holds(dtype: Any, value: Any) -> bool:
    if not isinstance(dtype, np.dtype) or isinstance(value, str) or dtype.kind not in "biuf":
        return False
    with np.errstate(all="ignore"):
        return bool(np.array(value).astype(dtype) == value or (dtype.kind == "f" and np.isnan(value)))


def answered(first: Any, subject: Subject, rng: Generator) -> Any:
    """Return odd questions that fixed first steps make finite features of, in one container; None where none is.

    They are what a whole pipeline is asked about by whoever means no good, and what no record shows.
    """
    domain, found = subject.accepted, None
    for _, X in odd({} if domain is None else domain.payload(), subject.data.X, rng):
        if not alike(X, subject.data.X) or (domain is not None and not domain.holds(X).all()):
            continue
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            features = first.transform(X)
            if np.isfinite(features.toarray() if hasattr(features, "toarray") else features).all():
                found = X if found is None else stack(found, X)
    return found


def asked(subject: Subject, rows: Float) -> tuple[Any, NDArray[np.bool_]]:
    """Return (questions as the recipe's kind of records, which of ``rows`` (Q, d) they are).

    Those that the records' number type cannot hold inside the declared domain are dropped.
    """
    like, reach = subject.data.X, _reach(subject)
    kind = np.asarray(like).dtype if not hasattr(like, "toarray") else like.dtype
    rows = _held(np.nan_to_num(rows), kind, reach)
    fine = np.asarray(np.isfinite(rows).all(axis=1)) & (True if reach is None else reach.inside(rows))
    made = made_like(rows[fine], like)
    back = applies.dense(made)
    if back is None or not np.array_equal(back, rows[fine]):
        fine = np.zeros(len(rows), dtype=bool)
        made = made_like(rows[fine], like)
    return made, fine


def alike(made: Any, X: Any) -> bool:
    """Return whether questions made up are of the kind of the records, so that beside them nothing is trained anew."""
    if hasattr(X, "columns"):
        return list(made.dtypes) == list(X.dtypes)
    kinds = {list if isinstance(v, tuple) else type(v) for v in (made, X)}  # rows of a tuple are a list
    return getattr(made, "dtype", None) == getattr(X, "dtype", None) and len(kinds) == 1


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


def _reach(subject: Subject) -> Reach | None:
    domain, X = subject.accepted, subject.data.X
    if domain is None:
        return None
    made = Reach.of(domain, X.shape[1])
    return None if isinstance(made, str) else made


def made_like(rows: Float, like: Any) -> Any:
    """Return rows in the kind of container, and of the types, that the recipe is given."""
    if hasattr(like, "iloc"):
        import pandas as pd

        return pd.DataFrame(rows, columns=like.columns).astype(like.dtypes.to_dict())
    if hasattr(like, "tocsr"):
        import scipy.sparse as sp

        return sp.csr_matrix(rows.astype(like.dtype))
    return rows.astype(np.asarray(like).dtype)


# A declared list of questions: DTP over it is found by asking every one of both models, whatever the model.

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
    made, held = asked(subject.with_data(replace(subject.data, domain=None)), rows)
    back = applies.dense(made)
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
    asks_records = True

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
            share = 4 * (about.subject.data.n + about.subject.data.X.shape[1] + 8) * applies.U
            for k in np.flatnonzero(sure):
                pair = found.changes[WITH][0, k], found.changes[WITHOUT][0, k]
                slack = 0.0 if found.engine[k] == refit.ENGINE.name else TOLERANCE
                lower[k], upper[k] = _largest(*pair, error=2 * (found.error[k] + slack), share=share)
        count = 0 if domain is None or domain.queries is None else len(domain.queries)
        said = f"the endpoint answers {count} listed questions and no other; every one was put to both models"
        return Certified(upper, lower, attained(lower, upper), (said,), {"questions": count})


def _largest(with_: Float, without: Float, *, error: float, share: float) -> tuple[float, float]:
    """Return between what the largest change over the questions (Q, K) lies."""
    if np.isnan(with_).any() or np.isnan(without).any():
        return np.inf, np.inf
    change = leakage.largest_change(with_, without)
    size = sum(np.where(np.isinf(v), 0.0, np.abs(v)).max(axis=1) for v in (with_, without))
    off = error + share * size
    return max(float((change - off).max()), 0.0), float((change + off).max())
