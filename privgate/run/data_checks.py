"""One 64-bit number a record, equal for equal records: duplicates without comparing everybody with everybody."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.evidence import Count, Precondition
from privgate.evidence.figures import percent
from privgate.run import close_people, pool
from privgate.subject.containers import as_numbers, take
from privgate.subject.data import TrainingData

Print = NDArray[np.uint64]

#: what to do about records that may be one person's
_OWNER = "if they belong to one person, name the person in 'groups', otherwise that person's risk is understated"
_ROWS = 1 << 14  # records hashed at once, so that images need no second copy of the data
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def exact(X: Any) -> Print:
    """Return a number a record, shape (n,); different records share one with probability about 2^-64.

    Parameters
    ----------
    X : array of any rank, DataFrame, scipy sparse matrix, or list
        Negative zero equals zero, NaN equals NaN, and an integer equals the float of the same value.
    """
    if hasattr(X, "tocsr"):
        return _sparse(X.tocsr())
    if hasattr(X, "columns"):
        return _combine([_column(X.iloc[:, j]) for j in range(X.shape[1])], len(X))
    if hasattr(X, "shape") and np.asarray(X).dtype.kind in "biuf":
        return _numbers(np.asarray(X))
    values = np.asarray(X, dtype=object)
    if values.ndim == 1:
        return _text([str(v) for v in values])
    return _combine([_text([str(v) for v in values[:, j]]) for j in range(values.shape[1])], len(values))


def coarse(X: Any, like: Any = None) -> tuple[Print, Print] | None:
    """Return two numbers a record that are equal for near-duplicates, or None where nearness has no meaning.

    Numbers are near when they fall into one cell of a grid of a thousandth of the column's standard deviation; two
    grids, half a cell apart, so that few pairs are cut. Everything else must be equal; text counts without case, spaces
    and punctuation.

    Parameters
    ----------
    X : container
        Records.
    like : container, optional
        Records that fix the grid; ``X`` if absent.
    """
    if hasattr(X, "tocsr"):
        return None
    if hasattr(X, "columns"):
        ref = X if like is None else like
        both = [[_cells(X.iloc[:, j], ref.iloc[:, j], shift) for j in range(X.shape[1])] for shift in (0.0, 0.5)]
        return _combine(both[0], len(X)), _combine(both[1], len(X))
    if hasattr(X, "shape"):
        array = np.asarray(X)
        if array.dtype.kind != "f":
            return None
        flat = array.reshape(len(array), -1)
        ref = flat if like is None else np.asarray(like).reshape(len(like), -1)
        step = _step(ref)
        return _numbers(np.floor(flat / step)), _numbers(np.floor(flat / step + 0.5))
    if all(isinstance(v, str) for v in X):
        plain = _text([re.sub(r"[\W_]+", " ", v).strip().casefold() for v in X])
        return plain, plain
    return None


def _mix(x: Print) -> Print:
    """Return well-mixed bits of each number (the finalizer of SplitMix64; Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return np.asarray(x ^ (x >> np.uint64(31)), dtype=np.uint64)


def _bits(a: NDArray[Any]) -> Print:
    """Return the bits of each number as float64, one form for zero and one for NaN."""
    f = a.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    f[np.isnan(f)] = np.nan
    return f.view(np.uint64)


def _keys(width: int) -> Print:
    return _mix(_GOLDEN * np.arange(1, width + 1, dtype=np.uint64))


def _numbers(array: NDArray[Any]) -> Print:
    flat = array.reshape(len(array), -1)
    keys = _keys(flat.shape[1])
    out = np.empty(len(flat), dtype=np.uint64)
    for start in range(0, len(flat), _ROWS):
        block = np.ascontiguousarray(flat[start : start + _ROWS])
        out[start : start + _ROWS] = _mix(_bits(block) ^ keys).sum(axis=1, dtype=np.uint64)
    return out


def _sparse(csr: Any) -> Print:
    csr = csr.copy()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    cells = _mix(_bits(csr.data) ^ _mix(_GOLDEN * (csr.indices.astype(np.uint64) + np.uint64(1))))
    # running sums wrap around, and so do their differences: exact
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(cells, dtype=np.uint64)])
    return np.asarray(total[csr.indptr[1:]] - total[csr.indptr[:-1]], dtype=np.uint64)


def _text(values: list[str]) -> Print:
    from pandas.util import hash_array

    return np.asarray(hash_array(np.array(values, dtype=object)), dtype=np.uint64)


