"""The guard over PostgreSQL, before a plain server, and when it is itself broken."""

import mlflow
import pytest
from mlflow.exceptions import MlflowException

from privgate.guard import statement
from privgate.guard.signing import TAG
from tests.guard.store.conftest import Registry

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]


def test_the_gate_holds_over_postgresql(on_postgres, name):
    registry, client = on_postgres, on_postgres.client
    version = registry.log(name)
    body = {"name": name, "alias": "production", "version": version}
    for _ in range(8):  # both workers
        status, answer = registry.post("/api/2.0/mlflow/registered-models/alias", body)
        assert (status, answer["error_code"]) == (403, "PERMISSION_DENIED")
    with pytest.raises(MlflowException, match="no statement"):
        client.copy_model_version(f"models:/{name}/{version}", "prod." + name)

    text = registry.sign(name, version)
    client.set_registered_model_alias(name, "production", version)
    copy = client.copy_model_version(f"models:/{name}/{version}", "prod." + name)
    client.set_registered_model_alias("prod." + name, "production", copy.version)
    assert client.get_model_version_by_alias("prod." + name, "production").version == copy.version

    for model in ("prod." + name, name):
        client.delete_registered_model(model)
    registry.log(name)
    client.set_model_version_tag(name, version, TAG, text)
    with pytest.raises(MlflowException, match="refused"):  # a row made again inherits nothing
        client.set_registered_model_alias(name, "production", version)


def test_webhooks_can_be_registered_and_deleted_beside_the_gate(registry):
    from mlflow.entities.webhook import WebhookAction, WebhookEntity, WebhookEvent

    event = WebhookEvent(WebhookEntity.MODEL_VERSION_TAG, WebhookAction.SET)
    webhook = registry.client.create_webhook("wake", "https://93.184.216.34/hook", [event]).webhook_id
    assert webhook in {w.webhook_id for w in registry.client.list_webhooks()}
    registry.client.delete_webhook(webhook)  # loses wake-ups, never the gate


def test_the_gate_at_the_client_protects_that_client(mlflow_server, site, name, monkeypatch):
    monkeypatch.setenv("PRIVGATE_GUARD", str(site.config))
    version = Registry(mlflow_server, site).log(name)
    gated = mlflow.MlflowClient(mlflow_server, registry_uri=f"privgate:{mlflow_server}")
    with pytest.raises(MlflowException, match="no statement"):
        gated.set_registered_model_alias(name, "production", version)


# the guard itself broken: nothing gets through


def test_a_broken_or_missing_configuration_refuses_and_a_repaired_one_needs_no_restart(registry, site, name):
    version = registry.log(name)
    registry.sign(name, version)

    def promote():
        registry.client.set_registered_model_alias(name, "production", version)

    def refuse(says):
        with pytest.raises(MlflowException, match=says):
            promote()

    with site.restored():
        good = site.config.read_text()
        for broken in (good + "surprise: true\n", good.replace("dtp-1", "no-such-policy"), "}{", None):
            site.config.unlink() if broken is None else site.config.write_text(broken)
            refuse(f"privgate: alias 'production' of '{name}' version 1 refused")
        site.config.write_text(good)
        promote()
        site.save(site.trust.revoke(site.signer.public_key.keyid, at=statement.now()))  # counts at once
        refuse("revoked")
        (site.folder / "trust.json").write_text("{")
        refuse("refused")


@pytest.mark.slow
def test_files_are_read_in_the_call_path_where_the_operator_asks(registry, site, name):
    version = registry.log(name)
    registry.sign(name, version)
    with site.restored():
        site.config.write_text(site.config.read_text() + "check_files: true\n")
        registry.client.set_registered_model_alias(name, "production", version)
        (registry.folder / "artifacts" / registry.place(name, version) / "weights.json").write_text('"stolen"')
        with pytest.raises(MlflowException, match="not those that were checked"):
            registry.client.set_registered_model_alias(name, "production", version)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "guarded", "says"),
    [
        ("sqlite:///{folder}/registry.db", False, "set PRIVGATE_GUARD to its path"),
        (
            "mysql+pymysql://u:of-this-test@127.0.0.1:1/db",
            True,
            "the guard cannot answer for a registry of kind 'mysql', which may take different names for equal",
        ),
    ],
)
@pytest.mark.attack("8 a database that takes names for equal", "server start", "refused")
def test_such_a_server_ends_with_one_sentence(tmp_path, site, running_mlflow, store, guarded, says):
    """Nothing listens there: it is refused before anything is opened, and no password is told."""
    options = ("--registry-store-uri", f"privgate:{store.format(folder=tmp_path)}")
    running = running_mlflow(tmp_path, *options, env=site.env if guarded else {})
    with pytest.raises(pytest.fail.Exception, match="did not start"), running:
        pass
    log = (tmp_path / "server.log").read_text()
    assert says in log
    assert "of-this-test" not in log
