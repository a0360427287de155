"""Small real runs of the gate, one of every kind, kept as goldens that the tests of the report read.

``python tests/report/real_runs.py`` makes all of them again, ``… real_runs.py attacked waived`` these two.
"""

import datetime as dt
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, TypeAdapter
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import CategoricalNB
from sklearn.tree import DecisionTreeClassifier

sys.path.insert(0, str(Path(__file__).parent))
import trained
import trained_early

from privgate import Policy, Recipe, Release, Subject, TrainingData, evaluate, registry, report
from privgate.evidence import Evidence, encode
from privgate.evidence.measurement import Behind
from privgate.evidence.verdict import Finding, Verdict
from privgate.run.run import Budget
from privgate.subject.domain import Domain
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger

FOLDER = Path(__file__).with_name("goldens")
KEY = b"a key for tests, thirty-two byte"
HEAD = 'schema: privgate/policy/v1\nname: {}\nversion: "1"\nrules:\n'
#: columns of the per-person table that hold no float
KINDS_OF = {"unit": object, "label": object, "engine": object, "status": object, "seeds": int}

NAIVE_BAYES = Recipe(CategoricalNB(alpha=5.0, min_categories=trained.SIZES), seed=1)
UNSMOOTHED = Recipe(CategoricalNB(alpha=0.001, min_categories=trained.SIZES), seed=1)
TREE = Recipe(DecisionTreeClassifier(), seed=1)
LOGISTIC = Recipe(LogisticRegression(C=0.1, tol=1e-10, solver="newton-cholesky"), seed=1)
PEOPLE = np.repeat([f"person {i:03d}" for i in range(20)], 3)
ROUNDED = Release("rounded", step=0.1, temperature=2.0)
FOREST = Recipe(RandomForestClassifier(n_estimators=5, max_depth=2, min_samples_leaf=8), seed=1)


def categories(n=60, seed=4, **more):
    """Return people with three categorical features, and as many outside the data."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(2 * n) < 0.4, "yes", "no")
    X = np.column_stack([(rng.integers(0, v, 2 * n) + (y == "yes")) % v for v in trained.SIZES])
    return _people(X, y, n, domain=Domain(categories=tuple(trained.SIZES)), **more)


def numbers(n=80, seed=2, **more):
    """Return people with three real features and one of two towns, and as many outside the data."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(2 * n, 3)), rng.integers(0, 2, 2 * n)])
    y = np.where(X[:, :3] @ [1.0, -1.0, 0.5] + rng.logistic(size=2 * n) > 0, "yes", "no")
    return _people(X, y, n, **more)


def _people(X, y, n, *, candidates=False, **more):
    more = {"one_record_each": "groups" not in more, "candidates": (X[n:], y[n:]) if candidates else None, **more}
    return TrainingData(X[:n], y[:n], ids=[f"P-{i:05d}" for i in range(n)], **more)


class Workshop:
    """A registry, a fleet and a folder for policies of one run: what it remembers must not hang on others."""

    def __init__(self, folder, fleet):
        self.folder, self.fleet, self.versions = Path(folder), fleet, {}
        self.registry = registry.local_registry(self.folder / "registry")

    def registered(self, name, recipe, data, **more):
        """Return the subject of a model version that is logged and loaded as its owner would."""
        versions = self.versions.setdefault(name, [])
        if recipe not in versions:
            registry.log_model(recipe, data, registered_model_name=name, tracking_uri=self.registry, store="artifacts",
                               **more)  # fmt: skip
            versions.append(recipe)
        return Subject.load(f"models:/{name}/{versions.index(recipe) + 1}", tracking_uri=self.registry)

    def policy(self, name, *rules, waivers=()):
        """Return a policy of its own, read from its file."""
        lines = [f"  - {{{r}}}\n" for r in rules]
        lines += ["waivers:\n", *(f"  - {{{w}}}\n" for w in waivers)] if waivers else []
        path = self.folder / f"{name}.yaml"
        path.write_text(HEAD.format(name) + "".join(lines), encoding="utf-8")
        return Policy.load(path)

    def check(self, policy, name, recipe, data, *, release=None, **limits):
        """Return the gate's verdict on a version that is registered for it."""
        more = {} if release is None else {"release": release}
        return self.judge(policy, self.registered(name, recipe, data, **more), **limits)

    def judge(self, policy, subject, observe=False, **limits):
        """Return the gate's verdict."""
        policy = Policy.load(policy) if isinstance(policy, str) else policy
        return evaluate(policy, subject, fleet=self.fleet, limits=Budget(**limits), observe=observe)


