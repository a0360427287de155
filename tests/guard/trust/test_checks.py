"""Whether a statement counts: the one that should does, and every single change makes it not."""

import base64
import contextlib
import dataclasses
import json
import types
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from securesystemslib.signer import CryptoSigner

from privgate.errors import StatementError, UsageError
from privgate.guard import checks, signing
from privgate.guard import keys as truststore
from privgate.guard.checks import check_original
from privgate.guard.config import Guard, Row
from privgate.guard.keys import fresh_key


def digest(letter):
    return "sha256:" + letter * 64


ROW = (Row(("*",), (), "classification", "dtp-1", digest("a"), withheld=False),)


def test_a_valid_statement_counts(world):
    assert world.check().files == world.claims.files


def test_a_copy_of_the_version_counts_where_its_target_is_allowed(world):
    copy = dataclasses.replace(world.row, name="prod.credit", version="1", source="models:/credit/3", created=9)
    assert world.check(row=copy)
    assert world.check(row=dataclasses.replace(copy, source="models:/m-1"))
    assert world.check(row=dataclasses.replace(copy, version="", created=0), target=None)
    with pytest.raises(StatementError, match="does not allow other"):
        world.check(row=dataclasses.replace(copy, name="other"))


ROWS = [
    ({"version": "4", "source": "models:/m-2"}, "not about this version"),
    ({"name": "debit", "source": "models:/m-2"}, "not about this version"),
    ({"source": "models:/m-2"}, "is not the one that was signed"),
    ({"created": 1701}, "deleted and created again"),
    ({"storage": "s3://bucket/m-2"}, "lie elsewhere"),
    ({"run_id": "run-2"}, "run of models:/credit/3 is not"),
    ({"name": "cre*"}, "neither checked nor released"),
]


@pytest.mark.parametrize(("changes", "why"), ROWS)
def test_another_row_is_refused(world, changes, why):
    with pytest.raises(StatementError, match=why):
        world.check(row=dataclasses.replace(world.row, **changes))


CLAIMS = [
    ({"registry": "test"}, "for registry"),
    ({"passed": False, "outcome": "failed"}, "not an approval"),
    ({"passed": True, "outcome": "inconclusive"}, "not an approval"),
    ({"policy_digest": digest("c")}, "in force is"),
    ({"advisory": True}, "advisory"),
    ({"targets": ()}, "does not allow"),
    ({"targets": (("credit", "staging"),)}, "does not allow"),
    ({"targets": (("*", "production"), ("c?edit", "production"), ("credit", "*"))}, "does not allow"),
    ({"targets": (("credit", "PRODUCTION"), ("Credit", "production"))}, "does not allow"),
]


@pytest.mark.parametrize(("changes", "why"), CLAIMS)
def test_a_statement_that_says_something_else_is_refused(world, changes, why):
    with pytest.raises(StatementError, match=why):
        world.check(world.envelope(**changes).text())


#: of a verdict: what is changed, why nothing is released on it, whether a refusal like that is signed
TERMS = [
    ({}, "", True),
    ({"decided": timedelta(days=1500)}, "before its verdict was decided", False),
    ({"signed": timedelta(days=1500), "decided": timedelta(days=1500)}, "in the future", False),
    ({"expires": timedelta(seconds=-1)}, "expired on", True),
    ({"signed": timedelta(minutes=2), "expires": timedelta(minutes=1)}, "ends before it was signed", True),
    ({"policy_digest": digest("c")}, "in force is", True),
    ({"task": "regression"}, "judged as regression", True),
    ({"withheld": True}, "does not say that of this model", True),
    ({"outcome": "inconclusive"}, "not an approval", True),
    ({"isolation": "none"}, "without a box", True),
]


@pytest.mark.attack("32 a refusal without a box", "sign", "signed")
@pytest.mark.parametrize(("changes", "why", "signed"), TERMS, ids=str)
def test_who_signs_refuses_what_the_guard_would(world, changes, why, signed):
    moments = {name: world.now + by for name, by in changes.items() if isinstance(by, timedelta)}
    claims = dataclasses.replace(world.claims, **{**changes, **moments})
    guard = Guard("prod-registry", world.trust, {}, frozenset(), frozenset(), (), rows=ROW)
    terms = guard.terms("production", "credit")
    for judge in (
        lambda: checks.check_terms(claims, terms, world.now),
        lambda: signing.refuse_unread(claims, types.SimpleNamespace(digest="", name=""), guard, unboxed=False),
    ):
        with pytest.raises(StatementError, match=why) if why else contextlib.nullcontext():
            judge()
    refusal = dataclasses.replace(claims, passed=False, outcome="failed")
    with contextlib.nullcontext() if signed else pytest.raises(StatementError):
        signing.refuse_unread(refusal, None, guard, unboxed=False)


