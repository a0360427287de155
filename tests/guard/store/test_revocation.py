"""A statement that is revoked: the server refuses it at once, verify and doctor say what rests on it."""

import pytest
from mlflow.exceptions import MlflowException

from privgate.errors import StatementError
from privgate.guard import statement
from privgate.guard.config import Guard
from privgate.guard.doctor import examine
from privgate.guard.signing import TAG
from privgate.guard.verifying import verify

pytestmark = pytest.mark.server


def test_a_revoked_statement_releases_nothing_and_is_named_by_doctor(registry, site, name, tmp_path):
    version = registry.log(name)
    registry.release(name, version, tmp_path)
    registry.client.set_registered_model_alias(name, "production", version)
    uri = f"models:/{name}/{version}"
    assert verify(uri, Guard.load(site.config), target="production", tracking_uri=registry.address)
    text = registry.client.get_model_version(name, version).tags[TAG]
    payload = statement.payload_digest(statement.Envelope.parse(text).payload)
    before = site.trust
    site.save(before.revoke_statement(payload, at=statement.now(), note="the data were withdrawn"))
    try:
        guard = Guard.load(site.config)
        with pytest.raises(StatementError, match="revoked"):
            verify(uri, guard, target="production", tracking_uri=registry.address)
        with pytest.raises(MlflowException, match="revoked"):  # the server reads its trust store again by itself
            registry.client.set_registered_model_alias(name, "production", version)
        wrong = [a.text for a in examine(guard, tracking_uri=registry.address) if a.state == "wrong"]
        assert any(uri in text and "the data were withdrawn" in text for text in wrong)
        # signed again, it is another statement
        registry.release(name, version, tmp_path / "again", levels=("PRIVGATE_AGAIN",))
        registry.client.set_registered_model_alias(name, "production", version)
        assert verify(uri, guard, target="production", tracking_uri=registry.address)
    finally:
        site.save(before)