def waiver(rule, subject, ceiling, *, days):
    """Return a waiver for this very model version that ends in so many days."""
    today = dt.datetime.now(dt.UTC).date()
    granted, expires = today - dt.timedelta(days=40), today + dt.timedelta(days=days)
    return (
        f"rule: {rule}, model: {subject.name}, version: '{subject.digests['model']}', ceiling: {ceiling}, "
        f"reason: pilot with forty employees, requester: a.meyer@example.org, approver: c.rossi@example.org, "
        f"granted: {granted}, expires: {expires}"
    )


def certified(w):
    """Approved by theorem: the version after it."""
    w.registered("credit", UNSMOOTHED, categories(40))
    return w.check("dtp-1", "credit", NAIVE_BAYES, categories(40))


#: runs of one recipe under one shipped policy
PLAIN = {
    # refused: smoothed too little
    "before": lambda w: w.check("dtp-1", "credit", UNSMOOTHED, categories(40)),
    # refused: a tree that learned its people by heart; the same, while the operator only observes
    "refuted": lambda w: w.check("dtp-1", "income", TREE, categories()),
    "observed": lambda w: w.check("dtp-1", "watched", TREE, categories(), observe=True),
    # approved for direct queries only
    "direct": lambda w: w.check("pdtp-1", "churn", LOGISTIC, numbers()),
    # a forest that depends on its seed, on a sample of its people
    "undecided": lambda w: w.check("pdtp-1", "risk", FOREST, categories(), max_retrains=40, seeds=5),
    # several records a person
    "people": lambda w: w.check("dtp-1", "visits", NAIVE_BAYES, categories(groups=PEOPLE)),
    # a recipe that does not depend on its data
    "stopped": lambda w: w.check("dtp-1", "frozen", Recipe(trained.checkpoint, seed=1), categories()),
    # what is released is rounded and of another temperature than what is trained
    "rounded": lambda w: w.check("dtp-1", "rounded", NAIVE_BAYES, categories(), release=ROUNDED),
}


def attacked(w):
    """Attacks on a tree under a policy of many rules: broken, waived, met and open ones."""
    subject = w.registered("salary", TREE, numbers(150, candidates=True, sensitive=(3,)))
    policy = w.policy(
        "many",
        "metric: dtp, max: 1",
        "metric: attack_accuracy, attack: any, scope: model, max: 0.6",
        "metric: attack_accuracy, id: by_label, attack: any, scope: class, max: 0.6",
        "metric: attack_accuracy, id: by_group, attack: any, scope: group, max: 0.6, mode: warn",
        "metric: attack_tpr, attack: any, at_fpr: 0.1, max: 0.12",
        "metric: deletion_capacity, min: 10, rho: 0.9, prior: 0.001",
        waivers=(waiver("attack_tpr", subject, 0.99, days=30), waiver("dtp", subject, 8, days=-3)),
    )
    return w.judge(policy, subject, shadow_models=32)


def unattacked(w):
    """Approved for direct queries, and by attacks that find little."""
    policy = w.policy("both", "metric: pdtp, max: 1", "metric: attack_accuracy, attack: any, scope: model, max: 0.65")
    return w.check(policy, "churn-attacked", LOGISTIC, numbers(400, candidates=True), shadow_models=32)


def private(w):
    """Trained with differential privacy: bounds, an audit, attacks."""
    policy = w.policy(
        "dp",
        "metric: dp_epsilon, max: 8, delta: 1.0e-5",
        "metric: dp_epsilon_lower_bound, max: claim, confidence: 0.99",
        "metric: dp_attack_accuracy_bound, max: 0.75, prior: 0.5, mode: warn",
        "metric: attack_accuracy, attack: any, scope: model, max: 0.7",
    )
    recipe = Recipe(trained.noised, dp=trained.CLAIM)
    return w.check(policy, "triage", recipe, numbers(200, candidates=True), shadow_models=16)


