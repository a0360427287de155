"""A declared list of questions: exact for any model, through every engine, and refused in words where it cannot be."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.errors import SubjectError
from privgate.models import FixedScaler
from privgate.subject.domain import Column
from privgate.theorems import catalogue
from privgate.theorems.closed_form import RefitRequest
from privgate.theorems.theorem import Units
from privgate.theorems.two_models import ListedQuestions, container
from tests.in_process import InProcess
from tests.leaving_out import answer


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 2)), 1)
    return X, np.concatenate([[0, 1, 0, 1], (X[4:, 0] > 0).astype(int)]), np.round(rng.normal(size=(9, 2)) * 2, 1)


def subject_of(model, queries, X, y):
    return Subject.local(
        Recipe(model, seed=0), TrainingData(X, y, domain=Domain(queries=queries), one_record_each=True)
    )


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(max_depth=2, min_samples_leaf=5),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(FixedScaler(Domain(box=((-9.0, 9.0),) * 2)), LogisticRegression(tol=1e-10)),
    ],
)
@pytest.mark.parametrize("box", [None, ((-20.0, 20.0),) * 2])
def test_equals_asking_every_question_of_both_models(model, box):
    X, y, queries = table()
    data = TrainingData(X, y, domain=Domain(queries=queries, box=box), one_record_each=True)
    subject, units = Subject.local(Recipe(model, seed=0), data), np.arange(12)
    found = answer(RefitRequest(subject, units, (0,), InProcess()), changes=True).retrained
    assert (found.row_query == units).all()  # only own records are direct questions
    bound = ListedQuestions().certify(Units(subject, units, found))
    own = Recipe(model, seed=0).library_estimator
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.log(clone(own).fit(X, y).predict_proba(queries))
        for k in units:
            kept = np.arange(len(y)) != k
            change = np.nanmax(np.abs(whole - np.log(clone(own).fit(X[kept], y[kept]).predict_proba(queries))))
            assert bound.lower[k] - 1e-8 <= change <= bound.upper[k] + 1e-8
            assert np.isinf(bound.upper[k]) or bound.upper[k] - bound.lower[k] <= 2e-5
    best, by, _ = catalogue.bound(subject, units, found)
    assert set(by) == {"listed_questions"}
    np.testing.assert_array_equal(best.upper, np.maximum(bound.upper, bound.lower))


@pytest.mark.parametrize(
    "beside",
    [
        {"box": ((-0.5, 0.5), (-9.0, 9.0))},
        {"box": ((-9.0, 9.0),)},
        {"categories": (3, 3)},
        {"categories": (9, 9, 9)},
        {"columns": (Column("a", ends=(0.0, 1.0)), Column("b", ends=(0.0, 9.0)))},
        {"box": ((0.0, 1.0), (0.0, 1.0)), "blocks": ((0, 1),)},
    ],
)
def test_a_list_is_not_asked_beyond_the_ranges_declared_beside_it(beside):
    """Theorems over ranges that hold fewer questions than are answered would limit people by less than they change."""
    with pytest.raises(ValueError, match=r"question [12] of the list lies outside"):
        Domain(queries=[[0.0, 0.0], [1.5, 1.0]], **beside)
    whole = Domain(queries=[[0.0, 0.0], [1.5, 1.0]], box=((0.0, 1.5), (0.0, 1.0)))
    assert Domain.from_payload(whole.payload()) == whole


def test_what_is_no_list_of_questions_is_refused_in_words():
    for wrong in ([], [[1.0], [1.0, 2.0]], [["a"]], [["1"]], [[np.inf]], [[None]], [1.0], [[]]):
        with pytest.raises(ValueError, match="queries must be a table"):
            Domain(queries=wrong)
    X, y, _ = table()
    with pytest.raises(SubjectError, match="question 2"):
        container(subject_of(GaussianNB(), [[1, 1], [0.5, 1]], (X * 10).astype(int), y))
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert list(container(subject_of(GaussianNB(), [[1, 1]], frame, y)).columns) == ["a", "b"]


def test_a_list_survives_being_written_down():
    domain = Domain(queries=[[1, 2], [3, 4.5]])
    assert Domain.from_payload(domain.payload()) == domain
    assert domain.box == ((1.0, 3.0), (2.0, 4.5))
    assert "queries" not in Domain(box=((0, 1),)).payload()
