"""What a registry hook cannot reach: verify and doctor find it, and say what it is."""

import shutil

import mlflow
import pytest
from requests import HTTPError

from privgate.errors import DigestMismatchError, PrivgateError, StatementError, SubjectError
from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.verification import verify

pytestmark = pytest.mark.server


@pytest.fixture
def guard(site):
    return Guard.load(site.config)


def answers(guard, registry, state):
    return [a.text for a in examine(guard, tracking_uri=registry.address) if a.state == state]


def test_a_released_version_verifies_by_alias_and_by_number(registry, guard, guarded_folder, name, tmp_path):
    version = registry.log(name)
    registry.release(name, version)
    registry.client.set_registered_model_alias(name, "production", version)
    for uri in (f"models:/{name}@production", f"models:/{name}/{version}"):
        assert verify(uri, guard, tracking_uri=registry.address).uri == f"models:/{name}/{version}"
    later = str(_folder(tmp_path, "later.html"))
    model_id = registry.client.get_model_version(name, version).source.rpartition("/")[2]
    run_id = registry.client.get_logged_model(model_id).tags["privgate.reports_run"]
    registry.client.log_artifacts(run_id, later, f"privgate_reports/{model_id}/dtp-1")
    assert verify(f"models:/{name}@production", guard, tracking_uri=registry.address)
    with pytest.raises(HTTPError, match="403"):
        registry.client.log_model_artifacts(model_id, later, "privgate/reports/dtp-1")
    assert any("the server refused a probe below one" in text for text in answers(guard, registry, "fine"))
    place = registry.client.get_model_version_download_uri(name, version).removeprefix("mlflow-artifacts:/")
    shutil.copy(f"{later}/later.html", guarded_folder / "artifacts" / place)  # whoever has the disk asks nobody
    with pytest.raises(DigestMismatchError, match=r"later\.html"):
        verify(f"models:/{name}@production", guard, tracking_uri=registry.address)


def test_a_release_whose_logged_model_was_deleted_is_found(registry, guard, name, tmp_path):
    version = registry.log(name)
    registry.release(name, version)
    registry.client.set_registered_model_alias(name, "production", version)
    registry.client.delete_logged_model(registry.client.get_model_version(name, version).source.rpartition("/")[2])

    assert any(f"models:/{name}/{version}" in text for text in answers(guard, registry, "wrong"))


def _folder(tmp_path, file):
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / file).write_text("x")
    return folder


# 9: consumers that bypass the alias


def test_an_unsigned_version_does_not_verify_whatever_it_is_called_by(registry, guard, name, tmp_path):
    first, second = registry.log(name), registry.log(name, payload="newer")
    registry.release(name, first)
    with pytest.raises(StatementError, match="there is no statement"):
        verify(f"models:/{name}/{second}", guard, tracking_uri=registry.address)
    with pytest.raises(SubjectError, match="moving target"):
        verify(f"models:/{name}/latest", guard, tracking_uri=registry.address)
    model_id = registry.client.get_model_version(name, second).source
    with pytest.raises(StatementError, match="no registered version"):
        verify(model_id, guard, tracking_uri=registry.address)


def test_a_release_for_one_alias_does_not_verify_as_another(registry, guard, name, tmp_path):
    version = registry.log(name)
    registry.release(name, version, targets=((name, "staging"),))
    with pytest.raises(StatementError, match="does not allow"):
        verify(f"models:/{name}/{version}", guard, target="production", tracking_uri=registry.address)


def test_a_statement_whose_evidence_is_gone_does_not_verify(registry, guard, name, tmp_path):
    version = registry.log(name)
    registry.sign(name, version)
    with pytest.raises(StatementError, match="evidence behind the statement"):
        verify(f"models:/{name}/{version}", guard, target="production", tracking_uri=registry.address)


# 10: the database itself, and a second server on it


def test_the_doctor_finds_what_went_around_the_gate(quiet, guard, tmp_path):
    own = quiet
    good, bad = own.log("credit"), own.log("credit", payload="unsigned")
    own.release("credit", good)
    own.client.set_registered_model_alias("credit", "production", good)
    assert answers(guard, own, "wrong") == []
    assert any("answered the probe" in text for text in answers(guard, own, "fine"))
    assert any(f"models:/credit/{good} as 'production' verifies" in text for text in answers(guard, own, "fine"))

    database = f"sqlite:///{quiet.folder}/tracking.db"
    mlflow.MlflowClient(database, registry_uri=database).set_registered_model_alias("credit", "Production", bad)

    wrong = answers(guard, own, "wrong")
    assert len(wrong) == 1
    assert f"models:/credit/{bad} as 'Production' is released but does not verify" in wrong[0]
    assert "there is no statement" in wrong[0]


def test_the_doctor_says_when_a_server_is_not_guarded(mlflow_server, guard, site, registry_type):
    assert any("is not guarded" in text for text in answers(guard, registry_type(mlflow_server, site), "wrong"))


@pytest.mark.slow
def test_what_a_second_unguarded_server_lets_through_is_found(quiet, guard, site, tmp_path, running_mlflow):
    version = quiet.log("credit")
    with running_mlflow(tmp_path, "--registry-store-uri", f"sqlite:///{quiet.folder}/tracking.db") as address:
        type(quiet)(address, site).client.set_registered_model_alias("credit", "production", version)
    wrong = answers(guard, quiet, "wrong")
    assert len(wrong) == 1
    assert f"models:/credit/{version} as 'production' is released but does not verify" in wrong[0]


def test_the_doctor_finds_what_expires_soon_and_keys_that_do_not_count(quiet, guard, site, tmp_path):
    own = quiet
    from dataclasses import replace
    from datetime import timedelta

    from privgate.guard import keys as truststore
    from privgate.guard import statement

    version = own.log("credit")
    soon = statement.now().replace(microsecond=0) + timedelta(days=3)
    own.release("credit", version, expires=soon)
    own.client.set_registered_model_alias("credit", "production", version)
    assert any("expires on" in text for text in answers(guard, own, "look"))

    other = replace(guard, policies={"*": ("strict", "sha256:" + "c" * 64)})  # the policy drifted
    assert any("in force is" in text for text in answers(other, own, "wrong"))
    key = site.trust.keys[0]
    old = truststore.TrustStore((replace(key, not_after=statement.stamp(statement.now() - timedelta(minutes=1))),))
    wrong = answers(replace(guard, trust=old), own, "wrong")
    assert any("no key may sign verdicts now" in text for text in wrong)


def test_a_doctor_without_server_says_so(guard):
    with pytest.raises(PrivgateError, match=r"answer|connect|failed"):
        verify("models:/m/1", guard, tracking_uri="http://127.0.0.1:9")
    found = [a for a in examine(guard, tracking_uri="http://127.0.0.1:9") if a.state == "wrong"]
    assert len(found) >= 2
