"""A model without training data of its owner's: who says so, with which key, and where that counts."""

import re
from dataclasses import replace

import mlflow
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from privgate import Policy, log_model
from privgate.__main__ import run
from privgate.errors import DigestMismatchError, StatementError
from privgate.guard import checks, not_applicable, signing, statement
from privgate.guard.guard_config import Guard
from privgate.guard.truststore import KNOWN, fresh_key
from privgate.guard.verifying import verify

WHY = "an agent whose prompts we wrote; its language model is the vendor's"
POLICY = "schema: privgate/policy/v1\nname: agents\nversion: '1'\nextends: release-1\nnot_applicable: true\n"
TABLE = """schema: privgate/guard/v2
registry: r
trust: trust.json
protected: {aliases: [production]}
releases:
  - {models: "agent*", task: not applicable, policy: agents.yaml}
  - {models: "credit*", task: classification, policy: agents.yaml}
"""


class Agent(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return ["answer"] * len(model_input)


@pytest.fixture
def agent(registry, tmp_path):
    (tmp_path / "agents.yaml").write_text(POLICY)
    mlflow.pyfunc.log_model(name="agent", python_model=Agent(), registered_model_name="agent", pip_requirements=[])
    return registry


def logged(model, name):
    how = {"serialization_format": "cloudpickle", "pip_requirements": []}  # to infer these takes a process and seconds
    mlflow.sklearn.log_model(model, name="model", registered_model_name=name, **how)


def guard(tmp_path, signer, roles=(checks.ROLES[0], "not_applicable")):
    (tmp_path / "guard.yaml").write_text(TABLE)
    key = fresh_key(signer.public, days=9, roles=roles, models=("*",))
    checks.TrustStore((key,)).save(tmp_path / "trust.json")
    return Guard.load(tmp_path / "guard.yaml")


def signed(name, signer, **more):
    given = {"reason": WHY, "by": "Ada Lovelace", "policy": Policy.load("agents.yaml"), "registry": "r", **more}
    return not_applicable.sign(f"models:/{name}/1", signer, **given)


def test_a_statement_says_who_and_why_and_counts_where_the_table_takes_it(agent, tmp_path):
    signer = checks.new_key()
    made = signed("agent", signer)
    signing.attach_statement(made)

    found = verify("models:/agent/1", guard(tmp_path, signer), target="production")
    assert (found.claims.task, found.claims.levels) == ("not applicable", ("PRIVGATE_NOT_APPLICABLE",))
    assert WHY in made.report.decode()
    assert "Ada Lovelace" in made.report.decode()
    assert '"numbers"' in made.report.decode(), "the file was looked at"


def test_it_counts_where_another_model_was_revoked_and_is_never_renewed(agent, tmp_path):
    signer = checks.new_key()
    signing.attach_statement(signed("agent", signer))
    held = guard(tmp_path, signer)
    revoked = replace(held, trust=held.trust.revoke_version("models:/other/7", at=statement.now()))

    assert verify("models:/agent/1", revoked, target="production").n_files
    with pytest.raises(StatementError, match="state it again"):
        signing.renew("models:/agent/1", signer, policy=Policy.load("agents.yaml"), guard=held)


@pytest.mark.attack("22 something else stands in MLflow's note", "sign --not-applicable", "refused")
def test_a_note_of_another_version_is_signed_by_nobody(agent, tmp_path):
    folder = next(tmp_path.glob("artifacts/models/*/artifacts"))
    note = folder / "registered_model_meta"
    note.write_text("model_name: agent\nmodel_version: '1'\n")
    signed("agent", checks.new_key())
    note.write_text("model_name: agent\nmodel_version: '2'\n")
    with pytest.raises(DigestMismatchError, match="about the model itself"):
        signed("agent", checks.new_key())


@pytest.mark.quick(1)
@pytest.mark.parametrize("roles", [("evidence", "verdict"), ("verdict",), ("evidence",)])
def test_a_key_without_the_role_states_nothing(agent, tmp_path, roles):
    signer = checks.new_key()
    signing.attach_statement(signed("agent", signer))

    with pytest.raises(StatementError, match="may not sign a not_applicable"):
        verify("models:/agent/1", guard(tmp_path, signer, roles), target="production")


def test_the_role_signs_no_verdict_and_a_model_that_is_to_be_judged_needs_one(agent, tmp_path):
    signer = checks.new_key()
    logged(LogisticRegression().fit(np.eye(4), [0, 1, 0, 1]), "credit")
    signing.attach_statement(signed("credit", signer))
    with pytest.raises(StatementError, match="says that it is classification"):
        verify("models:/credit/1", guard(tmp_path, signer, KNOWN), target="production")

    terms = checks.Terms("r", Policy.load("agents.yaml").digest)
    row, text = checks.row_and_statement(mlflow.MlflowClient(), "credit", "1")
    trust = guard(tmp_path, signer, KNOWN).trust
    with pytest.raises(StatementError, match="to be judged"):  # a policy by hand, or a guard without a table
        checks.check(text, trust, row, terms, target="production", now=statement.now())


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"reason": "none"}, "say why"),
        ({"by": " "}, "who says so"),
        ({"policy": Policy.load("release-1")}, "lets nobody state"),
    ],
)
def test_nothing_is_stated_without_a_reason_a_name_and_a_policy_that_allows_it(agent, more, said):
    with pytest.raises(StatementError, match=said):
        signed("agent", checks.new_key(), **more)


def test_what_keeps_records_or_says_how_it_was_trained_is_judged(agent, data, recipe):
    logged(KNeighborsClassifier().fit(np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 2), "neighbours")
    with pytest.raises(StatementError, match="keeps records"):
        signed("neighbours", checks.new_key())
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    with pytest.raises(StatementError, match="records how it was trained"):
        signed("credit", checks.new_key())


def test_from_the_command_line(agent, tmp_path, capsys):
    key = tmp_path / "key.pem"
    key.write_bytes(checks.new_key().pem())
    key.chmod(0o600)
    command = ["sign", "--not-applicable", "--model", "models:/agent/1", "--policy", "agents.yaml"]
    command += ["--registry-id", "r", "--key", str(key), "--by", "Ada Lovelace"]

    assert run([*command, "--reason", WHY]) == 0
    assert "holds no training data of its owner's" in capsys.readouterr().out
    assert run(command) == 4
    assert run(["sign", "--not-applicable", "--policy", "agents.yaml", "--registry-id", "r"]) == 2
    assert run(["check", "models:/agent/1", "--policy", "release-1"]) in {2, 4}
    assert re.search(r"has no recipe.*--not-applicable --model models:/agent/1", capsys.readouterr().err, re.DOTALL)
