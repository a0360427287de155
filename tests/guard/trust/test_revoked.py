"""A statement that was revoked counts nowhere: at the guard, at verify, at renewal."""

import json
from datetime import timedelta

import pytest
from click.testing import CliRunner

from privgate.cli.guard import revoke
from privgate.errors import StatementError, UsageError
from privgate.guard.keys import TrustStore
from privgate.guard.statement import Envelope, payload_digest
from tests.guard.trust.conftest import digest

DIGEST = digest("5")


def test_a_revoked_statement_counts_in_no_writing_and_says_why(world):
    envelope = world.envelope()
    named = payload_digest(envelope.payload)
    assert world.check(envelope.text()).passed
    store = world.trust.revoke_statement(named, at=world.now, note="the data were withdrawn")
    twice = Envelope(envelope.payload, envelope.signatures * 2).text()
    for text in (envelope.text(), twice, json.dumps(json.loads(envelope.text()), indent=3)):
        with pytest.raises(StatementError, match=r"verdict statement was revoked on .*: the data were withdrawn"):
            world.check(text, store=store)
    with pytest.raises(StatementError, match="evidence statement was revoked"):  # by its own digest
        store.verify(envelope, "evidence", model="credit", moments=(world.now,))
    # another statement of the same key and version counts
    assert world.check(world.envelope(report=DIGEST).text(), store=store).passed


def test_the_store_keeps_it_and_older_readers_refuse_such_a_store(world, tmp_path):
    path = tmp_path / "trust.json"
    store = world.trust.revoke_statement(DIGEST, at=world.now, note="why")
    assert store.revoke_statement(DIGEST, at=world.now) == store
    version = world.trust.revoke_version("models:/credit/33", at=world.now)
    for kept, schema in ((world.trust, "v1"), (store, "v2"), (version, "v2")):
        kept.save(path)
        assert TrustStore.load(path) == kept
        assert json.loads(path.read_text())["schema"] == f"privgate/trust/{schema}"


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
    path, held, envelope = tmp_path / "trust.json", tmp_path / "verdict.dsse.json", world.envelope()
    world.trust.save(path)
    held.write_text(envelope.text())
    for what in (str(held), DIGEST):
        options = [what, "--trust", str(path), "--reason", "no\nmore"]
        assert CliRunner().invoke(revoke, options, standalone_mode=False).exception is None
    store, named = TrustStore.load(path), payload_digest(envelope.payload)
    assert [(r.statement, r.note) for r in store.revoked] == [(named, "no more"), (DIGEST, "no more")]
    with pytest.raises(StatementError, match="revoked"):
        world.check(envelope.text(), store=store)


@pytest.mark.parametrize("content", [None, b"{}", b"\xff", b"[" * 9000])
def test_what_is_no_statement_is_not_revoked(world, tmp_path, content):
    path, held = tmp_path / "trust.json", tmp_path / "x"
    world.trust.save(path)
    if content is not None:
        held.write_bytes(content)
    ended = CliRunner().invoke(revoke, [str(held), "--trust", str(path), "--reason", "x"], standalone_mode=False)
    assert isinstance(ended.exception, (UsageError, StatementError))
    assert TrustStore.load(path) == world.trust


@pytest.mark.parametrize(
    ("subject", "ago", "changes", "counts"),
    [
        ("models:/credit/3", 0, {}, False),
        ("models:/credit/3", 0, {"report": DIGEST}, False),
        ("models:/credit/3", 2, {"decided": timedelta()}, True),  # of a later check
        ("models:/credit/3", 2, {}, False),  # signed since, of a check that the revocation was about
        ("models:/credit/33", 0, {}, True),
    ],
    ids=str,
)
def test_everything_signed_about_a_version_is_revoked_and_nothing_later(world, subject, ago, changes, counts):
    store = world.trust.revoke_version(subject, at=world.now - timedelta(seconds=ago), note="wrong")
    given = {k: world.now + v if isinstance(v, timedelta) else v for k, v in changes.items()}
    text = world.envelope(**given).text()
    if counts:
        assert world.check(text, store=store).passed
        return
    with pytest.raises(StatementError, match=r"revoked on .*: wrong"):
        world.check(text, store=store)


@pytest.mark.parametrize(
    "subject", ["credit/3", "models:/credit", "models:/credit/x", "models:/a/b/3", "models:/*/३", ""]
)
def test_a_revoked_version_is_named_exactly(world, subject):
    with pytest.raises(StatementError, match="revoked statement"):
        world.trust.revoke_version(subject, at=world.now)
