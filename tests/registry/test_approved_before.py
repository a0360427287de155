"""What was approved before counts only if somebody trusted signed it: whoever may write reports could forge one."""

import json

import mlflow
import pytest

from privgate.guard import keys as truststore
from privgate.guard import signing, verification
from privgate.guard.config import Guard
from privgate.registry.named import TAG
from tests.registry.test_signing import guard_for, sign


@pytest.fixture
def trusting(signer, tmp_path, monkeypatch):
    """A guard's configuration that trusts the signer alone."""
    place = tmp_path / "guard.yaml"
    monkeypatch.setattr(Guard, "load", classmethod(lambda _, path: guard_for(signer)))
    monkeypatch.setenv("PRIVGATE_GUARD", str(place))
    return place


def ask():
    return verification.approved_report("models:/credit/1", tracking_uri=mlflow.get_tracking_uri())


@pytest.fixture
def attached(checked, signer):
    """The version with a signed statement; it is taken away again, since others share the registry."""
    made = sign(checked, signer)
    signing.attach_statement(made)
    yield made
    mlflow.MlflowClient().delete_model_version_tag("credit", "1", TAG)


def test_a_signed_report_counts(attached, trusting):
    assert ask() == json.loads(attached.report)


def test_without_a_configuration_no_report_counts(attached, trusting, monkeypatch):
    monkeypatch.delenv("PRIVGATE_GUARD")
    assert ask() is None
    assert verification.approved_report("models:/credit/1", config=trusting, tracking_uri=mlflow.get_tracking_uri())


def test_an_unsigned_report_does_not_count_whatever_it_says(checked, trusting):
    document = json.loads((checked[1] / "report.json").read_text())
    client = mlflow.MlflowClient()
    held = client.get_model_version("credit", "1")
    place = f"privgate_reports/{held.source.rpartition('/')[2]}/forged"
    client.log_dict(held.run_id, {**document, "approved": True}, f"{place}/report.json")
    assert ask() is None


def test_nor_one_that_a_stranger_signed_or_that_was_changed(checked, signer, trusting):
    stranger = truststore.new_key()
    signing.attach_statement(sign(checked, stranger))
    assert ask() is None

    made = sign(checked, signer)
    signing.attach_statement(made)
    assert ask() is not None
    client = mlflow.MlflowClient()
    place = f"privgate_reports/{made.claims.model_id}/dtp-1/signed/{made.claims.report.removeprefix('sha256:')[:16]}"
    forged = {**json.loads(made.report), "evidence": {"collusion": {"sources": {}}}}
    client.log_dict(made.claims.run_id, forged, f"{place}/report.json")
    assert ask() is None
    client.delete_model_version_tag("credit", "1", TAG)
