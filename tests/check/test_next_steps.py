"""Each cause has one step that can succeed: it is said, it is followed by hand, and then the check approves.

A person is named instead of a command for the sandbox alone: nobody who trains can give it.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from privgate import Budget, Domain, Fleet, Recipe, Subject, TrainingData, evaluate, registry
from privgate.advice.search import advise
from privgate.check.plan import costs
from privgate.policy.rules.rule_base import STEPS

RNG = np.random.default_rng(3)
X = RNG.normal(size=(360, 3)).round(3)
Y = (X[:, 0] + RNG.normal(size=360) > 0).astype(int)
#: labels that a tree has to learn by heart, and others' labels of the same kind
MORE = RNG.normal(size=(360, 3)).round(3)
GUESSED, OTHERS = ((0.5 * x[:, 0] + RNG.normal(size=360) > 0).astype(int) for x in (X, MORE))
SMOOTH = LogisticRegression(C=0.01, solver="newton-cholesky", tol=1e-8)
SIZES = (3, 4)
CODES = np.column_stack([np.where(RNG.random(60) < 0.7, Y[:60], RNG.integers(0, v, 60)) for v in SIZES])


def people(outside=160, labels=None):
    labels = Y if labels is None else labels
    return TrainingData(
        X[:200], labels[:200], candidates=(X[200 : 200 + outside], labels[200 : 200 + outside]), one_record_each=True
    )


def ignores_its_data(X, y, *, seed):
    return LogisticRegression().fit(np.array([[0.0], [1.0]]).repeat(3, axis=1), [0, 1])


def draws_beside_its_seed(X, y, *, seed):
    return LogisticRegression(C=0.01).fit(X + np.random.default_rng().normal(size=X.shape), y)


def from_a_file(X, y, *, seed, strength=None):
    from pathlib import Path

    return LogisticRegression(C=float(strength or Path("strength.txt").read_text())).fit(X, y)


def smooth(X, y, *, seed):
    return LogisticRegression(C=0.01).fit(X, y)


def subject(training, data=None, **more):
    return Subject.local(Recipe(training, seed=1, **more), data or people())


FEW = Budget(shadow_models=8)
INFLUENCE = "rules: [{metric: pdtp, max: 1}]"
ATTACKS = "audit: {min_candidates: 100}\nrules: [{metric: attack_accuracy, max: 0.7}]"
FILE = "rules: [{metric: pdtp, max: 1}, {metric: file_records, max: 0}]"
#: cause -> (rules, what the owner brings, what follows the step by hand)
FOLLOWED = {
    "people": (ATTACKS, lambda: subject(SMOOTH, people(outside=60)), lambda: subject(SMOOTH)),
    "recipe": (INFLUENCE, lambda: subject(ignores_its_data), lambda: subject(smooth)),
    "seed": (INFLUENCE, lambda: subject(draws_beside_its_seed), lambda: subject(smooth)),
    "error": (INFLUENCE, lambda: subject(from_a_file), lambda: subject(from_a_file, params={"strength": 0.01})),
    "file": (FILE, lambda: subject(KNeighborsClassifier()), lambda: subject(SMOOTH)),
    "influence": (
        "rules: [{metric: dtp, max: 1}]",
        lambda: subject(
            CategoricalNB(alpha=0.2, min_categories=list(SIZES)),
            TrainingData(
                np.vstack([CODES, [[2, 3]]]),
                np.append(Y[:60], 0),
                domain=Domain(categories=SIZES),
                one_record_each=True,
            ),
        ),
        None,
    ),
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with Fleet(jobs=1, ledger=tmp_path_factory.mktemp("ledger")) as one:
        yield one


def steps_of(verdict):
    return [f.advice for f in verdict.findings if not f.outcome.releases and f.advice]


@pytest.mark.parametrize("cause", [pytest.param(c, marks=[pytest.mark.slow] * (c == "people")) for c in FOLLOWED])
def test_a_step_is_named_and_whoever_follows_it_is_approved(cause, fleet, load_policy):
    rules, brought, followed = FOLLOWED[cause]
    policy = load_policy(rules)
    blocked = evaluate(policy, brought(), fleet=fleet, limits=FEW)

    assert not blocked.outcome.releases
    assert steps_of(blocked)[0].startswith(STEPS[cause])
    searches = ["privgate advise" in str(step) for step in blocked.detail["next_steps"]]
    assert any(searches) == (followed is None)  # a search is proposed where a change of the model can approve
    if followed is None:
        after = advise(policy, brought(), fleet=fleet, limits=FEW, verdict=blocked).verdict
    else:
        after = evaluate(policy, followed(), fleet=fleet, limits=FEW)
    assert after.outcome.releases


def test_whoever_runs_the_host_is_named_where_the_sandbox_is_missing(fleet, load_policy):
    policy = load_policy(f"audit: {{min_isolation: bubblewrap}}\n{INFLUENCE}")
    with Fleet(jobs=1, ledger="none", isolate="none") as bare:
        blocked = evaluate(policy, subject(SMOOTH), fleet=bare)

    assert steps_of(blocked) == [STEPS["isolation"]]
    assert "whoever runs this host" in STEPS["isolation"]
    if fleet.isolation.startswith("bubblewrap"):
        assert evaluate(policy, subject(SMOOTH), fleet=fleet).outcome.releases


@pytest.mark.parametrize(
    ("training", "limit", "attacks"),
    [(SMOOTH, 0.7, "passed"), (DecisionTreeClassifier(min_samples_leaf=2), 0.55, "failed")],
)
def test_what_is_served_is_mended_as_said_and_attacks_are_judged_before(
    fleet, tmp_path, load_policy, empty_database, monkeypatch, training, limit, attacks
):
    import shutil

    import mlflow

    shutil.copy(empty_database, tmp_path / "registry.db")
    uri = registry.local_registry(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    policy = load_policy(f"rules: [{{metric: pdtp, max: 1}}, {{metric: attack_accuracy, level: 0.05, max: {limit}}}]")
    data = TrainingData(X[:200], GUESSED[:200], candidates=(MORE, OTHERS), one_record_each=True)
    recipe, about = Recipe(training, seed=1), {"data": data, "store": tmp_path / "data"}
    fitted = recipe.train(data.X, data.y, seed=1)
    named = {"name": "model", "registered_model_name": "served", "serialization_format": "cloudpickle"}
    info = mlflow.sklearn.log_model(fitted, pip_requirements=[], **named)
    registry.log_recipe(info, recipe, **about)
    subject = Subject.load("models:/served/1", tracking_uri=uri)
    planned = costs(policy, subject, fleet=fleet, limits=Budget())
    blocked = evaluate(policy, subject, fleet=fleet)

    assert blocked.outcome == ("inconclusive" if attacks == "passed" else "failed")
    assert {f.metric: f.outcome for f in blocked.findings if f.metric} == {
        "pdtp": "inconclusive",
        "attack_accuracy": attacks,
    }
    assert not planned.ends
    (held,) = (f for f in blocked.findings if f.rule == "precondition:served")
    assert held.message.endswith("or log_recipe(…, serve='probabilities')")
    assert registry.log_recipe(info, recipe, serve="probabilities", **about) == "models:/served/2"
    again = evaluate(policy, Subject.load("models:/served/2", tracking_uri=uri), fleet=fleet)
    assert again.outcome.releases == (attacks == "passed")


@pytest.mark.parametrize(
    ("rules", "training", "cause", "outcome"),
    [
        ("audit: {min_units: 1000}\nrules: [{metric: pdtp, max: 1}]", SMOOTH, "data", "inconclusive"),
        (FILE.replace("max: 0", "max: 0, mode: warn"), KNeighborsClassifier(), "file", "failed"),
    ],
)
def test_what_ends_a_check_beforehand_names_its_own_step(rules, training, cause, outcome, fleet, load_policy):
    verdict = evaluate(load_policy(rules), subject(training), fleet=fleet)
    assert verdict.outcome == outcome
    assert {step.split("; log")[0] for step in steps_of(verdict)} == {STEPS[cause].split("; log")[0]}
    assert all("could not be read" not in f.advice for f in verdict.findings)
