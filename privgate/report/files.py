"""A verdict on disk: all files or none of the new ones, never half a file."""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privgate.evidence import COLUMNS
from privgate.report.document import document
from privgate.report.pseudonyms import Pseudonyms
from privgate.report.rendering import FORMATS, render
from privgate.run.suite_check import VALIDATION
from privgate.verdict import Verdict

DOCUMENT = "report.json"
RECORDS = "records.parquet"
#: Great Expectations' validation results
VALIDATIONS = "validation-*.json"


def write(
    verdict: Verdict,
    out_dir: str | os.PathLike[str],
    *,
    hash_key: bytes,
    baseline: Mapping[str, Any] | None = None,
    raw_unit_names: bool = False,
) -> list[Path]:
    """Write the report of a verdict in every format and return the files' paths.

    Parameters
    ----------
    verdict : Verdict
    out_dir : path
        Folder, made if absent; files of an earlier report are replaced.
    hash_key : bytes
        Key of the hashes that stand for records and people; at least 16 bytes, kept by the controller.
    baseline : mapping, optional
        Report of the version approved before, to say what changed since.
    raw_unit_names : bool
        Write names of records and people into ``records.parquet`` as they are: that file is then personal data.

    Returns
    -------
    list of Path
        ``report.json``, ``records.parquet``, one file a format, then Great Expectations' validation result of each
        suite that the policy names.

    Raises
    ------
    UsageError
        The key is too short.
    OSError
        The folder cannot be written; files of an earlier report are then untouched.
    """
    doc = document(verdict, hash_key=hash_key, baseline=baseline)
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    names = None if raw_unit_names else Pseudonyms(hash_key)
    with tempfile.TemporaryDirectory(prefix=".report-", dir=folder) as scratch:
        new = Path(scratch)
        _text(new / DOCUMENT, dumps(doc))
        records(verdict, names).to_parquet(new / RECORDS, index=False)
        written = {format_: name for format_, (_, name) in FORMATS.items() if name}
        for format_, name in written.items():
            _text(new / name, render(doc, format_))
        suites = validations(verdict)
        for name, text in suites.items():
            _text(new / name, text)
        order = [DOCUMENT, RECORDS, *written.values(), *suites]
        done = [(new / name).replace(folder / name) for name in order]
    for old in set(folder.glob(VALIDATIONS)) - set(done):
        old.unlink()  # of an earlier report, whose policy named other suites
    return done


def validations(verdict: Verdict) -> dict[str, str]:
    """Return ``file name -> text`` of what Great Expectations says of each suite, values and counts left out."""
    every = [(p.name.partition(":")[2], p.detail.get(VALIDATION)) for p in verdict.evidence.preconditions]
    found = [(Path(name).stem, result) for name, result in every if result is not None]
    return {
        f"validation-{i}-{re.sub(r'[^A-Za-z0-9_-]', '-', stem)[:60]}.json": json.dumps(result, indent=2) + "\n"
        for i, (stem, result) in enumerate(found, start=1)
    }


def dumps(doc: Mapping[str, Any]) -> str:
    """Return the document as ``report.json`` holds it: ASCII, because a terminal obeys what it is shown."""
    return render(doc, "json")


def records(verdict: Verdict, names: Pseudonyms | None) -> Any:
    """Return the per-unit table as a DataFrame; empty, with its columns, if no rule needed one."""
    import pandas as pd

    columns = dict(verdict.evidence.records) or {c: np.array([], dtype=object) for c in COLUMNS}
    if names is not None:
        columns["unit"] = names.column(columns["unit"])
    return pd.DataFrame(columns)


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
