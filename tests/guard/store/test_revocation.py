"""A statement that is revoked: the server refuses it at once, verify and doctor say what rests on it."""

import time
from datetime import timedelta

import pytest
from click.testing import CliRunner
from mlflow.exceptions import MlflowException

from privgate.cli.guard import revoke
from privgate.errors import StatementError
from privgate.guard import statement
from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.verification import verify
from privgate.registry.named import TAG

pytestmark = pytest.mark.server


def test_an_older_approval_of_a_revoked_version_does_not_count_either(registry, site, name):
    version, client = registry.log(name), registry.client
    earlier, uri = statement.now() - timedelta(minutes=5), f"models:/{name}/{version}"
    kept = registry.sign(name, version, signed=earlier, decided=earlier)
    registry.release(name, version, alias="production")
    with site.restored():
        options = ["--trust", str(site.folder / "trust.json"), "--tracking-uri", registry.address]
        ran = CliRunner().invoke(revoke, [uri, *options, "--reason", "withdrawn"])
        assert (ran.exit_code, f"{uri} is revoked" in ran.output) == (0, True), ran
        guard = Guard.load(site.config)
        with pytest.raises(StatementError, match="revoked"):
            verify(uri, guard, target="production", tracking_uri=registry.address)
        wrong = [a.text for a in examine(guard, tracking_uri=registry.address) if a.state == "wrong"]
        assert any(uri in text and "withdrawn" in text for text in wrong)
        client.delete_registered_model_alias(name, "production")
        client.delete_model_version_tag(name, version, TAG)
        with pytest.raises(MlflowException, match="revoked"):
            client.set_model_version_tag(name, version, TAG, kept)
        copy = client.create_model_version(name, uri, tags={TAG: kept}).version
        with pytest.raises(MlflowException, match="revoked"):
            client.set_registered_model_alias(name, "production", copy)
        assert dict(client.get_registered_model(name).aliases) == {}
        time.sleep(1.1)
        registry.release(name, version, alias="production")  # checked and signed again, it counts
        assert verify(uri, Guard.load(site.config), target="production", tracking_uri=registry.address)


def test_what_the_signer_took_back_is_not_put_back_by_somebody_who_kept_it(registry, name):
    version, client = registry.log(name), registry.client
    earlier = statement.now() - timedelta(minutes=5)
    kept = registry.sign(name, version, signed=earlier, decided=earlier)
    client.set_registered_model_alias(name, "production", version)
    refusal = registry.claims(name, version, passed=False, outcome="failed")
    client.set_model_version_tag(name, version, TAG, registry.text(refusal))
    client.delete_registered_model_alias(name, "production")
    with pytest.raises(MlflowException, match="signed later"):
        client.set_model_version_tag(name, version, TAG, kept)
    with pytest.raises(MlflowException, match="takes an approval back"):
        client.delete_model_version_tag(name, version, TAG)
    with pytest.raises(MlflowException, match="not an approval"):
        client.set_registered_model_alias(name, "production", version)
    with pytest.raises(MlflowException, match="no later check than the one that refused"):
        registry.sign(name, version, decided=refusal.decided, signed=statement.now() + timedelta(seconds=2))
    with pytest.raises(MlflowException, match="refused in the second in which this was signed"):
        registry.sign(name, version, signed=refusal.signed, decided=refusal.signed)
    time.sleep(1.1)
    registry.sign(name, version)
    client.set_registered_model_alias(name, "production", version)