def test_an_advisory_statement_counts_where_the_operator_accepts_it(world):
    text = world.envelope(advisory=True).text()
    assert world.check(text, terms=dataclasses.replace(world.terms, accept_advisory=True))


def test_time_decides(world):
    assert world.check(now=world.claims.expires)
    with pytest.raises(StatementError, match="expired"):
        world.check(now=world.claims.expires + timedelta(seconds=1))
    ahead = world.envelope(signed=world.now + timedelta(minutes=10)).text()
    with pytest.raises(StatementError, match="future"):
        world.check(ahead)
    assert world.check(world.envelope(decided=world.now + timedelta(minutes=5)).text())
    for late in (timedelta(minutes=5, seconds=1), timedelta(hours=1)):
        with pytest.raises(StatementError, match="before its verdict"):
            world.check(world.envelope(decided=world.now + late).text())


def test_a_key_counts_within_its_window_and_role_until_revoked(world):
    key = world.trust.keys[0]
    late = world.envelope(expires=world.now + timedelta(days=900)).text()
    with pytest.raises(StatementError, match="counts from"):
        world.check(late, now=world.now + timedelta(days=91))
    with pytest.raises(StatementError, match="counts from"):
        world.check(world.envelope(signed=world.now - timedelta(days=1)).text())
    for changes, why in (
        ({"roles": ("evidence",)}, "may not sign"),
        ({"models": ("debit",), "model_patterns": ()}, "may not sign for model"),
    ):
        with pytest.raises(StatementError, match=why):
            world.check(store=truststore.TrustStore((dataclasses.replace(key, **changes),)))
    with pytest.raises(StatementError, match="revoked"):
        world.check(store=world.trust.revoke(key.key_id[:8], at=world.now + timedelta(days=5)))


def test_a_key_signs_for_names_and_for_the_operators_patterns(world):
    """A model whose name is a pattern is matched by none: only what the operator wrote as a pattern is one."""
    key = fresh_key(world.signer.public_key, days=90, models=("debit", "cre*"))
    assert (key.models, key.model_patterns, key.scope) == (("debit",), ("cre*",), ("debit", "cre*"))
    for model, counts in {
        "debit": True,
        "credit": True,
        "debit2": False,
        "de*": False,
        "*": False,
        "Debit": False,
    }.items():
        assert (key.refusal("verdict", model, world.now) == "") is counts, model


def test_a_retired_key_counts_until_its_overlap_ends_and_the_new_one_after(world):
    fresh = truststore.new_key()
    after = world.now + timedelta(days=7)
    store = world.trust.retire(world.signer.public_key.keyid, after=after).add(
        fresh_key(fresh.public_key, days=90, models=("*",))
    )
    assert world.check(store=store, now=after)
    with pytest.raises(StatementError, match="counts from"):
        world.check(store=store, now=after + timedelta(seconds=1))
    assert world.check(world.envelope(fresh).text(), store=store, now=after + timedelta(seconds=1))


def test_a_strangers_signature_does_not_count_even_under_a_trusted_id(world):
    stranger = truststore.new_key()
    with pytest.raises(StatementError, match="no trusted key"):
        world.check(world.envelope(stranger).text())
    forged = json.loads(world.envelope(stranger).text())
    forged["signatures"][0]["keyid"] = world.signer.public_key.keyid
    with pytest.raises(StatementError, match="not valid"):
        world.check(json.dumps(forged))
    with pytest.raises(StatementError, match="no statement"):
        world.check("")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_of_payload_or_signature_counts(world, data):
    raw = json.loads(world.envelope().text())
    part = data.draw(st.sampled_from(["payload", "sig"]))
    holder = raw if part == "payload" else raw["signatures"][0]
    content = bytearray(base64.b64decode(holder[part]))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    holder[part] = base64.b64encode(bytes(content)).decode()
    with pytest.raises(StatementError):
        world.check(json.dumps(raw))


def test_a_trust_store_comes_back_and_refuses_what_it_does_not_know(world, tmp_path):
    path = tmp_path / "trust.json"
    world.trust.save(path)
    assert truststore.TrustStore.load(path) == world.trust
    good = json.loads(path.read_text())
    for change in (
        {"schema": "other"},
        {"keys": good["keys"] * 2},
        {"keys": [{**good["keys"][0], "id": "0" * 64}]},
        {"keys": [{**good["keys"][0], "roles": ["admin"]}]},
        {"keys": [{**good["keys"][0], "public": "AAAA"}]},
        {"keys": [{**good["keys"][0], "extra": 1}]},
        {"keys": [{**good["keys"][0], "not_after": "2020-01-01T00:00:00Z"}]},
        {"keys": [{**good["keys"][0], "not_after": "2090-01-01"}]},
        {"keys": [{**good["keys"][0], "models": ["credit", "cre*"]}]},
    ):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(StatementError):
            truststore.TrustStore.load(path)