def erased(w):
    """Return the verdict on a model that draws its training set, so that deletion capacity has a prior."""
    policy = w.policy("erased", "metric: deletion_capacity, min: 1, rho: 0.05, prior: 0.65")
    recipe = Recipe(trained.drawn, dp=replace(trained.CLAIM, adjacency="add_remove"))
    return w.check(policy, "erased", recipe, numbers(200))


def waived(w):
    """Approved under a waiver that ends soon."""
    subject = w.registered("bonus", LOGISTIC, numbers())
    policy = w.policy("narrow", "metric: pdtp, max: 0.05", waivers=(waiver("pdtp", subject, 2, days=9),))
    return w.judge(policy, subject)


def optional(w):
    """A rule that does not apply, beside others that do."""
    policy = w.policy(
        "suite",
        "metric: pdtp, id: largest, max: 5",
        "metric: pdtp, id: middle, max: 1, aggregate: quantile, q: 0.5",
        "metric: dp_epsilon, max: 2, delta: 1.0e-5, required: false",
    )
    return w.check(policy, "listed", NAIVE_BAYES, categories())


def shares(w):
    """Limits on shares of people: of a few, of all but a few, and of many."""
    policy = w.policy(
        "shares",
        "metric: pdtp, max: 0.2, aggregate: share_above, threshold: 0.08",
        "metric: dtp, id: few, max: 0.05, aggregate: share_above, threshold: 0.086",
        "metric: dtp, id: fewer, max: 0.03, aggregate: share_above, threshold: 0.086, mode: warn",
        "metric: dtp, id: nearly, max: 0.4, aggregate: share_above, threshold: 0.0455, mode: warn",
    )
    return w.check(policy, "shares", NAIVE_BAYES, categories(120, seed=5))


def sensitive(w):
    """Sensitive features, guessed of all but a few."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=120), rng.integers(0, 2, 120), rng.integers(0, 3, 120)])
    y = np.where(X[:, 0] + 2 * X[:, 1] + rng.logistic(size=120) > 1, "yes", "no")
    data = TrainingData(X[:60], y[:60], candidates=(X[60:], y[60:]), sensitive=(1, 2), one_record_each=True)
    policy = w.policy("features", "metric: attribute_advantage, max: 0.3")
    return w.check(policy, "sensitive", Recipe(DecisionTreeClassifier(max_depth=4), seed=0), data)


def regressor(w):
    """Numbers in place of labels."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.normal(size=300)
    data = TrainingData(X[:150], y[:150], ids=[f"P-{i:05d}" for i in range(150)], candidates=(X[150:], y[150:]),
                        domain=Domain(box=((-4.0, 4.0),) * 3), one_record_each=True)  # fmt: skip
    policy = w.policy(
        "numbers",
        "metric: sensitivity, max: 0.9",
        "metric: sensitivity, id: share, max: 0.02, aggregate: share_above, threshold: 0.08",
        "metric: sensitivity, id: everywhere, max: 1, over: domain, mode: warn",
        "metric: attack_accuracy, attack: any, max: 0.65",
    )
    return w.check(policy, "rent", Recipe(Ridge(alpha=1.0)), data, shadow_models=16)


def early(w):
    """A run that stopped when the riskiest few had decided it."""
    data = numbers(120, seed=6)
    data.X[3, 0] = 40.0
    return w.check("pdtp-1", "early", Recipe(trained_early.steep), data)


OWN = (certified, attacked, unattacked, private, erased, waived, optional, shares, sensitive, regressor)
KINDS = PLAIN | {"early": early} | {f.__name__: f for f in OWN}


