"""What a registry hook cannot reach: verify and doctor find it, and say what it is."""

from dataclasses import replace
from datetime import timedelta

import mlflow
import pytest

from privgate.errors import PrivgateError
from privgate.guard import keys as truststore
from privgate.guard import statement
from privgate.guard.config import Guard, NamedPolicy
from privgate.guard.diagnosis import examine
from privgate.guard.verification import verify

pytestmark = pytest.mark.server


@pytest.fixture
def guard(site):
    return Guard.load(site.config)


def answers(guard, registry, state):
    return [a.text for a in examine(guard, tracking_uri=registry.address) if a.state == state]


# 10: the database itself, and a second server on it


def test_the_doctor_finds_what_went_around_the_gate(quiet, guard):
    good, bad = quiet.log("credit"), quiet.log("credit", payload="unsigned")
    quiet.release("credit", good, alias="production")
    assert answers(guard, quiet, "wrong") == []
    fine = answers(guard, quiet, "fine")
    verifies = f"models:/credit/{good} as 'production' verifies"
    for says in ("answered the probe", verifies, "the server refused a probe below one"):
        assert any(says in text for text in fine)

    database = f"sqlite:///{quiet.folder}/tracking.db"
    mlflow.MlflowClient(database, registry_uri=database).set_registered_model_alias("credit", "Production", bad)

    (wrong,) = answers(guard, quiet, "wrong")
    assert f"models:/credit/{bad} as 'Production' is released but does not verify" in wrong
    assert "there is no statement" in wrong
    unguarded = [a.text for a in examine(guard, tracking_uri=database) if a.state == "wrong"]
    assert any("the registry is not guarded" in text for text in unguarded)


def test_the_doctor_finds_what_expires_soon_and_keys_that_do_not_count(quiet, guard, site):
    soon = statement.now().replace(microsecond=0) + timedelta(days=3)
    quiet.release("credit", quiet.log("credit"), alias="production", expires=soon)
    assert any("expires on" in text for text in answers(guard, quiet, "look"))

    drifted = NamedPolicy("strict", "sha256:" + "c" * 64)
    other = replace(guard, rows=tuple(row.model_copy(update={"policy": drifted}) for row in guard.rows))
    assert any("in force is" in text for text in answers(other, quiet, "wrong"))
    ended = replace(site.trust.keys[0], not_after=statement.stamp(statement.now() - timedelta(minutes=1)))
    wrong = answers(replace(guard, trust=truststore.TrustStore((ended,))), quiet, "wrong")
    assert any("no key may sign verdicts now" in text for text in wrong)


def test_a_doctor_without_server_says_so(guard):
    with pytest.raises(PrivgateError, match=r"answer|connect|failed"):
        verify("models:/m/1", guard, tracking_uri="http://127.0.0.1:9")
    wrong = [a for a in examine(guard, tracking_uri="http://127.0.0.1:9") if a.state == "wrong"]
    assert len(wrong) >= 2
