"""The batched networks against torch's own layers, gradients and optimizer."""

import numpy as np
import pytest

from papers import networks
from papers.networks import Settings

torch = pytest.importorskip("torch")


def data(n=60, d=7, k=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.integers(0, k, n)


def test_equals_torch_autograd_and_adam():
    X, y = data()
    inside = np.arange(60) % 2 == 0
    settings = Settings(hidden=5, epochs=4, batch=20, rate=0.01)
    got = networks.train(X, y, inside[None], settings, n_classes=3, seed=9)[0]

    random = torch.Generator().manual_seed(9)
    w1, b1, w2, b2 = networks._start(random, count=1, d=7, hidden=5, n_classes=3, different=1)
    weights = [w.clone().requires_grad_() for w in (w1, b1, w2[0], b2[0])]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    x, t = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    answer = lambda v: torch.tanh(v @ weights[0] + weights[1]) @ weights[2] + weights[3]
    for _ in range(4):
        for rows in torch.randperm(60, generator=random).split(20):
            held = rows[torch.tensor(inside)[rows]]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(answer(x[held]), t[held]).backward()
            optimizer.step()
    want = torch.log_softmax(answer(x).double(), dim=1).detach().numpy()

    assert got == pytest.approx(want, abs=2e-4)  # float32, 12 steps of Adam


def test_a_network_does_not_depend_on_its_neighbours_in_the_batch():
    X, y = data()
    masks = np.random.default_rng(1).random((6, 60)) < 0.5
    settings = Settings(hidden=5, epochs=3, batch=20)

    together = networks.train(X, y, masks, settings, n_classes=3, seed=2, same_start=True)
    alone = networks.train(X, y, masks[3:4], settings, n_classes=3, seed=2, same_start=True)

    assert together[3] == pytest.approx(alone[0], abs=1e-5)


def test_a_record_that_is_left_out_leaves_no_trace():
    X, y = data()
    settings = Settings(hidden=5, epochs=3, batch=20)
    mask = np.ones((1, 60), dtype=bool)
    mask[0, 11] = False
    other = X.copy()
    other[11] = 100.0

    one = networks.train(X, y, mask, settings, n_classes=3, seed=2, queries=X[:5])
    two = networks.train(other, y, mask, settings, n_classes=3, seed=2, queries=X[:5])

    assert (one == two).all()


def test_a_fitted_network_answers_as_the_batch_does():
    X, y = data()
    inside = np.arange(60) < 40
    settings = Settings(hidden=5, epochs=3, batch=20)

    model = networks.fitted(X, y, inside, settings, n_classes=3, seed=4)
    batch = networks.train(X, y, inside[None], settings, n_classes=3, seed=4)[0]

    assert model(X) == pytest.approx(np.exp(batch), abs=1e-6)
