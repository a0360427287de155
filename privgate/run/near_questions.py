"""Questions beside a record: what somebody asks who does not stop at the record, or does not ask about it at all.

A model may answer at exactly a training record as if the record was not there, and leak beside it. So each record is
asked about again: moved by a step that is small against each column's spread, with one column moved, missing, far away
or somebody else's, a text with a word less, a picture mirrored. What a kind of record does not allow is left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import MeasurementError
from privgate.evidence.telling import SMALL_CELL
from privgate.kernel.sample import plan_looks
from privgate.run.run import Run
from privgate.subject.containers import content_digest, is_frame, is_sparse, stack, take
from privgate.subject.subject import Subject
from privgate.theorems.catalogue import find_closed_form
from privgate.training.budget import order
from privgate.training.fit import Answer, Fit

#: steps, as shares of a column's spread; rounded to a power of ten, as people type them
NEAR, WIDER = 1e-4, 1e-2
#: decimal places within which a column has a resolution of its own (days: none); a tenth of it is asked as well
DECIMALS = 4
#: spreads beyond the largest value that nobody's value is
BEYOND = 10.0
#: numbers in all questions together; records of many numbers are asked fewer questions
MOST_NUMBERS = 2**26
#: records at the least that are asked about together where a model refuses a question
SOME = 50
#: values above which a column of whole numbers is no list of categories
CODES = 100


@dataclass(frozen=True, eq=False)
class NearQuestions:
    """Questions beside some pool records, as further candidates that nobody trains on."""

    subject: Subject
    #: pool rows that are asked about, shape (R,)
    rows: Index
    #: what is asked beside each of them: name -> container of R records; empty where nothing can be
    kinds: Mapping[str, Any]
    #: kinds that the model does not answer
    refused: tuple[str, ...] = ()

    @cached_property
    def extended(self) -> Subject:
        """The subject with the questions behind its pool."""
        if not self.kinds:
            return self.subject
        data, more = self.subject.data, list(self.kinds.values())
        y = data.y[:0] if data.candidates is None else data.candidates[1]
        extended_pool = reduce(stack, more if data.candidates is None else [data.candidates[0], *more])
        labels = np.concatenate([y, np.tile(data.pool_labels[self.rows], len(more))])
        return self.subject.with_data(replace(data, candidates=(extended_pool, labels)))

    @property
    def sentence(self) -> str:
        """What was asked beside records, and what the model refuses, one sentence."""
        kinds = (
            f"asked beside records as well: {', '.join(self.kinds)}"
            if self.kinds
            else "nothing is asked beside records"
        )
        return f"{kinds}; the model refuses: {', '.join(self.refused)}" if self.refused else kinds

    @property
    def places(self) -> Index:
        """Rows of the larger pool that hold the questions, shape (R, Q)."""
        count, size = len(self.kinds), self.subject.data.pool_size
        return (size + np.arange(count * len(self.rows), dtype=np.int64)).reshape(count, len(self.rows)).T

    def list_rows(self, units: Index) -> tuple[Index, Index]:
        """Return (row_unit, row_query): own records of each unit, among ``rows``, then what is asked beside them."""
        members, places, rows = self.subject.data.units, self.places, [self.rows[:0]]
        for person in units:
            own = members[int(person)]
            at = np.minimum(np.searchsorted(self.rows, own), len(self.rows) - 1)
            if (self.rows[at] != own).any():
                raise MeasurementError("somebody is to be asked about beside whose record nothing is asked")
            rows.append(np.concatenate([own, places[at].ravel()]))
        return np.repeat(np.arange(len(units)), [len(r) for r in rows[1:]]), np.concatenate(rows)


def _alike(rows: Any, X: Any) -> bool:
    """Return whether questions made up are of the kind of the records, so that beside them nothing is trained anew."""
    if hasattr(X, "columns"):
        return list(rows.dtypes) == list(X.dtypes)
    kinds = {list if isinstance(v, tuple) else type(v) for v in (rows, X)}  # rows of a tuple are a list
    return getattr(rows, "dtype", None) == getattr(X, "dtype", None) and len(kinds) == 1


def make_questions(run: Run, rows: Index, *, near: bool, most: int = 9) -> NearQuestions:
    """Return at most so many questions beside each of the pool ``rows``, inside the declared domain.

    ``near``: small steps alone; otherwise also larger ones, and columns that are missing, far away or somebody else's.
    """
    subject = run.subject
    data, own = subject.data, subject.data.at(rows)
    if not len(rows):
        return NearQuestions(subject, rows, {})
    size = max(1, int(np.prod(getattr(own, "shape", (len(rows),)), dtype=np.int64)))
    most = min(most, max(1, MOST_NUMBERS // size)) if not is_sparse(own) else most
    answers: dict[str, Any] = {}
    for name, questions in _kinds(own, run.generator("questions beside records"), near=near).items():
        if len(answers) == most or not _alike(questions, data.X):
            continue
        container, domain = questions, subject.accepted
        inside = np.ones(len(rows), dtype=bool) if domain is None else domain.holds(questions)
        if not inside.all():  # who is asked through the domain gets the record's own question in its place
            container = take(stack(own, questions), np.where(inside, len(rows), 0) + np.arange(len(rows)))
        if content_digest(container) != content_digest(own):
            answers[name] = container
    return NearQuestions(subject, rows, answers)


def keep_answered(run: Run, near: NearQuestions) -> tuple[NearQuestions, Float, Float]:
    """Return the questions that the model under attack answers, and what it answers: to the pool (P, K), and (R, Q, K).

    ``MeasurementError``: it gives no answer to the pool. Or it refuses a kind of question beside training records and
    answers it beside others, or the reverse: whether it refuses tells who was trained on.
    """
    subject, pool, count = near.extended, np.arange(near.subject.data.pool_size, dtype=np.int64), len(near.rows)
    given = ask_model(run, subject, np.concatenate([pool, near.places.T.ravel()]))
    if not given.problem:
        return near, given.log_p[: len(pool)], _group_by_record(given.log_p[len(pool) :], count)
    own = ask_model(run, near.subject, pool)
    if own.problem:
        raise MeasurementError(f"the model under attack gave no answer: {own.problem}")
    alone = _ask_kinds(run, near, list(near.kinds))
    kept = {name: near.kinds[name] for name in alone}
    fewer = replace(near, kinds=kept, refused=tuple(n for n in near.kinds if n not in kept))
    return fewer, own.log_p, _group_by_record(np.concatenate([*alone.values(), own.log_p[:0]]), count)


def _group_by_record(answers: Float, records: int) -> Float:
    """Return answers (R, Q, K) of those that stand question by question, (Q R, K)."""
    return np.moveaxis(answers.reshape(len(answers) // max(1, records), records, answers.shape[1]), 0, 1)


def _ask_kinds(run: Run, near: NearQuestions, names: list[str]) -> dict[str, Float]:
    """Return what the model answers of each kind of question that it does not refuse."""
    place = dict(zip(near.kinds, near.places.T, strict=True))
    given = ask_model(run, near.extended, np.concatenate([place[n] for n in names]))
    if not given.problem:
        return dict(zip(names, np.split(given.log_p, len(names)), strict=True))
    if len(names) > 1:  # the oddest stand last
        return {**_ask_kinds(run, near, names[:-1]), **_ask_kinds(run, near, names[-1:])}
    members = near.rows < run.subject.data.n
    sides = [
        part
        for side in (members, ~members)
        for part in np.array_split(place[names[0]][side], max(1, min(4, int(side.sum()) // SOME)))
        if len(part)
    ]
    if not all(ask_model(run, near.extended, rows).problem for rows in sides):
        raise MeasurementError(
            f"the model refuses questions ({names[0]}) beside some records and answers them beside others, which may "
            f"tell who was trained on: {given.problem}"
        )
    return {}


#: people who are refitted to contradict a theorem or a closed form: if none does, fewer than 5 % of all would
CHECKED = 59


def plan_looks_at(run: Run) -> tuple[int, ...]:
    """Return how many people each look takes that is planned for the share of a run; everybody where there is none."""
    n = run.n_units
    if run.share is None:
        return (n,)
    sizes = plan_looks(n, min(n - 1, int(run.share * n + 1e-9))).sizes
    return tuple(dict.fromkeys(tell_size(size, n) for size in sizes))


def tell_size(size: int, people: int) -> int:
    """Return the size of a sample; everybody where so few would be left that their number may not be told."""
    return people if people - SMALL_CELL < size else size


def ask_near_people(run: Run) -> NearQuestions:
    """Return what is asked beside training records where a rule on people wants it: near questions; else nothing.

    What the stored model does not answer is not asked of any other. Where people are drawn to be left out, nobody else
    is asked about: every worker holds these questions. A closed form answers for everybody.
    """
    rows = np.arange(run.subject.data.n, dtype=np.int64)
    if run.share is not None and find_closed_form(run.subject)[0] is None:
        drawn = order(run.subject, run.fleet)[: max(CHECKED, *run.compute(plan_looks_at))]
        rows = np.sort(np.concatenate([run.subject.data.units[int(u)] for u in drawn]))
    if not run.near_questions:
        return NearQuestions(run.subject, rows, {})
    near_questions = make_questions(run, rows, near=True)
    return near_questions if run.subject.model is None else keep_answered(run, near_questions)[0]


def describe_place(run: Run) -> str:
    """Return where people were asked about, as the end of a sentence."""
    near = run.compute(ask_near_people)
    if not run.near_questions:
        return "with its own features"
    if not near.kinds:
        return "with its own features, because no question beside a record of this kind is answered"
    return f"at or beside its own features ({', '.join(near.kinds)})"


def ask_model(run: Run, subject: Subject, rows: Index) -> Answer:
    """Return what the stored model answers at pool rows of ``subject``, or else that of the recipe's own fit."""
    if run.subject.model is not None:  # the larger pool's subject has none: no training meets it
        stored = replace(subject, model=run.subject.model, digests={**run.subject.digests, **subject.digests})
        return run.fleet.registered(stored, rows)
    fit = Fit(run.seeds[0], rows, left_out=np.zeros(0, dtype=np.int64))
    return run.fleet.fits(subject, [fit], label="training on all records")[0]


