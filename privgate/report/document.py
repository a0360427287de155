"""The report document, the JSON from which every format is rendered, and a verdict on disk."""

import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import cases
from privgate.errors import PrivgateWarning, SubjectError, UsageError
from privgate.evidence import COLUMNS, encode
from privgate.evidence.verdict import Verdict
from privgate.policy.rules import about
from privgate.report import formats
from privgate.report.compare import compare
from privgate.report.page_one import level
from privgate.report.people import Pseudonyms, summary
from privgate.report.schema import SCHEMA, ReportDocument, read
from privgate.version import __version__


def document(verdict: Verdict, *, hash_key: bytes, baseline: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the report of a verdict as JSON values, valid under ``privgate/schemas/report-v2.json``.

    It holds no person's name, no label of one and no feature value. ``hash_key`` makes the hashes that stand for names;
    at least 16 bytes, kept by the controller, else ``UsageError``. What changed since ``baseline``, the report of the
    version approved before, becomes part of it; one that cannot be read is warned of.
    """
    evidence = verdict.evidence
    names = Pseudonyms(hash_key, evidence.records.get("unit", ()))
    where = {m.request.key: str(m.where) for m in evidence.measurements.values()}
    # of single people: (column of the per-person table, nats)
    held = [f for f in verdict.findings if f.unit == "nats" and math.isfinite(f.limit)]
    limits = [(column, f.limit) for f in held for column in about(f.metric).columns]
    detail = encode(verdict.detail)
    shown, covered = verdict.shown_values(), evidence.influence and evidence.influence.coverage
    doc: dict[str, Any] = {
        "schema": SCHEMA,
        "privgate": __version__,
        "outcome": str(verdict.outcome),
        "approved": verdict.approved,
        "observed": verdict.observed,
        "exit_code": int(verdict.exit_code),
        "decided_at": str(detail.get("decided_at") or ""),
        "expires": str(detail.get("expires") or ""),
        "waivers": names.scrub(list(detail.get("waivers") or ())),
        "next_steps": names.scrub(list(detail.get("next_steps") or ())),
        "comparison": None,
        "subject": _subject(evidence.subject),
        "context": names.scrub(dict(detail.get("context") or {})),
        "policy": encode(verdict.policy),
        "findings": [names.scrub(f, where.get(f["request"], "")) for f in shown["findings"]],
        "evidence": _evidence(shown["evidence"], names),
        # the riskiest few are no distribution
        "units": summary(evidence.records, names, limits, everybody=not (covered and covered.not_computed)),
    }
    report = read({**doc, "decision": "", "level": ""})
    doc |= {"decision": report.decided.text, "level": level(report)}
    if baseline is not None:
        doc["comparison"] = _since(baseline, doc)
    return doc


def _since(baseline: Mapping[str, Any], doc: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what changed; a comparison is an extra, and one of a version with itself says nothing."""
    try:
        comparison = compare(baseline, doc)
    except SubjectError as exc:
        warnings.warn(f"nothing is compared with the version before: {exc}", PrivgateWarning, stacklevel=3)
        return None
    same = [(d["subject"]["name"], d["subject"]["version"], d["subject"]["digests"]) for d in (baseline, doc)]
    return None if same[0] == same[1] else comparison


def _subject(subject: Mapping[str, Any]) -> dict[str, Any]:
    """Return the subject without inferred ends of features: they are values of single people."""
    facts = dict(encode(subject))
    if domain := facts.get("domain") or {}:
        facts["domain"] = domain = {k: v for k, v in domain.items() if v or k not in ("max_length", "norm")}  # of 0.1
    if domain.get("inferred") and domain.get("box"):
        facts["domain"] = {**domain, "box": None, "withheld": f"inferred ranges of {len(domain['box'])} features"}
    return facts


def _drop_rows(detail: Any) -> Any:
    """Return a precondition's detail without lists of whole numbers, which are rows of the data."""
    if not isinstance(detail, Mapping):
        return detail
    told = {k: v for k, v in detail.items() if not (isinstance(v, list) and any(type(i) is int for i in v))}
    return {k: _drop_rows(v) for k, v in told.items()}


def _evidence(values: Mapping[str, Any], names: Pseudonyms) -> dict[str, Any]:
    return {
        **{part: names.scrub(values[part]) for part in ("run", "influence", "membership", "claims")},
        **{part: values[part] for part in ("attributes", "artifact", "robust") if part in values},
        "subject": _subject(values["subject"]),
        "preconditions": [names.scrub({**p, "detail": _drop_rows(p["detail"])}) for p in values["preconditions"]],
        "measurements": [names.scrub(m, str(m["where"])) for m in values["measurements"]],
    }


# One document, several formats.

#: format -> (what renders it, file that ``write`` puts it in; empty: only where it is asked for)
FORMATS: Mapping[str, tuple[Callable[[ReportDocument], str] | None, str]] = {
    "html": (formats.page, "report.html"),
    "markdown": (formats.summary, "summary.md"),
    "junit": (formats.junit, "junit.xml"),
    "text": (formats.terminal, ""),
    "json": (None, ""),
}


def render(document: Any, format: str) -> str:  # noqa: A002  the word of the field
    """Return one format of a report (html, markdown, junit, text or json) from its JSON alone, always the same text.

    ``SubjectError``: the document is broken, or another version of privgate wrote it. ``UsageError``: no such format.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown report format {format!r}; known: {', '.join(FORMATS)}")
    checked, renderer = read(document), FORMATS[format][0]
    if renderer is None:  # ASCII, because a terminal obeys what it is shown
        return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
    return renderer(checked)


# A verdict on disk: all files or none of the new ones, never half a file.

DOCUMENT = "report.json"
RECORDS = "records.parquet"
#: files of a report that are personal data: whoever sends a folder on leaves them out
PERSONAL = (RECORDS, cases.FILE)


def write(
    verdict: Verdict, out_dir: str | os.PathLike[str], *, hash_key: bytes, baseline: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write the report of a verdict in every format and return the files' paths.

    ``out_dir`` is made if absent; files of an earlier report are replaced, and untouched where ``OSError`` is raised.
    They are ``report.json``, ``records.parquet``, ``cases.npz`` where a limit is a theorem's, and one file a format.
    """
    import pyarrow as pa
    from pyarrow import parquet

    doc = document(verdict, hash_key=hash_key, baseline=baseline)
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    people = dict(verdict.evidence.records) or {c: np.array([], dtype=object) for c in COLUMNS}
    people["unit"] = Pseudonyms(hash_key).column(people["unit"])
    with tempfile.TemporaryDirectory(prefix=".report-", dir=folder) as scratch:
        new = Path(scratch)
        texts = {name: render(doc, format_) for format_, (_, name) in FORMATS.items() if name}
        for name, text in {DOCUMENT: render(doc, "json"), **texts}.items():
            (new / name).write_text(text, encoding="utf-8", newline="\n")
        parquet.write_table(pa.Table.from_arrays([*map(_make_column, people.values())], [*people]), new / RECORDS)
        kept = [cases.FILE] if verdict.evidence.cases else []
        if kept:
            cases.write(new / cases.FILE, verdict.evidence.cases)
        done = [(new / name).replace(folder / name) for name in [DOCUMENT, RECORDS, *kept, *texts]]
    if not kept:  # of an earlier report, whose limits rest on cases
        (folder / cases.FILE).unlink(missing_ok=True)
    return done


def _make_column(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    if values.dtype.kind in "if":  # of buffers, because pyarrow.array imports pandas
        return pa.Array.from_buffers(
            pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values.copy())]
        )
    texts = [str(v).encode() for v in values.tolist()]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return pa.Array.from_buffers(pa.large_string(), len(texts), [None, *map(pa.py_buffer, (ends, b"".join(texts)))])
