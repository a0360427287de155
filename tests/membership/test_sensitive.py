"""Attribute inference: Theorem 5 and reductions on simulated errors, models that tell and that do not, and refusals."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from papers.gaussian import theorem_5
from privgate import Gaussian, Policy, Recipe, Release, Subject, TrainingData, evaluate, report
from privgate.evidence import Count
from privgate.kernel.sample import difference
from privgate.membership import sensitive
from privgate.membership.sensitive import Seen, ask_of_every_value, ask_once, invert, normal
from privgate.training.fleet import Fleet

N = 40_000
#: five standard errors of a difference of two shares
WITHIN = 5 * math.sqrt(0.5 / N)
HALVES = np.array([0.5, 0.5])


def simulated(tau, ratio, rng):
    """Return (members', others') true values and residuals with either value put in; f(1) - f(0) is tau."""
    sides = []
    for deviation in (1.0, ratio):
        t, error = (rng.random(N) < 0.5).astype(int), deviation * rng.normal(size=N)
        sides.append((t, error[:, None] + tau * (t[:, None] - np.arange(2))))
    return sides


def advantage(adversary, sides):
    guessed = [adversary(Seen(normal(r, 1.0), HALVES, -0.5), np.random.default_rng(1)) == t for t, r in sides]
    return guessed[0].mean() - guessed[1].mean()


@pytest.mark.parametrize("ratio", [1.0, 1.5, 3.0, 10.0])
@pytest.mark.parametrize("tau", [0.0, 0.5, 2.0, 8.0])
def test_theorem_5_within_monte_carlo_limits(tau, ratio):
    found = advantage(invert, simulated(tau, ratio, np.random.default_rng([int(10 * tau), int(10 * ratio)])))

    assert found == pytest.approx(theorem_5(tau, 1.0, ratio), abs=WITHIN)
    assert theorem_5(1.0, 1e-6, 1e6) < 0.5 + 1e-9  # never a half


@pytest.mark.parametrize("ratio", [1.5, 4.0])
def test_theorems_6_and_7_of_the_reductions(ratio):
    sides = simulated(3.0, ratio, np.random.default_rng(7))
    oracle = np.subtract(*[(np.abs(r[np.arange(N), t]) <= 1.0).mean() for t, r in sides])

    # Adversary 6: half of the oracle's advantage, for two values; Adversary 7 asks about every value: never below it
    assert advantage(ask_once, sides) == pytest.approx(oracle / 2, abs=WITHIN)
    assert advantage(ask_of_every_value, sides) > advantage(ask_once, sides)


def test_labels_and_confidences_as_published():
    right = np.array([[1, 0], [1, 1], [0, 0], [0, 1]], dtype=bool)
    confidence = np.log([[0.6, 0.9], [0.7, 0.8], [0.9, 0.6], [0.9, 0.6]])
    seen = Seen(np.zeros((4, 2)), HALVES, -1.0, right=right, confidence=confidence, known=np.eye(4))

    # one value is right; the surer of two that are; the least sure of those that are not
    assert sensitive.read_confidence(seen, None).tolist() == [0, 1, 1, 1]
    rng = np.random.default_rng(0)
    truth, clear = rng.integers(0, 2, 400), rng.random(400) < 0.5
    right = np.where(clear[:, None], np.arange(2) == truth[:, None], True)
    known = np.column_stack([truth + 0.1 * rng.normal(size=400), rng.normal(size=400)])
    clear_cases_teach = Seen(np.zeros((400, 2)), HALVES, -1.0, right=right, known=known)
    assert (sensitive.read_labels(clear_cases_teach, rng) == truth).mean() > 0.99
    nobody = Seen(np.zeros((4, 2)), np.array([0.2, 0.8]), -1.0, right=np.ones((4, 2), bool), known=np.eye(4))
    assert sensitive.read_labels(nobody, rng).tolist() == [1] * 4


def test_a_prior_decides_where_the_answers_do_not():
    seen = Seen(np.full((4, 3), -np.inf), np.array([0.2, 0.5, 0.3]), -0.5)

    assert invert(seen, None).tolist() == [1] * 4
    assert ask_of_every_value(seen, None).tolist() == [-1] * 4
    assert (ask_once(seen, np.random.default_rng(0)) == -1).all()


@pytest.mark.parametrize(("right", "wrong"), [(4, 50), (293, 50), (150, 3), (150, 96), (0, 100), (4, 97)])
def test_what_leaves_is_the_same_whichever_of_the_hidden_counts_is_true(right, wrong):
    told = [sensitive._show({"name": "a", "title": "a"}, (k, 297, w, 100), (300, 100), 0.05) for k, w in
            ((right, wrong), *((k, w) for k in Count(right, 297).ends for w in Count(wrong, 100).ends))]  # fmt: skip
    _, low, high = difference((right, 297, wrong, 100), low_alpha=0.05, high_alpha=0.05)

    assert all(t == told[0] for t in told)
    assert told[0].members == 291  # how many have no known value is hidden
    assert told[0].inside is None
    assert told[0].advantage.low <= low <= high <= told[0].advantage.high


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=600), "sex": np.where(rng.random(600) < 0.5, "m", "f"), "age": rng.integers(18, 90, 600)}
    )
    return frame, frame.a + (frame.sex == "m") + rng.normal(size=600)


POLICY = "schema: privgate/policy/v1\nname: a\nversion: '1'\nrules: [{metric: attribute_advantage, max: 0.2%s}]\n"


def judged(tmp_path, estimator, X, y, columns, options="", n=300, release=None):
    (tmp_path / "p.yaml").write_text(POLICY % options)
    data = TrainingData(X[:n], y[:n], candidates=(X[n:], y[n:]), sensitive=columns, one_record_each=True)
    with Fleet(jobs=1, ledger="none") as fleet:
        subject = Subject.local(Recipe(estimator, seed=0), data, release=release)
        verdict = evaluate(Policy.load(tmp_path / "p.yaml"), subject, fleet=fleet)
    return verdict, next(f for f in verdict.findings if f.rule == "attribute_advantage")


def numbers(X):
    return X.assign(sex=(X.sex == "m").astype(int)).to_numpy()


@pytest.mark.slow
def test_a_classifier_is_inverted_by_its_confidences(tmp_path, people):
    X, y = numbers(people[0]), people[1]
    verdict, found = judged(tmp_path, DecisionTreeClassifier(), X, (y > y.median()).astype(int), (1, 2))
    attributes = verdict.evidence.attributes.attributes
    told = {g.name: g for g in attributes[0].adversaries}

    for g in (g for a in attributes for g in a.adversaries):
        for n, share in ((g.members, g.inside), (g.others, g.outside)):
            assert share is None or not Count(round(share * n), n).hidden
    assert found.low > 0
    assert set(told) == {a.name for a in (*sensitive.ALL, *sensitive.OF_LABELS)}
    assert told["confidence"].advantage.value == told["inversion"].advantage.value  # a whole tree is sure of all
    assert told["label_only"].inside > told["label_only"].outside
    assert [a.name for a in attributes] == ["1", "2"]


def test_a_tree_tells_its_members_features_a_ridge_does_not_and_noise_hides_them(tmp_path, people):
    X, y = numbers(people[0]), people[1]
    verdict, tree = judged(tmp_path, DecisionTreeRegressor(), X, y, (1,))
    _, ridge = judged(tmp_path, Ridge(), X, y, (1,))
    (told,) = verdict.evidence.attributes.attributes
    report.write(verdict, tmp_path / "out", hash_key=b"k" * 32)

    assert tree.outcome == "failed"
    assert tree.low > 0.8
    assert ridge.low <= 0 < ridge.high < 0.25
    assert [g.name for g in told.adversaries] == [a.name for a in sensitive.ALL]
    assert told.without_model.advantage.low <= 0 <= told.without_model.advantage.high
    assert told.without_model.others == 150  # the other half taught it
    assert "Guessed without the model" in (tmp_path / "out" / "report.html").read_text()
    noisy = Release(noise=Gaussian(1000 * y.std()))
    assert judged(tmp_path, DecisionTreeRegressor(), X, y, (1,), release=noisy)[1].low <= 0


@pytest.mark.slow
def test_least_squares_is_what_theorem_5_says(tmp_path):
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=(1200, 250)), rng.integers(0, 2, 1200)])
    verdict, _ = judged(tmp_path, LinearRegression(), X, 2.0 * X[:, -1] + rng.normal(size=1200), (250,), n=500)
    (told,) = verdict.evidence.attributes.attributes
    inversion = next(g for g in told.adversaries if g.name == "inversion")

    # half as many columns as records: members' residuals are half as large as others'
    assert inversion.advantage.low <= theorem_5(2.0, math.sqrt(0.5), math.sqrt(2)) <= inversion.advantage.high


def test_text_numbers_and_missing_values_are_put_in_as_they_are(people):
    X = people[0].assign(sex=pd.Categorical(people[0].sex)).astype({"age": "float64"})
    X.loc[:5, "sex"] = None
    data = TrainingData(
        X[:300], people[1][:300], candidates=(X[300:], people[1][300:]), sensitive=("sex", "age"), one_record_each=True
    )
    sex, age = sensitive.read_attribute(data, "sex"), sensitive.read_attribute(data, "age")

    assert sex.prior == pytest.approx([(X.sex[300:] == v).mean() for v in "fm"])
    assert (sex.codes[:6] == -1).all()
    assert age.prior == pytest.approx([0.25] * 4, abs=0.03)
    for k, value in enumerate(age.values):
        own = X.age[300:][age.codes[300:] == k]
        assert own.min() <= value <= own.max()
    made = sensitive.put_in(X, np.array([0, 7]), "sex", "m")
    assert made.sex.tolist() == ["m", "m"]
    assert made.dtypes.tolist() == X.dtypes.tolist()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ("", (), "no feature is declared sensitive"),
        (", attribute: race", ("sex",), "'race' is not declared sensitive"),
        ("", ("shoe size",), "not among the features"),
        ("", ("same",), "nothing to infer"),
    ],
)
def test_what_cannot_be_inferred_is_never_a_pass(tmp_path, people, options, columns, said):
    X = people[0].assign(sex=(people[0].sex == "m").astype(int), same=1)
    verdict, found = judged(tmp_path, DecisionTreeRegressor(), X, people[1], columns, options)

    assert found.outcome == "inconclusive"
    assert said in found.message
    assert verdict.evidence.attributes is None
