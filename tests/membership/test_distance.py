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

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.errors import MeasurementError
from privgate.kernel.sample import difference
from privgate.membership import distance
from privgate.run.run import Run
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome


def blobs(n, seed, classes=3, d=3):
    return make_classification(
        n, d, n_informative=d, n_redundant=0, n_classes=classes, n_clusters_per_class=1, flip_y=0.1, random_state=seed
    )


def test_linear_distances_are_those_of_the_nearest_wrong_answer():
    X, y = blobs(60, 0)
    model = LogisticRegression(C=5.0).fit(X, y)
    found = distance.measure_linear(model.coef_, model.intercept_, X, y)
    right = model.predict(X) == y

    assert (found[~right] == 0).all()
    assert (found[right] > 0).all()
    rng = np.random.default_rng(1)
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
        slope = model.coef_[None] - model.coef_[y][:, None]
        ends = {
            1.0: np.sign(slope) * (np.abs(slope) == np.abs(slope).max(axis=2, keepdims=True)),
            np.inf: np.sign(slope),
        }
        best = ends.get(norm, slope / np.maximum(np.linalg.norm(slope, axis=2, keepdims=True), 1e-12))
        beyond = X[:, None] + 1.001 * found[:, i, None, None] * best
        assert (model.predict(beyond.reshape(-1, 3)).reshape(len(X), -1) != y[:, None]).any(axis=1)[right].all()


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
        away = grid[says != label] - x
        for i, norm in enumerate(distance.NORMS):
            seen = np.linalg.norm(away, ord=norm, axis=1).min()
            assert f[i] <= seen <= f[i] + 0.1


def test_random_directions_never_report_less_than_the_truth_and_come_near_it():
    X, y = blobs(40, 3)
    model = LogisticRegression(C=1.0).fit(X, y)
    exact = distance.measure_linear(model.coef_, model.intercept_, X, y)
    box = X.min(axis=0) - 50, X.max(axis=0) + 50
    found = distance.along_random_directions(model.predict, X, y, box, np.random.default_rng(0))

    assert (found >= exact - 1e-4).all()
    assert (found[exact == 0] == 0).all()
    right = exact[:, 0] > 0
    assert np.median(found[right] / exact[right]) < 3.0


def seen_of(shift, n=300, seed=0):
    """Return distances whose members are ``shift`` times farther; the shadow model's are alike."""
    rng = np.random.default_rng(seed)
    both = [np.abs(rng.normal(size=(2 * n, 1))) * [[4.0, 2.0, 1.0]] for _ in range(2)]
    members = np.arange(2 * n) < n
    for far in both:
        far[members] *= shift
        far[:5] = np.inf
    return distance.Seen("made up", both[0], members, both[1], members)


def test_adversaries_guess_where_there_is_nothing_and_see_what_is_planted():
    blind = distance.guesses(seen_of(1.0), None)
    planted = distance.guesses(seen_of(6.0), None)

    assert [g.name for g in blind] == ["bounded_loss", "robust_classification", "robust_threshold"]
    for g in blind:
        assert abs(difference(g.counts, low_alpha=0.05, high_alpha=0.05)[0]) < 0.12
    one, eight, nine = (difference(g.counts, low_alpha=0.05, high_alpha=0.05)[0] for g in planted)
    assert one == 0
    assert min(eight, nine) > 0.45


def test_theorem_8_the_advantage_of_adversary_8_is_the_robust_generalization_error():
    seen = seen_of(2.0)
    eight = distance.guesses(seen, 0.7)[1]
    loss = seen.target[:, -1] <= 0.7

    assert eight.radius == 0.7
    gap = loss[~seen.members].mean() - loss[seen.members].mean()
    assert difference(eight.counts, low_alpha=0.05, high_alpha=0.05)[0] == pytest.approx(gap)


def subject(training, n=150, more=600):
    X, y = blobs(n + more, 5)
    X = X.astype(np.float32).astype(np.float64)
    return Subject.local(
        Recipe(training, seed=0), TrainingData(X[:n], y[:n], candidates=(X[n:], y[n:]), one_record_each=True)
    )


POLICY = "schema: privgate/policy/v1\nname: r\nversion: '1'\nrules:\n  - {metric: robust_advantage, max: 0.25}\n"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with Fleet(jobs=1, ledger=tmp_path_factory.mktemp("ledger"), isolate="none") as one:
        yield one


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "r.yaml").write_text(POLICY)
    return Policy.load(tmp_path / "r.yaml")


@pytest.mark.slow
def test_a_tree_that_remembers_is_refused_and_the_evidence_says_how(policy, fleet):
    verdict = evaluate(policy, subject(DecisionTreeClassifier(random_state=0)), fleet=fleet)
    part = verdict.evidence.robust

    (finding,) = (f for f in verdict.findings if f.metric == "robust_advantage")
    assert finding.outcome is not Outcome.PASSED
    assert part.how == "exactly, leaf by leaf"
    assert [a.name for a in part.adversaries] == ["bounded_loss", "robust_classification", "robust_threshold"]
    # 0-1 loss with nothing learned wrong: Adversary 8 with the best radius is no worse than Adversary 1
    assert part.adversaries[1].radius >= 0


class Disguised(LogisticRegression):
    """Shows weights that are not what it answers by."""

    def predict_proba(self, X):
        return np.where(super().predict_proba(X) > 0.5, 1.0, 0.0)[:, ::-1]


@pytest.mark.parametrize(
    ("training", "how"),
    [
        (LogisticRegression(), "exactly, as a linear model"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "exactly, as a linear model"),
        (RandomForestClassifier(5, max_depth=3, random_state=0), "along random directions"),
        (Disguised(), "along random directions"),
    ],
    ids=["linear", "scaled", "forest", "a class of its own is asked and not believed"],
)
def test_every_kind_is_looked_at_in_the_best_way_there_is(training, how, fleet):
    seen = Run(subject(training, 60, 200), fleet).once(distance.look_near)

    assert seen.how == how
    assert seen.target.shape == (len(seen.members), 3)
    assert not np.isnan(seen.target).any()


def test_too_few_candidates_are_said_to_be_too_few(fleet):
    with pytest.raises(MeasurementError, match="too few for a shadow model"):
        Run(subject(LogisticRegression(), 60, 40), fleet).once(distance.look_near)


def test_what_was_not_measured_is_no_pass(policy, fleet):
    verdict = evaluate(policy, subject(DummyClassifier(), 60, 200), fleet=fleet)
    (finding,) = (f for f in verdict.findings if f.metric == "robust_advantage")

    assert finding.outcome is Outcome.INCONCLUSIVE
    with pytest.raises(MeasurementError, match="no wrong answer was found"):
        Run(subject(DummyClassifier(), 60, 200), fleet).once(distance.look_near)
