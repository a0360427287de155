"""What other tools read of a signed verdict: verified by those tools themselves, from files alone."""

import base64
import hashlib
import json
import math
import subprocess
import sys

import mlflow
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from privgate.errors import StatementError, UsageError
from privgate.guard import checks, other_formats, signing, statement
from privgate.outcome import Outcome
from tests.registry.test_signing import guard_for, sign

CURVES = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1}


def written_key(folder, curve=ec.SECP256R1):
    """Return the paths of a new private key and of its public half."""
    key = ec.generate_private_key(curve())
    private, public = folder / "key.pem", folder / "public.pem"
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def model_signing(folder, public, signature):
    """Return how OpenSSF's own command ends on a folder."""
    command = ["verify", "key", str(folder), "--signature", str(signature), "--public_key", str(public)]
    command = [sys.executable, "-m", "model_signing", *command]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(checked, signer, tmp_path):
    """A folder with what was signed, the model's files as they are served, and the public half of the bundle's key."""
    private, public = written_key(tmp_path)
    made = sign(checked, signer, bundle_key=other_formats.bundle_key(private))
    signed, model = tmp_path / "signed", tmp_path / "model"
    signed.mkdir()
    made.write(signed)
    held = mlflow.MlflowClient().get_model_version("credit", "1")
    mlflow.artifacts.download_artifacts(held.source, dst_path=str(model))
    (model / "registered_model_meta").unlink()  # MLflow's note, which its download adds; `verify --to` adds none
    return made, signed, model, public


@pytest.mark.attack("26 other files under a model signature", "model_signing", "refused")
def test_open_ssf_model_signing_verifies_the_very_files_and_no_others(folder):
    made, signed, model, public = folder
    assert sorted(made.evidence.statement["predicate"]["files"]) == sorted(
        p.relative_to(model).as_posix() for p in model.rglob("*") if p.is_file()
    )
    fine = model_signing(model, public, signed / "model.sig")
    assert fine.returncode == 0, fine.stdout + fine.stderr

    other = written_key(signed)[1]
    assert model_signing(model, other, signed / "model.sig").returncode != 0
    (model / "one_more").write_text("")
    assert model_signing(model, public, signed / "model.sig").returncode != 0
    (model / "one_more").unlink()
    with (model / "MLmodel").open("a") as written:
        written.write("#")
    assert model_signing(model, public, signed / "model.sig").returncode != 0


@pytest.mark.quick(1)
@pytest.mark.parametrize("curve", sorted(CURVES))
def test_each_curve_that_model_signing_knows_signs(tmp_path, curve):
    private, public = written_key(tmp_path, CURVES[curve])
    model = tmp_path / "model"
    (model / "b").mkdir(parents=True)
    content = {"a": b"1", "b/c": b"2", "b.d": b"3", "ä ö": b""}
    for name, text in content.items():
        (model / name).write_bytes(text)
    table = {name: hashlib.sha256(text).hexdigest() for name, text in content.items()}
    (tmp_path / "sig").write_text(other_formats.bundle("m", table, other_formats.bundle_key(private)))

    ended = model_signing(model, public, tmp_path / "sig")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_in_toto_s_own_library_reads_and_verifies_the_evaluation(folder, signer):
    from google.protobuf import json_format
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement
    from securesystemslib import dsse as theirs
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey

    made, signed, _, _ = folder
    raw = json.loads((signed / "evaluation.dsse.json").read_text())
    envelope = theirs.Envelope.from_dict(raw)
    own = SSlibKey(signer.key_id, "ed25519", "ed25519", {"public": signer.public.hex()})
    assert envelope.verify([own], 1)
    stranger = checks.new_key()
    with pytest.raises(VerificationError):
        envelope.verify([SSlibKey(stranger.key_id, "ed25519", "ed25519", {"public": stranger.public.hex()})], 1)

    read = json_format.Parse(base64.b64decode(raw["payload"]), statement_pb2.Statement())
    Statement.copy_from_pb(read).validate()
    assert read.predicate_type == other_formats.EVALUATION_TYPE
    assert read.subject[0].digest["sha256"] == made.claims.files.removeprefix("sha256:")
    told = json_format.MessageToDict(read.predicate)
    assert told["sampleSize"] == 40
    assert told["claims"][0] == {
        "metric": "privgate/approved", "comparator": ">=", "threshold": "1", "passed": True
    }  # fmt: skip
    assert {c["metric"] for c in told["claims"][1:]} >= {"privgate/dtp"}


