"""Every way around the gate that is known, on a real guarded server: refused, or detected afterwards.

The ways are numbered as in the table that this file writes, which the README's security section repeats.
"""

import base64
import dataclasses
import json
import time
from datetime import timedelta

import mlflow
import pytest
from mlflow.exceptions import MlflowException

from privgate.guard import keys as truststore
from privgate.guard import statement
from privgate.guard.config import Guard
from privgate.guard.doctor import examine
from privgate.guard.signing import TAG

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

IS_PROMPT = "mlflow.prompt.is_prompt"


def refused(call, *arguments, says="privgate", **keywords):
    with pytest.raises(MlflowException, match=says) as caught:
        call(*arguments, **keywords)
    assert "PERMISSION_DENIED" in str(caught.value)
    return str(caught.value)


def released(registry, name, alias="production"):
    try:
        return registry.client.get_model_version_by_alias(name, alias).version
    except MlflowException:
        return None


def test_a_signed_version_is_promoted_and_an_unsigned_one_is_not(registry, name, tmp_path):
    version = registry.log(name)
    said = refused(registry.client.set_registered_model_alias, name, "production", version)
    assert "there is no statement" in said
    assert "privgate check, then privgate sign" in said
    registry.client.set_registered_model_alias(name, "staging", version)  # unprotected

    registry.sign(name, version, tmp_path)
    registry.client.set_registered_model_alias(name, "production", version)

    assert released(registry, name) == version


def test_the_gate_answers_the_probe(registry):
    status, answer = registry.post(
        "/api/2.0/mlflow/registered-models/alias", {"name": "privgate-probe", "alias": "x", "version": "1"}
    )
    assert (status, answer["message"]) == (403, "privgate: probe: gate active")


# 1: aliases, by every door and in every spelling


SPELLED = [
    ("production", "there is no statement"),
    *((alias, "may be taken for") for alias in ("PRODUCTION", "ｐｒｏｄｕｃｔｉｏｎ", "production\n")),
]


@pytest.mark.parametrize("api", ["api", "ajax-api"])
@pytest.mark.parametrize(("alias", "says"), SPELLED)
def test_an_alias_by_rest_in_any_spelling_is_403(registry, name, api, alias, says):
    version = registry.log(name)
    body = {"name": name, "alias": alias, "version": version}
    status, answer = registry.post(f"/{api}/2.0/mlflow/registered-models/alias", body)
    assert status == 403
    assert answer["error_code"] == "PERMISSION_DENIED"
    assert says in answer["message"]
    assert released(registry, name) is None


@pytest.mark.parametrize(
    "path", ["//api/2.0/mlflow/registered-models/alias", "/api/2.0/mlflow/registered-models/%61lias"]
)
def test_an_alias_by_an_odd_path_is_refused(registry, name, path):
    version = registry.log(name)
    status, _ = registry.post(path, {"name": name, "alias": "production", "version": version})
    assert status >= 400
    assert released(registry, name) is None


# 2: stages


@pytest.mark.parametrize("stage", ["Production", "production", "PRODUCTION"])
def test_a_stage_needs_a_statement_too(registry, name, tmp_path, stage):
    version = registry.log(name)
    move = registry.client.transition_model_version_stage
    refused(move, name, version, stage)
    status, _ = registry.post(
        "/ajax-api/2.0/mlflow/model-versions/transition-stage",
        {"name": name, "version": version, "stage": stage, "archive_existing_versions": True},
    )
    assert status == 403
    registry.sign(name, version, tmp_path, targets=((name, "Production"),))
    assert move(name, version, stage).current_stage == "Production"


# 3: straight into a production model


def test_a_version_enters_a_protected_model_only_as_a_copy_of_a_signed_one(registry, name, tmp_path):
    version = registry.log(name)
    source = registry.client.get_model_version(name, version)
    registry.client.create_registered_model("prod." + name)
    refused(registry.create, "prod." + name, source.source)
    said = refused(registry.client.copy_model_version, f"models:/{name}/{version}", "prod." + name)
    assert "there is no statement" in said
    refused(registry.create, ("prod." + name).upper(), source.source)

    registry.sign(name, version, tmp_path)
    copy = registry.client.copy_model_version(f"models:/{name}/{version}", "prod." + name)
    registry.client.set_registered_model_alias("prod." + name, "production", copy.version)

    assert released(registry, "prod." + name) == copy.version


def test_another_model_does_not_enter_with_the_statement_of_a_signed_one(registry, name, tmp_path):
    good, bad = registry.log(name), registry.log(name, payload="stolen")
    text = registry.sign(name, good, tmp_path)
    registry.client.create_registered_model("prod." + name)
    tags = {TAG: text}
    for source in (f"models:/{name}/{bad}", registry.client.get_model_version(name, bad).source):
        refused(registry.create, "prod." + name, source, tags=tags)
    assert registry.client.search_model_versions(f"name='prod.{name}'") == []


