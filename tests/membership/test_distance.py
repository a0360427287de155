"""Distances to the nearest wrong answer against the truth, and the adversaries that use them."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, Subject, TrainingData, evaluate
from privgate.errors import MeasurementError
from privgate.evidence.verdict import Outcome
from privgate.kernel.sample import difference
from privgate.membership import distance
from privgate.run.run import Run
from privgate.training.fleet import Fleet


def blobs(n, seed, classes=3, d=3):
    return make_classification(
        n, d, n_informative=d, n_redundant=0, n_classes=classes, n_clusters_per_class=1, flip_y=0.1, random_state=seed
    )


def test_linear_distances_are_those_of_the_nearest_wrong_answer_and_random_directions_come_near_them():
    X, y = blobs(60, 0)
    model = LogisticRegression(C=5.0).fit(X, y)
    found, right = distance.measure_linear(model.coef_, model.intercept_, X, y), model.predict(X) == y

    assert (found[~right] == 0).all()
    assert (found[right] > 0).all()
    rng = np.random.default_rng(1)
    slope = model.coef_[None] - model.coef_[y][:, None]
    ends = {1.0: np.sign(slope) * (np.abs(slope) == np.abs(slope).max(axis=2, keepdims=True)), np.inf: np.sign(slope)}
    ends[2.0] = slope / np.maximum(np.linalg.norm(slope, axis=2, keepdims=True), 1e-12)
    for i, norm in enumerate(distance.NORMS):
        # nothing within the distance is wrong
        step = rng.normal(size=(400, *X.shape)) * rng.choice([0.05, 1.0, 4.0], (400, 1, 3))
        if norm == 1.0:
            step[:, :, 1:] *= rng.random((400, 1, 1)) < 0.5
        if norm == np.inf:
            step = np.sign(step)
        size = 0.999 * found[:, i] / np.linalg.norm(step, ord=norm, axis=2)
        near = X + step * size[..., None]
        assert (model.predict(near.reshape(-1, 3)).reshape(400, -1) == y)[:, right].all()
        # just beyond, in the best direction towards some class, something is
        beyond = X[:, None] + 1.001 * found[:, i, None, None] * ends[norm]
        assert (model.predict(beyond.reshape(-1, 3)).reshape(len(X), -1) != y[:, None]).any(axis=1)[right].all()
    box = X.min(axis=0) - 50, X.max(axis=0) + 50
    bounds = distance.along_random_directions(model.predict, X, y, box, rng)
    assert (bounds >= found - 1e-4).all()
    assert (bounds[found == 0] == 0).all()
    assert np.median(bounds[right] / found[right]) < 3.0


def test_tree_distances_are_those_of_the_nearest_wrong_leaf():
    X, y = blobs(80, 2, d=2, classes=2)
    tree = DecisionTreeClassifier(max_depth=5, random_state=0).fit(X, y)
    low, high, answers = map(np.array, zip(*distance.list_leaves(tree), strict=True))
    inside = ((X[:, None] > low[None]) & (X[:, None] <= high[None])).all(axis=2)

    assert (inside.sum(axis=1) == 1).all()
    assert (answers[inside.argmax(axis=1)] == tree.predict(X)).all()
    found = distance.measure_tree(tree, X, y)
    grid = np.stack(np.meshgrid(*[np.linspace(X[:, j].min() - 1, X[:, j].max() + 1, 500) for j in range(2)]), -1)
    grid = grid.reshape(-1, 2)
    says = tree.predict(grid)
    for x, label, f in zip(X[:25], y[:25], found[:25], strict=True):
        for i, norm in enumerate(distance.NORMS):
            assert f[i] <= np.linalg.norm(grid[says != label] - x, ord=norm, axis=1).min() <= f[i] + 0.1


def see(shift, n=300, seed=0):
    """Return distances whose members are ``shift`` times farther; the shadow model's are alike."""
    rng = np.random.default_rng(seed)
    both = [np.abs(rng.normal(size=(2 * n, 1))) * [[4.0, 2.0, 1.0]] for _ in range(2)]
    members = np.arange(2 * n) < n
    for far in both:
        far[members] *= shift
        far[:5] = np.inf
    return distance.Seen("made up", both[0], members, both[1], members)


