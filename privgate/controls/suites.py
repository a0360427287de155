"""Great Expectations suites over training data; a result holds counts, never values.

There an empty table meets almost any expectation, NaN meets any, and a missing column looks like a violation. So a
least number of rows is added, and not-null for every named column; what could not be evaluated is an error.
"""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Compute, compute_here
from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import PolicyError
from privgate.evidence import Expectation, Precondition

#: a ``TrainingData``, whose class is not imported: ``verify`` judges suites without records and models
Data = Any
NOT_NULL = "expect_column_values_to_not_be_null"
BETWEEN = "expect_column_values_to_be_between"
EXISTS = "expect_column_to_exist"
ROWS = "expect_table_row_count_to_be_between"
_MAY_BE_NULL = frozenset({NOT_NULL, "expect_column_values_to_be_null", EXISTS})
_BASIC = {"result_format": "BASIC", "partial_unexpected_count": 0}
#: the key in ``meta`` of a suite that an earlier version drafted; a person who has read the suite removes the key
DRAFT = "privgate_draft"
#: what Great Expectations imports for tables in databases
_UNUSED = frozenset({"sqlalchemy", "psycopg2", "boto3", "botocore"})
#: values of a table that a worker is sent at most
MOST_SENT = 16_000_000
_JUDGED: "WeakKeyDictionary[Data, dict[str, Any]]" = WeakKeyDictionary()
#: columns that privgate adds where a suite names them: the record's id, or its number; how many people have its label;
#: and whether it lies outside the declared domain (0 or 1)
RECORD, WITH_LABEL, OUTSIDE = "privgate.record", "privgate.people_with_label", "privgate.outside_domain"


def parse(text: str, file: str) -> dict[str, Any]:
    """Return a suite's JSON without importing Great Expectations; raise ``PolicyError`` where it has another shape."""
    try:
        suite = strict_json.loads(text, LARGE)
    except DocumentError as exc:
        raise PolicyError(f"{file}: {exc}; expected a Great Expectations suite") from exc
    if why := _find_fault(suite):
        raise PolicyError(f"{file}: {why}")
    return dict(suite)


def _find_fault(suite: Any) -> str:
    if not isinstance(suite, dict) or not isinstance(suite.get("expectations"), list):
        return "is not a suite; expected an object with 'name' and 'expectations'"
    if not suite["expectations"]:
        return "expectations: is empty; a suite that expects nothing would always be met"
    for i, one in enumerate(suite["expectations"]):
        if isinstance(one, dict) and "type" not in one and "expectation_type" in one:
            step = "rename 'expectation_type' to 'type' in every expectation, and 'expectation_suite_name' to 'name'"
            return f"is a suite of Great Expectations before 1.0; {step}"
        if not isinstance(one, dict) or not isinstance(one.get("type"), str):
            return f"expectations.{i}: needs 'type', for example {BETWEEN!r}"
        if not isinstance(one.get("kwargs", {}), dict):
            return f"expectations.{i}.kwargs: is not an object"
    if isinstance(suite.get("meta"), dict) and DRAFT in suite["meta"]:
        return f"is a draft that nobody has confirmed; read every expectation, then remove meta.{DRAFT}"
    return ""


def build(suite: Mapping[str, Any], file: str) -> Any:
    """Return the suite as Great Expectations' object, each expectation numbered in its ``meta``.

    An expectation that is unknown, or does not take its arguments, raises ``PolicyError``.
    """
    with _quiet():
        import great_expectations as gx
        from great_expectations.exceptions import GreatExpectationsError
        from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
        from great_expectations.expectations.registry import list_registered_expectation_implementations

        name, expectations = str(suite.get("name", "suite")), []
        known = list_registered_expectation_implementations()
        for i, one in enumerate(suite["expectations"]):
            if one["type"] not in known:
                hint = "".join(f"; did you mean {near!r}?" for near in get_close_matches(one["type"], known, n=1))
                raise PolicyError(f"{file}: expectations.{i}.type: unknown expectation {one['type']!r}{hint}")
            # an id that a store of suites gave would tie the expectation to the suite there
            config = {"kwargs": {}, **one, "id": None, "meta": {**(one.get("meta") or {}), "privgate": i}}
            try:
                single = gx.ExpectationSuite(name=name, expectations=[ExpectationConfiguration(**config)])
            except (GreatExpectationsError, ValueError, TypeError, KeyError) as exc:
                why = " ".join(str(exc).split())[:200]
                raise PolicyError(f"{file}: expectations.{i} ({one['type']}): {why}") from exc
            expectations += single.expectations
        # one call, because ``add_expectation`` replaces another expectation of the same type about the same column
        return gx.ExpectationSuite(name=name, expectations=expectations)


