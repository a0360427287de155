"""Anybody's torch module trained in copies: equal to training it alone, or named and refitted."""

import numpy as np
import pytest

from privgate.families.answering import answer
from privgate.families.engine import Asked, Declined
from privgate.families.networks.torch_nets import ENGINE
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.torch_recipe import TorchTraining
from tests.in_process import InProcess

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
WEIGHTS = torch.tensor([0.2, 3.0, 1.0])


class InDouble(nn.Module):
    def forward(self, x):
        return x.double()


def convolutions(n_features, n_classes):
    """In double precision: what is left is what the copies do otherwise, not what a norm makes of rounding."""
    return nn.Sequential(
        InDouble(),
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding="same", groups=2, bias=False),
        nn.GroupNorm(3, 6),
        nn.GELU(),
        nn.Dropout2d(0.2),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(24, n_classes),
    ).double()


class Words(nn.Module):
    def __init__(self, n_classes, table):
        super().__init__()
        self.words, self.out = table, nn.Linear(8, n_classes)

    def forward(self, x):
        made = self.words(x.long())
        return self.out(made if made.dim() == 2 else made.sum(1))


def bag(n_features, n_classes):
    return Words(n_classes, nn.EmbeddingBag(50, 8, mode="mean", padding_idx=0))


def padded(n_features, n_classes):
    return Words(n_classes, nn.Embedding(50, 8, padding_idx=0))


class Attentive(nn.Module):
    def __init__(self, n_classes, dropout):
        super().__init__()
        self.words, self.drop = nn.Embedding(50, 8), nn.Dropout(0.2)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, n_classes)
        self.unused = nn.Parameter(torch.ones(3))  # torch.optim leaves what has no gradient alone, decay or not
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x):
        return self.out(self.norm(self.layer(self.drop(self.words(x.long()))) * self.frozen).mean(1))


def attention(n_features, n_classes):
    return Attentive(n_classes, 0.0)


def random_attention(n_features, n_classes):
    return Attentive(n_classes, 0.1)


def batch_statistics(n_features, n_classes):
    return nn.Sequential(nn.Linear(n_features, 6), nn.BatchNorm1d(6), nn.Linear(6, n_classes))


class Lstm(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.cells, self.out = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, n_classes)

    def forward(self, x):
        return self.out(self.cells(x[:, :, None])[0][:, -1])


def recurrent(n_features, n_classes):
    return Lstm(n_classes)


class Centred(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.out = nn.Linear(n_features, n_classes)

    def forward(self, x):
        return self.out(x - x.mean(0))


def centred(n_features, n_classes):
    return Centred(n_features, n_classes)


class Crowded(Centred):
    def forward(self, x):
        return self.out(x if len(x) < 6 else x - x.mean(0))


def crowded(n_features, n_classes):
    return Crowded(n_features, n_classes)


class Counting(nn.Module):
    """Counts its steps where nothing is trained, and answers a little less surely with each."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.out = nn.Linear(n_features, n_classes)
        self.steps = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.steps.add_(1)
        return self.out(x) * (1 - 1e-6 * self.steps)


def counting(n_features, n_classes):
    return Counting(n_features, n_classes)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Custom(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.out = nn.Linear(n_features, n_classes)

    def forward(self, x):
        return Doubled.apply(self.out(x))


def custom(n_features, n_classes):
    return Custom(n_features, n_classes)


def smoothed(logits, labels):
    return functional.cross_entropy(logits, labels, label_smoothing=0.1, reduction="none")


def balanced(logits, labels):
    """The usual mean of class weights: what one record's loss is divided by are the labels of its batch."""
    each = functional.cross_entropy(logits, labels, weight=WEIGHTS, reduction="none")
    return each * len(labels) / WEIGHTS[labels].sum()


def plain(n_features, n_classes):
    return nn.Linear(n_features, n_classes)


def falling(epoch, epochs):
    return 1 - epoch / epochs


def images(n=26):
    rng = np.random.default_rng(0)
    return rng.random((n, 64)).astype(np.float32), labels(rng, n)


def tokens(n=26):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 50, (n, 7)).astype(np.float32)
    X[3, 4:] = 0
    return X, labels(rng, n)


def labels(rng, n):
    y = rng.integers(0, 3, n)
    y[:3] = np.arange(3)
    return y


def subject_of(recipe, X, y, **settings):
    return Subject.local(Recipe(recipe, seed=7), TrainingData(X, y, **settings))


