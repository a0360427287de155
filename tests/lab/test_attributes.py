"""Attribute inference: Theorem 5 and reductions on simulated errors, models that tell and that do not, and refusals."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privgate import Gaussian, Policy, Recipe, Release, Subject, TrainingData, evaluate, report
from privgate.errors import MeasurementError
from privgate.evidence import Count
from privgate.lab.attributes import feature_adversaries, sensitive_values
from privgate.lab.attributes.feature_adversaries import (
    Confidence,
    Inversion,
    LabelOnly,
    QueryingOracle,
    Seen,
    UniformOracle,
    normal,
    theorem_5,
)
from privgate.run.run import Run
from privgate.training.fleet import Fleet

N = 40_000
#: five standard errors of a difference of two shares
WITHIN = 5 * math.sqrt(0.5 / N)


def simulated(tau, ratio, rng, prior=(0.5, 0.5)):
    """Return (members', others') true values and residuals with either value put in; f(1) - f(0) is tau."""
    sides = []
    for deviation in (1.0, ratio):
        t = (rng.random(N) < prior[1]).astype(int)
        error = deviation * rng.normal(size=N)
        sides.append((t, error[:, None] + tau * (t[:, None] - np.arange(2))))
    return sides


def advantage(adversary, sides, prior=(0.5, 0.5)):
    right = []
    for t, residual in sides:
        seen = Seen(normal(residual, 1.0), np.array(prior), -0.5, residual)
        right.append((adversary.guess(seen, np.random.default_rng(1)) == t).mean())
    return right[0] - right[1]


@pytest.mark.parametrize("ratio", [1.0, 1.5, 3.0, 10.0])
@pytest.mark.parametrize("tau", [0.0, 0.5, 2.0, 8.0])
def test_theorem_5_within_monte_carlo_limits(tau, ratio):
    found = advantage(Inversion(), simulated(tau, ratio, np.random.default_rng([int(10 * tau), int(10 * ratio)])))

    assert found == pytest.approx(theorem_5(tau, 1.0, ratio), abs=WITHIN)


def test_theorem_5_rises_and_falls_with_influence_and_never_reaches_a_half():
    curve = [theorem_5(tau, 1.0, 10.0) for tau in np.linspace(0, 60, 200)]
    top = int(np.argmax(curve))

    assert 0 < top < 199
    assert (np.diff(curve[: top + 1]) > 0).all()
    assert (np.diff(curve[top:]) < 0).all()
    assert max(theorem_5(1.0, 1e-6, 1e6) for _ in [0]) < 0.5 + 1e-9


def oracle_advantage(sides):
    """Return the membership advantage of |residual| <= sigma_S with the true value put in."""
    return np.subtract(*[(np.abs(r[np.arange(N), t]) <= 1.0).mean() for t, r in sides])


@pytest.mark.parametrize("ratio", [1.5, 4.0])
def test_theorems_6_and_7_of_the_reductions(ratio):
    sides = simulated(3.0, ratio, np.random.default_rng(7))

    # Adversary 6: half of the oracle's advantage, for two values
    assert advantage(UniformOracle(), sides) == pytest.approx(oracle_advantage(sides) / 2, abs=WITHIN)
    # Adversary 5: "member" where the guess is right has the attribute adversary's advantage, by definition
    guessed = [Inversion().guess(Seen(normal(r, 1.0), np.array([0.5, 0.5]), -0.5), None) == t for t, r in sides]
    assert guessed[0].mean() - guessed[1].mean() == advantage(Inversion(), sides)
    # Adversary 7 asks about every value: never below Adversary 6
    assert advantage(QueryingOracle(), sides) > advantage(UniformOracle(), sides)


def test_labels_and_confidences_as_published():
    right = np.array([[1, 0], [1, 1], [0, 0], [0, 1]], dtype=bool)
    confidence = np.log([[0.6, 0.9], [0.7, 0.8], [0.9, 0.6], [0.9, 0.6]])
    seen = Seen(np.zeros((4, 2)), np.array([0.5, 0.5]), -1.0, right=right, confidence=confidence, known=np.eye(4))

    # one value is right; the surer of two that are; the least sure of those that are not
    assert Confidence().guess(seen, None).tolist() == [0, 1, 1, 1]


def test_clear_cases_teach_the_others():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 400)
    clear = rng.random(400) < 0.5
    right = np.where(clear[:, None], np.arange(2) == truth[:, None], True)
    known = np.column_stack([truth + 0.1 * rng.normal(size=400), rng.normal(size=400)])
    seen = Seen(np.zeros((400, 2)), np.array([0.5, 0.5]), -1.0, right=right, confidence=np.zeros((400, 2)), known=known)

    assert (LabelOnly().guess(seen, rng) == truth).mean() > 0.99
    nobody = Seen(np.zeros((4, 2)), np.array([0.2, 0.8]), -1.0, right=np.ones((4, 2), bool), known=np.eye(4))
    assert LabelOnly().guess(nobody, rng).tolist() == [1] * 4
    regressor = Seen(np.zeros((4, 2)), np.array([0.2, 0.8]), -1.0)
    assert [a.guess(regressor, rng).tolist() for a in feature_adversaries.OF_LABELS] == [[-1] * 4] * 2


def test_a_prior_decides_where_the_answers_do_not():
    seen = Seen(np.full((4, 3), -np.inf), np.array([0.2, 0.5, 0.3]), -0.5)

    assert Inversion().guess(seen, None).tolist() == [1] * 4
    assert QueryingOracle().guess(seen, None).tolist() == [-1] * 4
    assert (UniformOracle().guess(seen, np.random.default_rng(0)) == -1).all()


POLICY = "schema: privgate/policy/v1\nname: a\nversion: '1'\nrules:\n  - {metric: attribute_advantage, max: 0.2%s}\n"


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=600), "sex": np.where(rng.random(600) < 0.5, "m", "f"), "age": rng.integers(18, 90, 600)}
    )
    return frame, frame.a + (frame.sex == "m") + rng.normal(size=600)


def judged(tmp_path, estimator, X, y, sensitive=("sex",), options="", release=None, **given):
    (tmp_path / "p.yaml").write_text(POLICY % options)
    data = TrainingData(X[:300], y[:300], candidates=(X[300:], y[300:]), sensitive=sensitive, **given)
    with Fleet(jobs=1, ledger="none") as fleet:
        subject = Subject.local(Recipe(estimator, seed=0), data, release=release)
        verdict = evaluate(Policy.load(tmp_path / "p.yaml"), subject, fleet=fleet)
    return verdict, next(f for f in verdict.findings if f.rule == "attribute_advantage")


@pytest.mark.slow
def test_a_tree_tells_its_members_features_and_a_ridge_does_not(tmp_path, people):
    X, y = people
    X = X.assign(sex=(X.sex == "m").astype(int)).to_numpy()
    verdict, tree = judged(tmp_path, DecisionTreeRegressor(), X, y, sensitive=(1,))
    _, ridge = judged(tmp_path, Ridge(), X, y, sensitive=(1,))
    (told,) = verdict.evidence.attributes.attributes
    report.write(verdict, tmp_path / "out", hash_key=b"k" * 32)
    page = (tmp_path / "out" / "report.html").read_text()

    assert tree.outcome == "failed"
    assert tree.low > 0.8
    assert ridge.high < 0.25
    assert ridge.low <= 0
    assert [g.name for g in told.adversaries] == [a.name for a in feature_adversaries.ALL]
    assert told.without_model.advantage.low <= 0 <= told.without_model.advantage.high
    assert told.without_model.others == 150  # the other half taught it
    assert "Guessed without the model" in page
    assert "Sensitive features" in page


@pytest.mark.slow
def test_a_classifier_is_inverted_by_its_confidences(tmp_path, people):
    X, y = people
    X = X.assign(sex=(X.sex == "m").astype(int)).to_numpy()
    verdict, found = judged(tmp_path, DecisionTreeClassifier(), X, (y > y.median()).astype(int), sensitive=(1, 2))

    first = verdict.evidence.attributes.attributes[0]
    told = {g.name: g for g in first.adversaries}
    for g in (g for a in verdict.evidence.attributes.attributes for g in (*a.adversaries, *a.by_value)):
        for n, share in ((g.members, g.inside), (g.others, g.outside)):
            assert share is None or not Count(round(share * n), n).hidden
    assert found.low > 0
    assert set(told) == {a.name for a in (*feature_adversaries.ALL, *feature_adversaries.OF_LABELS)}
    assert told["confidence"].advantage.value == told["inversion"].advantage.value  # a whole tree is sure of all
    assert told["label_only"].inside > told["label_only"].outside
    assert [a.name for a in verdict.evidence.attributes.attributes] == ["1", "2"]
    assert verdict.evidence.attributes.attributes[0].theorem is None


def test_noise_hides_features_too(tmp_path, people):
    X, y = people
    X = X.assign(sex=(X.sex == "m").astype(int)).to_numpy()
    _, found = judged(
        tmp_path, DecisionTreeRegressor(), X, y, sensitive=(1,), release=Release(noise=Gaussian(1000 * y.std()))
    )

    assert found.low <= 0


@pytest.mark.slow
def test_least_squares_is_what_theorem_5_says(tmp_path):
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=(1200, 250)), rng.integers(0, 2, 1200)])
    y = 2.0 * X[:, -1] + rng.normal(size=1200)
    (tmp_path / "p.yaml").write_text(POLICY % "")
    data = TrainingData(X[:500], y[:500], candidates=(X[500:], y[500:]), sensitive=(250,))
    with Fleet(jobs=1, ledger="none") as fleet:
        verdict = evaluate(
            Policy.load(tmp_path / "p.yaml"), Subject.local(Recipe(LinearRegression()), data), fleet=fleet
        )
    (told,) = verdict.evidence.attributes.attributes
    inversion = next(g for g in told.adversaries if g.name == "inversion")

    # half as many columns as records: members' residuals are half as large as others'
    assert told.theorem == pytest.approx(theorem_5(2.0, math.sqrt(0.5), math.sqrt(2)), abs=0.05)
    assert inversion.advantage.low <= told.theorem <= inversion.advantage.high


def test_text_numbers_and_missing_values_are_put_in_as_they_are(people):
    X, y = people
    X = X.assign(sex=pd.Categorical(X.sex)).astype({"age": "float64"})
    X.loc[:5, "sex"] = None
    data = TrainingData(X[:300], y[:300], candidates=(X[300:], y[300:]), sensitive=("sex", "age"))
    sex, age = sensitive_values.read(data, "sex"), sensitive_values.read(data, "age")

    assert sex.names == ("f", "m")
    assert sex.prior == pytest.approx([(X.sex[300:] == v).mean() for v in "fm"])
    assert (sex.codes[:6] == -1).all()
    assert len(age.values) == 4
    assert age.prior == pytest.approx([0.25] * 4, abs=0.03)
    for k, value in enumerate(age.values):
        own = X.age[300:][age.codes[300:] == k]
        assert own.min() <= value <= own.max()
    made = sensitive_values.put_in(X, np.array([0, 7]), "sex", "m")
    assert made.sex.tolist() == ["m", "m"]
    assert made.dtypes.tolist() == X.dtypes.tolist()
    assert X.sex[0] is not made.sex[0]


def test_the_guess_without_the_model_sees_no_answer_of_it(people):
    X, y = people
    X = X.assign(other=X.sex)  # another column says it all
    data = TrainingData(X[:300], y[:300], candidates=(X[300:], y[300:]), sensitive=("sex",))
    with Fleet(jobs=1, ledger="none") as fleet:
        run = Run(Subject.local(Recipe(DecisionTreeRegressor()), data), fleet)
        rows = np.arange(600)
        found = feature_adversaries.guesses(run, sensitive_values.read(data, "sex"), rows, rows >= 450)

    assert (found == sensitive_values.read(data, "sex").codes).mean() > 0.99


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("options", "given", "said"),
    [
        ("", {"sensitive": ()}, "no feature is declared sensitive"),
        (", attribute: race", {}, "'race' is not declared sensitive"),
        ("", {"sensitive": ("shoe size",)}, "not among the features"),
    ],
)
def test_what_cannot_be_inferred_is_never_a_pass(tmp_path, people, options, given, said):
    X, y = people
    X = X.assign(sex=(X.sex == "m").astype(int))
    verdict, found = judged(tmp_path, DecisionTreeRegressor(), X, y, options=options, **given)

    assert found.outcome == "inconclusive"
    assert said in found.message
    assert verdict.evidence.attributes is None


def test_a_feature_that_everybody_shares_is_no_question(people):
    X, y = people
    data = TrainingData(X.assign(sex="m")[:300], y[:300], candidates=(X.assign(sex="m")[300:], y[300:]))

    with pytest.raises(MeasurementError, match="nothing to infer"):
        sensitive_values.read(data, "sex")
    with pytest.raises(MeasurementError, match="pass a DataFrame"):
        sensitive_values.read(TrainingData([["a"], ["b"]], [0, 1], candidates=([["a"], ["b"]], [0, 1])), 0)
