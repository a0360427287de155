"""Statements "not applicable" that 0.1.0 signed: they count until they expire, where the table takes them."""

import dataclasses
from dataclasses import replace
from datetime import timedelta

import mlflow
import pytest

from privgate import Policy, digest
from privgate.errors import PrivgateWarning
from privgate.guard import keys as truststore
from privgate.guard import signing, statement
from privgate.guard.config import Guard
from privgate.guard.keys import fresh_key, seal
from privgate.guard.verification import verify
from privgate.registry.client import connect, stored_files
from privgate.registry.named import named

POLICY = "schema: privgate/policy/v1\nname: agents\nversion: '1'\nextends: release-1\nnot_applicable: true\n"
TABLE = """schema: privgate/guard/v2
registry: r
trust: trust.json
protected: {aliases: [production]}
releases:
  - {models: "agent*", task: not applicable, policy: agents.yaml}
"""


class Agent(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return ["answer"] * len(model_input)


@pytest.fixture
def policy(registry, tmp_path):
    (tmp_path / "agents.yaml").write_text(POLICY)
    with pytest.warns(PrivgateWarning, match=r"agents.yaml:5: not_applicable is ignored; 0\.1\.0 was the last version"):
        return Policy.load("agents.yaml")


def guard(tmp_path, signer):
    (tmp_path / "guard.yaml").write_text(TABLE)
    key = fresh_key(signer.public_key, days=9, roles=("evidence", "not_applicable"), models=("*",))
    truststore.TrustStore((key,)).save(tmp_path / "trust.json")
    with pytest.warns(PrivgateWarning):
        return Guard.load(tmp_path / "guard.yaml")


def stated(name, policy, signer):
    """Attach what 0.1.0 signed of version 1 of a model, which is registered first."""
    mlflow.pyfunc.log_model(name=name, python_model=Agent(), registered_model_name=name, pip_requirements=[])
    client, moment = connect(None), statement.now().replace(microsecond=0)
    row = found = named(client, f"models:/{name}/1")
    with stored_files(client, row.storage) as stored:
        table = stored.digests(((name, "1"),))
    finding = {"rule": "not_applicable", "outcome": "passed", "message": "an operator: prompts only", "waiver": ""}
    document = {"schema": "privgate/not-applicable/v1", "model": f"models:/{name}/1", "findings": [finding]}
    content = repr(document).encode()
    given = {
        f.name: getattr(row, f.name) for f in dataclasses.fields(row) if f.name in statement.Claims.__annotations__
    }
    given |= {"registry": "r", "name": name, "version": "1", "model_id": found.model_id, "versions": 1, "digests": {}}
    given |= {"policy": policy.name, "policy_digest": policy.digest, "files": digest.of_manifest(table), "passed": True}
    given |= {"report": statement.payload_digest(content), "evidence": "", "outcome": "passed", "advisory": False}
    given |= {"decided": moment, "signed": moment, "expires": moment + timedelta(days=9), "recomputed": ("files",)}
    claims = statement.Claims(**given, targets=((name, "production"),), task=statement.NOT_APPLICABLE)
    evidence = seal(claims.evidence_statement(document, table), signer)
    full = replace(claims, evidence=statement.payload_digest(evidence.payload))
    signing.attach_statement(signing.Signed(full, evidence, seal(full.summary("0.1.0"), signer), content))


def test_a_statement_of_before_counts_where_the_table_takes_it(policy, tmp_path):
    signer = truststore.new_key()
    stated("agent", policy, signer)
    held = guard(tmp_path, signer)
    revoked = replace(held, trust=held.trust.revoke_version("models:/other/7", at=statement.now()))

    assert verify("models:/agent/1", held, target="production").claims.task == "not applicable"
    assert verify("models:/agent/1", revoked, target="production").n_files