OPTIMIZERS = {
    "sgd": {"lr": 0.1, "batch_size": 8, "schedule": falling},
    "momentum, single records": {"momentum": 0.9, "weight_decay": 0.1, "batch_size": 1, "lr": 0.02, "epochs": 2},
    "adam": {"optimizer": "adam", "weight_decay": 0.01, "batch_size": 2, "loss": smoothed, "schedule": falling},
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("settings", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize(
    ("module", "data"), [(convolutions, images), (bag, tokens), (padded, tokens), (attention, tokens), (None, images)]
)
def test_equals_training_again_without_the_unit(module, data, settings):
    X, y = data()
    allowed = 1e-9 if module is convolutions else 1e-5
    X[10], y[10] = X[9], y[9]
    recipe = {"module": module, "epochs": 3, "lr": 0.05, "hidden": (5,), **settings}
    groups = np.arange(len(y)) // 2 if module is bag else None
    subject = subject_of(TorchTraining(**recipe), X, y, groups=groups)
    units = np.array([0, 4, 9, 10])
    few = np.repeat(np.arange(4), 2), np.array([0, 20, 9, 4, 9, 1, 25, 10])

    made, handed_on = ENGINE.answers(Asked(subject, units, (7, 8), InProcess(), queries=few))

    assert len(handed_on) == 0
    for s, seed in enumerate((7, 8)):
        whole = TorchTraining(**recipe, random_state=seed).fit(X, y)
        assert np.abs(np.log(whole.predict_proba(X[few[1]])) - made.log_with[s]).max() < allowed
        for k, unit in enumerate(units):
            rows, asked = subject.data.units[unit], few[1][few[0] == k]
            alone = TorchTraining(**recipe, random_state=seed).fit(np.delete(X, rows, axis=0), np.delete(y, rows))
            expected = np.log(alone.predict_proba(X[asked]))
            assert np.abs(made.log_without[s, made.row_unit == k] - expected).max() < allowed
    assert np.abs(made.log_with - made.log_without).max() > 1e-4


@pytest.mark.parametrize("module", [convolutions, bag])
def test_subsets_of_the_pool_are_trained_in_copies_too(module):
    X, y = images(40) if module is convolutions else tokens(40)
    recipe = {"module": module, "epochs": 2, "lr": 0.1, "batch_size": 8}
    subject = subject_of(TorchTraining(**recipe), X[:30], y[:30], candidates=(X[30:], y[30:]))
    masks = np.random.default_rng(0).random((4, 40)) < 0.7

    made = ENGINE.subsets(subject, masks, (4,), InProcess())

    for k, mask in enumerate(masks):
        model = TorchTraining(**recipe, random_state=4).fit(X[mask], y[mask])
        assert np.abs(made.log_p[k] - np.log(model.predict_proba(X))).max() < 1e-5


NOT_COVERED = {
    "BatchNorm1d (1) keeps statistics of whole batches": (batch_statistics, images),
    "torch.func does not take LSTM through copies (RuntimeError)": (recurrent, images),
    "torch.func does not take MultiheadAttention through copies (RuntimeError)": (random_attention, tokens),
    "torch.func does not take Custom through copies (RuntimeError)": (custom, images),
    "the module changes buffers or frozen parameters of its own while it is trained": (counting, images),
    "the module's answer about one record depends on the others in its batch": (centred, images),
    "the module's answer about one record depends on the others in its batch, or on chance": (crowded, images),
}


@pytest.mark.parametrize(("why", "case"), NOT_COVERED.items())
def test_what_is_not_covered_is_named_and_refitted(why, case):
    module, data = case
    recipe = TorchTraining(module=module, epochs=2, lr=0.1, batch_size=8)
    subject = subject_of(recipe, *data(12))

    with pytest.raises(Declined) as said:
        ENGINE.answers(Asked(subject, np.arange(3), (7,), InProcess()))
    assert why in str(said.value)
    got = answer(Asked(subject, np.arange(3), (7,), InProcess()))

    assert why in got.declined["torch_nets"]
    assert set(got.retrained.engine) == {"refit"}


def test_a_loss_that_reads_the_whole_batch_is_refitted():
    """A record that is left out would go on to count in what the others' losses are divided by."""
    subject = subject_of(TorchTraining(module=plain, loss=balanced, epochs=1, batch_size=8), *images(12))

    with pytest.raises(Declined, match="the loss of one record depends on the others"):
        ENGINE.answers(Asked(subject, np.arange(3), (7,), InProcess()))


def test_a_loss_beside_the_built_in_dropout_is_refitted():
    X, y = images(12)
    subject = subject_of(TorchTraining(loss=smoothed, dropout=0.5, epochs=1), X, y)

    with pytest.raises(Declined, match="dropout beside a loss"):
        ENGINE.answers(Asked(subject, np.arange(3), (7,), InProcess()))


def test_dropout_in_anybody_s_module_is_keyed_by_record():
    """Leaving a record out must not draw the others' masks anew: that would measure the masks, not the record."""
    X, y = images(30)

    def apart(rows):
        both = [
            TorchTraining(module=convolutions, epochs=3, lr=0.05, random_state=1).fit(X[r], y[r]).predict_proba(X)
            for r in (np.arange(30), rows)
        ]
        return np.abs(np.log(both[0]) - np.log(both[1])).mean()

    assert apart(np.random.default_rng(0).permutation(30)) < 1e-5  # whatever order they stand in
    assert apart(np.arange(29)) < 0.05
