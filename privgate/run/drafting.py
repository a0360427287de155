"""A suite of what was declared, or drafted from a data set: what data look like now is not yet what they must be.

Nobody's own value enters the draft: ends are rounded outward, values that fewer people have than a report would count
are left out, and so the draft may not be met until somebody who knows the form writes them in.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from privgate.errors import SubjectError
from privgate.evidence.telling import SMALL_CELL
from privgate.models.columns import Column
from privgate.run import suites
from privgate.subject.data import TrainingData

#: columns with more different values than this are not listed
MOST = 50
#: what stands in a draft until a person has read it
UNREAD = "drafted from data; read every expectation, write in values that are missing, then remove this line"


def draft(data: TrainingData, name: str) -> dict[str, Any]:
    """Return a suite as JSON values: what the declared domain says, or a draft of what the data look like.

    A draft is marked, and a policy that names it is refused until the mark is removed. What was declared was never read
    off data, and needs no mark.

    Parameters
    ----------
    data : TrainingData
        Features with columns; labels.
    name : str
        Of the suite.

    Raises
    ------
    SubjectError
        The records have no columns, or there are none.
    """
    frame = suites.as_frame(data)
    if frame is None or not len(frame):
        raise SubjectError("these records have no columns to draft expectations of; write the suite by hand")
    if len(set(frame.columns)) != len(frame.columns):
        raise SubjectError("two columns have the same name; a suite cannot tell them apart")
    expectations = list(_of_all(data, frame))
    if (known := _declared(data, [str(c) for c in frame.columns])) is not None:
        return {"name": name, "expectations": [*expectations, *known]}
    owners = np.arange(data.n) if data.groups is None else np.asarray(data.groups)
    for column in frame.columns:
        expectations += _of_column(str(column), frame[column], owners)
    return {"name": name, "meta": {suites.DRAFT: UNREAD}, "expectations": expectations}


def _of_all(data: TrainingData, frame: Any) -> Iterator[dict[str, Any]]:
    """Give what every table of training data must be: columns, one row an id, no label of one person."""
    unit = 10 ** (len(str(len(frame))) - 1)
    least = len(frame) // unit * unit
    yield _one("expect_table_row_count_to_be_between", name=f"at least {least} rows", min_value=least)
    yield _one("expect_table_columns_to_match_set", column_set=[str(c) for c in frame.columns], exact_match=False)
    yield _one("expect_column_values_to_be_unique", name="no two records have one id", column=suites.RECORD)
    yield _one("expect_column_values_to_be_in_set", column=suites.OUTSIDE, value_set=[0])
    if not data.numbers:
        alone = {"name": "no label is one person's alone", "column": suites.WITH_LABEL, "min_value": 2}
        yield _one("expect_column_values_to_be_between", **alone)


def _declared(data: TrainingData, columns: list[str]) -> list[dict[str, Any]] | None:
    """Return what the declared domain says of each column; None where none says anything of single columns."""
    domain = data.domain
    if domain is None or domain.inferred or domain.proposed:
        return None
    if domain.columns is not None:
        known = list(domain.columns)
    elif domain.box is not None:
        known = [Column(j, ends=ends) for j, ends in enumerate(domain.box)]
    elif domain.categories is not None:
        known = [Column(j, values=tuple(range(v))) for j, v in enumerate(domain.categories)]
    else:
        return None
    expectations = [_one("expect_column_values_to_not_be_null", column="label")]
    for j, c in enumerate(known):
        column = columns[j] if isinstance(c.name, int) else str(c.name)
        # what speaks of its gaps: without one, a column that is named may have none
        kind = "expect_column_to_exist" if c.missing else "expect_column_values_to_not_be_null"
        expectations.append(_one(kind, column=column))
        if c.ends is not None:
            low, high = c.ends
            between = {"column": column, "min_value": low, "max_value": high}
            expectations.append(_one("expect_column_values_to_be_between", **between))
        elif c.values:
            expectations.append(_one("expect_column_values_to_be_in_set", column=column, value_set=list(c.values)))
    return expectations


def _of_column(column: str, values: Any, owners: Any) -> Iterator[dict[str, Any]]:
    """Give what a column looks like: without gaps, between two round ends, or one of a few values."""
    if not values.isna().any():
        yield _one("expect_column_values_to_not_be_null", column=column)
    present = values.dropna()
    kind = present.dtype.kind
    if not len(present):
        return
    if kind in "iuf" and present.nunique() > 2:
        if np.isfinite(present.to_numpy(dtype=np.float64)).all():
            low, high = _round(float(present.min()), up=False), _round(float(present.max()), up=True)
            yield _one("expect_column_values_to_be_between", column=column, min_value=low, max_value=high)
        return
    people = present.groupby(present.astype(object).map(_plain), sort=True).agg(
        lambda held: len(set(owners[held.index.to_numpy()].tolist()))
    )
    common = [v for v, n in people.items() if n >= SMALL_CELL]
    if not common or len(people) > MOST:
        return
    made = _one("expect_column_values_to_be_in_set", column=column, value_set=common)
    if len(common) < len(people):
        made["meta"] = {"notes": f"values of fewer than {SMALL_CELL} people are left out: write in what a form offers"}
    yield made


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
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
    found = (exact / unit).to_integral_value(ROUND_CEILING if up else ROUND_FLOOR) * unit
    return int(found) if found == found.to_integral_value() and abs(found) < 2**53 else float(found)


def _one(kind: str, *, name: Any = "", **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs, **({"meta": {"name": name}} if name else {})}
