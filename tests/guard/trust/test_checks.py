"""Whether a statement counts: the one that should does, and every single change makes it not."""

import base64
import contextlib
import json
import types
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from securesystemslib.signer import CryptoSigner

from privgate.errors import StatementError, UsageError
from privgate.guard import signing, verification
from privgate.guard.config import Guard, NamedPolicy, Row
from privgate.guard.keys import KEY_VARIABLE, TrustStore, fresh_key, new_key, signer_from
from privgate.guard.verification import UNBOXED, check_original, counting
from tests.guard.trust.conftest import digest

ROW = Row.model_construct(models=["*"], task="classification", policy=NamedPolicy("dtp-1", digest("a")))
#: of the row that was signed: what is changed, and why it is not released then; empty where it is
ROWS = [
    ({}, ""),
    ({"version": "4", "source": "models:/m-2"}, "not about this version"),
    ({"name": "debit", "source": "models:/m-2"}, "not about this version"),
    ({"source": "models:/m-2"}, "is not the one that was signed"),
    ({"created": 1701}, "deleted and created again"),
    ({"storage": "s3://bucket/m-2"}, "lie elsewhere"),
    ({"run_id": "run-2"}, "run of models:/credit/3 is not"),
    ({"name": "cre*"}, "neither checked nor released"),
    ({"name": "prod.credit", "version": "1", "source": "models:/credit/3", "created": 9}, ""),
    ({"name": "prod.credit", "version": "1", "source": "models:/m-1", "created": 9}, ""),
    ({"name": "other", "version": "1", "source": "models:/credit/3", "created": 9}, "does not allow other"),
]
BOXLESS = r"without a box.*accept_unboxed: true"
#: of the statement: what it says, what the guard's terms are, and why it does not count; empty where it does
STATEMENTS = [
    ({"registry": "test"}, {}, "for registry"),
    ({"passed": False, "outcome": "failed"}, {}, "not an approval"),
    ({"passed": True, "outcome": "inconclusive"}, {}, "not an approval"),
    ({"policy_digest": digest("c")}, {}, "in force is"),
    ({"advisory": True}, {}, "advisory"),
    ({"advisory": True}, {"accept_advisory": True}, ""),
    ({"targets": ()}, {}, "does not allow"),
    ({"targets": (("credit", "staging"),)}, {}, "does not allow"),
    ({"targets": (("*", "production"), ("c?edit", "production"), ("credit", "*"))}, {}, "does not allow"),
    ({"targets": (("credit", "PRODUCTION"), ("Credit", "production"))}, {}, "does not allow"),
    ({"task": "classification"}, {"task": "classification"}, ""),
    ({}, {"task": "classification"}, ""),  # signed before tasks were
    ({}, {"task": "regression"}, "judged as classification"),
    ({"policy": "regression-1"}, {"task": "regression"}, ""),
    ({"task": "regression"}, {"task": "classification"}, "regression, and the guard's table says that it is classific"),
    ({"withheld": True}, {}, "the guard's table does not say that of this model"),
    ({"withheld": True}, {"withheld": True}, ""),
    ({"isolation": "bubblewrap 0.11.0 with network"}, {}, ""),
    ({"isolation": "none"}, {"accept_unboxed": True}, ""),
    ({"isolation": "none"}, {"accept_advisory": True}, BOXLESS),
]
UNBOXES = ["none", "", "None", "bubblewrapped 9", "none bubblewrap 1", "BUBBLEWRAP 1", "with network"]


def refused(why):
    """Expect a ``StatementError`` of these words; nothing where there are none."""
    return pytest.raises(StatementError, match=why) if why else contextlib.nullcontext()


@pytest.mark.parametrize(("changes", "why"), ROWS, ids=str)
def test_a_statement_counts_for_its_row_and_copies_that_it_allows(world, changes, why):
    with refused(why):
        assert world.check(row=replace(world.row, **changes)).files == world.claims.files


def test_a_copy_that_is_about_to_be_made_may_have_any_target(world):
    copy = replace(world.row, name="prod.credit", version="", source="models:/credit/3", created=0)
    assert world.check(row=copy, target=None)


