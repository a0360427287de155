"""The three counting families on all 1,000 Adult records: closed form equals retraining."""

import numpy as np
import pytest
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, MultinomialNB

from privgate.demo import adult
from privgate.families.answering import ALL
from privgate.families.engine import Asked
from privgate.subject.data import TrainingData

BY_NAME = {engine.name: engine for engine in ALL}


def one_hot(codes):
    return np.hstack([codes[:, j, None] == np.arange(V) for j, V in enumerate(adult.SIZES)]).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "estimator", "encode"),
    [
        ("categorical_nb", CategoricalNB(alpha=5, min_categories=list(adult.SIZES)), lambda X: X),
        ("bernoulli_nb", BernoulliNB(), one_hot),
        ("multinomial_nb", MultinomialNB(), one_hot),
    ],
)
def test_pdtp_of_all_thousand_records_equals_retraining(direct, fleet, name, estimator, encode):
    data = adult.load()
    subject = direct.subject(estimator, encode(data.X), data.y)

    made, handed_on = BY_NAME[name].answers(Asked(subject, np.arange(1000), (None,), fleet))

    assert len(handed_on) == 0
    assert direct.worst_difference(made, estimator, subject) <= 1e-9


@pytest.mark.parametrize("estimator", [CategoricalNB(), CategoricalNB(min_categories=[9, 7, 15, 6])])
def test_equal_records_share_one_answer_without_changing_it(direct, fleet, estimator):
    data = adult.load()
    few = TrainingData(data.X[:, :4] // 3, data.y)  # few cells: the contingency-table route
    many = TrainingData(few.X, few.y, groups=np.arange(1000))  # the same people, named: the plain route

    short, _ = BY_NAME["categorical_nb"].answers(
        Asked(direct.subject(estimator, few.X, few.y), np.arange(1000), (None,), fleet)
    )
    plain, _ = BY_NAME["categorical_nb"].answers(
        Asked(direct.subject(estimator, many.X, many.y, groups=many.groups), np.arange(1000), (None,), fleet)
    )

    assert np.array_equal(short.log_without, plain.log_without)
    assert short.status.tolist() == plain.status.tolist()
    assert len(np.unique(few.X, axis=0)) < 250  # the route is really taken
