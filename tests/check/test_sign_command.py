"""One command from a check to an alias: an approval is handed to whoever holds the key, and what is missing is said."""

import json
import sys
from types import SimpleNamespace

import pytest

from privgate import registry
from privgate.__main__ import run
from privgate.cli import check
from privgate.errors import ExitCode, RegistryError, UsageError
from privgate.github import _agreed, check_step
from privgate.serve import environment

REFUSAL = (
    "setting alias 'production' of credit to version 3: privgate: credit@production refused: there is no statement"
)
PROMOTE = ["promote", "models:/credit/3", "--to", "production", "--policy", "release-1"]


@pytest.fixture
def guarded(monkeypatch, tmp_path):
    """Stand in for a check and for a guarded registry, which asks for a file that the signer makes."""
    seen = SimpleNamespace(tries=0, statement=tmp_path / "statement", approved=True)
    subject = SimpleNamespace(name="credit", version="3", uri="models:/credit/3")

    def checked(uri, *, attach, settings, alias):
        seen.nonce = settings["nonce"]
        verdict = SimpleNamespace(
            approved=seen.approved,
            decision=SimpleNamespace(text="refused"),
            observed=False,
            exit_code=0 if seen.approved else 1,
        )
        verdict.outcome = SimpleNamespace(value="passed" if seen.approved else "failed")
        return verdict, subject

    def promote(subject, alias, **_):
        seen.tries += 1
        if not seen.statement.is_file():
            raise RegistryError(REFUSAL)
        return subject.version

    monkeypatch.setattr(check, "_check", checked)
    monkeypatch.setattr(registry, "promote", promote)
    return seen


def signer(seen, code=0):
    script = f"import sys, json; open({str(seen.statement)!r}, 'w').write(json.dumps(sys.argv[1:])); sys.exit({code})"
    return f'{sys.executable} -c "{script}" {{uri}} --nonce={{nonce}} {{target}} {{policy}} {{out}}'


def test_an_approval_is_handed_to_the_signer_and_then_promoted(guarded, capsys):
    assert run([*PROMOTE, "--sign-command", signer(guarded)]) == 0
    asked = json.loads(guarded.statement.read_text())
    assert asked == [
        "models:/credit/3",
        f"--nonce={guarded.nonce}",
        "credit@production",
        "release-1",
        "privgate-report",
    ]
    assert len(guarded.nonce) == 32
    assert guarded.tries == 2
    assert "promoted: models:/credit/3 is now @production" in capsys.readouterr().out


def test_without_a_signer_an_approval_stays_one_and_says_what_is_missing(guarded, capsys):
    assert run(PROMOTE) == ExitCode.UNSIGNED
    said = capsys.readouterr().err
    assert "approved, not promoted" in said
    assert "privgate guard sign privgate-report --policy release-1 --config guard.yaml --model models:/credit/3" in said
    guarded.statement.write_text("signed elsewhere")
    assert run(PROMOTE) == 0


def test_a_signer_that_fails_promotes_nothing(guarded, capsys):
    assert run([*PROMOTE, "--sign-command", f"{sys.executable} -c 'import sys; sys.exit(3)' {{uri}} {{nonce}}"]) == 4
    assert "the signer command ended with 3" in capsys.readouterr().err
    assert guarded.tries == 1


def test_a_refusal_is_never_handed_to_the_signer(guarded):
    guarded.approved = False
    assert run([*PROMOTE, "--sign-command", signer(guarded)]) == 1
    assert not guarded.statement.exists()


def test_a_signer_is_told_what_to_sign_or_refused(guarded, capsys):
    assert run([*PROMOTE, "--sign-command", "privgate guard sign out"]) == 2
    assert "{uri} and {nonce}" in capsys.readouterr().err


def test_the_action_hands_the_command_on_and_keeps_the_verdict():
    inputs = {
        "MODEL": "models:/credit/3",
        "POLICY": "release-1",
        "PROMOTE_TO": "production",
        "SIGN_COMMAND": "ssh {uri}",
    }
    arguments = check_step({f"PRIVGATE_INPUT_{k}": v for k, v in inputs.items()}).arguments
    assert arguments[-2:] == ("--sign-command", "ssh {uri}")
    assert _agreed("check", 6, {"outcome": "passed"}) == ("passed", 6)
    assert _agreed("check", 6, {"outcome": "failed"}) == ("error", 6)
    assert _agreed("check", 6, None) == ("error", 6)
    assert _agreed("sign", 6, {"outcome": "passed"}) == ("error", 6)


def test_the_environment_of_the_signer_command_holds_no_key(monkeypatch):
    monkeypatch.setenv("PRIVGATE_SIGNING_KEY", "secret")
    monkeypatch.setenv("PRIVGATE_LEDGER_KEY", "secret")
    ran, settings = [], {"report_dir": "out", "policy_name": "dtp-1", "nonce": "n"}
    monkeypatch.setattr(check.subprocess, "run", lambda _, **how: ran.append(how["env"]))
    check._call_signer("sign {uri} {nonce}", SimpleNamespace(name="m", version="1"), "production", settings)
    assert "secret" not in ran[0].values()
    assert "PRIVGATE_SIGNING_KEY" not in environment()


@pytest.mark.parametrize("name", ["m;touch x", "a&b", "credit risk", "m\nx"])
def test_a_name_that_a_shell_reads_is_not_handed_to_a_command(name, tmp_path):
    subject = SimpleNamespace(name=name, version="1")
    settings = {"report_dir": str(tmp_path), "policy_name": "dtp-1", "nonce": "n"}
    with pytest.raises(UsageError, match="sign it by hand"):
        check._call_signer(f"touch {tmp_path}/ran {{uri}} {{nonce}}", subject, "production", settings)
    assert not (tmp_path / "ran").exists()
