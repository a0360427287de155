"""One set of models a record, as in the paper, next to shared models: counting, comparing, remembering."""

import numpy as np
import pytest
from sklearn.naive_bayes import BernoulliNB, CategoricalNB

from papers import adult_records, agreement, datasets, memory, networks, per_target, shared
from papers.datasets import Data
from privgate.training.fleet import Fleet

quiet = [].append


@pytest.fixture
def purchases():
    return datasets.purchase_like(np.random.default_rng(0), n=200, features=40, classes=4)


def people(n=120, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, [5, 3, 7], size=(n, 3))
    return Data("people", np.hstack([codes, codes]).astype(float), codes, rng.integers(0, 2, n))


def test_counting_who_shares_a_records_values_is_bernoulli_naive_bayes(purchases):
    masks = np.random.default_rng(1).random((5, 200)) < 0.5
    got = per_target.counted(purchases, 7, masks)

    for row, mask in zip(got, masks, strict=True):
        model = BernoulliNB().fit(purchases.X[mask], purchases.y[mask])
        assert row == pytest.approx(model.predict_log_proba(purchases.X[7:8])[0], abs=1e-10)


def test_counting_who_shares_a_records_values_is_categorical_naive_bayes():
    data = people()
    masks = np.random.default_rng(1).random((5, 120)) < 0.5
    got = per_target.counted(data, 7, masks)

    for row, mask in zip(got, masks, strict=True):
        model = CategoricalNB(min_categories=data.codes.max(axis=0) + 1).fit(data.codes[mask], data.y[mask])
        assert row == pytest.approx(model.predict_log_proba(data.codes[7:8])[0], abs=1e-10)


def test_sets_of_a_records_own_hold_half_of_the_others():
    masks = per_target.without(3, 21, 8, np.random.default_rng(0))

    assert masks.sum(axis=1).tolist() == [9] * 8
    assert not masks[:, 3].any()
    assert len({m.tobytes() for m in masks}) > 1


def test_distance_is_the_difference_of_two_divergences():
    rng = np.random.default_rng(0)
    q, a, b = rng.dirichlet(np.ones(4), 3), rng.dirichlet(np.ones(4), (3, 5)), rng.dirichlet(np.ones(4), (3, 5))
    kl = lambda p, r: (p * np.log(p / r)).sum(axis=1)

    assert per_target.distance(q, a, b) == pytest.approx(kl(q, b.mean(axis=1)) - kl(q, a.mean(axis=1)))


@pytest.mark.parametrize("kind", ["NB", "NN"])
def test_a_record_that_gives_itself_away_is_found_by_models_of_its_own(kind, purchases):
    if kind == "NN":
        pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X, odd = purchases.X.copy(), 8
    X[:, :20] = np.arange(200)[:, None] == odd  # bought what nobody else did
    data = Data("made up", X, X.astype(np.int64), np.arange(200) % 4)
    targets = np.stack([rng.permutation(200) < 100 for _ in range(20)])
    with Fleet(jobs=1, ledger="none") as fleet:
        q = np.exp(per_target.answers(kind, data, odd, targets, fleet, seed=9))
        found = per_target.right(kind, data, odd, targets[:, odd], q, fleet, rng, sets=2)

    assert found.mean() > 0.9


@pytest.mark.parametrize("sets", [200, 20])
def test_equal_schemes_are_called_different_as_often_as_chance_has_it(sets):
    rng = np.random.default_rng(0)
    hard = rng.uniform(0.5, 0.95, 400)
    # targets of one set stand or fall together to some degree, in one of the schemes
    shift = rng.normal(0, 0.05, (sets, 400))[np.arange(200) % sets]
    one, other = rng.random((200, 400)) < hard, rng.random((200, 400)) < np.clip(hard + shift, 0, 1)
    c = agreement.compare(one, other, sets)

    assert c.outside.mean() == pytest.approx(0.05, abs=3 * (0.05 * 0.95 / 400) ** 0.5)
    assert (c.p < 0.05).mean() <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5
    assert not c.rejected.any()
    assert c.too_many > 0.01


@pytest.mark.parametrize("sets", [200, 20])
def test_a_record_that_one_scheme_alone_finds_is_named(sets):
    rng = np.random.default_rng(0)
    one = rng.random((200, 50)) < 0.6
    other = rng.random((200, 50)) < 0.6
    one[:, 4] = True
    c = agreement.compare(one, other, sets)

    assert c.rejected.tolist() == [j == 4 for j in range(50)]
    assert c.outside[4]
    assert c.difference[4] == pytest.approx(0.4, abs=0.1)


