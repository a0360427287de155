"""The example recipes train the same model again, from their record, and learn something."""

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privgate.registry.log import _as_checked
from privgate.subject import sources
from privgate.subject.recipe import Recipe

RECIPES = Path(__file__).resolve().parents[1] / "examples" / "recipes"
#: an extra of its own (privgate[kinds]), hundreds of MB that dev goes without
NEEDS = {
    "catboost_text": "catboost",
    "keras_network": "keras",
    "lightning_network": "lightning",
    "transformers_trainer": "transformers",
}


def people(n=240):
    """Numbers with gaps beside text with gaps, and a label that depends on both."""
    rng = np.random.default_rng(8)
    age, job = rng.normal(40, 10, n), rng.choice(np.array(["a", "b", "c", None, np.nan], dtype=object), n)
    y = np.where((age > 40) ^ (rng.random(n) < 0.1), "yes", "no")
    return pd.DataFrame({"age": age, "hours": rng.integers(10, 60, n).astype(float), "job": job}), y


@pytest.mark.parametrize("name", sorted(p.stem for p in RECIPES.glob("*.py")))
def test_the_recipe_of_each_library_trains_again_from_its_record(name, tmp_path, monkeypatch):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed: pip install 'privgate[kinds]'")
    monkeypatch.syspath_prepend(str(RECIPES))
    monkeypatch.delitem(sys.modules, name, raising=False)
    recipe = importlib.import_module(name).RECIPE
    X, y = people()
    if name == "transformers_trainer":
        X = pd.Series(np.where(X["age"] > 40, "older ", "younger ") + X["hours"].astype(str) + " hours")
    elif name != "catboost_text":
        X = X[["age", "hours"]]
    classes = np.array(["no", "yes"])
    if name == "skorch_network":
        y = (y == "yes").astype(np.int64)
        classes = np.array([0, 1])
    sources.write(recipe.snapshot, tmp_path)

    with _as_checked(recipe):
        told = recipe.probabilities(recipe.train(X, y, seed=recipe.seed), X, classes)
        read = Recipe.read(json.loads(json.dumps(recipe.payload)), tmp_path)
        again = read.probabilities(read.train(X, y, seed=recipe.seed), X, classes)
        other = read.probabilities(read.train(X, y, seed=11), X, classes)
    del sys.modules[name]

    assert f"{name}.py" in recipe.snapshot
    assert np.array_equal(told, again)
    assert not np.array_equal(told, other)
    assert np.allclose(told.sum(axis=1), 1, atol=1e-5)
    assert (classes[told.argmax(axis=1)] == y).mean() > 0.7
