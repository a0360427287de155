"""Promotion with coins that nobody chose, and promotion that goes on where it was interrupted."""

import json
import sys

import mlflow
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from privgate import Recipe, TrainingData, log_model
from privgate.__main__ import run
from privgate.cli import check
from privgate.errors import UsageError
from privgate.registry import load_subject, redrawn

KEY = b"k" * 32
RNG = np.random.default_rng(1)
X = RNG.normal(size=(40, 3))
DATA = TrainingData(X, (X[:, 0] > 0).astype(int))


@pytest.fixture
def forest(registry, monkeypatch):
    monkeypatch.setenv("PRIVGATE_LEDGER_KEY", KEY.decode())
    log_model(Recipe(RandomForestClassifier(5), seed=3), DATA, registered_model_name="forest", store="artifacts")
    return load_subject("models:/forest/1")


def test_the_seed_follows_from_key_data_and_code_and_not_from_the_recorded_one(forest):
    seed = redrawn.drawn_seed(forest, KEY)
    log_model(Recipe(RandomForestClassifier(5), seed=4), DATA, registered_model_name="forest", store="artifacts")
    log_model(Recipe(RandomForestClassifier(6), seed=3), DATA, registered_model_name="forest", store="artifacts")
    half = TrainingData(X[:20], DATA.y[:20])
    log_model(Recipe(RandomForestClassifier(5), seed=3), half, registered_model_name="forest", store="artifacts")

    assert redrawn.drawn_seed(load_subject("models:/forest/2"), KEY) == seed
    others = {redrawn.drawn_seed(load_subject(f"models:/forest/{v}"), KEY) for v in (3, 4)}
    assert len({seed, redrawn.drawn_seed(forest, b"o" * 32), *others}) == 4


def test_a_version_is_drawn_once_and_is_the_model_of_its_seed(forest):
    made = redrawn.retrain(forest, KEY)
    new = load_subject(made)

    assert made == redrawn.retrain(forest, KEY) == "models:/forest/2"
    assert new.recipe.seed == redrawn.drawn_seed(forest, KEY)
    assert new.data.digest == forest.data.digest
    model = RandomForestClassifier(5, random_state=new.recipe.seed).fit(X, DATA.y)
    assert (new.model.load().predict_proba(X) == model.predict_proba(X)).all()


def test_another_model_under_the_tag_is_not_taken_for_it(forest):
    log_model(
        Recipe(RandomForestClassifier(5), seed=9),
        DATA,
        registered_model_name="forest",
        store="artifacts",
        tags={redrawn.TAG: "models:/forest/1"},
    )

    assert redrawn.retrain(forest, KEY) == "models:/forest/3"


def test_a_recipe_without_a_seed_has_no_coins_to_draw(registry, monkeypatch):
    from privgate.subject.subject import Subject

    subject = Subject.local(Recipe(RandomForestClassifier(5)), DATA)
    with pytest.raises(UsageError, match="records no seed"):
        redrawn.retrain(subject, KEY)


def test_promote_judges_and_promotes_the_version_that_was_drawn(forest, registry, tmp_path, capsys):
    (tmp_path / "open.yaml").write_text(
        "schema: privgate/policy/v1\nname: open\nversion: '1'\nrules:\n"
        "  - {metric: pdtp, aggregate: quantile, q: 0.5, max: 20, reason: a test, source: none}\n"
    )
    ended = run(["promote", "models:/forest/1", "--to", "production", "--retrain", "--policy", "open.yaml"])
    told = capsys.readouterr()

    assert "models:/forest/2 is models:/forest/1 with coins that the key draws" in told.err
    assert "models:/forest/2" in told.out, told.err
    if ended == 0:
        assert mlflow.MlflowClient(registry).get_model_version_by_alias("forest", "production").version == 2


def signer(seen, code=0):
    script = f"import sys, json; open({str(seen)!r}, 'w').write(json.dumps(sys.argv[1:])); sys.exit({code})"
    return f'{sys.executable} -c "{script}" {{uri}} {{nonce}}'


def test_an_approved_report_that_waits_is_handed_to_the_signer_and_nothing_is_checked_again(
    registry, data, recipe, tmp_path, monkeypatch, capsys
):
    """What stopped between a check and the signature goes on there; about other data or another policy it does not."""
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    nonce, seen = "n" * 32, tmp_path / "asked"
    command = ["promote", "models:/credit/1", "--to", "production", "--policy", "dtp-1"]
    assert run(["check", "models:/credit/1", "--policy", "dtp-1", "--nonce", nonce, "--no-attach"]) == 0
    monkeypatch.setattr(check, "_checked", lambda *_, **__: pytest.fail("it was checked again"))

    assert run([*command, "--sign-command", signer(seen, code=3)]) == 4
    assert "production" not in mlflow.MlflowClient(registry).get_registered_model("credit").aliases
    assert run([*command, "--sign-command", signer(seen)]) == 0
    assert json.loads(seen.read_text()) == ["models:/credit/1", nonce]
    assert "nothing is trained" in capsys.readouterr().err
    assert mlflow.MlflowClient(registry).get_registered_model("credit").aliases == {"production": 1}

    for other in (["--nonce", "o" * 32], ["--policy", "pdtp-1"]):
        with pytest.raises(pytest.fail.Exception):
            run([*command, "--sign-command", signer(seen), *other])
