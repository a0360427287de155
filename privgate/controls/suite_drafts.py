"""A suite of what was declared, or drafted from a data set: what data look like now is not yet what they must be."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from privgate.controls.suites import BETWEEN, DRAFT, NOT_NULL, OUTSIDE, RECORD, WITH_LABEL, as_frame, expect
from privgate.errors import SubjectError
from privgate.evidence.telling import SMALL_CELL
from privgate.models.columns import Column
from privgate.subject.data import TrainingData

#: columns with more different values than this are not listed
MOST = 50
_UNREAD = "drafted from data; read every expectation, write in values that are missing, then remove this line"


def draft(data: TrainingData, name: str) -> dict[str, Any]:
    """Return a suite as JSON values: what the declared domain says, or a draft of what the data look like.

    A draft is marked, and a policy that names it is refused until the mark is removed. Ends are rounded outward, and
    values that fewer people have than a report would count are left out, so that no person's own value enters.

    Raises
    ------
    SubjectError
        The records have no columns, or there are none.
    """
    frame = as_frame(data)
    if frame is None or not len(frame):
        raise SubjectError("these records have no columns to draft expectations of; write the suite by hand")
    if len(set(frame.columns)) != len(frame.columns):
        raise SubjectError("two columns have the same name; a suite cannot tell them apart")
    unit = 10 ** (len(str(len(frame))) - 1)
    least = len(frame) // unit * unit
    names = [str(c) for c in frame.columns]
    expectations = [
        expect("expect_table_row_count_to_be_between", name=f"at least {least} rows", min_value=least),
        expect("expect_table_columns_to_match_set", column_set=names, exact_match=False),
        expect("expect_column_values_to_be_unique", name="no two records have one id", column=RECORD),
        expect("expect_column_values_to_be_in_set", column=OUTSIDE, value_set=[0]),
    ]
    if not data.numbers:
        expectations.append(expect(BETWEEN, name="no label is one person's alone", column=WITH_LABEL, min_value=2))
    if (declared := _expect_declared(data, names)) is not None:
        return {"name": name, "expectations": [*expectations, *declared]}
    owners = np.arange(data.n) if data.groups is None else np.asarray(data.groups)
    for column in frame.columns:
        expectations += _expect_like(str(column), frame[column], owners)
    return {"name": name, "meta": {DRAFT: _UNREAD}, "expectations": expectations}


def _expect_declared(data: TrainingData, names: list[str]) -> list[dict[str, Any]] | None:
    """Return what the declared domain says of each column; None where none says anything of single columns."""
    domain = data.domain
    if domain is None or domain.inferred or domain.proposed:
        return None
    if domain.columns is not None:
        columns = list(domain.columns)
    elif domain.box is not None:
        columns = [Column(j, ends=ends) for j, ends in enumerate(domain.box)]
    elif domain.categories is not None:
        columns = [Column(j, values=tuple(range(v))) for j, v in enumerate(domain.categories)]
    else:
        return None
    expectations = [expect(NOT_NULL, column="label")]
    for j, c in enumerate(columns):
        column = names[j] if isinstance(c.name, int) else str(c.name)
        # what speaks of its gaps: without one, a column that is named may have none
        expectations.append(expect("expect_column_to_exist" if c.missing else NOT_NULL, column=column))
        if c.ends is not None:
            expectations.append(expect(BETWEEN, column=column, min_value=c.ends[0], max_value=c.ends[1]))
        elif c.values:
            expectations.append(expect("expect_column_values_to_be_in_set", column=column, value_set=list(c.values)))
    return expectations


def _expect_like(column: str, values: Any, owners: Any) -> Iterator[dict[str, Any]]:
    """Give what a column looks like: without gaps, between two round ends, or one of a few values."""
    present = values.dropna()
    if len(present) == len(values):
        yield expect(NOT_NULL, column=column)
    if not len(present):
        return
    if present.dtype.kind in "iuf" and present.nunique() > 2:
        if np.isfinite(present.to_numpy(dtype=np.float64)).all():
            low, high = _round(float(present.min()), up=False), _round(float(present.max()), up=True)
            yield expect(BETWEEN, column=column, min_value=low, max_value=high)
        return
    people = present.groupby(present.astype(object).map(_as_json), sort=True).agg(
        lambda rows: len(set(owners[rows.index.to_numpy()].tolist()))
    )
    common = [v for v, n in people.items() if n >= SMALL_CELL]
    if common and len(people) <= MOST:
        expectation = expect("expect_column_values_to_be_in_set", column=column, value_set=common)
        if len(common) < len(people):
            notes = f"values of fewer than {SMALL_CELL} people are left out: write in what a form offers"
            expectation["meta"] = {"notes": notes}
        yield expectation


def _as_json(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, bool | int | float) else str(value)


def _round(end: float, *, up: bool) -> float | int:
    """Return a number of one digit at or beyond an end, so that it is nobody's.

    Examples
    --------
    >>> _round(17.0, up=False), _round(90.5, up=True), _round(-0.031, up=False), _round(0.0, up=True)
    (10, 100, -0.04, 0)
    """
    if end == 0.0:
        return 0
    from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

    exact = Decimal(repr(end))
    unit = Decimal(1).scaleb(exact.adjusted())
    rounded = (exact / unit).to_integral_value(ROUND_CEILING if up else ROUND_FLOOR) * unit
    return int(rounded) if rounded == rounded.to_integral_value() and abs(rounded) < 2**53 else float(rounded)