def evaluate(
    suite: Mapping[str, Any], frame: Any, *, file: str, min_rows: int = 1
) -> list[tuple[dict[str, Any], Expectation]]:
    """Return each expectation with its result, in the suite's order, then those that privgate adds.

    ``suite`` comes from ``parse``, and ``file`` is its name in messages. Fewer than ``min_rows`` rows are a violation.
    """
    own, least = suite["expectations"], max(1, min_rows)
    decided = {c for e in own if e["type"] in _MAY_BE_NULL for c in list_columns(e)}
    named = dict.fromkeys(c for e in own for c in list_columns(e) if c in frame.columns)
    rows = {"type": ROWS, "kwargs": {"min_value": least}, "meta": {"name": f"at least {least} rows"}}
    added = [rows, *({"type": NOT_NULL, "kwargs": {"column": c}} for c in named if c not in decided)]
    whole = {**suite, "expectations": [*own, *added]}
    with _quiet():
        results = {r["expectation_config"]["meta"]["privgate"]: r for r in _validate(build(whole, file), frame)}
    absent = {"exception_info": {"raised_exception": True}}
    return [(one, _read_result(one, results.get(i, absent), frame)) for i, one in enumerate(whole["expectations"])]


def list_columns(expectation: Mapping[str, Any]) -> list[str]:
    """Return the columns that an expectation reads."""
    kwargs = expectation.get("kwargs", {})
    names = [kwargs.get(k) for k in ("column", "column_A", "column_B")]
    if not expectation["type"].startswith("expect_table"):
        names += list(kwargs.get("column_list") or [])
    return [str(n) for n in names if n is not None]


def _validate(suite: Any, frame: Any) -> list[dict[str, Any]]:
    import great_expectations as gx
    from great_expectations.data_context.types import base

    # Data Docs are off: they show raw values, load from outside hosts, and leave a folder behind
    store = base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
    config = base.DataContextConfig(
        store_backend_defaults=store, analytics_enabled=False
    )  # older versions send statistics
    context = gx.get_context(mode="ephemeral", project_config=config)
    context.variables.progress_bars = base.ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("privgate").add_dataframe_asset("units")
    copy = frame.copy(deep=False)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch(batch_parameters={"dataframe": copy})
    results = [r.to_json_dict() for r in batch.validate(suite, result_format=_BASIC).results]
    copy.drop(index=copy.index, inplace=True)  # the context outlives this call, and would keep all records
    return results


def _read_result(expectation: Mapping[str, Any], result: Mapping[str, Any], frame: Any) -> Expectation:
    columns, severity = list_columns(expectation), str(expectation.get("severity", "critical"))
    name = str((expectation.get("meta") or {}).get("name") or f"{expectation['type']}({', '.join(columns)})")
    absent = [c for c in columns if c not in frame.columns]
    if absent and expectation["type"] != EXISTS:
        return Expectation(name, met=False, error=f"there is no column {absent[0]!r}", severity=severity)
    info = result.get("exception_info") or {}
    # Great Expectations gives one exception, or one for each metric; its text may quote values
    parts = [info] if "raised_exception" in info else [v for v in info.values() if isinstance(v, Mapping)]
    if any(bool(part.get("raised_exception", True)) for part in parts):
        return Expectation(name, met=False, error="could not be evaluated", severity=severity)
    counts = result.get("result") or {}
    unexpected, percent = (counts.get(f"unexpected_{key}") or 0 for key in ("count", "percent"))
    met = result.get("success") is True
    return Expectation(name, met=met, severity=severity, unexpected=int(unexpected), percent=float(percent))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # tracebacks that Great Expectations logs may quote values
    logger, quiet = logging.getLogger("great_expectations"), logging.NullHandler()
    before, logger.propagate = logger.propagate, False  # some of its loggers set levels of their own
    logger.addHandler(quiet)
    absent, loaded = _UNUSED - set(sys.modules), cast("dict[str, Any]", sys.modules)
    loaded.update(dict.fromkeys(absent))  # None: it cannot be imported
    try:
        yield
    finally:
        for name in absent:
            del loaded[name]
        logger.removeHandler(quiet)
        logger.propagate = before