def _kinds(X: Any, rng: Generator, *, near: bool) -> dict[str, Any]:
    if is_sparse(X):
        return _counts(X, near=near)
    if is_frame(X) or len(getattr(X, "shape", ())) == 2:
        return _tables(X, rng, near=near)
    if getattr(X, "dtype", None) is not None and len(X.shape) > 2 and X.dtype.kind in "biuf":
        return _pictures(X, near=near)
    if all(isinstance(v, str) for v in X):
        return _texts(X, near=near)
    return {}


def _texts(X: Any, *, near: bool) -> dict[str, Any]:
    changes: dict[str, Callable[[list[str]], list[str]]] = {
        "a space more": lambda w: [*w, ""],
        "the last word left out": lambda w: w[:-1],
    }
    if not near:
        changes |= {"the first word left out": lambda w: w[1:], "every word twice": lambda w: [*w, *w]}
    kinds = dict[str, Any]()
    for name, change in changes.items():
        texts = [" ".join(change(str(v).split())) or str(v) for v in X]
        kinds[name] = np.array(texts, dtype=X.dtype) if isinstance(X, np.ndarray) else texts
        if hasattr(X, "iloc"):
            kinds[name] = type(X)(texts, index=X.index, name=X.name).astype(X.dtype)
    return kinds


