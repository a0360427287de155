"""Signing: only what the numbers give, under the signer's own policy, about files that are still there."""

import copy
import json
import os
from datetime import timedelta
from functools import partial
from pathlib import Path

import mlflow
import pytest

from privgate import Subject
from privgate.errors import DigestMismatchError, StatementError
from privgate.guard import keys as truststore
from privgate.guard import signing, statement
from privgate.guard.config import Guard, Row, policy_named
from privgate.guard.keys import fresh_key
from privgate.guard.signing import SigningRequest
from privgate.guard.verification import verify


def guard_for(*signers):
    keys = tuple(fresh_key(s.public_key, days=90, models=("*",)) for s in signers)
    given = {"models": "*", "task": "classification", "policy": "dtp-1"}
    rows = (Row.model_validate(given, context=partial(policy_named, folder=Path())),)
    words = {"aliases": frozenset({"production"}), "accept_advisory": True, "accept_unboxed": True}
    return Guard("r", truststore.TrustStore(keys), rows=rows, **words)


def sign(checked, signer, **options):
    policy, out = checked
    return signing.sign(out, signer, **{"policy": policy, "registry": "r", **options})


def test_an_approved_report_is_signed_attached_and_verified(checked, signer):
    made = sign(checked, signer)
    assert made.claims.passed
    assert made.claims.advisory  # this user checked, too
    assert made.claims.targets == (("credit", "production"),)
    assert "PRIVGATE_POLICY_DTP_1" in made.claims.levels
    assert made.claims.digests.keys() == {"model", "recipe", "data"}
    held = mlflow.MlflowClient().get_model_version("credit", "1")
    assert (made.claims.model_id, made.claims.run_id) == (held.source.rpartition("/")[2], held.run_id)
    ran = json.loads((checked[1] / "report.json").read_text())["evidence"]["run"]
    assert (made.claims.versions, made.claims.isolation) == (1, ran["isolation"])
    assert made.claims.recomputed == ("files", "model", "recipe", "data")
    assert "MLmodel" in made.evidence.statement["predicate"]["files"]
    signing.attach_statement(made)
    guard = guard_for(signer)
    assert verify("models:/credit/1", guard, target="production").claims == made.claims
    assert (
        Subject.load("models:/credit/1").digests["files"] == made.claims.files
    )  # what is attached counts in no digest

    # a new check replaces the report of its policy, not the one that was signed
    (checked[1] / "report.json").write_text("{}")
    place = f"privgate_reports/{made.claims.model_id}/dtp-1"
    mlflow.MlflowClient().log_artifacts(made.claims.run_id, str(checked[1]), place)
    assert verify("models:/credit/1", guard, target="production")


def test_a_report_of_a_theorem_that_went_verifies_and_is_not_signed_again(checked, signer, monkeypatch):
    path = checked[1] / "report.json"
    told = json.loads(path.read_text())
    told["evidence"]["influence"]["cases"][0]["family"] = "cells"
    path.write_text(json.dumps(told))
    guard = guard_for(signer)
    with monkeypatch.context() as earlier:
        earlier.setattr(signing.cases, "GONE", {})
        signing.attach_statement(sign(checked, signer))
    said = "cases of 'cells', the theorem about boosted trees and forests, which went with 0.1.0, the last version"

    assert verify("models:/credit/1", guard, target="production")
    with pytest.raises(StatementError, match=said):
        sign(checked, signer)


def spoil(value, *path):
    def change(document):
        *above, key = path
        for name in above:
            document = document[name]
        document[key] = value

    return change


def spoil_digest(name):
    def change(document):
        for subject in (document["subject"], document["evidence"]["subject"]):
            subject["digests"][name] = OTHER

    return change


def worse(document):
    for measurement in document["evidence"]["measurements"]:
        measurement.update(value=9.0, low=9.0, high=9.0)


def uncontrolled(document):
    kept = [p for p in document["evidence"]["preconditions"] if p["name"] != "depends_on_data"]
    document["evidence"]["preconditions"] = kept
    document["findings"] = [f for f in document["findings"] if f["rule"] != "precondition:depends_on_data"]


def fewer(document):
    document["findings"] = [f for f in document["findings"] if f["rule"] != "dtp"]


OTHER = "sha256:" + "0" * 64
SPOILT = [
    (worse, "its own numbers"),
    (fewer, "its own numbers"),
    (spoil(OTHER, "policy", "digest"), "not judged by this policy"),
    (spoil(True, "observed"), "only observed"),
    (spoil("failed", "outcome"), "not the worst of its findings"),
    (spoil("2", "evidence", "subject", "version"), "about another model"),
    (spoil_digest("files"), "not those that were checked"),
    *((spoil_digest(name), "about another") for name in ("model", "recipe", "data")),
    (spoil(False, "evidence", "run", "remembered", "signable"), "remembered"),
    (lambda document: document["evidence"]["run"].pop("remembered"), "remembered"),
    (uncontrolled, "control"),
]


def test_a_report_that_says_more_than_its_numbers_controls_and_files_is_not_signed(checked, signer):
    path = checked[1] / "report.json"
    honest = json.loads(path.read_text())
    for change, said in SPOILT:
        document = copy.deepcopy(honest)
        change(document)
        assert document != honest
        path.write_text(json.dumps(document))
        with pytest.raises((StatementError, DigestMismatchError), match=said):
            sign(checked, signer)
    path.write_text("{")
    with pytest.raises(StatementError, match="cannot be read"):
        sign(checked, signer)
    path.write_text(json.dumps(honest))
    assert sign(checked, signer).claims.passed


@pytest.mark.parametrize("asked", [("models:/credit/2",), ("models:/other/1",), ("models:/credit/1", "another nonce")])
def test_a_report_that_was_not_asked_for_is_not_signed(checked, signer, asked):
    with pytest.raises(StatementError, match="to be signed is" if len(asked) == 1 else "nonce"):
        sign(checked, signer, request=SigningRequest(*asked))
    assert sign(checked, signer, request=SigningRequest("models:/credit/1")).claims.passed


def test_a_model_that_changed_since_the_check_is_not_signed(checked, signer, approved):
    path = next((approved[2] / "artifacts").rglob("model.*"))
    honest = path.read_bytes()
    path.write_bytes(honest + b"x")
    try:
        with pytest.raises(DigestMismatchError, match="not those that were checked"):
            sign(checked, signer)
    finally:
        path.write_bytes(honest)


def test_a_statement_lasts_no_longer_than_its_report_says(checked, signer):
    path = checked[1] / "report.json"
    document = json.loads(path.read_text())
    until = (statement.when(document["decided_at"]) + timedelta(days=5)).date()
    path.write_text(json.dumps({**document, "expires": until.isoformat()}))
    assert sign(checked, signer).claims.expires.date() == until


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give the report to another user")
def test_a_report_of_another_user_is_not_advisory(checked, signer):
    os.chown(checked[1] / "report.json", 65534, 65534)
    assert not sign(checked, signer).claims.advisory


def test_the_operator_may_state_that_the_check_ran_elsewhere(checked, signer):
    assert not sign(checked, signer, checked_elsewhere=True).claims.advisory