def check(
    data: Data, suite: Mapping[str, Any], compute: Compute = compute_here, *, file: str, min_rows: int = 1
) -> Precondition:
    """Check that training data meet a suite: violations fail, or warn if their severity is not critical."""
    named, name = {c for e in suite["expectations"] for c in list_columns(e)}, f"suite:{file}"
    added: dict[str, Callable[[Data], Any]] = {
        RECORD: lambda data: np.arange(data.n) if data.ids is None else np.asarray(data.ids),
        WITH_LABEL: _count_people_with_label,
        # a value that cannot be compared, NaN too, is outside
        OUTSIDE: lambda data: np.zeros(data.n, int) if data.domain is None else 1 - data.domain.holds(data.X),
    }
    columns = {column: make_column(data) for column, make_column in added.items() if column in named}
    X = None if hasattr(data.X, "tocsr") or getattr(data.X, "ndim", 0) > 2 else data.X
    if X is None and not named <= {"label", *added}:
        return Precondition(name, "inconclusive", f"{file}: these records have no columns; a suite needs a table")
    judged, key = _JUDGED.setdefault(data, {}), repr((suite, min_rows))  # advice checks the same people many times
    if key not in judged:
        where = compute_here if int(np.prod(getattr(X, "shape", data.n))) > MOST_SENT else compute
        judged[key] = where(_judge, X, data.y, columns, suite, file, min_rows)
    results = [Expectation(**e) for e in judged[key]]
    broken = [e for e in results if not e.met]
    detail = {"expectations": [asdict(e) for e in results], "rows": data.n}
    if len(results) <= len(suite["expectations"]):  # that of the number of rows is beside them
        return Precondition(name, "inconclusive", f"{file}: not every expectation was judged")
    if not broken:
        return Precondition(name, "passed", f"{file}: all {len(results)} expectations hold", detail)
    ranks = [0 if not e.error and e.severity == "critical" else 1 if e.error else 2 for e in broken]
    first, outcome = broken[ranks.index(min(ranks))], ("failed", "inconclusive", "warned")[min(ranks)]
    text = f"{file}: {len(broken)} of {len(results)} expectations do not hold, first {first}"
    return Precondition(name, outcome, text, detail)


def _judge(  # noqa: PLR0917  as it is sent
    X: Any, y: Any, columns: dict[str, Any], suite: dict[str, Any], file: str, min_rows: int
) -> list[dict[str, Any]]:
    """Return the results of ``evaluate`` about records ``X`` and columns beside them."""
    import pandas as pd

    frame = pd.DataFrame({"label": y}) if X is None else as_frame(X, y)
    results = evaluate(suite, frame.assign(**columns), file=file, min_rows=min_rows)
    return [asdict(e) for _, e in results]


def as_frame(X: Any, y: Any) -> Any:
    """Return a frame of columns x0, x1, … for an array, or ``text`` for a list, and ``label``."""
    import pandas as pd

    if hasattr(X, "columns"):
        frame = X.reset_index(drop=True).rename(columns=str)
    elif hasattr(X, "shape"):
        array = np.asarray(X).reshape(len(X), -1)
        frame = pd.DataFrame(array, columns=[f"x{j}" for j in range(array.shape[1])], copy=False)
    else:
        frame = pd.DataFrame({"text": list(X)})
    return frame if "label" in frame.columns else frame.assign(label=y)


def _count_people_with_label(data: Data) -> NDArray[np.int64]:
    if data.predicts_numbers:  # every person counts, because a target may be one person's
        return np.full(data.n, len(data.units), dtype=np.int64)
    label = np.searchsorted(data.classes, data.y)
    pairs = np.unique(np.column_stack([label, data.units.owner]), axis=0)
    return np.asarray(np.bincount(pairs[:, 0], minlength=len(data.classes))[label], dtype=np.int64)