# 4: renaming


def test_a_rename_takes_no_protected_alias_along(registry, name, tmp_path):
    version = registry.log(name)
    registry.sign(name, version, tmp_path)
    registry.client.set_registered_model_alias(name, "production", version)
    refused(registry.client.rename_registered_model, name, name + "-other", says="holds protected alias")
    registry.client.delete_registered_model_alias(name, "production")
    refused(registry.client.rename_registered_model, name, "prod." + name, says="protected models are not renamed")
    registry.client.rename_registered_model(name, name + "-other")
    refused(registry.client.set_registered_model_alias, name + "-other", "production", version)


def test_a_rename_takes_no_protected_stage_along(registry, name, tmp_path):
    version = registry.log(name)
    registry.sign(name, version, tmp_path, targets=((name, "Production"),))
    registry.client.transition_model_version_stage(name, version, "Production")
    refused(registry.client.rename_registered_model, name, name + "-other", says="is in stage Production")


# 5: prompts: what a subject says of itself excepts nothing


def test_what_calls_itself_a_prompt_needs_a_statement_unless_the_operator_excepts_its_name(registry, name, site):
    store = registry.client._get_registry_client().store
    registry.client.create_prompt(name)
    registry.client.create_prompt_version(name, "Hello {{ name }}")
    registry.client.create_prompt(f"prompt.{name}")
    registry.client.create_prompt_version(f"prompt.{name}", "Hello {{ name }}")
    version, tag = registry.log(f"{name}-2"), {"key": IS_PROMPT, "value": "true"}
    for path, more in (("registered-models/set-tag", {}), ("model-versions/set-tag", {"version": version})):
        assert registry.post(f"/api/2.0/mlflow/{path}", {"name": f"{name}-2", **more, **tag})[0] == 200
    for model in (name, f"{name}-2", f"prompt.{name}"):
        said = refused(store.set_registered_model_alias, model, "production", "1", says="there is no statement")
        assert "pass by a pattern under 'except'" in said
        refused(store.set_prompt_alias, model, "production", "1")
    text = site.config.read_text()
    try:
        site.config.write_text(text + '  except: ["prompt.*"]\n')
        registry.client.set_prompt_alias(f"prompt.{name}", "production", 1)
        answers = [a for a in examine(Guard.load(site.config), tracking_uri=registry.address) if name in a.text]
        refused(store.set_registered_model_alias, name, "production", "1")
    finally:
        site.config.write_text(text)
    assert [(a.state, "needs no statement" in a.text) for a in answers] == [("fine", True)]
    (wrong,) = [a.text for a in examine(Guard.load(site.config), tracking_uri=registry.address) if name in a.text]
    assert f"models:/prompt.{name}/1 as 'production' is released but does not verify" in wrong
    registry.client.delete_prompt_alias(f"prompt.{name}", "production")


# 5b: names: one that could be read as two is released as none

ODD = ["Kredit Pr\u00fcfung", "\u0441redit", "credit\u200b", "-credit", "credit@production", "[c]redit", "x" * 257]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_an_odd_name_is_released_as_nothing_and_its_other_writes_pass(quiet, tmp_path, odd):
    if len(odd) > 256:
        refused(quiet.client.create_registered_model, odd, says="name has 257 characters, at most 256 may be")
        return
    version = quiet.log(odd)
    quiet.client.set_registered_model_alias(odd, "staging", version)
    said = refused(quiet.client.set_registered_model_alias, odd, "production", version)
    assert "rename it" in said
    assert said.count("privgate") >= 1
    look = [a.text for a in examine(Guard.load(quiet.site.config), tracking_uri=quiet.address) if a.state == "look"]
    assert [text for text in look if f"model {odd!a}: it can hold nothing that is protected" in text]


def test_another_spelling_of_a_protected_name_is_protected_too_and_what_only_looks_alike_is_not(quiet):
    version = quiet.log("credit")
    source = quiet.client.get_model_version("credit", version).source
    for alike in ("PROD.credit", "\uff50rod.credit"):
        quiet.client.create_registered_model(alike)
        refused(quiet.create, alike, source)
    quiet.client.create_registered_model("pr0d.credit")
    quiet.create("pr0d.credit", source)
    quiet.client.set_registered_model_alias("credit", "pr0duction", version)
    look = [a.text for a in examine(Guard.load(quiet.site.config), tracking_uri=quiet.address)]
    assert [text for text in look if "'PROD.credit': it is another spelling of what is protected" in text]