@pytest.mark.parametrize(("changes", "terms", "why"), STATEMENTS, ids=str)
def test_what_a_statement_says_is_compared_with_the_terms(world, changes, terms, why):
    with refused(why):
        world.check(world.envelope(**changes).text(), terms=replace(world.terms, **terms))


@pytest.mark.parametrize("isolation", UNBOXES)
def test_a_statement_without_a_box_counts_only_where_the_operator_says_so(world, isolation):
    with pytest.raises(StatementError, match=BOXLESS) as caught:
        world.check(world.envelope(isolation=isolation).text())
    assert str(caught.value) == UNBOXED
    assert not verification.is_sandboxed(isolation)


def test_what_no_longer_counts_of_before_and_a_refusal_counts_without_a_box(world):
    key = fresh_key(world.signer.public_key, days=90, roles=("not_applicable",), models=("*",))
    stated = world.envelope(task="not applicable", isolation="none").text()
    for task in ("classification", ""):
        with refused("may not sign a verdict"):
            world.check(stated, terms=replace(world.terms, task=task), store=TrustStore((key,)))
    refusal = world.envelope(isolation="none", passed=False, outcome="failed").text()
    assert counting(refusal, world.trust, world.now) is not None


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


@pytest.mark.parametrize(("changes", "why", "signed"), TERMS, ids=str)
def test_who_signs_refuses_what_the_guard_would(world, changes, why, signed):
    moments = {name: world.now + by for name, by in changes.items() if isinstance(by, timedelta)}
    claims = replace(world.claims, **{**changes, **moments})
    guard = Guard("prod-registry", world.trust, rows=(ROW,))
    with refused(why):
        verification.check_terms(claims, guard.terms("production", "credit"), world.now)
    with refused(why):
        signing.refuse_unread(claims, types.SimpleNamespace(digest="", name=""), guard, unboxed=False)
    with refused("" if signed else why):
        signing.refuse_unread(replace(claims, passed=False, outcome="failed"), None, guard, unboxed=False)


MINUTES = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("changes", "late", "why"),
    [
        ({}, timedelta(days=30), ""),
        ({}, timedelta(days=30, seconds=1), "expired"),
        ({"signed": 10 * MINUTES}, 0 * MINUTES, "future"),
        ({"decided": 5 * MINUTES}, 0 * MINUTES, ""),
        ({"decided": timedelta(minutes=5, seconds=1)}, 0 * MINUTES, "before its verdict"),
        ({"decided": 60 * MINUTES}, 0 * MINUTES, "before its verdict"),
        ({"expires": timedelta(days=900)}, timedelta(days=91), "counts from"),  # the key's window
        ({"signed": timedelta(days=-1)}, 0 * MINUTES, "counts from"),
    ],
    ids=str,
)
def test_time_decides(world, changes, late, why):
    moments = {name: world.now + by for name, by in changes.items()}
    with refused(why):
        world.check(world.envelope(**moments).text(), now=world.now + late)


def test_a_key_counts_for_its_role_and_models_until_revoked(world):
    key = world.trust.keys[0]
    for changes, why in (
        ({"roles": ("evidence",)}, "may not sign"),
        ({"models": ("debit",), "model_patterns": ()}, "may not sign for model"),
    ):
        with pytest.raises(StatementError, match=why):
            world.check(store=TrustStore((replace(key, **changes),)))
    with pytest.raises(StatementError, match="revoked"):
        world.check(store=world.trust.revoke(key.key_id[:8], at=world.now + timedelta(days=5)))


def test_a_key_signs_for_names_and_for_the_operators_patterns(world):
    """A model whose name is a pattern is matched by none: only what the operator wrote as a pattern is one."""
    key = fresh_key(world.signer.public_key, days=90, models=("debit", "cre*"))
    assert (key.models, key.model_patterns, key.scope) == (("debit",), ("cre*",), ("debit", "cre*"))
    names = ("debit", "credit", "debit2", "de*", "*", "Debit")
    assert [name for name in names if not key.refusal("verdict", name, world.now)] == ["debit", "credit"]