def _counts(X: Any, *, near: bool) -> dict[str, Any]:
    """Return sparse records with another size of every entry, and with an entry less."""
    rows = X.tocsr()

    def with_data(change: Callable[[Any], Any]) -> Any:
        changed = rows.copy()
        changed.data = change(changed.data).astype(X.dtype)
        return changed.asformat(X.format)

    whole = bool((rows.data == np.floor(rows.data)).all())
    first = np.isin(np.arange(rows.nnz), rows.indptr[:-1][np.diff(rows.indptr) > 0])
    kinds = {
        "every entry moved": with_data(lambda d: d + 1 if whole else d * (1 + NEAR)),
        "an entry left out": with_data(lambda d: np.where(first, 0, d)),
    }
    return kinds if near else {**kinds, "every entry doubled": with_data(lambda d: d * 2)}


def _pictures(X: NDArray[Any], *, near: bool) -> dict[str, Any]:
    """Return arrays of more than one axis a record: every number moved, mirrored, and moved by one place."""
    flat = X.reshape(len(X), -1)
    others = {} if near else {"mirrored": X[..., ::-1].copy(), "moved by one place": np.roll(X, 1, axis=-1)}
    if X.dtype.kind == "b":  # black or white: no small step
        return others
    steps = [("every number up", NEAR, True), ("every number down", NEAR, False)]
    steps += [] if near else [("every number further up", WIDER, True)]
    return {name: _moved(flat, size, up=up).reshape(X.shape) for name, size, up in steps} | others