def test_what_is_too_long_is_refused_before_anything_is_done(registry, name):
    began, huge = time.monotonic(), "x" * 1_000_000
    registry.client.create_registered_model(name)
    store = registry.client._get_registry_client().store
    for call in (
        lambda: store.create_registered_model(huge),
        lambda: store.rename_registered_model(name, huge),
        lambda: store.set_registered_model_alias(name, huge, "1"),
        lambda: store.delete_registered_model_alias(huge, "production"),
    ):
        refused(call, says="characters, at most 256 may be")
    assert time.monotonic() - began < 10


# 6: delete and create again


def test_a_recreated_row_does_not_inherit_an_approval(registry, name, tmp_path):
    version = registry.log(name)
    text = registry.sign(name, version, tmp_path)
    source = registry.client.get_model_version(name, version).source
    registry.client.delete_registered_model(name)
    assert registry.log(name, payload="stolen") == version  # numbers start again
    registry.client.set_model_version_tag(name, version, TAG, text)
    refused(registry.client.set_registered_model_alias, name, "production", version)

    registry.client.delete_registered_model(name)
    registry.client.create_registered_model(name)
    again = registry.create(name, source, tags={TAG: text})
    said = refused(registry.client.set_registered_model_alias, name, "production", again.version)
    assert "deleted and created again" in said


# 7: forged and replayed statements


def test_a_tag_that_is_no_statement_is_refused(registry, name):
    version = registry.log(name)
    for text in ("passed", "{}", '{"payload": "", "payloadType": "", "signatures": []}'):
        refused(registry.client.set_model_version_tag, name, version, TAG, text)
    registry.client.set_model_version_tag(name, version, "privgate.outcome", "passed")  # display only
    refused(registry.client.set_registered_model_alias, name, "production", version)


def test_a_statement_by_a_stranger_is_refused(registry, name, tmp_path):
    version = registry.log(name)
    claims = registry.claims(name, version, tmp_path)
    forged = json.loads(registry.text(claims, truststore.new_key()))
    for key in (forged["signatures"][0]["keyid"], registry.site.signer.public_key.keyid):
        forged["signatures"][0]["keyid"] = key
        refused(registry.client.set_model_version_tag, name, version, TAG, json.dumps(forged))
    # smuggled in with the version, where the store does not look until it matters
    source = registry.client.get_model_version(name, version).source
    made = registry.create(name, source, tags={TAG: json.dumps(forged)})
    refused(registry.client.set_registered_model_alias, name, "production", made.version)


def test_an_edited_statement_is_refused(registry, name, tmp_path):
    version = registry.log(name)
    said = json.loads(registry.text(registry.claims(name, version, tmp_path, passed=False, outcome="failed")))
    body = json.loads(base64.b64decode(said["payload"]))
    body["predicate"]["verificationResult"] = "PASSED"
    body["predicate"][statement.EXTENSION]["outcome"] = "passed"
    said["payload"] = base64.b64encode(json.dumps(body).encode()).decode()
    refused(registry.client.set_model_version_tag, name, version, TAG, json.dumps(said), says="not valid")


REPLAYED = [
    ({"registry": "another-registry"}, "for registry"),
    ({"passed": False, "outcome": "failed"}, "not an approval"),
    ({"policy_digest": "sha256:" + "c" * 64}, "in force is"),
    ({"targets": (("other", "production"),)}, "does not allow"),
    ({"created": 1}, "deleted and created again"),
    ({"advisory": True}, "advisory"),
]


@pytest.mark.parametrize(("changes", "why"), REPLAYED)
def test_a_statement_that_says_something_else_promotes_nothing(registry, name, tmp_path, changes, why):
    version = registry.log(name)
    registry.sign(name, version, tmp_path, **changes)
    refused(registry.client.set_registered_model_alias, name, "production", version, says=why)


def test_an_expired_statement_promotes_nothing(registry, name, tmp_path):
    version = registry.log(name)
    honest = registry.claims(name, version, tmp_path)
    past = dataclasses.replace(honest, expires=honest.decided - timedelta(seconds=1))
    registry.client.set_model_version_tag(name, version, TAG, registry.text(past))
    refused(registry.client.set_registered_model_alias, name, "production", version, says="expired")


def test_the_statement_of_a_released_version_stays(registry, name, tmp_path):
    version = registry.log(name)
    registry.sign(name, version, tmp_path)
    registry.client.delete_model_version_tag(name, version, TAG)  # not released yet
    registry.sign(name, version, tmp_path)
    registry.client.set_registered_model_alias(name, "production", version)
    refused(registry.client.delete_model_version_tag, name, version, TAG, says="released on it")


# 10: direct access, 11: a stock client


def test_a_stock_client_meets_the_gate_on_the_server(registry, name, tmp_path):
    version = registry.log(name)
    mlflow.set_tracking_uri(registry.address)
    try:
        refused(mlflow.MlflowClient().set_registered_model_alias, name, "production", version)
    finally:
        mlflow.set_tracking_uri(None)
