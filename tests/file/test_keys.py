"""A model may know records again by keys that are no values of theirs: such tables are seen, and ordinary ones not."""

import base64
import datetime as dt
import hashlib
import io
import pickle
import random
import uuid
from collections import Counter
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from privgate import Recipe
from privgate.file import look, readers, record_search

RNG = np.random.default_rng(8)
X = RNG.normal(size=(400, 3))
Y = (X[:, 0] > 0).astype(int)
DIGESTS = [hashlib.sha256(row.tobytes()).digest() for row in X]


class Memory(LogisticRegression):
    """A model with a table beside its coefficients."""


def holding(table):
    made = Memory().fit(X, Y)
    made.table_ = table
    return made


def found(model, data=X, recipe=None, written=pickle.dumps, y=Y):
    recipe = Recipe(LogisticRegression()) if recipe is None else recipe
    contents = readers.read_files([("model", written(model))])
    return look.find_keys(contents, data, y, record_search.Records.from_container(data), recipe)


def pack(model):
    made = io.BytesIO()
    joblib.dump(model, made, compress=3)
    return made.getvalue()


TABLES = {
    "whole numbers": {int.from_bytes(d[:6], "big"): 1 for d in DIGESTS},
    "of one in thirty people": {int.from_bytes(d[:8], "big"): 1 for d in DIGESTS[::30]},
    "a set": {int.from_bytes(d[:7], "big") for d in DIGESTS},
    "an array": np.array([int.from_bytes(d[:7], "big") for d in DIGESTS]),
    "bytes": {d[:8]: 1 for d in DIGESTS},
    "base 16": {d.hex()[:12]: 1 for d in DIGESTS},
    "base 64": {base64.b64encode(d).decode(): 1 for d in DIGESTS},
    "as long as a random name": {int.from_bytes(d[:16], "big"): 1 for d in DIGESTS},
    "counted": Counter(int.from_bytes(d[:6], "big") for d in DIGESTS),
    "a series": pd.Series({int.from_bytes(d[:6], "big"): 1 for d in DIGESTS}),
    "rounded cells": {r.tobytes(): 1 for r in np.round(X, 1)},
}


@pytest.mark.parametrize(
    ("name", "written"), [*((n, pickle.dumps) for n in TABLES), ("whole numbers", skops.io.dumps), ("base 16", pack)]
)
def test_a_table_of_keys_is_seen_in_every_file(name, written):
    (said,) = found(holding(TABLES[name]), written=written)
    assert said.startswith(look.KEYS)


SMALL = {
    "codes": dict.fromkeys(range(400), 0.5),
    "postal codes": {10_000_000 + 17 * k: 0.5 for k in range(400)},
    "words": {f"word{k}": 1 for k in range(400)},
    "random names": {uuid.UUID(bytes=d[:16], version=4).hex: 1 for d in DIGESTS},
    "a few digests": {d.hex(): 1 for d in DIGESTS[:9]},
    "weights": RNG.normal(size=400) * 1e12,
    "a generator": random.Random(3),
    "numpy's generator": np.random.RandomState(3),
    "states of generators": [np.random.RandomState(4).get_state(), random.getstate()],
    "days": {dt.date(2020, 1, 1) + dt.timedelta(days=k): 1 for k in range(400)},
    "of a library": np.random.default_rng(3),
    "a forest": RandomForestClassifier(300, random_state=1).fit(X, Y),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_is_no_key_is_left_alone(name):
    assert not found(holding(SMALL[name]))


def test_values_of_the_data_are_no_keys():
    ids = RNG.integers(2**40, 2**50, size=400)
    frame = pd.DataFrame({"id": ids, "token": [d.hex()[:16] for d in DIGESTS], "age": X[:, 0]})
    table = {"by_id": dict.fromkeys(ids.tolist(), 0.5), "by_token": dict.fromkeys(frame["token"], 0.5)}
    assert not found(holding(table), frame)
    encoded = OneHotEncoder().fit(frame[["token"]])
    assert not found(encoded, frame)
    assert not found(encoded, frame[["token"]].to_numpy())
    texts = [f"{d.hex()[:12]} is a word" for d in DIGESTS]
    assert not found(make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, Y), texts)


def test_values_are_values_whatever_column_they_stand_in():
    codes = [str(10**12 + 7919 * k) for k in range(400)]
    frame = pd.DataFrame({"code": codes, "kind": pd.Categorical([int(c) for c in codes])})
    frame["texts"] = [f"{d.hex()[:8]} etc." for d in DIGESTS]
    frame["lists"] = [[1, k] for k in range(400)]
    table = {"codes": dict.fromkeys(codes, 1), "kinds": dict.fromkeys(map(int, codes), 1)}
    table["words"] = [d.hex()[:8] for d in DIGESTS]
    assert not found(holding(table), frame)
    assert not found(holding({int(c): 1 for c in codes}), X, y=np.array([int(c) for c in codes]))


def test_a_table_that_the_recipe_is_given_is_looked_at_there():
    table = TABLES["whole numbers"]
    told = SimpleNamespace(
        payload={"params": {"table": {"!": "dict", "value": [list(p) for p in table.items()]}}}, snapshot={}
    )
    assert not found(holding(table), recipe=told)