def test_adversaries_guess_where_there_is_nothing_and_see_what_is_planted():
    blind, planted = (distance.guesses(see(shift), None) for shift in (1.0, 6.0))

    assert [g.name for g in blind] == ["bounded_loss", "robust_classification", "robust_threshold"]
    assert max(abs(difference(g.counts, low_alpha=0.05, high_alpha=0.05)[0]) for g in blind) < 0.12
    one, eight, nine = (difference(g.counts, low_alpha=0.05, high_alpha=0.05)[0] for g in planted)
    assert one == 0
    assert min(eight, nine) > 0.45
    # Theorem 8: the advantage of Adversary 8 is the robust generalization error
    seen = see(2.0)
    eight, loss = distance.guesses(seen, 0.7)[1], seen.target[:, -1] <= 0.7
    gap = loss[~seen.members].mean() - loss[seen.members].mean()
    assert eight.radius == 0.7
    assert difference(eight.counts, low_alpha=0.05, high_alpha=0.05)[0] == pytest.approx(gap)


def subject(training, n=60, more=200):
    X, y = blobs(n + more, 5)
    X = X.astype(np.float32).astype(np.float64)
    data = TrainingData(X[:n], y[:n], candidates=(X[n:], y[n:]), one_record_each=True)
    return Subject.local(Recipe(training, seed=0), data)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with Fleet(jobs=1, ledger=tmp_path_factory.mktemp("ledger"), isolate="none") as one:
        yield one


@pytest.mark.parametrize(
    ("training", "outcome"),
    [
        pytest.param(DecisionTreeClassifier(random_state=0), None, marks=pytest.mark.slow),
        (DummyClassifier(), "inconclusive"),
    ],
)
def test_what_remembers_or_was_not_measured_is_no_pass(training, outcome, fleet, load_policy):
    policy = load_policy("rules:\n  - {metric: robust_advantage, max: 0.25}\n")
    judged = subject(training, 150, 600)
    verdict = evaluate(policy, judged, fleet=fleet)

    (finding,) = (f for f in verdict.findings if f.metric == "robust_advantage")
    assert finding.outcome is not Outcome.PASSED
    if outcome:
        assert finding.outcome == outcome
        with pytest.raises(MeasurementError, match="no wrong answer was found"):
            Run(judged, fleet).compute(distance.look_near)
    else:
        assert verdict.evidence.robust.how == "exactly, leaf by leaf"
        assert verdict.evidence.robust.adversaries[1].radius >= 0


class Disguised(LogisticRegression):
    """Shows weights that are not what it answers by."""

    def predict_proba(self, X):
        return np.where(super().predict_proba(X) > 0.5, 1.0, 0.0)[:, ::-1]


@pytest.mark.parametrize(
    ("training", "how"),
    [
        (LogisticRegression(), "exactly, as a linear model"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "exactly, as a linear model"),
        (DecisionTreeClassifier(max_depth=3), "exactly, leaf by leaf"),
        (RandomForestClassifier(5, max_depth=3, random_state=0), "along random directions"),
        (Disguised(), "along random directions"),
    ],
    ids=["linear", "scaled", "tree", "forest", "a class of its own is asked and not believed"],
)
def test_every_kind_is_looked_at_in_the_best_way_there_is(training, how, fleet):
    seen = Run(subject(training), fleet).compute(distance.look_near)

    assert seen.how == how
    assert seen.target.shape == (len(seen.members), 3)
    assert not np.isnan(seen.target).any()


def test_too_few_candidates_are_said_to_be_too_few(fleet):
    with pytest.raises(MeasurementError, match="too few for a shadow model"):
        Run(subject(LogisticRegression(), 60, 40), fleet).compute(distance.look_near)