def test_schemes_that_never_differ_agree_whatever_the_variance():
    same = np.ones((200, 3), dtype=bool)
    for sets in (200, 20):
        c = agreement.compare(same, same, sets)
        assert not c.outside.any()
        assert (c.p == 1).all()
        assert agreement.compare(same, ~same, sets).rejected.all()


def test_both_schemes_are_tried_on_the_same_targets(purchases, monkeypatch):
    monkeypatch.setattr(agreement, "TARGETS", 40)
    with Fleet(jobs=1, ledger="none") as fleet:
        made = agreement.both_ways("NB", purchases, fleet, quiet, records=6, sets=40)
    shown = {r.what: r for r in made.table().rows}

    assert [name for name in made.shared if f"{name}: mean accuracy" in shown] == list(made.shared)
    assert len(made.shared) == 5
    for name, guesses in made.shared.items():
        assert guesses.shape == made.own.shape == (40, 6)
        row = shown[f"{name}: mean accuracy"]
        assert (row.due, row.obtained) == pytest.approx((made.own.mean(), guesses.mean()))
        assert guesses.mean() > made.own.mean() - 0.15


def test_both_versions_of_a_model_differ_by_the_record_alone():
    codes = np.random.default_rng(0).integers(0, 2, (30, 4))
    data = Data("x", codes.astype(float), codes, np.arange(30) % 2)
    inside = np.random.default_rng(1).random((3, 30)) < 0.5

    for record in (4, 5):
        for p, held in zip(agreement.both_versions(data, record, inside), (True, False), strict=True):
            for mask, row in zip(inside, p, strict=True):
                rows = np.flatnonzero(np.where(np.arange(30) == record, held, mask))
                model = BernoulliNB().fit(data.X[rows], data.y[rows])
                np.testing.assert_allclose(row, model.predict_proba(data.X[record : record + 1])[0], rtol=1e-10)
    assert inside.sum() == (np.random.default_rng(1).random((3, 30)) < 0.5).sum()  # subsets stay what they were


def test_records_that_are_alone_with_a_value_are_counted():
    codes = np.array([[0, 1], [0, 1], [0, 0], [1, 1], [1, 1], [1, 1]])
    data = Data("x", codes.astype(float), codes, np.array([0, 0, 0, 1, 1, 0]))

    # in class 0 the last record alone has the value 1 of the first feature, the third the value 0 of the second
    assert adult_records.fellows(data).tolist() == [2, 2, 0, 1, 1, 0]


def test_a_record_of_adult_that_is_alone_is_found_and_confirmed_by_models_of_its_own(monkeypatch):
    monkeypatch.setattr(adult_records, "TARGETS", 120)
    monkeypatch.setitem(adult_records.SETS, "NB", 120)
    data = people(n=200)
    codes = data.codes.copy()
    codes[11, 2] = 7  # nobody else has it
    data = Data("Adult", data.X, codes, data.y)
    with Fleet(jobs=1, ledger="none") as fleet:
        rows = {r.what: r.obtained for r in adult_records.of("NB", data, fleet, quiet)}

    count = rows["NB: records whose Holm lower limit is above 0.70, of all 200"]
    assert count == rows["NB: of these, alone or two in their class with one of their values"]
    assert count <= 2
    assert rows["NB: largest Holm lower limit, guesses that know nothing"] < 0.5


def test_what_was_computed_is_recalled_and_nothing_else_is(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return np.arange(3.0)

    for _ in range(2):
        with Fleet(jobs=1, ledger=tmp_path) as fleet:
            assert memory.recalled(fleet, ("a", np.ones(2)), make).tolist() == [0, 1, 2]
    assert len(calls) == 1
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        memory.recalled(fleet, ("a", np.zeros(2)), make)
        memory.recalled(fleet, ("b", np.ones(2)), make)
    memory.recalled(None, ("a", np.ones(2)), make)
    assert len(calls) == 4


def test_networks_that_were_trained_are_not_trained_again(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X, y, masks = rng.normal(size=(40, 5)), rng.integers(0, 2, 40), rng.random((6, 40)) < 0.5
    settings = networks.Settings(hidden=3, epochs=2, batch=20)
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        first = networks.train(X, y, masks, settings, n_classes=2, seed=1, at_once=4, fleet=fleet)
    monkeypatch.setattr(networks, "_descend", None)
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        again = networks.train(X, y, masks, settings, n_classes=2, seed=1, at_once=4, fleet=fleet)

    assert (first == again).all()


def test_costs_are_told_for_the_papers_number_of_trainings(purchases):
    seen = shared.Spent(alone=0.5, shared=4.0)
    shown = {r.what: r for r in shared.table("network", purchases, seen, 2000, models=8).rows}

    assert seen.ratio == pytest.approx(seen.alone * 200_000 / seen.shared)
    assert shown["times less CPU (due: aimed at)"].obtained == seen.ratio