def _tables(X: Any, rng: Generator, *, near: bool) -> dict[str, Any]:
    """Return the records of a table with columns moved, one or all; and with one missing, far or somebody else's.

    Small steps stay between the least and the largest value of a column, and whole numbers that may be categories go to
    the next one that somebody has.
    """
    frame, names = is_frame(X), list(X.columns) if is_frame(X) else list(range(X.shape[1]))
    columns = [X[c].to_numpy() if frame else X[:, c] for c in names]
    types = [getattr(X[c].dtype, "numpy_dtype", X[c].dtype) if frame else X.dtype for c in names]
    numbers = [j for j, v in enumerate(columns) if v.dtype.kind in "iuf" and _plain(X, names[j])]
    free = [j for j in numbers if not _codes(columns[j])] or numbers

    def write_columns(change: Mapping[int, Any]) -> Any:
        out = X.copy()
        for j, values in change.items():
            if frame:
                old = X[names[j]]  # NumPy has whole numbers as others where some are missing
                new = np.round(values) if old.dtype.kind in "iu" and values.dtype.kind == "f" else values
                out[names[j]] = type(old)(new, index=old.index).astype(old.dtype)
            else:
                out[:, j] = values
        return out

    def one(drawn: Index, change: Callable[[int], Any]) -> Any:
        changed = {}
        for j in np.unique(drawn).tolist():
            changed[j], new = columns[j].copy(), change(j)
            changed[j][drawn == j] = new[drawn == j]
        return write_columns(changed)

    def moved(j: int, size: float = NEAR, *, up: bool = True) -> Any:
        return _moved(columns[j][:, None], size, up=up, whole=types[j].kind in "iu")[:, 0]

    kinds: dict[str, Any] = {}
    if numbers:
        drawn = rng.choice(numbers, len(columns[0]))
        kinds["every number up"] = write_columns({j: moved(j) for j in free})
        kinds["first number up"] = write_columns({free[0]: moved(free[0])})
        kinds["every number down"] = write_columns({j: moved(j, up=False) for j in free})
        kinds["one number up"] = one(drawn, moved)
        if finer := {j: step for j in free if (step := _finer(columns[j], types[j])) is not None}:
            kinds["every number up by a tenth of its resolution"] = write_columns(finer)
        if not near:
            kinds["every number further up"] = write_columns({j: moved(j, WIDER) for j in free})
            kinds["one number far away"] = one(drawn, lambda j: _far(columns[j], types[j]))
    shuffled = rng.permutation(len(columns[0]))
    several = [j for j, v in enumerate(columns) if j not in numbers]
    if several or not near:  # what is no number has no small step: another's value is the nearest
        others = rng.choice(several if near else len(columns), len(columns[0]))
        kinds["one value of somebody else's"] = one(others, lambda j: _another(columns[j], shuffled))
    holes = [j for j, v in enumerate(columns) if v.dtype.kind in "fO"]
    missing = [j for j in holes if _plain(X, names[j])]
    words = [j for j in holes if frame and str(X[names[j]].dtype).startswith(("str", "category", "boolean"))]
    for name, some in (("one value missing", missing), ("one category missing", words)):  # models may refuse one alone
        if some and not near:
            gone = rng.choice(some, len(columns[0]))
            kinds[name] = one(gone, lambda j: np.full(len(shuffled), np.nan, dtype=columns[j].dtype))
    return kinds


