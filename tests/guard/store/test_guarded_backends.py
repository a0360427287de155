"""The guard over PostgreSQL, with passwords, workspaces, several workers, webhooks, and when it is itself broken."""

import base64
from concurrent.futures import ThreadPoolExecutor

import mlflow
import pytest
from mlflow.exceptions import MlflowException

from privgate.guard import statement
from privgate.guard.signing import TAG

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]


def test_the_gate_holds_over_postgresql(on_postgres, name, tmp_path):
    registry = on_postgres
    version = registry.log(name)
    for _ in range(8):  # both workers
        status, answer = registry.post(
            "/api/2.0/mlflow/registered-models/alias", {"name": name, "alias": "production", "version": version}
        )
        assert (status, answer["error_code"]) == (403, "PERMISSION_DENIED")
    with pytest.raises(MlflowException, match="no statement"):
        registry.client.copy_model_version(f"models:/{name}/{version}", "prod." + name)

    registry.sign(name, version)
    registry.client.set_registered_model_alias(name, "production", version)
    copy = registry.client.copy_model_version(f"models:/{name}/{version}", "prod." + name)
    registry.client.set_registered_model_alias("prod." + name, "production", copy.version)

    assert registry.client.get_model_version_by_alias("prod." + name, "production").version == copy.version


def test_a_recreated_row_on_postgresql_inherits_nothing(on_postgres, name, tmp_path):
    registry = on_postgres
    version = registry.log(name)
    text = registry.sign(name, version)
    registry.client.delete_registered_model(name)
    registry.log(name)
    registry.client.set_model_version_tag(name, version, TAG, text)
    with pytest.raises(MlflowException, match="refused"):
        registry.client.set_registered_model_alias(name, "production", version)