def make(names=tuple(KINDS)):
    """Yield (name, golden) of each run, made now."""
    for name in names:
        with (
            tempfile.TemporaryDirectory() as folder,
            # the secret draws the people of a sample: the same ones wherever goldens are made
            Fleet(jobs=1, ledger=Ledger(Path(folder) / "ledger", secret=KEY)) as fleet,
        ):
            text = json.dumps(_kept(KINDS[name](Workshop(folder, fleet))), allow_nan=False)
            yield name, json.loads(text.replace(folder, "/registry"))


def _kept(verdict):
    """Return a verdict as JSON values, nothing hidden yet, its figures to twelve digits."""
    given = verdict.evidence
    parts = {f.name: true(getattr(given, f.name)) for f in fields(given) if f.name not in ("records", "cases")}
    parts["measurements"] = [true(m) | {"request": r.payload()} for r, m in given.measurements.items()]
    return _short(encode({
        "policy": verdict.policy, "findings": [f.payload() for f in verdict.findings],
        "evidence": {k: v for k, v in parts.items() if v is not None or k in ("influence", "membership", "claims")},
        "records": given.records, "observed": verdict.observed, "detail": verdict.detail,
    }))  # fmt: skip


def true(value):
    """Return the true numbers of a part of the evidence, but what no report states of a measurement."""
    if isinstance(value, BaseModel):
        names = value.model_fields_set if isinstance(value, Behind) else type(value).model_fields
        return {name: true(getattr(value, name)) for name in type(value).model_fields if name in names}
    if is_dataclass(value):
        told = [f.name for f in fields(value) if f.name not in ("request", "limits")]
        return {name: true(getattr(value, name)) for name in told}
    if isinstance(value, Mapping):
        return {str(k): true(v) for k, v in value.items() if isinstance(k, str)}
    return [true(v) for v in value] if isinstance(value, list | tuple) else value


def _short(value):
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_short(v) for v in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def golden(name):
    """Return a stored run as JSON values: a fresh copy, to change at will."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def few(kept):
    """Return a run in which every count of people of some kind is small: as a real one has them here and there."""
    influence = kept["evidence"]["influence"] or {}
    for share in influence.get("engines", ()):
        if share["answered"] > 10:
            share |= {"answered": share["asked"] - 3, "handed_on": 3, "why": {"they tie": 3}}
            share["without_limit"] = {"gone": 4}
    for m in kept["evidence"]["measurements"]:
        behind = m.get("behind") or {}
        for name in ("over_limit", "removed_candidates"):
            behind |= {name: dict.fromkeys(behind[name], 4)} if behind.get(name) else {}
        if m["request"]["metric"] == "attack_tpr":
            m["value"] = 4 / behind["members"]
    return kept


def verdict(kept):
    """Return the verdict that a golden holds, through the real classes."""
    given = golden(kept) if isinstance(kept, str) else kept
    records = {k: np.array(v, dtype=KINDS_OF.get(k, float)) for k, v in given["records"].items()}
    told_as = [m.pop("told_as", None) for m in given["evidence"]["measurements"]]
    evidence = Evidence.from_payload(given["evidence"])
    made = zip(evidence.measurements.items(), told_as, strict=True)
    measured = {r: replace(m, told_as=None if ends is None else tuple(ends)) for (r, m), ends in made}
    object.__setattr__(evidence, "measurements", measured)
    object.__setattr__(evidence, "records", records)
    findings = TypeAdapter(tuple[Finding, ...]).validate_python(given["findings"])
    return Verdict(given["policy"], findings, evidence, given["observed"], given["detail"])


def document(kept, **more):
    """Return the report's JSON of a golden, or of a verdict."""
    judged = kept if isinstance(kept, Verdict) else verdict(kept)
    return json.loads(json.dumps(report.document(judged, hash_key=KEY, **more)))


def compared():
    """Return the report of the approved version, with what changed since the refused one before it."""
    return document("certified", baseline=document("before"))


def main(names):
    FOLDER.mkdir(exist_ok=True)
    for name, made in make(names or tuple(KINDS)):
        (FOLDER / f"{name}.json").write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
        outcomes = {f["rule"]: f["outcome"] for f in made["findings"] if not f["rule"].startswith("precondition")}
        print(name, outcomes, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