def _plain(X: Any, name: Any) -> bool:
    """Return whether a column holds any number of its type: one of numpy's, or of numbers that may be missing."""
    dtype = X[name].dtype if is_frame(X) else X.dtype
    return isinstance(dtype, np.dtype) or getattr(getattr(dtype, "numpy_dtype", None), "kind", "O") in "iuf"


def _another(column: NDArray[Any], order: Index) -> NDArray[Any]:
    """Return somebody else's values: those in ``order``, or the next that anybody has where it is the own value."""
    keys = np.array([repr(v) for v in column], dtype=object) if column.dtype.kind == "O" else column
    _, first, code = np.unique(keys, return_index=True, return_inverse=True)
    return column[np.where(code[order] == code, first[(code + 1) % len(first)], order)]


def _codes(column: NDArray[Any]) -> bool:
    """Return whether a column holds few whole numbers, which may be categories."""
    known = column[np.isfinite(column)] if column.dtype.kind == "f" else column
    return len(known) == 0 or bool((known == np.floor(known)).all() and len(np.unique(known)) <= CODES)


def _moved(values: NDArray[Any], size: float, *, up: bool, whole: bool = False) -> NDArray[Any]:
    """Return columns moved by a share of their spread; to the other side where that leaves the values there are."""
    if values.shape[1] == 1 and _codes(values[:, 0]):
        known = np.unique(values[np.isfinite(values)] if values.dtype.kind == "f" else values)
        if len(known) < 2:
            return values.copy()
        place = np.clip(np.searchsorted(known, values), 0, len(known) - 1)
        neighbor = place + (1 if up else -1)
        neighbor = np.where((neighbor < 0) | (neighbor >= len(known)), 2 * place - neighbor, neighbor)
        return np.where(np.isfinite(values), known[neighbor], values).astype(values.dtype)
    table = values.astype(np.float64)
    low, high, spread = _sides(table)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        step = 10.0 ** np.round(np.log10(spread * size))
        step = np.where(np.isfinite(step), step, 0.0) * (1.0 if up else -1.0)
        if whole or values.dtype.kind in "iu":
            step = np.sign(step) * np.maximum(np.abs(np.round(step)), 1.0) * (spread > 0)
        to, back = table + step, table - step
        to = np.where((to >= low) & (to <= high), to, np.where((back >= low) & (back <= high), back, table))
    return np.where(np.isfinite(table), to, values).astype(values.dtype)


def _finer(column: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return a column up by a tenth of its resolution; None if that is no smaller than the usual step, or is none."""
    known = column[np.isfinite(column)].astype(np.float64) if dtype.kind == "f" else np.zeros(0)
    exact = (k for k in range(DECIMALS + 1) if np.allclose(known, np.round(known, k), rtol=0.0, atol=1e-6))
    places, spread = next(exact, None), float(known.std()) if len(known) else 0.0
    if places is None or not spread or 10.0**-places > 10.0 * 10.0 ** np.round(np.log10(spread * NEAR)) / 1.5:
        return None
    step = 0.1 * 10.0**-places
    return np.where(column + step <= known.max(), column + step, column - step).astype(column.dtype)


def _sides(table: Float) -> tuple[Float, Float, Float]:
    """Return least and largest finite value and standard deviation of each column; NaN where there is none."""
    known = np.ma.masked_invalid(table)
    low, high, spread = (np.ma.filled(f(axis=0), np.nan) for f in (known.min, known.max, known.std))
    return low, high, spread


def _far(column: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a value that is larger than anybody's, as far as the column's type holds it."""
    _, high, spread = _sides(column.astype(np.float64))
    value = float(high + BEYOND * np.fmax(spread, 1.0))
    if dtype.kind in "iu":
        value = min(value, float(np.iinfo(dtype).max) / 2)
    return np.full(len(column), value if np.isfinite(value) else 0.0).astype(column.dtype)
