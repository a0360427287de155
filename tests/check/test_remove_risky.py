"""``privgate remove-risky`` from outside."""

import csv
import json

import pytest


@pytest.mark.slow
def test_it_names_whom_to_leave_out_and_draws_the_curve(privgate, tmp_path):
    start = privgate("remove-risky", "models:/smoothed/1", "--limit", "0", "--budget", "4", "--quiet", "--out", "out")
    assert start.returncode == 1, start.stderr
    assert "certified DTP" in start.stdout
    curve = json.loads((tmp_path / "out" / "curve.json").read_text())
    assert len(curve["upper"]) == 5
    rows = list(csv.DictReader((tmp_path / "out" / "removed.csv").open()))
    assert len(rows) == curve["best"]
    assert (tmp_path / "out" / "curve.svg").read_text().startswith("<svg")


@pytest.mark.slow
def test_nobody_needs_to_go_where_the_limit_is_kept(privgate):
    ended = privgate("remove-risky", "models:/smoothed/1", "--limit", "5", "--quiet")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("0 of 60 people removed")


def test_a_negative_limit_is_a_mistake_of_the_caller(privgate):
    assert privgate("remove-risky", "models:/smoothed/1", "--limit", "-1").returncode == 2