def _column(column: Any) -> Print:
    numbers = as_numbers(column)
    return _text([str(v) for v in column.tolist()]) if numbers is None else _mix(_bits(numbers))


def _cells(column: Any, like: Any, shift: float) -> Print:
    if column.dtype.kind != "f":
        return _column(column)
    numbers, reference = (np.asarray(as_numbers(c)) for c in (column, like))
    return _mix(_bits(np.floor(numbers / _step(reference[:, None])[0] + shift)))


def _step(reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a thousandth of each column's standard deviation; 1 for a constant column."""
    step = np.nanstd(reference.astype(np.float64), axis=0) * 1e-3
    return np.asarray(np.where(np.isfinite(step) & (step > 0), step, 1.0))


def _combine(columns: list[Print], n: int) -> Print:
    out = np.zeros(n, dtype=np.uint64)
    for key, column in zip(_keys(len(columns)), columns, strict=True):
        out += _mix(column ^ key)
    return out


# Checks of the training data before anything is retrained: what would make the numbers mean something else.
#
# Counts only: no value, no label and no record's name leaves these checks.


def preconditions(data: TrainingData) -> list[Precondition]:
    """Return one precondition a check, always in this order, passed ones too; none for what cannot be looked for."""
    prints = _with_label(exact(data.X), data.y)
    checks = [
        *([targets(data)] if data.numbers else [labels(data), class_of_one(data)]),
        duplicates(data, prints),
        near_duplicates(data, prints),
        several_records(data),
        overlap_found(data, prints),
        near_overlap(data),
        same_population(data),
    ]
    return [found for found in checks if found is not None]


def labels(data: TrainingData) -> Precondition:
    """Check the label set: at least two labels, and no candidate with a label that training has never seen."""
    known = data.classes()
    count = {"labels": len(known)}
    if len(known) < 2:
        return Precondition(
            "labels", "failed", "all training records have the same label; nothing can be judged", count
        )
    if data.candidates is not None:
        unknown = int((~np.isin(data.candidates[1], known)).sum())
        if unknown:
            some = Count(unknown, len(data.candidates[1]))
            text = f"{some} candidates have a label that no training record has; attacks could tell them by it"
            return Precondition("labels", "inconclusive", f"{text}; remove them", {**count, "unknown": unknown})
    return Precondition("labels", "passed", f"{len(known)} labels", count)


def targets(data: TrainingData) -> Precondition:
    """Check a regressor's targets: that they differ, and are not a handful of codes."""
    known, detail = len(data.classes()), {"values": len(data.classes())}
    if known < 2:
        return Precondition(
            "targets", "failed", "all training records have the same target; nothing can be judged", detail
        )
    if known == 2:
        text = "the targets have two values only, as labels have; a classifier of them says more about people"
        return Precondition("targets", "warned", text, detail)
    return Precondition("targets", "passed", f"numbers with {known} different values", detail)


def class_of_one(data: TrainingData) -> Precondition:
    """Check that every label belongs to at least two units: removing the only one removes the label, without limit."""
    owners = _owner(data)
    pairs = np.unique(np.searchsorted(data.classes(), data.y) * (owners.max() + 1) + owners)
    alone = int((np.bincount(pairs // (owners.max() + 1)) == 1).sum())
    detail = {"labels_of_one": alone}
    if not alone:
        return Precondition("class_of_one", "passed", "every label belongs to at least two people", detail)
    text = f"{_count(alone, 'label')} of one person only: without that person the model cannot give the label at all"
    return Precondition("class_of_one", "warned", f"{text}; merge rare labels", detail)


def duplicates(data: TrainingData, prints: Print | None = None) -> Precondition:
    """Look for equal records of different units: leaving one out leaves the other, and the risk looks too small."""
    prints = _with_label(exact(data.X), data.y) if prints is None else prints
    copies = int(_shared(prints, _owner(data)).sum())
    detail = {"records": copies, "share": copies / data.n}
    if not copies:
        text = "no two people have equal records"
        if coarse(take(data.X, np.arange(1))) is None:
            text += "; nearly equal ones were not looked for, because these records have no distance"
        return Precondition("duplicates", "passed", text, detail)
    text = f"{Count(copies, data.n)} of {data.n} records equal another person's record; {_OWNER}"
    return Precondition("duplicates", "warned", text, detail)


def near_duplicates(data: TrainingData, prints: Print | None = None) -> Precondition | None:
    """Look for records of different units that differ by rounding only, or lie closer than people do.

    Equal ones are counted by ``duplicates``. Where most people seem to be copies, and nobody says whose the records
    are, no figure about people counts. None where records have no distance: what was not looked for passes nothing.
    """
    share, cells, owners = close_people.copied(data), coarse(data.X), _owner(data)
    near = np.zeros(data.n, dtype=bool)
    for grid in cells or ():
        near |= _shared(grid, owners)
    prints = _with_label(exact(data.X), data.y) if prints is None else prints
    count = int((near & ~_shared(prints, owners)).sum())
    # what rounding alone explains is told as such, unless most people are copies
    if share >= close_people.MOST or share > 1.5 * count / data.n:
        open_ = share >= close_people.MOST and data.groups is None
        said = percent(share) if share < 1 else "all"
        text = f"about {said} of the records lie closer to another person's record than people do, as jittered copies"
        return Precondition(
            "near_duplicates", "inconclusive" if open_ else "warned", f"{text}; {_OWNER}", {"close": share}
        )
    if cells is None:
        return None
    detail = {"records": count, "share": count / data.n}
    if not count:
        return Precondition("near_duplicates", "passed", "no two people have nearly equal records", detail)
    text = (
        f"at least {Count(count, data.n)} of {data.n} records differ from another person's record by rounding only; "
        f"{_OWNER}"
    )
    return Precondition("near_duplicates", "warned", text, detail)


def who(data: TrainingData) -> Precondition:
    """Ask whose the records are: groups say it, and ids that are all different say that each is one person."""
    name = "who"
    if data.groups is not None:
        return Precondition(name, "passed", "groups say whose each record is")
    if data.ids is not None:  # which are all different
        return Precondition(name, "passed", "ids say that each record is one person")
    text = "nobody says whose the records are, so that each counts as one person: give ids or groups to log_model"
    return Precondition(name, "warned", text)


def several_records(data: TrainingData) -> Precondition:
    """Look for signs that people have several records although no groups are given: leaving out one record is not them.

    Signs are a column that is named like a person's identifier and repeats, and record ids that share their beginnings.
    """
    name = "several_records"
    if data.groups is not None:
        most = max(len(rows) for rows in data.units)
        text = f"{len(data.units)} people with up to {most} records each are left out as a whole"
        return Precondition(name, "passed", text, {"units": len(data.units), "largest": most})
    if pairs := close_people.windows(data):
        text = (
            "most records hold numbers of other records in other columns, as windows over one series do: one record is "
            "no person; name whose each record is in 'groups'"
        )
        return Precondition(name, "inconclusive", text, {"signs": ["windows"], "pairs": pairs})
    signs = [*_identifier_columns(data.X), *_shared_beginnings(data.ids)]
    if not signs:
        return Precondition(name, "passed", "no sign of people with several records", {"signs": []})
    text = f"people seem to have several records ({signs[0]}) but no 'groups' are given; one record is not a person"
    return Precondition(name, "warned", text, {"signs": signs})


def overlap(data: TrainingData, prints: Print | None = None) -> Index:
    """Return the positions of candidates that equal a training record in features and label, ascending.

    They cannot serve as people who were not trained on, and whoever measures attacks removes them.
    """
    if data.candidates is None:
        return np.zeros(0, dtype=np.int64)
    prints = _with_label(exact(data.X), data.y) if prints is None else prints
    others = _with_label(exact(data.candidates[0]), data.candidates[1])
    return np.flatnonzero(np.isin(others, prints)).astype(np.int64)


def overlap_found(data: TrainingData, prints: Print | None = None) -> Precondition:
    """Report the overlap between training records and candidates; ``detail["candidates"]`` holds the positions."""
    if data.candidates is None:
        return Precondition("overlap", "passed", "there are no candidates", {"count": 0, "candidates": []})
    rows = overlap(data, prints)
    total = len(data.candidates[1])
    detail = {"count": len(rows), "of": total, "candidates": rows.tolist()}
    if not len(rows):
        return Precondition("overlap", "passed", f"none of {total} candidates is also a training record", detail)
    text = f"{Count(len(rows), total)} of {total} candidates equal a training record"
    if len(rows) == total:
        # a rule that needs candidates cannot be judged then and says so itself; others do not need them
        said = f"{text}: nobody is left to compare with, so no attack can be judged"
        return Precondition("overlap", "warned", said, detail)
    return Precondition("overlap", "warned", f"{text}; they are left out of every attack", detail)


def near_overlap(data: TrainingData) -> Precondition:
    """Look for candidates who are training records in all but a few digits or columns.

    A warning and no more: rules that need candidates are inconclusive then and say so themselves, others do not.
    """
    name = "near_overlap"
    if data.candidates is None or not len(data.candidates[1]):
        return Precondition(name, "passed", "there are no candidates", {"share": 0.0})
    found = pool.built(data).twins
    if found is None:
        text = (
            "whether candidates are training records in all but a few digits was not looked at: no two can be compared"
        )
        return Precondition(name, "warned", text, {"share": None})
    removed = pool.built(data).removed["nearly_in_training"]
    share, usual = found.told
    detail = {"checked": found.checked, "share": share, "usual": usual, "removed": removed}
    if not found.clear:
        text = "no more candidates than chance explains are nearly equal to a training record"
        if removed:
            text = f"{text}; {Count(removed)} are left out of every attack"
        return Precondition(name, "passed", text, detail)
    text = found.sentence
    rest = "no attack is judged by them" if found.too_many else f"{Count(removed)} are left out of every attack"
    return Precondition(name, "warned", f"{text}; {rest}", detail)


def same_population(data: TrainingData) -> Precondition:
    """Compare candidates with training records, without the model; a warning as ``near_overlap``."""
    name = "same_population"
    if data.candidates is None or not len(data.candidates[1]):
        return Precondition(name, "passed", "there are no candidates", {"auc": None})
    found = pool.built(data).shift
    if found is None:
        text = "whether candidates come from the same population was not looked at: too few people on one side"
        return Precondition(name, "warned", text, {"auc": None})
    # more digits, or how many were compared, would tell how many equal a record of the other side: each is left out
    detail = {k: round(getattr(found, k), 2) for k in ("auc", "labels", "p_auc", "p_labels")}
    if not found.seen:
        text = f"nothing tells training records and candidates apart (AUC {found.auc:.2f}, 0.5 is due)"
        return Precondition(name, "passed", text, detail)
    text = f"candidates are not from the same population as the training records: {pool.told(found)}"
    rest = "no attack is judged by them" if found.clear else "too little to move a figure by much"
    return Precondition(name, "warned", f"{text}; {rest}", detail)


def _with_label(prints: Print, y: NDArray[Any]) -> Print:
    """Return fingerprints of record and label together."""
    label = exact(y[:, None] if y.dtype.kind in "biuf" else [str(v) for v in y])
    return np.asarray(prints * np.uint64(3) + label, dtype=np.uint64)


def _owner(data: TrainingData) -> Index:
    """Return which unit each record belongs to, shape (n,)."""
    if data.groups is None:
        return np.arange(data.n, dtype=np.int64)
    return np.unique(data.groups, return_inverse=True)[1].astype(np.int64)


def _shared(prints: Print, owners: Index) -> NDArray[np.bool_]:
    """Return which records have the fingerprint of another person's record."""
    _, code = np.unique(prints, return_inverse=True)
    first = np.full(code.max() + 1, -1, dtype=np.int64)
    first[code[::-1]] = owners[::-1]  # the owner of each fingerprint's first record
    others = np.bincount(code, weights=owners != first[code])
    return np.asarray(others[code] > 0, dtype=np.bool_)


_PERSON = re.compile(
    r"(^|[^a-z])(user|person|patient|customer|client|member|employee|student|subject|account|household|owner|email|"
    r"ssn|nhs|passport|name|id)(_?(id|no|nr|number|key|name|uid))?($|[^a-z])"
)


def _identifier_columns(X: Any) -> list[str]:
    """Return sentences on DataFrame columns that are named like an identifier, and repeat, but are mostly different."""
    if not hasattr(X, "columns"):
        return []
    found = []
    for j, column in enumerate(map(str, X.columns)):
        words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", column).lower()
        values = X.iloc[:, j]
        if not _PERSON.search(words) or values.dtype.kind == "f":
            continue
        different = int(values.nunique())
        if max(2, len(X) // 20) <= different < len(X):
            found.append(f"column {column!r} has {different} values on {len(X)} records")
    return found


def _shared_beginnings(ids: Any) -> list[str]:
    """Return a sentence if ids look like ``person-record``: many beginnings, each before a last number, that repeat."""
    if ids is None or np.asarray(ids).dtype.kind not in "UO":
        return []
    heads = [re.sub(r"[-_/.:#][^-_/.:#]*$", "", str(v)) for v in ids]
    different = len(set(heads))
    if max(2, len(heads) // 20) <= different < len(heads):
        return [f"{len(heads)} record ids have {different} different beginnings"]
    return []


def _count(n: int, word: str) -> str:
    return f"{Count(n)} {word}s are each"
