"""The admission recipes, as far as they run without a cluster: their command lines, and conditions on statements."""

import dataclasses
import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from privgate.cli.verify import verify
from privgate.guard import statement
from privgate.guard.statement import VSA_TYPE
from tests.verify.test_distribution import Release

FOLDER = Path(__file__).resolve().parents[2] / "hooks" / "kubernetes"


def read(name):
    (found,) = yaml.safe_load_all((FOLDER / name).read_text())
    return found


def pod(name):
    spec = read(name)["spec"]
    return spec["template"]["spec"] if "template" in spec else spec["predictor"]


@pytest.mark.parametrize("name", ["deployment.yaml", "kserve.yaml"])
def test_the_init_container_hands_over_what_the_server_loads(name):
    spec = pod(name)
    (init,) = spec["initContainers"]
    with verify.make_context("privgate-verify", list(init["args"])) as context:
        given = context.params
    assert given["what"].startswith("models:/")
    mounts = {m["name"]: m["mountPath"] for m in init["volumeMounts"]}
    assert str(given["to"]).startswith(mounts["model"] + "/")
    assert str(given["config"]).startswith(mounts["privgate"] + "/")
    (server,) = spec["containers"]
    (mount,) = server["volumeMounts"]
    assert mount == {"name": "model", "mountPath": mounts["model"], "readOnly": True}
    assert str(given["to"]) in str(server)
    # what is loaded comes from the volume alone: no name, no second download
    assert not re.search(r"models:/|s3://|storageUri", str(server))
    assert {v["name"] for v in spec["volumes"]} == {"model", "privgate"}


@pytest.fixture
def predicate(tmp_path):
    claims = dataclasses.replace(Release(tmp_path).claims, registry="example-registry")

    def made(**changes):
        return dataclasses.replace(claims, **changes).summary("0.1.0")["predicate"]

    return made


def admitted(predicate):
    """Whether the policy's conditions hold, each read as Kyverno reads it: JMESPath over the predicate."""
    jmespath = pytest.importorskip("jmespath", reason="jmespath, which comes with boto3, is not installed")
    (rule,) = read("kyverno.yaml")["spec"]["rules"]
    (images,) = rule["verifyImages"]
    (attestation,) = images["attestations"]
    assert attestation["type"] == VSA_TYPE
    assert images["required"] is True
    held = []
    for condition in attestation["conditions"][0]["all"]:
        expression = re.fullmatch(r"\{\{ (.*) \}\}", condition["key"])[1]
        if difference := re.fullmatch(r"time_diff\(time_now_utc\(\), (.*)\)", expression):
            expires = statement.when(jmespath.search(difference[1], predicate))
            held.append(condition["operator"] == "GreaterThan" and expires > statement.now())
        else:
            assert condition["operator"] == "Equals"
            held.append(jmespath.search(expression, predicate) == condition["value"])
    assert len(held) == 5
    return all(held)


def test_the_policy_admits_what_passed_and_nothing_else(predicate):
    past = statement.now() - timedelta(days=1)
    assert admitted(predicate())
    assert not admitted(predicate(passed=False, outcome="failed"))
    assert not admitted(predicate(expires=past))
    assert not admitted(predicate(registry="another"))
    assert not admitted(predicate(targets=(("credit", "staging"),)))
    assert not admitted({**predicate(), "verifier": {"id": "urn:somebody"}})
