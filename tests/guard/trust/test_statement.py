"""DSSE and in-toto: the envelope is what others verify too, and garbling it is noticed."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privgate.errors import StatementError
from privgate.guard import statement
from privgate.guard.statement import Claims, Envelope


def test_the_bytes_signed_are_those_of_the_dsse_specification():
    # the example of the DSSE protocol document
    envelope = Envelope(b"hello world", "http://example.com/HelloWorld", {})
    assert envelope.pae() == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_a_verdict_statement_is_a_verification_summary(world):
    body = world.envelope().statement
    assert body["_type"] == "https://in-toto.io/Statement/v1"
    assert body["predicateType"] == "https://slsa.dev/verification_summary/v1"
    predicate = body["predicate"]
    assert predicate["verificationResult"] == "PASSED"
    assert predicate["resourceUri"] == "mlflow-registry://prod-registry/models/credit/3"
    assert predicate["policy"]["digest"] == {"sha256": "a" * 64}
    assert predicate["inputAttestations"][0]["digest"] == {"sha256": "e" * 64}
    assert not [level for level in predicate["verifiedLevels"] if level.startswith("SLSA_")]
    assert len(world.envelope().text()) < 5000  # older registries cut tags there
    predicate = world.envelope(passed=False, outcome="failed").statement["predicate"]
    assert (predicate["verificationResult"], predicate["verifiedLevels"]) == ("FAILED", ["FAILED"])


def test_a_statement_for_a_workspace_counts_nowhere(world):
    stated = world.claims.summary("1")
    stated["predicate"][statement.EXTENSION]["workspace"] = "research"
    with pytest.raises(StatementError, match=r"workspace of MLflow"):
        Claims.read(stated)


@settings(max_examples=30)
@given(st.text() | st.recursive(st.none() | st.text(), lambda v: st.dictionaries(st.text(), v)).map(json.dumps))
def test_any_other_text_is_no_envelope(text):
    with pytest.raises(StatementError):
        Envelope.parse(text)


VALUES = st.none() | st.booleans() | st.integers() | st.text()


@settings(max_examples=30)
@given(st.recursive(VALUES, lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_any_other_json_is_no_verdict(value):
    with pytest.raises(StatementError):
        Claims.read({"_type": statement.STATEMENT_TYPE, "predicateType": statement.VSA_TYPE, "predicate": value})


def test_claims_come_back_and_every_part_of_a_verdict_must_be_there(world):
    body = world.envelope().statement
    for holder in (body, body["predicate"], body["predicate"][statement.EXTENSION]):
        for key in [k for k in holder if k != "_type"]:
            kept = holder.pop(key)
            with pytest.raises(StatementError):
                Claims.read(body)
            holder[key] = kept
    assert Claims.read(body) == world.claims


def test_a_payload_with_nan_is_refused():
    with pytest.raises(StatementError, match="not JSON"):
        _ = Envelope(b'{"_type": NaN}', statement.PAYLOAD_TYPE, {}).statement
    raw = {"payload": base64.b64encode(b"{}").decode(), "payloadType": statement.PAYLOAD_TYPE, "signatures": []}
    with pytest.raises(StatementError, match="carries no signature"):
        Envelope.parse(json.dumps(raw))


def test_a_statement_of_version_1_counts_no_longer(world):
    body = world.envelope().statement
    body["predicate"]["urn:privgate:verdict:v1"] = body["predicate"].pop(statement.EXTENSION)
    with pytest.raises(StatementError, match=r"lacks or garbles something.*v2"):
        Claims.read(body)


@pytest.mark.parametrize(
    "other", [{"predicateType": "https://slsa.dev/provenance/v1"}, {"verifier": {"id": "x"}}], ids=str
)
def test_a_verdict_of_another_kind_or_another_gate_is_none_of_ours(world, other):
    body = world.envelope().statement
    (body if "predicateType" in other else body["predicate"]).update(other)
    with pytest.raises(StatementError, match="no verdict of a privgate gate"):
        Claims.read(body)


@pytest.mark.parametrize("files", ["md5:" + "f" * 64, "sha256:" + "f" * 63, "f" * 64])
def test_what_is_no_sha256_is_not_signed(world, files):
    with pytest.raises(StatementError, match="no sha256 digest"):
        world.envelope(files=files)
