"""DSSE and in-toto: the envelope is what others verify too, and garbling it is noticed."""

import base64
import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privgate.errors import StatementError
from privgate.guard import keys as truststore
from privgate.guard import statement
from privgate.guard.statement import Claims, Envelope


def test_the_bytes_signed_are_those_of_the_dsse_specification():
    # the example of the DSSE protocol document
    signed = statement.pae("http://example.com/HelloWorld", b"hello world")
    assert signed == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_an_independent_implementation_verifies_our_envelope(world):
    from securesystemslib import dsse as theirs
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey

    envelope = theirs.Envelope.from_dict(json.loads(world.envelope().text()))
    key = SSlibKey(world.signer.public_key.keyid, "ed25519", "ed25519", world.signer.public_key.keyval)
    assert set(envelope.verify([key], 1)) == {world.signer.public_key.keyid}

    other = truststore.new_key()
    stranger = SSlibKey(world.signer.public_key.keyid, "ed25519", "ed25519", other.public_key.keyval)
    with pytest.raises(VerificationError):
        envelope.verify([stranger], 1)


def test_we_verify_an_envelope_of_an_independent_implementation(world):
    from securesystemslib import dsse as theirs
    from securesystemslib.signer import CryptoSigner

    signer = CryptoSigner(world.signer._private_key)
    raw = statement.payload(world.claims.summary("0.1.0"))
    foreign = theirs.Envelope(raw, statement.PAYLOAD_TYPE, {})
    foreign.sign(signer)
    text = json.dumps(foreign.to_dict()).replace(signer.public_key.keyid, world.signer.public_key.keyid)
    assert world.check(text).files == world.claims.files


def test_a_verdict_statement_is_a_verification_summary(world):
    said = world.envelope().statement
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == "https://slsa.dev/verification_summary/v1"
    predicate = said["predicate"]
    assert predicate["verificationResult"] == "PASSED"
    assert predicate["resourceUri"] == "mlflow-registry://prod-registry/models/credit/3"
    assert predicate["policy"]["digest"] == {"sha256": "a" * 64}
    assert predicate["inputAttestations"][0]["digest"] == {"sha256": "e" * 64}
    assert not [level for level in predicate["verifiedLevels"] if level.startswith("SLSA_")]
    assert len(world.envelope().text()) < 5000  # older registries cut tags there


def test_a_statement_names_its_workspace_where_it_is_not_the_default_one(world):
    told = world.claims.summary("1")["predicate"][statement.EXTENSION]
    assert "workspace" not in told
    there = dataclasses.replace(world.claims, workspace="research")
    assert there.summary("1")["predicate"][statement.EXTENSION] == {**told, "workspace": "research"}
    assert Claims.read(there.summary("1")) == there
    assert Claims.read(world.claims.summary("1")).workspace == "default"


def test_a_verdict_that_does_not_pass_says_so_in_every_field(world):
    predicate = world.envelope(passed=False, outcome="failed").statement["predicate"]
    assert (predicate["verificationResult"], predicate["verifiedLevels"]) == ("FAILED", ["FAILED"])


def test_claims_come_back(world):
    assert Claims.read(world.envelope().statement) == world.claims


@settings(max_examples=30)
@given(st.text() | st.recursive(st.none() | st.text(), lambda v: st.dictionaries(st.text(), v)).map(json.dumps))
def test_any_other_text_is_no_envelope(text):
    with pytest.raises(StatementError):
        Envelope.parse(text)


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_any_other_json_is_no_verdict(value):
    with pytest.raises(StatementError):
        Claims.read({"_type": statement.STATEMENT_TYPE, "predicateType": statement.VSA_TYPE, "predicate": value})


def test_every_part_of_a_verdict_must_be_there(world):
    said = world.envelope().statement
    for holder in (said, said["predicate"], said["predicate"][statement.EXTENSION]):
        for key in [k for k in holder if k != "_type"]:
            kept = holder.pop(key)
            with pytest.raises(StatementError):
                Claims.read(said)
            holder[key] = kept
    assert Claims.read(said) == world.claims


def test_a_payload_with_nan_is_refused(world):
    raw = base64.b64encode(b'{"_type": NaN}').decode()
    text = json.dumps(
        {"payload": raw, "payloadType": statement.PAYLOAD_TYPE, "signatures": [{"keyid": "a", "sig": ""}]}
    )
    with pytest.raises(StatementError, match="not JSON"):
        Envelope.parse(text).statement


def test_a_statement_of_version_1_says_so(world):
    said = world.envelope().statement
    said["predicate"]["urn:privgate:verdict:v1"] = said["predicate"].pop(statement.EXTENSION)
    with pytest.raises(StatementError, match="is of version 1, which does not name every served file; check and sign"):
        Claims.read(said)


@pytest.mark.parametrize(
    "other", [{"predicateType": "https://slsa.dev/provenance/v1"}, {"verifier": {"id": "x"}}], ids=str
)
def test_a_verdict_of_another_kind_or_another_gate_is_none_of_ours(world, other):
    said = world.envelope().statement
    (said if "predicateType" in other else said["predicate"]).update(other)
    with pytest.raises(StatementError, match="no verdict of a privgate gate"):
        Claims.read(said)


def test_only_a_statement_that_says_nothing_newer_is_of_version_1(world):
    said = world.envelope().statement
    said["predicate"]["urn:privgate:verdict:v1"] = {}
    assert Claims.read(said) == world.claims
    for version in ("v1", "v2"):
        del said["predicate"][f"urn:privgate:verdict:{version}"]
    with pytest.raises(StatementError, match="lacks or garbles something"):
        Claims.read(said)


@pytest.mark.parametrize("files", ["md5:" + "f" * 64, "sha256:" + "f" * 63, "f" * 64])
def test_what_is_no_sha256_is_not_signed(world, files):
    with pytest.raises(StatementError, match="no sha256 digest"):
        world.envelope(files=files)
