"""An advice is a file: whoever edits it registers nothing that a search does not propose, and gets no traceback."""

import json
import math
import re
import shlex
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from privgate.advice.advice_page import Advice
from privgate.advice.change import Change, Setting, changed
from privgate.advice.point import Point

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.advice import apply
from privgate.advice import apply as applying
from privgate.errors import UsageError
from privgate.policy import Policy


def subject():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(3)
    live = Recipe(make_pipeline(StandardScaler(), LogisticRegression()), seed=0)
    data = TrainingData(rng.normal(size=(20, 2)), np.arange(20) % 2, domain=Domain(box=[(-9.0, 9.0)] * 2))
    # as a registry gives it: nothing that the recipe names is imported
    return Subject.local(Recipe.read(live.payload, None), data)


ABOUT = subject()


def place_of_c():
    from privgate.advice.candidates import present_values

    [(place, _, _)] = present_values(ABOUT)
    return place


def advice(change, monkeypatch, **more):
    """Return advice on one change, its digests those of whatever the file says now."""
    try:
        made = changed(ABOUT, change)
        digests = {"recipe": made.recipe.digest, "data": made.data.digest}
    except Exception:  # noqa: BLE001  a tampered change need not be possible
        digests = {}
    monkeypatch.setattr(applying.registry, "load_subject", lambda *_, **__: ABOUT)
    monkeypatch.setattr(applying.registry, "log_model", lambda *_, **__: pytest.fail("it was registered"))
    points = (
        Point(number=0, change=Change(says="as it stands"), outcome="failed"),
        Point(number=1, change=change, outcome="passed", confirmed="passed", useful=0.9, floor=0.5, **digests),
    )
    about = {"uri": "models:/credit/1", "policy": "pdtp-1", "policy_digest": Policy.load("pdtp-1").digest}
    about |= {"recipe": ABOUT.recipe.digest, "data": ABOUT.data.digest, "measure": "accuracy", "points": points}
    return Advice(**{**about, **more})


def test_what_a_search_proposes_gets_through(monkeypatch):
    good = Change(says="", settings=(Setting(place=place_of_c(), value=0.1),))
    assert apply.before(ABOUT, good) == ""
    assert apply.after(ABOUT.recipe, changed(ABOUT, good).recipe) == ""
    for change in (Change(says="", shards=4, dtp=1.0), Change(says="", removed=(0, 19))):
        assert apply.before(ABOUT, change) == ""
        assert apply.after(ABOUT.recipe, changed(ABOUT, change).recipe) == ""


def other(name, value):
    return Change(says="", settings=(Setting(place=(*place_of_c()[:-1], name), value=value),))


@pytest.mark.parametrize(
    "change",
    [
        lambda: Change(says="", settings=(Setting(place=("network",), value=True),)),
        lambda: Change(says="", settings=(Setting(place=(*place_of_c()[:-2], "class"), value="os:system"),)),
        lambda: other("verbose", 1),
        lambda: other("C", "os:system"),
        lambda: other("solver", "liblinear"),
        lambda: Change(says="", settings=(Setting(place=("estimator", "params", "memory"), value="/tmp"),)),
        lambda: Change(says="", settings=(Setting(place=("nowhere", "params", "C"), value=1.0),)),
        lambda: Change(says="", removed=(-1,)),
        lambda: Change(says="", removed=(20,)),
        lambda: Change(says="", removed=(1, 1)),
        lambda: Change(says="", shards=-3, dtp=1.0),
        lambda: Change(says="", shards=4, dtp=float("inf")),
    ],
)
def test_a_change_that_no_search_proposes_is_refused_before_anything_is_trained(change, monkeypatch):
    with pytest.raises(UsageError, match="not what `privgate advise` proposes"):
        applying.apply(advice(change(), monkeypatch), 1)