def test_a_strangers_signature_does_not_count_even_under_a_trusted_id(world):
    envelope = world.envelope(new_key())
    with pytest.raises(StatementError, match="no trusted key"):
        world.check(envelope.text())
    (stranger,), trusted = envelope.signatures, world.signer.public_key.keyid
    with pytest.raises(StatementError, match="not valid"):
        world.check(envelope.text().replace(stranger, trusted))
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
    assert TrustStore.load(path) == world.trust
    good = json.loads(path.read_text())
    keys = [{"id": "0" * 64}, {"roles": ["admin"]}, {"public": "AAAA"}, {"extra": 1}, {"models": ["credit", "cre*"]}]
    keys += [{"not_after": "2020-01-01T00:00:00Z"}, {"not_after": "2090-01-01"}]
    changes = [{"schema": "other"}, {"keys": good["keys"] * 2}, *({"keys": [{**good["keys"][0], **k}]} for k in keys)]
    for change in changes:
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(StatementError):
            TrustStore.load(path)


def test_a_private_key_comes_from_file_or_environment(tmp_path, monkeypatch):
    key, path = new_key(), tmp_path / "key.pem"
    path.write_bytes(key.private_bytes)
    path.chmod(0o600)
    assert signer_from(key_file=path).public_key.keyid == key.public_key.keyid
    monkeypatch.setenv(KEY_VARIABLE, key.private_bytes.decode())
    assert signer_from().public_key.keyid == key.public_key.keyid


def test_a_key_of_another_kind_is_trusted_in_pem_and_signs_by_its_address(world, tmp_path, monkeypatch):
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    (tmp_path / "key.pem").write_bytes(CryptoSigner(private).private_bytes)
    store = TrustStore((replace(world.trust.keys[0], public=pem),))
    store.save(tmp_path / "trust.json")
    assert TrustStore.load(tmp_path / "trust.json") == store
    monkeypatch.setenv("CRYPTO_SIGNER_PATH_PREFIX", str(tmp_path))
    address, key_id = Path("file2:key.pem"), store.keys[0].key_id
    signer = signer_from(key_file=address, key_id=key_id, trust=store)
    assert world.check(world.envelope(signer).text(), store=store).name == "credit"
    with pytest.raises(StatementError, match="no trusted key"):
        world.check(world.envelope(signer).text())
    with pytest.raises(UsageError, match="--key-id and --config"):
        signer_from(key_file=address, key_id=key_id)
    with pytest.raises(UsageError, match="cannot be used"):
        signer_from(key_file=Path("awskms:none"), key_id=key_id, trust=store)


def test_an_unusable_key_is_refused_without_repeating_it(tmp_path, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "secret text")
    with pytest.raises(StatementError, match="no unencrypted Ed25519") as caught:
        signer_from()
    assert "secret text" not in str(caught.value)
    path = tmp_path / "key.pem"
    path.write_bytes(new_key().private_bytes)
    path.chmod(0o644)
    with pytest.raises(UsageError, match="read by others"):
        signer_from(key_file=path)
    monkeypatch.delenv(KEY_VARIABLE)
    with pytest.raises(UsageError, match="no signing key"):
        signer_from()


@pytest.mark.parametrize(
    ("decided", "signed", "counts"), [(-60, 10, False), (0, 10, False), (1, 10, True), (5, -60, False), (5, 0, False)]
)
def test_a_copy_is_released_again_only_on_a_later_check_signed_later(world, decided, signed, counts):
    """A refusal is lifted by what was found out since; an older report that is signed once more is not that."""
    refusal = world.envelope(passed=False, outcome="failed", decided=world.now, signed=world.now).text()
    moments = {"decided": world.now + timedelta(seconds=decided), "signed": world.now + timedelta(seconds=signed)}
    with refused("" if counts else "was refused since"):
        check_original(replace(world.claims, **moments), (world.row, refusal), world.trust, world.now)


@pytest.mark.parametrize("now", [None, {}, {"created": 1701}, {"storage": "s3://bucket/m-2"}], ids=str)
def test_a_copy_counts_for_nothing_where_the_row_that_was_signed_is_gone_or_another(world, now):
    """Nobody can tell then whether it was refused since, whatever the present row carries."""
    passed = world.envelope(decided=world.now, signed=world.now).text()
    original = None if now is None else (replace(world.row, **now), passed)
    with refused("" if now == {} else "is gone"):
        check_original(world.claims, original, world.trust, world.now)
