"""``privgate policy``: lint and explain, from the command line."""

import shutil
from pathlib import Path

import pytest

from privgate.cli import cli
from privgate.errors import PolicyError

EXAMPLE = Path(__file__).parent / "example"


@pytest.fixture
def run(capsys):
    def call(*args):
        code = cli.main(["policy", *map(str, args)], standalone_mode=False)
        return code, capsys.readouterr().out

    return call


# -- lint -------------------------------------------------------------------------------------------------------------


def test_lint_refuses_an_expectation_that_does_not_exist(run, tmp_path):
    folder = shutil.copytree(EXAMPLE, tmp_path / "e")
    assert run("lint", folder / "privgate.yaml")[0] == 0
    suite = folder / "applications.json"
    suite.write_text(suite.read_text().replace("expect_column_values_to_be_in_set", "expect_colum_values_to_be_in_set"))

    with pytest.raises(PolicyError, match="did you mean 'expect_column_values_to_be_in_set'"):
        run("lint", folder / "privgate.yaml")


# -- explain ----------------------------------------------------------------------------------------------------------


def test_explain_says_where_every_number_comes_from_and_what_it_means(run):
    code, out = run("explain", EXAMPLE / "privgate.yaml")

    assert code == 0
    lines = (EXAMPLE / "privgate.yaml").read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if "max: 0.8" in line)
    assert f"max = 0.8  ({EXAMPLE / 'privgate.yaml'}:{number})" in out
    assert "extends dtp-1 3" in out
    assert "aggregate = max  (default)" in out
    assert "approves if the whole interval is at most 0.8, refuses if all of it is above" in out
    assert "reason: Applicants are told" in out
    assert "may never be waived" in out
    assert "approved by ben@example.org" in out