@pytest.mark.parametrize("numbers", [(0, 99), (0, 0), (1, 0), ()])
def test_numbers_that_do_not_count_are_no_advice(numbers, monkeypatch, tmp_path):
    good = advice(Change(says=""), monkeypatch)
    points = [{**good.payload()["points"][0], "number": n} for n in numbers]
    path = tmp_path / "advice.json"
    path.write_text(json.dumps({**good.payload(), "points": points}))
    with pytest.raises(UsageError, match="numbered from 0"):
        Advice.read(path)


def test_a_policy_that_changed_since_is_said(monkeypatch):
    now = advice(Change(says=""), monkeypatch)
    assert applying.changed_policy(now) == ""
    assert "has changed since" in applying.changed_policy(now.model_copy(update={"policy_digest": "sha256:0"}))
    assert "not found here" in applying.changed_policy(now.model_copy(update={"policy": "gone.yaml"}))


def test_recipe_or_data_that_changed_since_are_refused(monkeypatch):
    now = advice(Change(says=""), monkeypatch)
    for part in ("recipe", "data"):
        with pytest.raises(UsageError, match="is not what was advised on"):
            applying.apply(now.model_copy(update={part: "sha256:0"}), 1)


@pytest.mark.parametrize("name", ["credit", "my model", "a;touch b", "$(touch b)", "it's", "two\nlines", "`b`", "-h"])
def test_a_printed_command_is_taken_by_a_shell_as_the_words_that_are_meant(name, tmp_path):
    words = ["printf", "%s|", f"models:/{name}/1", "--policy", name]
    line = applying.typed(words, f"sqlite:///{name}.db")
    assert "\n" not in line
    taken = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    if name.isprintable():
        assert taken == "|".join([*words[2:], "--tracking-uri", f"sqlite:///{name}.db", ""])
    assert not list(tmp_path.iterdir())


def test_what_is_said_to_come_next_after_applying_is_one_command_whatever_names_are(monkeypatch, tmp_path):
    from click.testing import CliRunner

    from privgate.cli import advise

    good = advice(Change(says="x\n  rm -r /"), monkeypatch, policy="a; touch b")
    good.write(tmp_path / "advice.json")
    info = SimpleNamespace(registered_model_version="4")
    monkeypatch.setattr(applying, "apply", lambda *_, **__: ("my $(touch b)", info))
    ended = CliRunner().invoke(advise.apply, ["1", "--out", str(tmp_path)], standalone_mode=False)
    assert ended.exception is None, ended.exception
    last = ended.output.splitlines()[-1]
    wanted = ["privgate", "promote", "models:/my $(touch b)/4", "--to", "production", "--policy", "a; touch b"]
    assert shlex.split(last) == wanted
    assert not any(line.strip().startswith("rm") for line in ended.output.splitlines())


def test_data_below_a_store_are_named_whatever_its_folder_is_called(monkeypatch):
    where = "file:///people's data/a b/sha256-1"
    monkeypatch.setattr(applying, "data_place", lambda _: where)
    moved = Point(number=3, change=Change(says=""), outcome="passed", recipe="r", data="another")
    words = shlex.split(applying.command(ABOUT, moved, "out folder"))
    assert words == ["privgate", "apply", "3", "--out", "out folder", "--store", "file:///people's data/a b"]
    same = moved.model_copy(update={"data": ABOUT.data.digest})
    assert "--store" not in applying.command(ABOUT, same, "out")


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ({"useful": 0.75, "floor": math.inf}, "answers everybody the same"),
        ({"useful": 0.76, "floor": 0.77}, "accuracy 0.7600; advice wants more than 0.7700"),
        ({"useful": math.nan, "floor": 0.5}, "what it is good for is not known"),
        ({"useful": 0.9, "floor": math.nan}, "what it is good for is not known"),
    ],
)
def test_what_answers_no_better_than_whoever_ignores_the_features_is_not_applied(use, why, monkeypatch):
    now = advice(Change(says=""), monkeypatch)
    badly = now.points[1].model_copy(update=use)
    assert not badly.stands
    with pytest.raises(UsageError, match=f"change 1 is not advised: .*{re.escape(why)}"):
        applying.apply(now.model_copy(update={"points": (now.points[0], badly)}), 1)
