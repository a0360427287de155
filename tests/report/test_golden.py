"""The goldens are what the gate says, the schema is what is written, and what another version wrote is refused."""

import json
import math
import re
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from pydantic.json_schema import GenerateJsonSchema

from privgate import report
from privgate.errors import ExitCode, SubjectError
from privgate.report import schema
from privgate.report.sections import CATALOGUE, sections

KINDS = sorted(p.stem for p in (Path(__file__).parent / "goldens").glob("*.json"))
#: noise of differential privacy, and other seeds of trees, are drawn anew: figures differ, what is there does not
NOISY = ("private", "erased", "undecided", "sensitive")
#: what names a time, a version, a place or a duration
PASSING = re.compile(
    r"sha256:[0-9a-f]+…?|\bm-[0-9a-f]{32}\b|\d{4}-\d\d-\d\d(T[0-9:+.]+)?|\d+\.\d+\.\d+"
    r"|about [\d.]+ (s|min|h)\b|models:/\S+|--policy \S+|[\d,]+ of [\d,]+ bytes"
)
UNEQUAL = {"seconds", "system", "isolation", "cost", "path", "packages", "versions"}
#: a file names times, digests and places: its size differs, and it holds some of 60 people's small numbers by chance
UNEQUAL |= {"carried", "least", "most", "read", "size"}


def test_every_kind_of_run_has_a_golden(runs):
    assert sorted(runs.KINDS) == KINDS


def differences(old, new, *, figures, place=""):
    """Yield where two runs differ in more than time, place and version."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from (f"{place}: only in one: {k}" for k in sorted(set(old) ^ set(new)))
        for k in sorted(set(old) & set(new) - UNEQUAL):
            yield from differences(old[k], new[k], figures=figures, place=f"{place}.{k}")
    elif isinstance(old, list) and isinstance(new, list) and figures:
        if len(old) != len(new):
            yield f"{place}: {len(old)} and {len(new)}"
        for i, (a, b) in enumerate(zip(old, new, strict=False)):
            yield from differences(a, b, figures=figures, place=f"{place}[{i}]")
    elif isinstance(old, str) and isinstance(new, str):
        if figures and PASSING.sub("", old) != PASSING.sub("", new):
            yield f"{place}: {old!r} and {new!r}"
    elif isinstance(old, int | float) and isinstance(new, int | float) and not isinstance(old, bool):
        if figures and not math.isclose(old, new, rel_tol=1e-6, abs_tol=1e-9):
            yield f"{place}: {old} and {new}"
    elif figures and old != new:
        yield f"{place}: {old!r} and {new!r}"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_the_gate_still_says_what_the_golden_holds(runs, kind):
    ((_, made),) = runs.make([kind])

    assert list(differences(runs.golden(kind), made, figures=kind not in NOISY))[:20] == []


class Untitled(GenerateJsonSchema):
    """A schema without the titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema):
        return False


def generate():
    """Return the JSON Schema of ``report.json``, one definition a line."""
    told = schema.ReportDocument.model_json_schema(mode="serialization", schema_generator=Untitled)
    defined = ",\n".join(f"  {json.dumps(name)}: {json.dumps(told['$defs'][name])}" for name in sorted(told["$defs"]))
    rest = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in told.items() if key != "$defs")
    head = ' "$schema": "https://json-schema.org/draft/2020-12/schema",\n "$id": "urn:privgate:schema:report:v2"'
    return f'{{\n{head},\n{rest},\n "$defs": {{\n{defined}\n }}\n}}\n'


@pytest.fixture(scope="module")
def published():
    return json.loads(files("privgate").joinpath("schemas/report-v2.json").read_text(encoding="utf-8"))


def test_the_published_schema_is_generated_from_the_models(published):
    made = json.loads(generate())

    jsonschema.Draft202012Validator.check_schema(made)
    # python tests/report/test_golden.py > privgate/schemas/report-v2.json
    assert published == made


@pytest.mark.quick(5)
@pytest.mark.parametrize("kind", KINDS)
def test_a_real_verdict_of_every_kind_fits_the_published_schema(runs, published, kind):
    jsonschema.validate(runs.document(kind), published)


def test_a_key_that_nobody_declared_does_not_fit(runs, published):
    for place in ("run", "influence", "subject"):
        doc = runs.document("certified")
        (doc if place == "subject" else doc["evidence"])[place]["surprise"] = 1
        with pytest.raises(jsonschema.ValidationError, match="surprise"):
            jsonschema.validate(doc, published)
        with pytest.raises(SubjectError, match="surprise"):
            report.render(doc, "html")


def test_the_runs_fill_every_section(runs):
    docs = [runs.compared(), *(runs.document(k) for k in ("private", "erased", "attacked"))]

    assert {s.name for d in docs for s in sections(schema.read(d))} == set(CATALOGUE)


def figured(doc):
    return doc["units"]["figures"]["pdtp"]


#: what is put into a document, or what is done to it, and what is said of it
BROKEN = [
    ({"schema": "privgate/report/v1"}, "another version of privgate wrote this"),
    ({"schema": "privgate/report/v3"}, "another version of privgate wrote this"),
    ({"schema": None}, "not a report of privgate"),
    ({"schema": "sbom"}, "not a report of privgate"),
    ({"outcome": "splendid"}, "the report is broken: outcome"),
    ({"findings": [{"rule": "dtp"}]}, "the report is broken: findings.0"),
    ({"units": []}, "the report is broken: units"),
    ({"approved": "perhaps"}, "the report is broken: approved"),
    ({"surprise": 1}, "the report is broken: surprise"),
    (lambda doc: doc["subject"]["domain"].update(max_length=3.0), "an earlier version limited the length"),
    *((lambda doc, k=key: doc.pop(k), f"the report is broken: {key}")
      for key in ("outcome", "subject", "policy", "findings", "evidence", "units", "waivers")),
    *((lambda doc, k=key, v=value: doc["units"].update({k: v}), "the report is broken: units")
      for key, value in (("worst", []), ("figures", {}))),
    *((lambda doc, k=key, v=value: figured(doc).update({k: v}), "the report is broken: units")
      for key, value in (("quantiles", {}), ("quantiles", {"0.5": 1.0}))),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), BROKEN)
def test_what_this_version_did_not_write_is_refused_in_one_sentence(runs, change, said):
    doc = runs.document("certified")
    (doc.update if isinstance(change, dict) else change)(change if isinstance(change, dict) else doc)

    for use in (lambda: report.render(doc, "html"), lambda: report.compare(doc, runs.document("before"))):
        with pytest.raises(SubjectError, match=re.escape(said)) as caught:
            use()
        assert caught.value.exit_code is ExitCode.SUBJECT
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("junk", [{}, [], None, 3, "x"])
def test_what_is_no_report_is_refused(junk):
    with pytest.raises(SubjectError, match="not a report"):
        report.render(junk, "html")


if __name__ == "__main__":
    print(generate(), end="")