def outcomes(document, outcome):
    return {**document, "findings": [{**f, "outcome": outcome} for f in document["findings"]]}


@pytest.mark.parametrize("outcome", [o.value for o in Outcome if o is not Outcome.PASSED])
def test_nothing_but_what_passed_is_told_as_passed(folder, outcome):
    from dataclasses import replace

    made, *_ = folder
    document = outcomes(json.loads(made.report), outcome)
    told = other_formats.evaluation(replace(made.claims, passed=False), document)["predicate"]["claims"]
    # what was not needed makes no claim beside that of the whole
    assert len(told) == 1 if outcome == Outcome.NOT_NEEDED else len(told) > 1
    assert not any(claim["passed"] for claim in told)


@pytest.mark.parametrize("limit", [1.0, 0.6, 1e-5, 5e-324, 1.7e308, 3, 0, 0.1 + 0.2])
def test_thresholds_are_decimal_strings_that_read_back_exactly(folder, limit):
    made, *_ = folder
    document = json.loads(made.report)
    document["findings"] = [{**f, "limit": limit} for f in document["findings"] if f["metric"]]
    for claim in other_formats.evaluation(made.claims, document)["predicate"]["claims"][1:]:
        assert float(claim["threshold"]) == limit
        assert not math.isnan(float(claim["threshold"]))


@pytest.mark.attack("26 an evaluation result or a bundle as verdict", "guard", "refused")
def test_no_statement_for_others_is_taken_for_a_verdict(folder, signer):
    made, *_ = folder
    for body in (
        made.evaluation.statement,
        json.loads(base64.b64decode(json.loads(made.bundle)["dsseEnvelope"]["payload"])),
    ):
        with pytest.raises(StatementError):
            statement.Claims.read(body)


def test_a_statement_of_an_earlier_signing_does_not_stay(folder):
    from dataclasses import replace

    made, signed, *_ = folder
    assert (signed / "model.sig").is_file()
    replace(made, bundle="", evaluation=None).write(signed)
    assert not (signed / "model.sig").exists()
    assert not (signed / "evaluation.dsse.json").exists()


def test_a_key_that_model_signing_does_not_know_or_others_may_read_is_refused(tmp_path):
    private, _ = written_key(tmp_path)
    private.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        other_formats.bundle_key(private)
    for content in (checks.new_key().pem(), b"", b"-----BEGIN PRIVATE KEY-----\n"):
        private.write_bytes(content)
        private.chmod(0o600)
        with pytest.raises(UsageError, match="openssl"):
            other_formats.bundle_key(private)
    written_key(tmp_path, ec.SECP256K1)
    private.chmod(0o600)
    with pytest.raises(UsageError, match="openssl"):
        other_formats.bundle_key(private)


def test_what_is_attached_and_renewed_carries_them(checked, signer, tmp_path):
    key = other_formats.bundle_key(written_key(tmp_path)[0])
    made = sign(checked, signer, bundle_key=key)
    signing.attach_statement(made)
    client = mlflow.MlflowClient()
    place = f"privgate_reports/{made.claims.model_id}/dtp-1/signed/{made.claims.report.removeprefix('sha256:')[:16]}"
    names = {f.path.rpartition("/")[2] for f in client.list_artifacts(made.claims.run_id, place)}
    assert names == {"evidence.dsse.json", "verdict.dsse.json", "evaluation.dsse.json", "model.sig", "report.json"}
    again = signing.renew("models:/credit/1", signer, policy=checked[0], guard=guard_for(signer), bundle_key=key)
    assert again.bundle
    assert again.evaluation.statement == made.evaluation.statement
