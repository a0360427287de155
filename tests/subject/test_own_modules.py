"""What training leaves in the modules of a recipe is put back, and what it needs stays."""

import importlib
import json
import math
import sys
import types

import pytest

from privgate import Recipe
from privgate.subject import sources
from privgate.subject.own_modules import States, names_in, own_functions

SOURCE = """
from functools import lru_cache

SEEN, ORDER, KNOWN, MEAN = {}, [], set(), None

class Net:
    shared = 0
    kinds = []

@lru_cache
def slow(x):
    return ORDER[:]

def train(X, y, *, seed, known=[], named={}):
    global MEAN, NEW
    import json
    MEAN = NEW = X
    SEEN[X], Net.shared, Net.more = y, X, X
    for kept in (ORDER, known, Net.kinds):
        kept.append(X)
    KNOWN.add(X)
    named[X] = y
    return slow(0), json
"""


def recipe(name):
    module = types.ModuleType(name)
    exec(compile(SOURCE, "/elsewhere/script.py", "exec"), vars(module))  # as cloudpickle makes it, in no file
    return types.SimpleNamespace(functions=[module.train]), module


@pytest.mark.parametrize("name", ["script", "__main__"])
def test_what_a_training_keeps_is_put_back(name):
    made, module = recipe(name)
    before = States.now(made)
    module.train(1, 2, seed=0)
    before.restore()

    kept = (module.SEEN, module.ORDER, module.KNOWN, module.MEAN, module.Net.shared, module.Net.kinds)
    assert kept == ({}, [], set(), None, 0, [])
    assert not hasattr(module.Net, "more")
    assert not hasattr(module, "NEW")
    assert module.train.__defaults__ is None
    assert module.train.__kwdefaults__ == {"known": [], "named": {}}
    module.ORDER.append(3)
    assert module.slow(0) == [3]  # and is not remembered


def test_modules_that_were_imported_meanwhile_stay():
    made, module = recipe("script")
    before = States.now(made)
    module.math = math
    before.restore()
    assert module.math is math


def test_attributes_are_no_names_that_a_function_reads():
    made, _ = recipe("script")
    assert {f.__name__ for f in own_functions(made)} == {"train", "slow"}
    assert names_in((lambda X: X.mean(len)).__code__) == {"len"}


STORED = """
import json
import numpy as np
from sklearn.linear_model import LogisticRegression

TABLE = json.loads('{"a": 0.123456789, "b": 0.987654321}')
MEAN = 0.0
MEAN = np.float64(1234567) / 7
KEPT = {}

def train(X, y, *, seed):
    KEPT.setdefault("first", len(X))
    return LogisticRegression(random_state=seed).fit(X - MEAN + TABLE["a"] + KEPT["first"], y)
"""


def test_a_recipe_that_is_read_back_from_storage_is_looked_at_as_well(tmp_path, monkeypatch):
    """As every check of a registered model does it: nothing is at hand but names and sources."""
    home, root = tmp_path / "home", tmp_path / "root"
    home.mkdir()
    (home / "stored_recipe_of_a_test.py").write_text(STORED)
    monkeypatch.syspath_prepend(str(home))
    fit = importlib.import_module("stored_recipe_of_a_test").train
    recipe = Recipe(fit, seed=1)
    sources.write(recipe.snapshot, root)
    monkeypatch.delitem(sys.modules, "stored_recipe_of_a_test")

    back = Recipe.read(json.loads(json.dumps(recipe.payload)), root)
    (train,) = (f for f in own_functions(back) if f.__name__ == "train")
    before = States.now(back)
    train.__globals__["KEPT"]["first"] = 3
    before.restore()
    assert train.__globals__["KEPT"] == {}
