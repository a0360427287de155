"""Suites over training data: their records as a table, and the precondition that they meet what is expected."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from privgate.evidence import Expectation, Precondition
from privgate.run import declared, suites
from privgate.subject.data import TrainingData

#: the key of a precondition's detail that holds Great Expectations' own validation result
VALIDATION = "validation"


def check(data: TrainingData, suite: Mapping[str, Any], *, file: str, min_rows: int = 1) -> Precondition:
    """Return the precondition that training data meet a suite.

    Violations fail (warn, if their author gave them another severity than critical); what could not be evaluated is
    inconclusive. Columns of arrays are called x0, x1, …, a list of text is the column ``text``, labels are ``label``;
    what was declared about the data are the columns of ``declared``.
    """
    name = f"suite:{file}"
    named = {c for e in suite["expectations"] for c in suites.columns(e)}
    frame = as_frame(data)
    if frame is None and named <= {"label", *declared.COLUMNS}:
        frame = _labels(data)
    if frame is None:
        return Precondition(name, "inconclusive", f"{file}: these records have no columns; a suite needs a table")
    frame = frame.assign(**declared.columns(data, named))
    told = suites.evaluated(suite, frame, file=file, min_rows=min_rows)
    results = [e for _, e in told]
    broken = [e for e in results if not e.met]
    detail = {
        "expectations": [asdict(e) for e in results],
        "rows": len(frame),
        VALIDATION: _validation(suite, told, file),
    }
    if not broken:
        return Precondition(name, "passed", f"{file}: all {len(results)} expectations are met", detail)
    critical = [e for e in broken if not e.error and e.severity == "critical"]
    errors = [e for e in broken if e.error]
    first = [*critical, *errors, *broken][0]
    outcome = "failed" if critical else ("inconclusive" if errors else "warned")
    text = f"{file}: {len(broken)} of {len(results)} expectations are not met, first {first}"
    return Precondition(name, outcome, text, detail)


def as_frame(data: TrainingData) -> Any:
    """Return training data as a DataFrame with its labels, or None where there are no columns."""
    import numpy as np
    import pandas as pd

    X = data.X
    if hasattr(X, "tocsr"):
        return None
    if hasattr(X, "columns"):
        frame = X.reset_index(drop=True).rename(columns=str)
    elif hasattr(X, "shape"):
        array = np.asarray(X)
        if array.ndim > 2:
            return None
        array = array.reshape(len(array), -1)
        frame = pd.DataFrame(array, columns=[f"x{j}" for j in range(array.shape[1])])
    else:
        frame = pd.DataFrame({"text": list(X)})
    return frame if "label" in frame.columns else frame.assign(label=data.y)


def _labels(data: TrainingData) -> Any:
    import pandas as pd

    return pd.DataFrame({"label": data.y})


def _validation(
    suite: Mapping[str, Any], told: Sequence[tuple[Mapping[str, Any], Expectation]], file: str
) -> dict[str, Any]:
    """Return a validation result as Great Expectations writes and reads it, without anybody's value and without counts.

    Counts stand in the report, where small ones are hidden. What could not be evaluated is marked as an exception.
    """
    import great_expectations as gx

    results = [
        {
            "success": e.met,
            "expectation_config": {
                "type": one["type"],
                "kwargs": dict(one.get("kwargs", {})),
                "meta": {"name": e.name},
                "severity": e.severity,
            },
            "result": {},
            "meta": {},
            "exception_info": {
                "raised_exception": bool(e.error),
                "exception_message": e.error or None,
                "exception_traceback": None,
            },
        }
        for one, e in told
    ]
    met = sum(e.met for _, e in told)
    return {
        "success": met == len(results),
        "statistics": {
            "evaluated_expectations": len(results),
            "successful_expectations": met,
            "unsuccessful_expectations": len(results) - met,
            "success_percent": 100.0 * met / len(results),
        },
        "suite_name": str(suite.get("name", file)),
        "suite_parameters": {},
        "id": None,
        "meta": {"great_expectations_version": str(gx.__version__), "file": file},
        "results": results,
    }
