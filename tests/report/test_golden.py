"""A report of every released schema: it must still fit its schema and still render after an upgrade."""

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from privgate import report
from privgate.report.rendering import SCHEMAS
from privgate.report.sections import CATALOGUE, sections

GOLDENS = sorted((Path(__file__).parent / "assets").glob("report-v*.json"))


@pytest.fixture(params=GOLDENS, ids=lambda p: p.stem)
def golden(request):
    return json.loads(request.param.read_text(encoding="utf-8"))


def test_every_schema_that_is_rendered_has_a_golden():
    assert [f"privgate/report/v{p.stem.removeprefix('report-v')}" for p in GOLDENS] == list(SCHEMAS)


def test_still_fits_its_published_schema(golden):
    version = golden["schema"].rsplit("/", 1)[1]
    schema = json.loads(files("privgate").joinpath(f"schemas/report-{version}.json").read_text(encoding="utf-8"))

    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(golden, schema)


@pytest.mark.parametrize("format_", ["html", "markdown", "junit"])
def test_still_renders_with_its_decision_and_every_rule(golden, format_):
    text = report.render(golden, format_)

    assert golden["decision"].lower() in text.lower()
    for finding in golden["findings"]:
        if not finding["rule"].startswith("precondition:"):
            assert (finding["rule"] if format_ == "junit" else finding["title"]) in text


def test_fills_every_section(golden):
    assert [s.name for s in sections(golden)] == list(CATALOGUE)
    assert "could not be drawn" not in report.render(golden, "html")


def test_still_compares_and_lists(golden):
    assert "no recorded cause changed" in report.compare(golden, golden)["summary"]
    assert golden["subject"]["name"] in report.index([golden])


@pytest.mark.parametrize(
    "key", ["signer", "waivers", "next_steps", "comparison", "units", "detail", "level", "expires"]
)
def test_a_report_without_a_key_that_came_later_still_renders(golden, key):
    del golden[key]

    for format_ in ("html", "markdown", "junit"):
        assert report.render(golden, format_)
