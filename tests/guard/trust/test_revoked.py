"""A statement that was revoked counts nowhere: at the guard, at verify."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from privgate.errors import StatementError
from privgate.guard.keys import Revoked, TrustStore
from privgate.guard.statement import payload_digest, stamp
from tests.guard.trust.conftest import digest

DIGEST = digest("5")


def test_a_revoked_statement_counts_in_no_writing_and_says_why(world):
    envelope = world.envelope()
    named = payload_digest(envelope.payload)
    assert world.check(envelope.text()).passed
    store = replace(world.trust, revoked=(Revoked(named, stamp(world.now), "the data were withdrawn"),))
    for text in (envelope.text(), json.dumps(json.loads(envelope.text()), indent=3)):
        with pytest.raises(StatementError, match=r"verdict statement was revoked on .*: the data were withdrawn"):
            world.check(text, store=store)
    with pytest.raises(StatementError, match="evidence statement was revoked"):  # by its own digest
        store.verify(envelope, "evidence", model="credit", moments=(world.now,))
    # another statement of the same key and version counts
    assert world.check(world.envelope(report=DIGEST).text(), store=store).passed


def test_the_store_keeps_it_and_older_readers_refuse_such_a_store(world, tmp_path):
    path = tmp_path / "trust.json"
    store = replace(world.trust, revoked=(Revoked(DIGEST, stamp(world.now), "why"),))
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
