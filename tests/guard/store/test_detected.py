"""What a registry hook cannot reach: verify and doctor find it, and say what it is."""

import shutil
from dataclasses import replace
from datetime import timedelta

import mlflow
import pytest
from requests import HTTPError

from privgate.errors import DigestMismatchError, PrivgateError, StatementError, SubjectError
from privgate.guard import keys as truststore
from privgate.guard import statement
from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.verification import verify
from tests.guard.store.conftest import Registry

pytestmark = pytest.mark.server


@pytest.fixture
def guard(site):
    return Guard.load(site.config)


def answers(guard, registry, state):
    return [a.text for a in examine(guard, tracking_uri=registry.address) if a.state == state]


def test_a_released_version_verifies_by_alias_and_by_number(registry, guard, name, tmp_path):
    version = registry.log(name)
    registry.release(name, version, alias="production")
    for uri in (f"models:/{name}@production", f"models:/{name}/{version}"):
        assert verify(uri, guard, tracking_uri=registry.address).uri == f"models:/{name}/{version}"
    later = tmp_path / "more" / "later.html"
    later.parent.mkdir()
    later.write_text("x")
    model_id = registry.client.get_model_version(name, version).source.rpartition("/")[2]
    run_id = registry.client.get_logged_model(model_id).tags["privgate.reports_run"]
    registry.client.log_artifacts(run_id, str(later.parent), f"privgate_reports/{model_id}/dtp-1")
    assert verify(f"models:/{name}@production", guard, tracking_uri=registry.address)
    with pytest.raises(HTTPError, match="403"):
        registry.client.log_model_artifacts(model_id, str(later.parent), "privgate/reports/dtp-1")
    assert any("the server refused a probe below one" in text for text in answers(guard, registry, "fine"))
    shutil.copy(later, registry.folder / "artifacts" / registry.place(name, version))  # who has the disk asks nobody
    with pytest.raises(DigestMismatchError, match=r"later\.html"):
        verify(f"models:/{name}@production", guard, tracking_uri=registry.address)


# 9: consumers that bypass the alias


def test_what_is_not_released_does_not_verify_whatever_it_is_called_by(registry, guard, name):
    first, second, bare = (registry.log(name, payload=n) for n in range(3))
    registry.release(name, first, targets=((name, "staging"),))
    registry.sign(name, bare)
    for uri, target, kind, says in (
        (f"models:/{name}/{second}", None, StatementError, "there is no statement"),
        (f"models:/{name}/latest", None, SubjectError, "moving target"),
        (registry.client.get_model_version(name, second).source, None, StatementError, "no registered version"),
        (f"models:/{name}/{first}", "production", StatementError, "does not allow"),
        (f"models:/{name}/{bare}", "production", StatementError, "evidence behind the statement"),
    ):
        with pytest.raises(kind, match=says):
            verify(uri, guard, target=target, tracking_uri=registry.address)


# 10: the database itself, and a second server on it


@pytest.mark.parametrize("by", ["the database", pytest.param("an unguarded server", marks=pytest.mark.slow)])
def test_the_doctor_finds_what_went_around_the_gate(quiet, guard, site, running_mlflow, tmp_path, by):
    good, bad = quiet.log("credit"), quiet.log("credit", payload="unsigned")
    quiet.release("credit", good, alias="production")
    assert answers(guard, quiet, "wrong") == []
    fine = answers(guard, quiet, "fine")
    for says in ("answered the probe", f"models:/credit/{good} as 'production' verifies"):
        assert any(says in text for text in fine)

    database = f"sqlite:///{quiet.folder}/tracking.db"
    if by == "the database":
        mlflow.MlflowClient(database, registry_uri=database).set_registered_model_alias("credit", "Production", bad)
    else:
        with running_mlflow(tmp_path, "--registry-store-uri", database) as address:
            Registry(address, site).client.set_registered_model_alias("credit", "Production", bad)

    (wrong,) = answers(guard, quiet, "wrong")
    assert f"models:/credit/{bad} as 'Production' is released but does not verify" in wrong
    assert "there is no statement" in wrong


def test_the_doctor_says_when_a_server_is_not_guarded(mlflow_server, guard, site):
    assert any("is not guarded" in text for text in answers(guard, Registry(mlflow_server, site), "wrong"))


def test_the_doctor_finds_what_expires_soon_and_keys_that_do_not_count(quiet, guard, site):
    soon = statement.now().replace(microsecond=0) + timedelta(days=3)
    quiet.release("credit", quiet.log("credit"), alias="production", expires=soon)
    assert any("expires on" in text for text in answers(guard, quiet, "look"))

    other = replace(guard, policies={"*": ("strict", "sha256:" + "c" * 64)})  # the policy drifted
    assert any("in force is" in text for text in answers(other, quiet, "wrong"))
    ended = replace(site.trust.keys[0], not_after=statement.stamp(statement.now() - timedelta(minutes=1)))
    wrong = answers(replace(guard, trust=truststore.TrustStore((ended,))), quiet, "wrong")
    assert any("no key may sign verdicts now" in text for text in wrong)


def test_a_doctor_without_server_says_so(guard):
    with pytest.raises(PrivgateError, match=r"answer|connect|failed"):
        verify("models:/m/1", guard, tracking_uri="http://127.0.0.1:9")
    wrong = [a for a in examine(guard, tracking_uri="http://127.0.0.1:9") if a.state == "wrong"]
    assert len(wrong) >= 2
