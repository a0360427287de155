"""Table III of Shokri et al. on small made-up data: the penalty is the paper's, and nothing is trained twice."""

import numpy as np
import pytest

from papers import datasets, mitigations
from privgate.run import refit
from privgate.subject.release import Release, released
from privgate.training.fleet import Fleet


@pytest.fixture
def small(monkeypatch):
    """Return records of 4 classes; networks have 5 units."""
    pytest.importorskip("torch")
    monkeypatch.setattr(mitigations, "HIDDEN", 5)
    monkeypatch.setattr(mitigations, "EPOCHS", 3)
    return datasets.purchase_like(np.random.default_rng(0), n=160, features=12, classes=4, spread=2.0)


def test_mitigations_release_what_table_iii_says():
    log_p = np.log(np.array([[0.6, 0.3, 0.08, 0.02], [0.25, 0.1, 0.6, 0.05]]))
    seen = {name: np.exp(released(log_p, release)) for name, (release, *_) in mitigations.MITIGATIONS.items()}

    assert (seen["top k = 1"] > 0).sum(axis=1).tolist() == [1, 1]
    assert seen["top k = 3"][0].tolist() == pytest.approx([0.6, 0.3, 0.08, 0])
    assert seen["top k = 1, label"].tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert seen["rounding d = 1"][0] == pytest.approx([0.6, 0.3, 0.1, 0.0])
    warm = np.array([0.6, 0.3, 0.08, 0.02]) ** 0.2
    assert seen["temperature t = 5"][0] == pytest.approx(warm / warm.sum())


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_trains_by_plain_sgd_on_the_loss_with_the_penalty_in_it(small, monkeypatch, penalty):
    import torch

    # one batch an epoch: its order does not matter
    monkeypatch.setattr(mitigations, "BATCH", 200)
    inside = np.arange(160) % 2 == 0
    recipe = mitigations.network(penalty)
    with Fleet(jobs=1, ledger="none") as fleet:
        got = mitigations.train(small.X, small.y, inside[None], recipe, seed=9, fleet=fleet)[0]

    torch.manual_seed(9)
    first, second = torch.nn.Linear(12, 5), torch.nn.Linear(5, 4)
    x, t = torch.tensor(small.X, dtype=torch.float32), torch.tensor(small.y)
    parameters = [*first.parameters(), *second.parameters()]
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(second(torch.tanh(first(x[inside]))), t[inside])
        loss = loss + penalty * sum((p**2).sum() for p in parameters)
        slopes = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, slope in zip(parameters, slopes, strict=True):
                p.sub_(slope, alpha=mitigations.RATE * 200)
    want = torch.log_softmax(second(torch.tanh(first(x))).double(), dim=1).detach().numpy()

    assert got == pytest.approx(want, abs=1e-5)  # float32


def test_what_was_trained_is_remembered_with_its_penalty(small, monkeypatch, tmp_path):
    inside = np.random.default_rng(1).random((3, 160)) < 0.5
    asked, really = [], refit.train_on_subsets
    monkeypatch.setattr(refit, "train_on_subsets", lambda *given: asked.append(given[2]) or really(*given))
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        made = [
            mitigations.train(small.X, small.y, inside, mitigations.network(p), seed=9, fleet=fleet)
            for p in (0.0, 0.1, 0.0)
        ]

    # each model has a seed of its own
    assert asked == [(9,), (10,), (11,)] * 2
    assert (made[2] == made[0]).all()
    assert np.abs(made[1] - made[0]).max() > 1e-3


@pytest.mark.slow
def test_the_table_has_a_line_for_every_mitigation(small, monkeypatch, tmp_path):
    monkeypatch.setattr(mitigations, "RECORDS", 40)
    monkeypatch.setattr(mitigations.datasets, "purchase_like", lambda *_, **__: small)
    monkeypatch.setattr(mitigations, "MITIGATIONS", {"no mitigation": (Release(), 0.66, 0.92, 0.87, 1.0)})
    monkeypatch.setattr(mitigations, "PENALTIES", {1e-2: (0.63, 0.53, 0.54, 0.52)})
    with Fleet(jobs=1, ledger="none") as fleet:
        (table,) = mitigations.run(tmp_path, fleet, lambda line: None)

    assert [(r.what, r.published) for r in table.rows] == [
        ("no mitigation: training accuracy", None),
        ("no mitigation: test accuracy", 0.66),
        ("no mitigation: attack accuracy", 0.92),
        ("no mitigation: attack precision", 0.87),
        ("no mitigation: attack recall", 1.0),
        ("L2 = 0.01: training accuracy", None),
        ("L2 = 0.01: test accuracy", 0.63),
        ("L2 = 0.01: attack accuracy", 0.53),
        ("L2 = 0.01: attack precision", 0.54),
        ("L2 = 0.01: attack recall", 0.52),
    ]
    assert all(r.obtained is not None and 0 <= r.obtained <= 1 for r in table.rows)
