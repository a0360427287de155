"""A statement that was revoked counts nowhere: at the guard, at verify, at renewal."""

import json
from datetime import timedelta

import pytest
from click.testing import CliRunner

from privgate.cli.keys import revoke
from privgate.errors import StatementError
from privgate.guard import statement
from privgate.guard.keys import TrustStore
from privgate.guard.statement import Envelope

DIGEST = "sha256:" + "5" * 64


def payload(envelope):
    return statement.payload_digest(envelope.payload)


def test_a_revoked_statement_does_not_count_and_says_why(world):
    envelope = world.envelope()
    assert world.check(envelope.text()).passed
    store = world.trust.revoke_statement(payload(envelope), at=world.now, note="the data were withdrawn")
    with pytest.raises(StatementError, match=r"statement was revoked on .*: the data were withdrawn"):
        world.check(envelope.text(), store=store)
    # another statement of the same key and version counts
    assert world.check(world.envelope(report=DIGEST).text(), store=store).passed


def test_other_writings_of_the_same_payload_are_revoked_too(world):
    envelope = world.envelope()
    store = world.trust.revoke_statement(payload(envelope), at=world.now)
    twice = Envelope(envelope.payload, envelope.signatures * 2).text()
    spaced = json.dumps(json.loads(envelope.text()), indent=3)
    for text in (twice, spaced):
        with pytest.raises(StatementError, match="revoked"):
            world.check(text, store=store)


def test_evidence_is_revoked_by_its_own_digest(world):
    envelope = world.envelope()
    store = world.trust.revoke_statement(payload(envelope), at=world.now)
    with pytest.raises(StatementError, match="evidence statement was revoked"):
        store.verify(envelope, "evidence", model="credit", moments=(world.now,))


def test_the_store_keeps_it_and_older_readers_refuse_such_a_store(world, tmp_path):
    path = tmp_path / "trust.json"
    world.trust.save(path)
    assert json.loads(path.read_text())["schema"] == "privgate/trust/v1"
    store = world.trust.revoke_statement(DIGEST, at=world.now, note="why")
    assert store.revoke_statement(DIGEST, at=world.now) == store
    store.save(path)
    assert TrustStore.load(path) == store
    assert json.loads(path.read_text())["schema"] == "privgate/trust/v2"


@pytest.mark.parametrize(
    "change",
    [
        {"revokd": []},
        {"revoked": [{"statement": "5" * 64, "at": "2026-01-01T00:00:00Z"}]},
        {"revoked": [{"statement": DIGEST, "at": "yesterday"}]},
        {"revoked": [{"statement": DIGEST}]},
        {"revoked": [DIGEST]},
        {"revoked": 3},
    ],
)
def test_a_store_whose_revocations_cannot_be_read_trusts_nobody(world, tmp_path, change):
    path = tmp_path / "trust.json"
    world.trust.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(StatementError, match=r"trust store|revoked|time"):
        TrustStore.load(path)


def test_the_command_revokes_by_file_and_by_digest(world, tmp_path):
    path, held = tmp_path / "trust.json", tmp_path / "verdict.dsse.json"
    world.trust.save(path)
    envelope = world.envelope()
    held.write_text(envelope.text())
    for what in (str(held), DIGEST):
        options = [what, "--trust", str(path), "--reason", "no\nmore"]
        assert CliRunner().invoke(revoke, options, standalone_mode=False).exception is None
    store = TrustStore.load(path)
    assert [(r.statement, r.note) for r in store.revoked] == [(payload(envelope), "no more"), (DIGEST, "no more")]
    with pytest.raises(StatementError, match="revoked"):
        world.check(envelope.text(), store=store)


@pytest.mark.parametrize("content", [None, b"{}", b"\xff", b"[" * 9000])
def test_what_is_no_statement_is_not_revoked(world, tmp_path, content):
    path, held = tmp_path / "trust.json", tmp_path / "x"
    world.trust.save(path)
    if content is not None:
        held.write_bytes(content)
    found = CliRunner().invoke(revoke, [str(held), "--trust", str(path), "--reason", "x"], standalone_mode=False)
    assert type(found.exception).__name__ in {"UsageError", "StatementError"}
    assert TrustStore.load(path) == world.trust


def test_everything_that_was_signed_about_a_version_is_revoked_and_nothing_that_comes_later(world, tmp_path):
    store = world.trust.revoke_version("models:/credit/3", at=world.now, note="wrong")
    with pytest.raises(StatementError, match=r"revoked on .*: wrong"):
        world.check(world.envelope().text(), store=store)
    with pytest.raises(StatementError, match="revoked"):
        world.check(world.envelope(report=DIGEST).text(), store=store)
    before = world.trust.revoke_version("models:/credit/3", at=world.now - timedelta(seconds=2))
    assert world.check(world.envelope(decided=world.now).text(), store=before).passed
    with pytest.raises(StatementError, match="revoked"):  # signed since, of a check that the revocation was about
        world.check(world.envelope().text(), store=before)
    other = world.trust.revoke_version("models:/credit/33", at=world.now)
    assert world.check(world.envelope().text(), store=other).passed
    store.save(tmp_path / "trust.json")
    assert TrustStore.load(tmp_path / "trust.json") == store
    assert json.loads((tmp_path / "trust.json").read_text())["schema"] == "privgate/trust/v2"


@pytest.mark.parametrize(
    "subject", ["credit/3", "models:/credit", "models:/credit/x", "models:/a/b/3", "models:/*/३", ""]
)
def test_a_revoked_version_is_named_exactly(world, subject):
    with pytest.raises(StatementError, match="revoked statement"):
        world.trust.revoke_version(subject, at=world.now)
