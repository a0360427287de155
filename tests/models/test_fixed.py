"""First steps that learn nothing: they do what scikit-learn's would with the declared ranges and categories."""

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

from privgate import Domain, Recipe, TrainingData
from privgate.errors import SubjectError
from privgate.models import FixedOneHot, FixedScaler
from privgate.subject.domain import Column

FRAME = pd.DataFrame(
    {
        "age": [17, 90, 41, 55],
        "work": ["private", "state", "private", None],
        "pay": [0.5, np.nan, 2.5, 1.0],
        "member": [True, False, True, True],
    }
)
STATED = {"age": (17, 90), "work": ["private", "state", "none", None], "pay": (0, 4, None), "member": [False, True]}
DOMAIN, LABELS = Domain.read(STATED), [0, 1, 0, 1]


def pipeline(domain=DOMAIN):
    steps = make_column_transformer((FixedOneHot(domain), ["work", "member"]), (FixedScaler(domain), ["age", "pay"]))
    return make_pipeline(steps, LogisticRegression())


def test_they_do_what_the_library_does_with_the_same_ranges_and_categories():
    known = FRAME[["work", "member"]].iloc[:3]
    theirs = OneHotEncoder(categories=[["private", "state", "none"], [False, True]], sparse_output=False)
    ours = FixedOneHot({"work": ["private", "state", "none"], "member": [False, True]})
    np.testing.assert_array_equal(ours.fit(known).transform(known), theirs.fit(known).transform(known))
    ends = MinMaxScaler().fit(pd.DataFrame({"age": [17, 90]}))
    scaled = FixedScaler(DOMAIN).fit_transform(FRAME[["age"]])
    np.testing.assert_allclose(scaled, ends.transform(FRAME[["age"]]), rtol=0, atol=1e-15)


def test_they_are_cloned_piped_and_recorded_without_a_warning():
    recipe = Recipe(pipeline())
    again = Recipe.read(json.loads(json.dumps(dict(recipe.payload))), None)
    assert again.digest == recipe.digest
    assert again.library_estimator[0].transformers[0][1].domain == DOMAIN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        repr(pipeline())
        made, read = (clone(p).fit(FRAME, LABELS) for p in (pipeline(), again.library_estimator))
        np.testing.assert_array_equal(made.predict_proba(FRAME), read.predict_proba(FRAME))
    table = made[:-1].transform(FRAME)
    np.testing.assert_array_equal(table[3], [0, 0, 0, 1, 0, 1, 38 / 73, 0.25, 0])
    np.testing.assert_array_equal(table[1, 6:], [1, 0, 1])


def test_what_lies_outside_the_declaration_is_that_end_or_zeros():
    beyond, odd = pd.DataFrame({"age": [-5, 1e9]}), pd.DataFrame({"work": ["astronaut"]})
    assert FixedScaler(DOMAIN).fit(FRAME[["age"]]).transform(beyond).tolist() == [[0.0], [1.0]]
    assert not FixedOneHot(DOMAIN).fit(FRAME[["work"]]).transform(odd).any()
    with pytest.raises(ValueError, match="not declared"):
        FixedOneHot(DOMAIN, unknown="error").fit(FRAME[["work"]]).transform(odd)


@pytest.mark.parametrize(
    ("step", "columns", "said"),
    [
        (FixedScaler(DOMAIN), ["work"], "belongs to FixedOneHot"),
        (FixedOneHot(DOMAIN), ["age"], "belongs to FixedScaler"),
        (FixedScaler({"age": (0, 1)}), ["age", "pay"], "'pay' is not in the declared domain"),
        (FixedScaler({"age": 3}), ["age"], "give \\(low, high\\)"),
        (FixedScaler([]), ["age"], "no column is declared"),
        (FixedOneHot({"work": ["a", "a"]}), ["work"], "twice"),
        (FixedOneHot(DOMAIN, unknown="drop"), ["work"], "unknown must be"),
        (FixedScaler({"pay": (0, 9)}), ["pay"], "missing values; declare them"),
        (FixedOneHot({"work": ["private"]}), ["work"], "put None"),
    ],
)
def test_a_wrong_declaration_is_one_sentence(step, columns, said):
    with pytest.raises(ValueError, match=said):
        step.fit_transform(FRAME[columns])


def test_missing_values_of_every_kind_are_one_category():
    held = pd.DataFrame({"work": pd.Series(["a", None, np.nan, pd.NA], dtype=object)})
    for kind in (object, "string", "category"):
        made = FixedOneHot({"work": ["a", None]}).fit_transform(held.astype(kind))
        np.testing.assert_array_equal(made, [[1, 0], [0, 1], [0, 1], [0, 1]])


def test_nothing_is_read_off_data():
    with pytest.raises(ValueError, match="give a Domain, the ends"):
        Domain.read(FRAME)
    with pytest.raises(ValueError, match="nobody has confirmed"):  # as 0.2 recorded it
        Domain.from_payload({**DOMAIN.payload(), "proposed": True})


@pytest.mark.parametrize(
    ("X", "domain", "said"),
    [
        (FRAME[["age"]], {"age": (0, 9), "pay": (0, 1)}, "'pay' is in one of them only"),
        (FRAME[["age", "pay"]], {"pay": (0, 9), "age": (0, 1)}, "order differs"),
        (np.zeros((4, 1)), {"age": (0, 9)}, "no DataFrame"),
    ],
)
def test_named_columns_are_those_of_the_frame(X, domain, said):
    with pytest.raises(SubjectError, match=said):
        TrainingData(X, LABELS, domain=domain, one_record_each=True)


def test_a_domain_of_named_columns_is_read_back_and_has_a_box_where_all_are_numbers():
    data = TrainingData(FRAME, LABELS, domain=DOMAIN, one_record_each=True)
    assert Domain.from_payload(json.loads(json.dumps(data.domain.payload()))) == DOMAIN
    numbers = TrainingData(FRAME[["age"]], LABELS, domain={"age": (17, 90)}, one_record_each=True)
    assert numbers.domain.box == ((17.0, 90.0),)


def test_a_column_that_an_earlier_version_stored_is_found():
    assert pickle.loads(b"cprivgate.models.columns\nColumn\n.") is Column