def test_a_private_key_comes_from_file_environment_or_command(tmp_path):
    key = truststore.new_key()
    path = tmp_path / "key.pem"
    path.write_bytes(key.private_bytes)
    path.chmod(0o600)
    assert truststore.signer_from(key_file=path).public_key.keyid == key.public_key.keyid
    assert (
        truststore.signer_from(environment={"PRIVGATE_SIGNING_KEY": key.private_bytes.decode()}).public_key.keyid
        == key.public_key.keyid
    )
    script = tmp_path / "sign.py"
    script.write_text(
        "import sys, base64\nfrom privgate.guard.keys import signer_from_pem\n"
        f"key = signer_from_pem(open({str(path)!r}, 'rb').read())\n"
        "print(base64.b64encode(bytes.fromhex(key.sign(sys.stdin.buffer.read()).signature)).decode())\n"
    )
    import sys

    command = truststore.signer_from(command=f"{sys.executable} {script}", key_id=key.public_key.keyid)
    assert command.sign(b"message") == key.sign(b"message")
    with pytest.raises(StatementError, match="did not sign"):
        truststore.signer_from(command="false", key_id=key.public_key.keyid).sign(b"")


def test_a_key_of_another_kind_is_trusted_in_pem_and_signs_by_its_address(world, tmp_path, monkeypatch):
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    (tmp_path / "key.pem").write_bytes(CryptoSigner(private).private_bytes)
    store = truststore.TrustStore((dataclasses.replace(world.trust.keys[0], public=pem),))
    store.save(tmp_path / "trust.json")
    assert truststore.TrustStore.load(tmp_path / "trust.json") == store
    monkeypatch.setenv("CRYPTO_SIGNER_PATH_PREFIX", str(tmp_path))
    address, named = Path("file2:key.pem"), store.keys[0].key_id
    signer = truststore.signer_from(key_file=address, key_id=named, trust=store)
    assert world.check(world.envelope(signer).text(), store=store).name == "credit"
    with pytest.raises(StatementError, match="no trusted key"):
        world.check(world.envelope(signer).text())
    with pytest.raises(UsageError, match="--key-id and --config"):
        truststore.signer_from(key_file=address, key_id=named)
    with pytest.raises(UsageError, match="cannot be used"):
        truststore.signer_from(key_file=Path("awskms:none"), key_id=named, trust=store)


def test_an_unusable_key_is_refused_without_repeating_it(tmp_path):
    with pytest.raises(StatementError, match="no unencrypted Ed25519") as caught:
        truststore.signer_from(environment={"PRIVGATE_SIGNING_KEY": "secret text"})
    assert "secret text" not in str(caught.value)
    path = tmp_path / "key.pem"
    path.write_bytes(truststore.new_key().private_bytes)
    path.chmod(0o644)
    with pytest.raises(UsageError, match="read by others"):
        truststore.signer_from(key_file=path)
    with pytest.raises(UsageError, match="no signing key"):
        truststore.signer_from(environment={})


@pytest.mark.parametrize(
    ("decided", "signed", "counts"), [(-60, 10, False), (0, 10, False), (1, 10, True), (5, -60, False), (5, 0, False)]
)
def test_a_copy_is_released_again_only_on_a_later_check_signed_later(world, decided, signed, counts):
    """A refusal is lifted by what was found out since; an older report that is signed once more is not that."""
    refusal = world.envelope(passed=False, outcome="failed", decided=world.now, signed=world.now).text()
    moments = {"decided": world.now + timedelta(seconds=decided), "signed": world.now + timedelta(seconds=signed)}
    claims = dataclasses.replace(world.claims, **moments)
    copy = dataclasses.replace(world.row, name="prod.credit", version="1")
    original = (world.row, refusal)
    if counts:
        check_original(claims, copy, original, world.trust, world.now)
        return
    with pytest.raises(StatementError, match="was refused since"):
        check_original(claims, copy, original, world.trust, world.now)


@pytest.mark.parametrize("now", [None, {"created": 1701}, {"storage": "s3://bucket/m-2"}], ids=str)
def test_a_copy_counts_for_nothing_where_the_row_that_was_signed_is_gone_or_another(world, now):
    """Nobody can tell then whether it was refused since, whatever the present row carries."""
    copy = dataclasses.replace(world.row, name="prod.credit", version="1")
    passed = world.envelope(decided=world.now, signed=world.now).text()
    original = None if now is None else (dataclasses.replace(world.row, **now), passed)
    check_original(world.claims, copy, (world.row, passed), world.trust, world.now)
    with pytest.raises(StatementError, match="is gone"):
        check_original(world.claims, copy, original, world.trust, world.now)
