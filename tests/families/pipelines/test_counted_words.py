"""Counted words without each person: the vocabulary shrinks with them, as in a refit of the whole pipeline."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.naive_bayes import BernoulliNB, MultinomialNB
from sklearn.pipeline import make_pipeline

from privgate import Recipe, Subject, TrainingData
from privgate.families import bound
from privgate.families.answering import answer
from privgate.families.engine import Asked
from privgate.families.pipelines.counted_words import ENGINE
from privgate.families.pipelines.seen_through import seen


def texts(n=40, seed=0):
    rng = np.random.default_rng(seed)
    words = np.array([*"abcdefgh"], dtype=object) * 3
    made = [" ".join(rng.choice(words, rng.integers(1, 12))) for _ in range(n)]
    for k in range(0, n, 5):
        made[k] += f" only{k} only{k}"  # words of one person's own
    made[3] = "only3 never again"
    return made, rng.integers(0, 3, n)


def subject_of(estimator, X, y, **more):
    return Subject.local(Recipe(estimator), TrainingData(X, y, **more))


CASES = [
    make_pipeline(CountVectorizer(), MultinomialNB()),
    make_pipeline(CountVectorizer(binary=True, ngram_range=(1, 2)), MultinomialNB(alpha=0.01, fit_prior=False)),
    make_pipeline(CountVectorizer(analyzer="char"), MultinomialNB(alpha=2.0, class_prior=[0.2, 0.3, 0.5])),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("k", range(3))
@pytest.mark.parametrize("grouped", [False, True])
def test_equals_refits_of_the_whole_pipeline(k, grouped, fleet):
    X, y = texts()
    groups = np.arange(40) % 17 if grouped else None
    outside = ["aaa zzz only5", "never hhh"], [0, 1]
    subject = subject_of(CASES[k], X, y, groups=groups, candidates=outside)
    units = np.arange(len(subject.data.units))
    asked = (
        np.repeat(units, 3),
        np.column_stack([[rows[0] for rows in subject.data.units], 40 + units % 2, units]).ravel(),
    )

    made, handed_on = ENGINE.answers(Asked(subject, units, (None,), fleet, queries=asked))

    assert not len(handed_on)
    pool = subject.data.pool()[0]
    for u in units:
        keep = np.setdiff1d(np.arange(40), subject.data.units[u])
        model = clone(CASES[k]).fit([X[i] for i in keep], y[keep])
        at = np.flatnonzero(made.row_unit == u)
        expected = model.predict_log_proba([pool[i] for i in made.row_query[at]])
        np.testing.assert_allclose(made.log_without[0, at], expected, rtol=0, atol=1e-9)
    full = clone(CASES[k]).fit(X, y).predict_log_proba([pool[i] for i in made.row_query])
    np.testing.assert_allclose(made.log_with[0], full, rtol=0, atol=1e-9)


def test_the_chain_rechecks_it_and_the_only_holder_of_a_label_has_no_model(fleet):
    X, y = texts()
    y[7] = 9
    got = answer(Asked(subject_of(CASES[0], X, y), np.arange(40), (None,), fleet))
    assert [c.outcome for c in got.rechecks] == ["passed"]
    assert set(got.retrained.engine) == {"counted_words"}
    assert got.retrained.status[7] == "undefined"


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (make_pipeline(CountVectorizer(min_df=2), MultinomialNB()), "leave min_df"),
        (make_pipeline(CountVectorizer(max_df=1), MultinomialNB()), "leave min_df"),  # in one text at most
        (make_pipeline(CountVectorizer(min_df=1.0), MultinomialNB()), "leave min_df"),  # in all of them
        (make_pipeline(CountVectorizer(max_features=5), MultinomialNB()), "leave min_df"),
        (make_pipeline(TfidfVectorizer(), MultinomialNB()), "is not"),
        (make_pipeline(CountVectorizer(), BernoulliNB()), "is not"),
        (make_pipeline(CountVectorizer(), MultinomialNB(alpha=0.0)), "smoothing"),
        (make_pipeline(CountVectorizer(ngram_range=(99, 99)), MultinomialNB()), "cannot be counted"),
        (make_pipeline(CountVectorizer(token_pattern="(a+)+$"), MultinomialNB()), "token_pattern"),
        (MultinomialNB(), "is not"),
    ],
)
def test_what_is_not_covered_is_said(estimator, said):
    X, y = texts()
    assert said in ENGINE.supports(subject_of(estimator, X, y))


def test_names_of_columns_are_no_texts():
    table = pd.DataFrame({"a": ["x y", "y", "x"], "b": ["z", "z", "y"]})
    assert "no texts" in ENGINE.supports(subject_of(CASES[0], table, [0, 1, 0]))
    array = subject_of(CASES[0], np.array(["x yy", "yy", "zz yy"]), [0, 1, 0])
    assert ENGINE.supports(array) == ""


def test_a_vocabulary_that_is_written_down_is_a_fixed_step(fleet):
    X, y = texts()
    subject = subject_of(make_pipeline(CountVectorizer(vocabulary=["aaa", "bbb", "ccc"]), MultinomialNB()), X, y)
    assert seen(subject).problem == ""
    got = answer(Asked(subject, np.arange(40), (None,), fleet))
    assert set(got.retrained.engine) == {"multinomial_nb"}
    assert any("counts of any size" in why for why in bound.reasons(bound.applicable(subject)[1]))


def test_a_word_of_two_texts_that_counts_without_either_is_refitted(fleet):
    """Approved at .33 nats, 71 in truth: only the two who share the word are off, and no re-check looked there."""
    texts = [f"own{i} mine{i}" for i in range(200)]
    for i in (10, 11):
        texts[i] += " shared" * 30
    y = np.arange(200) % 2
    subject = Subject.local(
        Recipe(make_pipeline(CountVectorizer(max_df=1), MultinomialNB(alpha=3.0))), TrainingData(texts, y)
    )
    got = answer(Asked(subject, np.array([10]), (None,), fleet)).retrained

    assert set(got.engine) == {"refit"}
    assert np.abs(got.log_with - got.log_without).max() > 50
