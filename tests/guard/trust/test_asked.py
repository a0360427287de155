"""A signer signs what it was asked for, and believes no report about what that is."""

import pytest
from click.testing import CliRunner

from privgate.cli.serve import serve
from privgate.errors import DigestMismatchError, StatementError, UsageError
from privgate.evidence import Evidence, Precondition, RunPart
from privgate.guard.signing import SigningRequest, compare
from privgate.training.box import bubblewrap

FINE = ("reproduces", "depends_on_data")


def report(*, name="credit", version="1", nonce="n1", controls=FINE, outcome="passed"):
    return Evidence(
        subject={"name": name, "version": version},
        preconditions=tuple(Precondition(c, outcome, "") for c in controls),
        measurements={},
        run=RunPart(nonce=nonce),
    )


def test_the_report_that_was_asked_for_is_taken():
    SigningRequest("models:/credit/1", "n1").refuse_others(report(), releases=True)
    SigningRequest().refuse_others(report(), releases=True)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "other"}, "about models:/other/1"),
        ({"version": "2"}, "about models:/credit/2"),
        ({"nonce": ""}, "nonce"),
        ({"nonce": "n2"}, "nonce"),
        ({"controls": ()}, "without the control 'reproduces'"),
        ({"controls": ("reproduces",)}, "without the control 'depends_on_data'"),
        ({"outcome": "inconclusive"}, "without the control"),
        ({"outcome": "skipped"}, "without the control"),
    ],
)
@pytest.mark.attack("7 a report about another model, or from another check", "sign", "refused")
def test_another_report_is_refused(changed, words):
    with pytest.raises(StatementError, match=words):
        SigningRequest("models:/credit/1", "n1").refuse_others(report(**changed), releases=True)


def test_a_refusal_needs_no_controls():
    SigningRequest("models:/credit/1", "n1").refuse_others(report(controls=()), releases=False)


def test_a_digest_that_the_registry_does_not_have_is_refused():
    compare({"model": "sha256:a", "recipe": "sha256:b", "data": "sha256:c"}, {"model": "sha256:a"}, "models:/x/1")
    for name in ("model", "recipe", "data"):
        with pytest.raises(DigestMismatchError, match=f"another {name}"):
            compare({"model": "a", "recipe": "a", "data": "a", name: "b"}, {name: "a"}, "models:/x/1")
        with pytest.raises(DigestMismatchError):
            compare({}, {name: "a"}, "models:/x/1")


# serve


def serving(tmp_path, *options):
    words = ["--config", str(tmp_path / "guard.yaml"), "--policy", "dtp-1", "--work", str(tmp_path / "work"), *options]
    return CliRunner().invoke(serve, words, standalone_mode=False)


def test_serve_refuses_to_run_training_code_of_others_without_a_box(tmp_path, monkeypatch):
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: bubblewrap.Found(why="bubblewrap is not installed"))
    ended = serving(tmp_path)
    assert isinstance(ended.exception, UsageError)
    assert "--without-isolation" in str(ended.exception)
    ended = serving(tmp_path, "--without-isolation")  # goes on, to the configuration that is not there
    assert "WARNING: --without-isolation" in ended.output
    assert "accept_unboxed: true" in ended.output
    assert "--without-isolation" not in str(ended.exception)


@pytest.mark.parametrize("option", ["--isolation=none", "--isolation", "--cluster", "--cluster=tcp://x:1"])
def test_no_option_of_check_takes_the_box_away(tmp_path, monkeypatch, option):
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: bubblewrap.Found(version="1.0"))
    ended = serving(tmp_path, "--", option)
    assert isinstance(ended.exception, UsageError)
    assert "without a box" in str(ended.exception)


@pytest.mark.parametrize("command", ["sign {out}", "sign {out} --model={uri}", "sign {out} --nonce={nonce}"])
def test_a_signer_that_is_not_told_what_to_sign_is_refused(tmp_path, monkeypatch, command):
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: bubblewrap.Found(version="1.0"))
    ended = serving(tmp_path, "--sign-command", command)
    assert isinstance(ended.exception, UsageError)
    assert "must tell the signer what to sign" in str(ended.exception)
