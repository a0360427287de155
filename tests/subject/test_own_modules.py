"""What training leaves in the modules of a recipe is put back, and what it needs stays."""

import math
import types

import pytest

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
    return types.SimpleNamespace(training=module.train), module


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
    assert {f.__name__ for f in own_functions(made)} == {"train"}
    assert names_in((lambda X: X.mean(len)).__code__) == {"len"}
