"""Texts as people hold them: a list, a Series, an array of objects; each goes the whole route."""

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

from privgate import Recipe, Subject, TrainingData, evaluate

WORDS = np.array(["good", "bad", "day", "night", "sun", "rain", "tree"])


@pytest.mark.quick(1)
@pytest.mark.parametrize("form", [list, pd.Series, lambda texts: np.array(texts, dtype=object)])
def test_texts_in_any_container_are_judged(fleet, form):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(80)]
    y = np.array([int("sun" in t) for t in texts])
    data = TrainingData(form(texts[:40]), y[:40], candidates=(form(texts[40:]), y[40:]), one_record_each=True)
    recipe = Recipe(make_pipeline(CountVectorizer(), MultinomialNB(alpha=5.0)))
    verdict = evaluate("pdtp-1", Subject.local(recipe, data), fleet=fleet)
    assert verdict.approved, [f.message for f in verdict.findings]
