"""The tracked figures are made from the results of benchmarks, never by hand."""

import json

import pytest

from tests.bench import results_table


def test_the_last_measurement_of_everything_is_shown_and_what_fell_short_stands_out(tmp_path):
    base = {"bench": "leave-one-out", "engine": "lda", "data": "numbers", "n": 1000, "pdtp_error": 2e-13}
    rows = [
        {**base, "ratio": 1.0, "wanted": 500, "reached": False},
        {**base, "ratio": 2110.0, "wanted": 500, "reached": True},
        {**base, "n": 10_000, "ratio": 2999.0, "wanted": 3000, "reached": False, "pdtp_error": float("nan")},
        {"bench": "growth", "engine": "lda", "data": "numbers", "engine_exponent": 0.93, "refits_exponent": 1.891},
        {"bench": "check", "engine": "lda", "data": "LDA", "n": 1000, "training_seconds": 0.5, "seconds": 80.0,
         "ratio": 160.0, "outcome": "passed"},
        {"figure": "tightness", "case": "wine", "certificate": "newton", "median": 1.0052},
        {"bench": "peers", "data": "x", "rows": [{"tool": "a|b", "seconds": 1.5}]},
    ]  # fmt: skip
    source, target = tmp_path / "r.jsonl", tmp_path / "r.md"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows))

    quoting = tmp_path / "measuring.md"
    quoting.write_text("before\n<!-- ranges -->\nold\n<!-- end of ranges -->\nafter\n")
    results_table.main(source, target, quoting)
    text = target.read_text()

    assert "| lda | numbers | 1,000 | 2,110 | 500 | yes | 2.0e-13 | 0.93 / 1.89 |" in text
    assert "| lda | numbers | 10,000 | 2,999 | 3,000 | **no** |  | 0.93 / 1.89 |" in text
    assert "| LDA | 1,000 | lda | 0.5 | 80 | 160 | passed |" in text
    assert "## Tightness" in text
    assert "| a\\|b | 1.5 |" in text
    assert "nan" not in text
    assert quoting.read_text().startswith("before\n<!-- ranges -->\n\n| Engine | n | To refits |")
    assert "| lda | 1,000 to 10,000 | 2,110 to 2,999 |" in quoting.read_text()
    assert quoting.read_text().endswith("\n<!-- end of ranges -->\nafter\n")


def test_the_documentation_quotes_the_ranges_that_were_measured():
    measured, said = results_table.RESULTS.read_text(), results_table.QUOTED.read_text()
    lines = said.partition(results_table.MARKS[0])[2].partition(results_table.MARKS[1])[0].strip().splitlines()
    assert len(lines) > 4
    assert all(line in measured for line in lines)


def test_without_results_it_says_how_to_make_them(tmp_path):
    with pytest.raises(SystemExit, match="make bench"):
        results_table.main(tmp_path / "none.jsonl", tmp_path / "r.md")
