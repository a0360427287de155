"""Promotion with coins that nobody chose, and promotion that goes on where it was interrupted."""

import sys
from types import SimpleNamespace

import mlflow
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import privgate
from privgate import Recipe, TrainingData, log_model
from privgate.__main__ import run
from privgate.cli import check
from privgate.errors import RegistryError, UsageError
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
    assert redrawn.retrain(new, KEY) == made, "what was drawn is not drawn again"
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
    ended = run(
        ["promote", "models:/forest/1", "--to", "production", "--retrain", "--policy", "open.yaml", "--jobs", "1"]
    )
    told = capsys.readouterr()

    assert "models:/forest/2 is models:/forest/1 with coins that the key draws" in told.err
    assert "models:/forest/2" in told.out, told.err
    if ended == 0:
        assert mlflow.MlflowClient(registry).get_model_version_by_alias("forest", "production").version == 2


def signer(seen, code=0):
    script = f"import sys, json; open({str(seen)!r}, 'w').write(json.dumps(sys.argv[1:])); sys.exit({code})"
    return f'{sys.executable} -c "{script}" {{uri}} {{nonce}}'


@pytest.fixture
def guarded(registry, data, recipe, tmp_path, monkeypatch):
    """A registry that refuses an alias until the signer command was there, and how often a check was made."""
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    monkeypatch.setenv("PRIVGATE_LEDGER_KEY", KEY.decode())
    seen, set_alias, checked = tmp_path / "asked", privgate.registry.promote, check._checked
    made = SimpleNamespace(seen=seen, checks=0)

    def promote(subject, alias, **named):
        if not seen.is_file():
            raise RegistryError("setting alias: privgate: credit@production refused: there is no statement")
        return set_alias(subject, alias, **named)

    def counted(*args, **named):
        made.checks += 1
        return checked(*args, **named)

    monkeypatch.setattr(privgate.registry, "promote", promote)
    monkeypatch.setattr(check, "_checked", counted)
    return made


PROMOTE = ["promote", "models:/credit/1", "--to", "production", "--policy", "dtp-1", "--jobs", "1"]
FAILS = f"{sys.executable} -c 'import sys; sys.exit(3)' {{uri}} {{nonce}}"


def test_an_approved_report_that_waits_is_handed_to_the_signer_and_nothing_is_checked_again(guarded, registry, capsys):
    assert run([*PROMOTE, "--sign-command", FAILS]) == 4
    assert guarded.checks == 1
    assert run([*PROMOTE, "--sign-command", signer(guarded.seen)]) == 0
    assert guarded.checks == 1
    assert "nothing is trained" in capsys.readouterr().err
    assert mlflow.MlflowClient(registry).get_registered_model("credit").aliases == {"production": 1}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / check.WAITING).write_text("0" * 64),
        lambda folder: (folder / check.WAITING).unlink(),
        lambda folder: (folder / "report.json").write_text((folder / "report.json").read_text() + " "),
    ],
)
def test_a_report_that_somebody_planted_or_changed_is_checked_again(guarded, tmp_path, change):
    assert run([*PROMOTE, "--sign-command", FAILS]) == 4
    change(tmp_path / "privgate-report")

    assert run([*PROMOTE, "--sign-command", signer(guarded.seen)]) == 0
    assert guarded.checks == 2


@pytest.mark.quick(1)
@pytest.mark.parametrize("more", [["--nonce", "o" * 32], ["--shadow-models", "32"], ["--policy", "pdtp-1"]])
def test_what_was_asked_otherwise_is_checked_again(guarded, more):
    assert run([*PROMOTE, "--sign-command", FAILS]) == 4
    assert run([*PROMOTE, "--sign-command", signer(guarded.seen), *more]) == 0
    assert guarded.checks == 2


@pytest.mark.slow
def test_a_signer_that_did_not_run_is_asked_again_as_often_as_it_takes(guarded):
    for command in ("exit 255", "exit 127", "kill -9 $$", "exit 255"):
        assert run([*PROMOTE, "--sign-command", f"sh -c '{command}' {{uri}} {{nonce}}"]) == 4
    assert run([*PROMOTE, "--sign-command", "/nowhere/signer {uri} {nonce}"]) == 4
    assert run([*PROMOTE, "--sign-command", signer(guarded.seen)]) == 0
    assert guarded.checks == 1


@pytest.mark.slow
def test_a_signer_that_refuses_twice_is_followed_by_a_check(guarded):
    for checks in (1, 1, 2):
        assert run([*PROMOTE, "--sign-command", FAILS]) == 4
        assert guarded.checks == checks
