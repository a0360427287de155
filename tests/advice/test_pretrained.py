"""An encoder trained on public records: made again to the bit, refused where it is not public, and it passes."""

import copy

import numpy as np
import pytest

from privgate import Budget, Policy, Recipe, Subject, TrainingData
from privgate.advice import apply, candidates
from privgate.advice.advice_search import Search, Way
from privgate.advice.change import changed
from privgate.errors import UsageError

PEOPLE = 80


def digits():
    from sklearn.datasets import load_digits

    X, y = load_digits(n_class=3, return_X_y=True)
    return X / 16.0, y


def network():
    from sklearn.neural_network import MLPClassifier

    return Recipe(MLPClassifier((8,), max_iter=30), seed=0)


@pytest.fixture(scope="module")
def subject():
    X, y = digits()
    return Subject.local(network(), TrainingData(X[:PEOPLE], y[:PEOPLE]))


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    X, y = digits()
    path = tmp_path_factory.mktemp("public") / "digits.npz"
    np.savez(path, X=X[PEOPLE:], y=y[PEOPLE:])
    return apply.Public.read(path)


def test_the_encoder_is_the_scaled_hidden_layer_and_comes_out_the_same_again(public):
    first, second = apply.encoder(public), apply.encoder(public)
    assert first.digest == second.digest
    coded = first.fit_transform(public.X)
    assert coded.shape == (len(public.X), apply.WIDTH)
    assert np.abs(coded).max() <= 1
    # it tells apart what it was made to: classes have centres of their own
    centres = np.stack([coded[public.y == k].mean(axis=0) for k in range(3)])
    assert (np.linalg.norm(coded[:, None] - centres, axis=2).argmin(axis=1) == public.y).mean() > 0.9


def test_the_change_replaces_the_whole_recipe_and_only_what_public_records_give_is_applied(subject, public):
    scale = apply.scale(subject, public)
    proposed = scale(0.5)
    made = changed(subject, proposed).recipe
    assert [type(step).__name__ for _, step in made.training.steps] == ["FrozenEncoder", "LogisticRegression"]
    assert scale(0.0).says.endswith("C 1")
    assert scale(1.0).says.endswith("C 1e-05")
    assert apply.before(subject, proposed, public) == ""
    assert apply.after(subject.recipe, made, proposed) == ""
    # other people's encoder, another last step, somebody left out beside it
    other = apply.Public(public.X[::2], public.y[::2], public.source)
    assert "another encoder" in apply.before(subject, proposed, other)
    spec = copy.deepcopy(proposed.learner.spec)
    spec["params"]["steps"][1]["value"][1]["params"]["penalty"] = None
    edited = proposed.model_copy(update={"learner": proposed.learner.model_copy(update={"spec": spec})})
    for bad in (edited, proposed.model_copy(update={"removed": (1,)}), proposed.model_copy(update={"learner": None})):
        assert "another encoder" in apply.before(subject, bad, public)
    assert "without the public records" in apply.before(subject, proposed)
    # under another kind it is a learner that no search proposes
    assert apply.before(subject, proposed.model_copy(update={"kind": "learner"}), public)


def test_training_records_are_not_public(subject, public):
    X = np.concatenate([public.X, subject.data.X[:2]])
    with pytest.raises(UsageError, match=rf"^1 to 9 of {len(X)} public records are training records"):
        apply.unfit(subject, apply.Public(X, np.append(public.y, [0, 1]), "mixed"))


def test_what_has_no_such_form_says_why(subject, public):
    narrow = apply.Public(public.X[:, :5], public.y, "narrow")
    assert "no table of 5 finite numbers" in apply.unfit(subject, narrow)
    words = Subject.local(network(), TrainingData(np.array([["a"], ["b"]] * 20, dtype=object), [0, 1] * 20))
    assert "no table of numbers" in apply.unfit(words, public)
    assert any("--public FILE.npz" in s for s in candidates.skipped(subject, Policy.load("pdtp-1")))
    assert not any("--public" in s for s in candidates.skipped(subject, Policy.load("pdtp-1"), public=True))


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"X": np.zeros((4, 2))}, "no .npz file with arrays"),
        ({"X": np.zeros(4), "y": np.arange(4)}, "X must be a table"),
        ({"X": np.full((4, 2), np.nan), "y": np.arange(4)}, "X must be a table"),
        ({"X": np.zeros((4, 2)), "y": np.arange(3)}, "one label for each"),
        ({"X": np.zeros((4, 2)), "y": np.zeros(4)}, "one label only"),
        ({"X": np.array([{}], dtype=object), "y": np.arange(1)}, "no .npz file with arrays"),
        (None, "no .npz file with arrays"),
    ],
)
def test_a_file_that_is_none_is_refused_in_a_sentence(arrays, why, tmp_path):
    path = tmp_path / "public.npz"
    if arrays is None:
        path.write_bytes(b"no zip")
    else:
        np.savez(path, **arrays)
    with pytest.raises(UsageError, match=why):
        apply.Public.read(path)


@pytest.mark.slow
def test_a_whole_check_passes_a_network_on_an_encoder_of_public_records(subject, public, fleet):
    search = Search(Policy.load("pdtp-1"), subject, fleet, Budget(), measure="accuracy", public=public)
    way = Way(apply.scale(subject, public))
    while way.step(search.one) and len(way.seen) < 5:
        pass
    assert way.found is not None
    search.points.insert(0, search.points[0])  # the model as it stands is measured elsewhere
    search.points[:] = [p.model_copy(update={"number": k}) for k, p in enumerate(search.points)]
    search._confirm()
    best = max((p for p in search.points[1:] if p.stands), key=lambda p: p.useful)
    assert best.useful > 0.9
