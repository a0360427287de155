"""A pinned encoder: what it is read off, what is refused, and that engine and theorem behind it are those of refits."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, QuantileTransformer, StandardScaler
from torch import nn

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.families import bound, catalogue
from privgate.families.engine import Asked
from privgate.families.pipelines.image import Image, through
from privgate.families.pipelines.seen_through import seen
from privgate.models import FrozenEncoder
from tests.in_process import InProcess

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(90, 6))
Y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * RNG.normal(size=90) > 0.8).astype(int)
BOX = Domain(box=((0.0, 1.0),) * 6)
LAST = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-10)


def network(*more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *more, nn.Tanh(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3), nn.Sigmoid())


def encoder(**more):
    return FrozenEncoder.of(network().eval(), 6, public="drawn at random by torch", **more)


def subject(first=None, data=None):
    pipeline = make_pipeline(encoder() if first is None else first, LAST)
    return Subject.local(Recipe(pipeline, seed=0), TrainingData(X, Y, domain=BOX) if data is None else data)


@pytest.mark.parametrize(
    "module",
    [
        network(),
        network(nn.BatchNorm1d(8), nn.Dropout(0.5)),
        nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 3, 2), nn.ReLU(), nn.AvgPool2d(1), nn.Flatten()),
        nn.Linear(6, 2),
    ],
)
def test_it_answers_as_the_module_in_evaluation_mode(module):
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.fill_(0.3)
            part.running_var.fill_(2.0)
    module.eval()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    made = FrozenEncoder.of(module, 6, public="torch").fit(X)

    with torch.no_grad():
        theirs = module(torch.from_numpy(X).float()).numpy()
    np.testing.assert_allclose(made.transform(X), theirs, atol=1e-5)
    assert all((before[k] == v).all() for k, v in module.state_dict().items())


def test_it_answers_as_a_transformer_fitted_on_public_records():
    public = RNG.normal(size=(200, 6))
    for thing in (StandardScaler(), PCA(3, whiten=True), make_pipeline(StandardScaler(), PCA(2))):
        thing.fit(public)
        made = FrozenEncoder.of(thing, 6, public="two hundred made-up records").fit(X)
        np.testing.assert_allclose(made.transform(X), thing.transform(X), atol=1e-9)


@pytest.mark.parametrize(
    ("thing", "word"),
    [
        (network(nn.Dropout(0.5)).train(), "training mode"),
        (network(nn.BatchNorm1d(8)).train(), "training mode"),
        (nn.Sequential(nn.Linear(6, 4), nn.Softmax(dim=1)), "Softmax"),
        (nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4)), "LayerNorm"),
        (nn.GRU(6, 3), "GRU"),
        (nn.Linear(6, 200_000), "a recipe holds"),
        (QuantileTransformer(n_quantiles=10).fit(X), "no affine map"),
        (MinMaxScaler(clip=True).fit(9 * X), "no affine map"),
        (LogisticRegression().fit(X, Y), "neither a torch module nor a fitted transformer"),
    ],
)
def test_what_cannot_be_written_as_layers_is_refused_by_name(thing, word):
    with pytest.raises(ValueError, match=word):
        FrozenEncoder.of(thing, 6, public="somewhere")


def test_an_encoder_without_pin_or_origin_or_with_another_digest_is_refused_everywhere():
    good = encoder()
    other = [*good.layers[:-1], "relu"]
    wrong = {
        "not pinned": FrozenEncoder(good.layers, "", "torch"),
        "public=": FrozenEncoder(good.layers, good.digest, "  "),
        "have digest sha256:": FrozenEncoder(other, good.digest, "torch"),
        "cannot be read": FrozenEncoder([1, None], good.digest, "torch"),
    }
    for word, step in wrong.items():
        with pytest.raises(ValueError, match=word):
            clone(step).fit(X)
        found = seen(subject(step))
        assert word in found.problem  # no engine or theorem looks behind it
        assert not found.steps
    with pytest.raises(ValueError, match="have digest"):
        encoder(digest="sha256:0")
    assert encoder(digest=good.digest).layers == good.layers


def test_layers_that_changed_after_training_answer_nothing():
    fitted = make_pipeline(encoder(), LAST).fit(X, Y)
    fitted[0].layers[-1] = "relu"

    with pytest.raises(ValueError, match="have digest"):
        fitted.predict_proba(X)


class Learning(TransformerMixin, BaseEstimator):
    """A public encoder, as it says, that learns whenever it is fitted."""

    def fit(self, X, y=None):
        self.shift_ = np.asarray(X).mean(axis=0)
        return self

    def transform(self, X):
        return np.asarray(X) - self.shift_


class Derived(FrozenEncoder):
    """The same name of a parent is not the same class."""


def test_an_encoder_that_learns_is_not_seen_through():
    for step in (Learning(), Derived(encoder().layers, encoder().digest, "torch")):
        found = seen(subject(step))
        assert not found.steps
    assert "StandardScaler) depends on the data" in seen(subject(make_pipeline(encoder(), StandardScaler()))).problem


def test_a_recipe_keeps_it_and_says_where_it_comes_from():
    made = subject()
    read = Recipe.read(made.recipe.payload, None)

    assert read.library_estimator[0].digest == encoder().digest
    assert read.digest == made.recipe.digest
    words = seen(made).words
    assert encoder().digest in words
    assert "drawn at random by torch" in words
    assert "would not show" in words


def test_records_answer_alike_whoever_else_is_asked_about():
    made = encoder().fit(X)
    whole = made.transform(X)
    for rows in ([3], [3, 4], range(1, 90, 7)):
        assert made.transform(X[list(rows)]).tobytes() == whole[list(rows)].tobytes()
    assert made.transform(np.asfortranarray(X)).tobytes() == whole.tobytes()
    for bad in (X[:, :5], np.full((1, 6), np.nan)):
        with pytest.raises(ValueError, match="numbers"):
            made.transform(bad)


@pytest.mark.parametrize("seed", range(5))
def test_its_ranges_hold_everything_that_comes_out(seed):
    rng = np.random.default_rng(seed)
    low = rng.normal(size=6)
    high = low + rng.uniform(size=6) * rng.choice([0.0, 1e-9, 1.0, 1e6])
    asked = np.vstack([low + rng.choice([0, 1, rng.random()], (500, 6)) * (high - low), low, high])
    asked = np.clip(asked, low, high)
    made = FrozenEncoder.of(network().eval()[: int(rng.integers(1, 7))], 6, public="torch").fit(asked)
    out, image = made.transform(asked), through(made, Image(low, high))

    assert (out >= image.low).all()
    assert (out <= image.high).all()


def test_the_engine_is_that_of_refits_of_the_whole_pipeline_and_the_theorem_is_above_any_question():
    made, units = subject(), np.arange(0, 90, 9)
    theorems, _ = bound.applicable(made)
    found = bound.bound(made, units, None)[0]
    engine = catalogue.first(made)[0]
    answered, left = engine.answers(Asked(made, units, (0,), InProcess(), None))
    questions = np.vstack([X, np.random.default_rng(1).uniform(size=(300, 6)), np.eye(6), np.zeros((1, 6))])

    assert "newton" in [t.name for t in theorems]
    assert engine.name == "logistic"
    assert not len(left)
    assert found.upper.max() < 1
    whole = np.log(clone(made.recipe.training).fit(X, Y).predict_proba(questions))
    for k, u in enumerate(units):
        keep = np.arange(90) != u
        less = np.log(clone(made.recipe.training).fit(X[keep], Y[keep]).predict_proba(questions))
        assert np.abs(whole - less).max() <= found.upper[k]
        np.testing.assert_allclose(answered.log_without[0, k], less[u], atol=1e-6)
