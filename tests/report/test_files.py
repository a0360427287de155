"""A report on disk: every file or none, no name in any of them, suites' validations beside it."""

import json
import sys
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest

from privgate import report
from privgate.errors import UsageError
from privgate.evidence import Precondition

FORMATS = {"html": "report.html", "markdown": "summary.md", "junit": "junit.xml"}
NAMES = ["report.json", "records.parquet", *FORMATS.values()]


@pytest.mark.parametrize("kind", ["certified", "refuted"])
def test_writes_every_file_from_a_document_that_fits_the_schema(runs, tmp_path, kind):
    paths = report.write(runs.verdict(kind), tmp_path, hash_key=runs.KEY)
    stored = json.loads(paths[0].read_text(encoding="utf-8"))

    assert [p.name for p in paths] == NAMES
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(NAMES)
    jsonschema.validate(stored, json.loads(files("privgate").joinpath("schemas/report-v2.json").read_text()))
    for format_, name in FORMATS.items():
        assert report.render(stored, format_).encode() == (tmp_path / name).read_bytes()


def test_an_expectation_tells_no_small_count(runs, tmp_path):
    verdict = runs.verdict("refuted")
    few = {"name": "young: 1 to 9 records", "met": False, "error": "", "severity": "critical"}
    few |= {"unexpected": 4, "percent": 0.4}
    found = [
        Precondition(f"suite:{name}", "failed", "first young: 1 to 9 records", {
            "expectations": [few], "rows": 1000,
        })
        for name in ("people.json", "../../etc/p\nasswd.json")
    ]  # fmt: skip
    evidence = replace(verdict.evidence, preconditions=(*verdict.evidence.preconditions, *found))
    paths = report.write(replace(verdict, evidence=evidence), tmp_path, hash_key=runs.KEY)

    told = json.loads(paths[0].read_text())["evidence"]["preconditions"][-1]
    assert (told["detail"]["expectations"][0]["unexpected"], "0.4" in told["message"]) == (None, False)
    assert "Expectations of people.json hold" in (tmp_path / "report.html").read_text()


def test_no_name_of_a_person_is_written_anywhere(runs, tmp_path):
    verdict = runs.verdict("refuted")
    names = [str(n).encode() for n in verdict.evidence.records["unit"]]

    for path in report.write(verdict, tmp_path / "hashed", hash_key=runs.KEY):
        assert not [n for n in names if n in path.read_bytes()], path.name


def test_an_earlier_report_survives_when_a_new_one_cannot_be_written(runs, tmp_path, monkeypatch):
    report.write(runs.verdict("certified"), tmp_path, hash_key=runs.KEY)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full_disk(*args, **kw):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys.modules["privgate.report.document"], "render", full_disk)
    with pytest.raises(OSError, match="No space"):
        report.write(runs.verdict("refuted"), tmp_path, hash_key=runs.KEY)

    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_short_key_and_an_unknown_format_are_refused(runs, tmp_path):
    with pytest.raises(UsageError, match="at least 16"):
        report.write(runs.verdict("refuted"), tmp_path, hash_key=b"short")
    with pytest.raises(UsageError, match="known: html"):
        report.render(runs.document("certified"), "pdf")
