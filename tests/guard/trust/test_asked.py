"""A signer signs what it was asked for, and believes no report about what that is; nor does a server run its own."""

import contextlib

import pytest
from click.testing import CliRunner

from privgate.cli.guard import serve
from privgate.errors import DigestMismatchError, StatementError, UsageError
from privgate.evidence import Evidence, Precondition, RunPart
from privgate.guard.signing import SigningRequest, compare
from privgate.training.sandbox import bubblewrap

REPORT = {"name": "credit", "version": "1", "nonce": "n1", "outcome": "passed"}
FINE = ("reproduces", "depends_on_data", "served")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"name": "other"}, "about models:/other/1"),
        ({"version": "2"}, "about models:/credit/2"),
        ({"nonce": ""}, "nonce"),
        ({"nonce": "n2"}, "nonce"),
        ({"controls": ()}, "without the control 'reproduces'"),
        ({"controls": ("reproduces",)}, "without the control 'depends_on_data'"),
        ({"controls": FINE[:2]}, "without the control 'served'"),
        ({"outcome": "inconclusive"}, "without the control"),
        ({"outcome": "skipped"}, "without the control"),
    ],
    ids=str,
)
def test_another_report_than_the_one_that_was_asked_for_is_refused(changed, why):
    given = {**REPORT, "controls": FINE, **changed}
    report = Evidence(
        subject={"name": given["name"], "version": given["version"]},
        preconditions=tuple(Precondition(c, given["outcome"], "") for c in given["controls"]),
        measurements={},
        run=RunPart(nonce=given["nonce"]),
    )
    request, controls = SigningRequest("models:/credit/1", "n1"), "control" in why
    with pytest.raises(StatementError, match=why) if why else contextlib.nullcontext():
        request.refuse_others(report, releases=True)
    if controls or not why:  # a refusal needs no controls
        request.refuse_others(report, releases=False)
    if not controls:  # whatever is checked by hand is taken
        SigningRequest().refuse_others(report, releases=True)


def test_a_digest_that_the_registry_does_not_have_is_refused():
    compare({"model": "sha256:a", "recipe": "sha256:b", "data": "sha256:c"}, {"model": "sha256:a"}, "models:/x/1")
    for name in ("model", "recipe", "data"):
        for stated in ({"model": "a", "recipe": "a", "data": "a", name: "b"}, {}):
            with pytest.raises(DigestMismatchError, match=f"another {name}"):
                compare(stated, {name: "a"}, "models:/x/1")


OTHER_BOX = "run checks without a box"
BLIND = "must tell the signer what to sign"


@pytest.mark.parametrize(
    ("box", "options", "why"),
    [
        (bubblewrap.Installed(why="bubblewrap is not installed"), [], "--without-isolation"),
        (bubblewrap.Installed(version="1.0"), ["--", "--isolation=none"], OTHER_BOX),
        (bubblewrap.Installed(version="1.0"), ["--", "--isolation"], OTHER_BOX),
        (bubblewrap.Installed(version="1.0"), ["--", "--cluster"], OTHER_BOX),
        (bubblewrap.Installed(version="1.0"), ["--", "--cluster=tcp://x:1"], OTHER_BOX),
        (bubblewrap.Installed(version="1.0"), ["--", "--observe"], "--observe is about one model and one decision"),
        (bubblewrap.Installed(version="1.0"), ["--", "--nonce=0"], "--nonce is about one model and one decision"),
        (bubblewrap.Installed(version="1.0"), ["--", "--to=other"], "--to is about one model and one decision"),
        (bubblewrap.Installed(version="1.0"), ["--sign-command", "sign {out}"], BLIND),
        (bubblewrap.Installed(version="1.0"), ["--sign-command", "sign {out} --model={uri}"], BLIND),
        (bubblewrap.Installed(version="1.0"), ["--sign-command", "sign {out} --nonce={nonce}"], BLIND),
        # goes on, to the configuration that is not there
        (bubblewrap.Installed(why="bubblewrap is not installed"), ["--without-isolation"], ""),
    ],
    ids=str,
)
def test_serve_takes_no_option_that_takes_the_box_or_a_decision_away(tmp_path, monkeypatch, box, options, why):
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: box)
    words = ["--config", str(tmp_path / "guard.yaml"), "--policy", "dtp-1", "--work", str(tmp_path / "work"), *options]
    ended = CliRunner().invoke(serve, words, standalone_mode=False)
    assert isinstance(ended.exception, UsageError) == bool(why)
    assert why in str(ended.exception)
    assert ("WARNING: --without-isolation" in ended.output) == ("accept_unboxed: true" in ended.output) == (not why)
    assert why or "guard.yaml" in str(ended.exception)