@pytest.mark.slow
def test_no_rename_on_postgresql_carries_a_promotion_to_another_name(on_postgres, name, tmp_path):
    """Two workers, where there are two, know of each other only by the database."""
    registry, client, carried = on_postgres, on_postgres.client, []
    for number in range(10):
        old, new = f"{name}-old-{number}", f"{name}-new-{number}"
        version = registry.log(old)
        registry.sign(old, version)
        calls = [
            (client.set_registered_model_alias, old, "production", version),
            (client.rename_registered_model, old, new),
        ]
        with ThreadPoolExecutor(2) as pool:
            ends = [done.exception() for done in [pool.submit(*call) for call in calls]]
        assert all(isinstance(end, MlflowException | None) for end in ends)
        assert None in ends  # one of both is done
        for held in client.search_registered_models(f"name='{new}'"):
            carried += list(held.aliases)
    assert carried == []


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["uvicorn", "gunicorn"])
def test_passwords_stay_and_the_gate_holds_for_admins_too(tmp_path, site, running_mlflow, workers, registry_type):
    pytest.importorskip("flask_wtf", reason="MLflow's basic-auth app needs Flask-WTF (mlflow[auth])")
    auth = tmp_path / "auth.ini"
    auth.write_text(
        "[mlflow]\ndefault_permission = READ\n"
        f"database_uri = sqlite:///{tmp_path}/auth.db\nadmin_username = admin\nadmin_password = of-this-test-alone\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    env = {**site.env, "MLFLOW_AUTH_CONFIG_PATH": str(auth), "MLFLOW_FLASK_SERVER_SECRET_KEY": "of this test"}
    options = ["--app-name", "basic-auth", "--registry-store-uri", f"privgate:sqlite:///{tmp_path}/registry.db"]
    if workers == "gunicorn":
        options += ["--gunicorn-opts", "--timeout 60"]
    with running_mlflow(tmp_path, *options, env=env) as address:
        registry = registry_type(address, site)
        admin = {"Authorization": "Basic " + base64.b64encode(b"admin:of-this-test-alone").decode()}
        add_version(registry, admin)
        body = {"name": "m", "alias": "production", "version": "1"}
        assert registry.post("/api/2.0/mlflow/registered-models/alias", body)[0] == 401
        status, answer = registry.post("/api/2.0/mlflow/registered-models/alias", body, headers=admin)
        assert (status, "there is no statement" in answer["message"]) == (403, True), answer


def add_version(registry, headers):
    """Create model m with one version of nothing, by REST."""
    assert registry.post("/api/2.0/mlflow/registered-models/create", {"name": "m"}, headers=headers)[0] == 200
    body = {"name": "m", "source": "s3://bucket/model"}
    status, answer = registry.post("/api/2.0/mlflow/model-versions/create", body, headers=headers)
    assert status == 200, answer


@pytest.mark.slow
def test_workspaces_keep_the_gate(tmp_path, site, running_mlflow, registry_type):
    env = {**site.env, "MLFLOW_ENABLE_WORKSPACES": "true"}
    options = ("--registry-store-uri", f"privgate:sqlite:///{tmp_path}/tracking.db")
    with running_mlflow(tmp_path, *options, env=env) as address:
        registry = registry_type(address, site)
        headers = {"X-MLFLOW-WORKSPACE": "default"}
        add_version(registry, headers)
        body = {"name": "m", "alias": "production", "version": "1"}
        status, answer = registry.post("/api/2.0/mlflow/registered-models/alias", body, headers=headers)
        assert (status, "there is no statement" in answer["message"]) == (403, True), answer


def test_webhooks_can_be_registered_and_deleted_beside_the_gate(registry):
    from mlflow.entities.webhook import WebhookAction, WebhookEntity, WebhookEvent

    made = registry.client.create_webhook(
        "wake", "https://93.184.216.34/hook", [WebhookEvent(WebhookEntity.MODEL_VERSION_TAG, WebhookAction.SET)]
    )
    assert made.webhook_id in {w.webhook_id for w in registry.client.list_webhooks()}
    registry.client.delete_webhook(made.webhook_id)  # loses wake-ups, never the gate


def test_the_gate_at_the_client_protects_that_client(mlflow_server, site, name, monkeypatch, registry_type):
    for key, value in site.env.items():
        monkeypatch.setenv(key, value)
    plain = registry_type(mlflow_server, site)
    version = plain.log(name)
    gated = mlflow.MlflowClient(mlflow_server, registry_uri=f"privgate:{mlflow_server}")
    with pytest.raises(MlflowException, match="no statement"):
        gated.set_registered_model_alias(name, "production", version)


# the guard itself broken: nothing gets through


@pytest.fixture
def breakable(site):
    """The configuration of the guarded server, for a test to break; repaired afterwards."""
    config, keys = site.config.read_text(), site.trust
    yield site
    site.config.write_text(config)
    site.save(keys)


def test_a_broken_or_missing_configuration_refuses_and_a_repaired_one_needs_no_restart(
    registry, breakable, name, tmp_path
):
    site = breakable
    version = registry.log(name)
    registry.sign(name, version)
    good = site.config.read_text()

    def promote():
        registry.client.set_registered_model_alias(name, "production", version)

    for broken in (good + "surprise: true\n", good.replace("dtp-1", "no-such-policy"), "}{", None):
        site.config.unlink() if broken is None else site.config.write_text(broken)
        with pytest.raises(MlflowException, match=f"privgate: alias 'production' of '{name}' version 1 refused"):
            promote()
    site.config.write_text(good)
    promote()

    # revoking a key counts at once
    before = site.trust
    site.save(before.revoke(site.signer.public_key.keyid, at=statement.now()))
    with pytest.raises(MlflowException, match="revoked"):
        promote()
    (site.folder / "trust.json").write_text("{")
    with pytest.raises(MlflowException, match="refused"):
        promote()


@pytest.mark.slow
def test_files_are_read_in_the_call_path_where_the_operator_asks(registry, breakable, name, tmp_path, guarded_folder):
    version = registry.log(name)
    registry.sign(name, version)
    breakable.config.write_text(breakable.config.read_text() + "check_files: true\n")
    registry.client.set_registered_model_alias(name, "production", version)
    model_id = registry.client.get_model_version(name, version).source.rpartition("/")[2]
    stored = next((guarded_folder / "artifacts").rglob(f"{model_id}/artifacts/weights.json"))
    stored.write_text('"stolen"')
    with pytest.raises(MlflowException, match="not those that were checked"):
        registry.client.set_registered_model_alias(name, "production", version)


@pytest.mark.slow
def test_a_server_without_configuration_does_not_start(tmp_path, running_mlflow):
    options = ("--registry-store-uri", f"privgate:sqlite:///{tmp_path}/registry.db")
    with pytest.raises(pytest.fail.Exception, match="did not start"), running_mlflow(tmp_path, *options):
        pass
    assert "set PRIVGATE_GUARD to its path" in (tmp_path / "server.log").read_text()
