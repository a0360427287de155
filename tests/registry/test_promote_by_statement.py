"""``promote --config``: nothing is promoted without a statement that counts, and what has one is not checked again."""

import sys
from types import SimpleNamespace

import mlflow
import pytest

import privgate.registry
from privgate import log_model
from privgate.__main__ import run
from privgate.cli import check
from privgate.errors import ExitCode
from privgate.registry.attachments import move_alias

PROMOTE = ["promote", "models:/credit/1", "--to", "production", "--policy", "dtp-1", "--jobs", "1"]
GUARD = """\
schema: privgate/guard/v2
registry: of-a-test
trust: trust.json
releases: [{models: "*", task: classification, policy: dtp-1}]
accept_unboxed: true
protected: {aliases: [production]}
"""


@pytest.fixture
def site(registry, data, recipe, tmp_path, monkeypatch):
    """A registry that nobody guards, the configuration of a guard, and a signer; how often a check was made."""
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    config, key = tmp_path / "guard.yaml", tmp_path / "key.pem"
    config.write_text(GUARD)
    assert run(["guard", "keys", str(key), "--trust", str(tmp_path / "trust.json")]) == 0
    sign = f"{sys.executable} -m privgate guard sign {{out}} --model={{uri}} --nonce={{nonce}} --policy={{policy}}"
    sign += f" --target={{target}} --config={config} --key={key} --checked-elsewhere --tracking-uri={registry}"
    made = SimpleNamespace(config=["--config", str(config)], signer=["--sign-command", sign], checks=0)
    made.client = mlflow.MlflowClient(registry)
    checked, started = check._check, check.subprocess.run

    def sign_here(words, **how):
        return run(words[3:]) and pytest.fail("not signed") if words[2] == "privgate" else started(words, **how)

    def counted(*args, **named):
        made.checks += 1
        return checked(*args, **named)

    monkeypatch.setattr(check, "_check", counted)
    monkeypatch.setattr(check.subprocess, "run", sign_here)
    return made


def aliases(site):
    return dict(site.client.get_registered_model("credit").aliases)


def test_an_alias_rests_on_a_statement_that_counts_and_on_nothing_else(site, capsys):
    assert run([*PROMOTE, *site.config]) == ExitCode.UNSIGNED
    assert "--config" in capsys.readouterr().err
    # a signer that ends well and signs nothing is believed nothing
    assert run([*PROMOTE, *site.config, "--sign-command", "true {uri} {nonce}"]) == 4
    assert aliases(site) == {}
    assert run([*PROMOTE, *site.config, *site.signer]) == 0
    assert aliases(site) == {"production": 1}

    # what has a statement that counts is not checked again; who only observes promotes nothing all the same
    checks = site.checks
    site.client.delete_registered_model_alias("credit", "production")
    assert run([*PROMOTE, *site.config]) == 0
    assert aliases(site) == {"production": 1}
    assert run([*PROMOTE[:-3], "pdtp-1", "--jobs", "1", *site.config]) == ExitCode.USAGE
    assert "the guard releases 'credit' as 'production' by policy 'dtp-1'" in capsys.readouterr().err
    assert site.checks == checks
    site.client.delete_registered_model_alias("credit", "production")
    assert run([*PROMOTE, *site.config, "--observe"]) == 0
    assert aliases(site) == {}


@pytest.mark.parametrize("broken", ["guard.yaml", "trust.json"])
def test_an_unusable_guard_is_said_before_anything_is_trained(site, tmp_path, broken):
    (tmp_path / broken).write_text("no: document")
    assert run([*PROMOTE, *site.config]) in {2, 4}
    assert site.checks == 0


@pytest.mark.slow
def test_forward_only_leaves_the_alias_with_a_later_version(site, data, recipe, capsys):
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    site.client.set_registered_model_alias("credit", "production", "2")
    assert run([*PROMOTE, "--forward-only"]) == 0
    assert "approved, not promoted: @production stays with the later version 2" in capsys.readouterr().out
    assert aliases(site) == {"production": 2}
    assert move_alias(site.client, "credit", "2", "production", forward_only=True) == "2"
    assert move_alias(site.client, "credit", "1", "production", forward_only=False) == "1"
    subject = privgate.registry.load_subject("models:/credit/2")
    assert privgate.registry.promote(subject, "production", forward_only=True) == "2"
    assert aliases(site) == {"production": 2}
