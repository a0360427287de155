"""Verdicts for tests of the report: made up, plausible, built through the real classes."""

from types import MappingProxyType

import numpy as np

from privgate.evidence import Evidence, Measurement, Precondition, Request
from privgate.verdict import Finding, Outcome, Verdict

KEY = b"a key for tests, thirty-two byte"


def table(n=1000, *, scale=0.05, top=0.9, certified=True, seed=0, names=None, noise=0.0):
    rng = np.random.default_rng(seed)
    pdtp = rng.exponential(scale, n)
    pdtp *= top / pdtp.max()
    spread = rng.uniform(1.0, 1.25, n)
    return {
        "unit": np.array(names if names is not None else [f"P-{i:05d}" for i in range(n)], dtype=object),
        "label": np.where(rng.random(n) < 0.24, ">50K", "<=50K").astype(object),
        "pdtp": pdtp,
        "dtp_lower": pdtp.copy(),
        "dtp_upper": pdtp * spread if certified else np.full(n, np.inf),
        "error": np.zeros(n),
        "noise_floor": np.full(n, noise),
        "seeds": np.ones(n, dtype=np.int64),
        "engine": np.full(n, "closed form" if certified else "refit", dtype=object),
        "status": np.full(n, "exact", dtype=object),
    }


def subject(name="credit", version="3", **more):
    return {
        "name": name,
        "version": version,
        "uri": f"models:/{name}/{version}",
        "digests": {"model": "sha256:" + "5a" * 32, "recipe": "sha256:" + "b7" * 32, "data": "sha256:" + "c1" * 32},
        "n_records": 1000,
        "n_units": 1000,
        "n_classes": 2,
        **more,
    }


def policy(name="dtp-1"):
    return {
        "name": name,
        "version": "1",
        "digest": "sha256:" + "d4" * 32,
        "path": f"policies/{name}.yaml",
        "source": {},
    }


CONTROLS = (
    Precondition("digests", "passed", "model, recipe and data are the files that were named"),
    Precondition("reproduces", "passed", "the recipe gives the registered model's probabilities within 2e-16"),
    Precondition("depends_on_data", "passed", "retraining on a random half moves predictions by 0.31 nats"),
    Precondition("data_checks", "passed", "no missing value, no label outside the declared ones"),
)


def preconditions(controls=CONTROLS):
    return tuple(
        Finding(f"precondition:{c.name}", c.name.replace("_", " "), Outcome(c.outcome), c.message) for c in controls
    )


def measured(metric, **kw):
    return Measurement(Request.of(metric), **kw)


def finding(m, title, outcome, *, limit, meaning, advice="", **kw):
    return Finding(
        m.request.metric,
        title,
        outcome,
        m.problem
        or f"between {m.low:.4g} and {m.high:.4g} {m.unit} ({m.where}); "
        f"allowed is at most {limit:.4g}: {outcome.value}",
        meaning=meaning,
        advice=advice,
        metric=m.request.metric,
        value=m.value,
        low=m.low,
        high=m.high,
        limit=limit,
        unit=m.unit,
        request=m.request.key,
        **kw,
    )


def verdict(
    findings,
    measurements,
    records,
    *,
    name="credit",
    policy_name="dtp-1",
    detail=None,
    evidence_detail=None,
    controls=CONTROLS,
    **kw,
):
    evidence = Evidence(
        subject=subject(name, **kw),
        preconditions=tuple(controls),
        measurements={m.request: m for m in measurements},
        records=records,
        detail=evidence_detail or {},
    )
    return Verdict(
        policy(policy_name),
        (*preconditions(controls), *findings),
        evidence,
        detail=MappingProxyType({"decided_at": "2026-11-21T09:00:00Z", **(detail or {})}),
    )


def worst(records, column):
    i = int(np.argmax(records[column]))
    return str(records["unit"][i]), float(records[column][i])


def recipe(cls="sklearn.naive_bayes:CategoricalNB", *, dp=None, seed=None, **params):
    return {
        "schema": "privgate/recipe/v1",
        "kind": "estimator",
        "estimator": {"!": "estimator", "class": cls, "params": params},
        "params": {},
        "seed": seed,
        "dp": dp,
    }


TRACE = {
    "command": "privgate check models:/credit/3 --policy dtp-1 --report-dir out/",
    "seeds": [7],
    "python": "3.11.7",
    "numpy": "2.4.6",
    "scikit-learn": "1.9.1",
    "system": "Linux x86_64, 2 cores",
    "training_calls": 74,
}
NB = {
    "trace": TRACE,
    "recheck": [{"engine": "categorical_nb", "checked": 71, "max_difference": 4.4e-16, "tolerance": 1e-6}],
    "coverage": {"n_measured": 1000, "n_units": 1000, "claim": ""},
    "certificates": [
        {
            "name": "categorical_nb",
            "applies": True,
            "because": "",
            "source": "math reference 3.1 (A)",
            "assumptions": ["questions stay inside the declared categories", "smoothing is above 0"],
        },
        {
            "name": "ridge",
            "applies": False,
            "because": "does not apply, because this is no linear model",
            "source": "6.3",
        },
    ],
}


def curve(scores_in, scores_out):
    """The ROC of two score samples as [fpr, tpr] points."""
    cuts = np.unique(np.concatenate([scores_in, scores_out]))[::-1]
    fpr = [(scores_out >= c).mean() for c in cuts]
    tpr = [(scores_in >= c).mean() for c in cuts]
    return np.column_stack([fpr, tpr])


def attack(name, title, strength, *, n=1000, seed=1, groups=(), **more):
    """A membership attack whose scores are normal, members shifted by ``strength``."""
    rng = np.random.default_rng(seed)
    inside, outside = rng.normal(strength, 1.0, n), rng.normal(0.0, 1.0, n)
    roc = curve(inside, outside)
    auc = float((inside[:, None] > outside[None]).mean())
    best = float(0.5 + (roc[:, 1] - roc[:, 0]).max() / 2)
    half = 1.96 * np.sqrt(best * (1 - best) / (2 * n))
    at = [(f, float(roc[roc[:, 0] <= f, 1].max(initial=0.0))) for f in (0.001, 0.01, 0.1)]
    return {
        "name": name,
        "title": title,
        "scope": "model",
        "auc": auc,
        "accuracy": {"value": best, "low": best - half, "high": best + half, "confidence": 0.95},
        "tpr_at_fpr": [
            {"fpr": f, "tpr": t, "low": max(0.0, t - 0.02), "high": min(1.0, t + 0.02), "resolvable": f > 0.001}
            for f, t in at
        ],
        "roc": [[float(f), float(t), max(0.0, float(t) - 0.03), min(1.0, float(t) + 0.03)] for f, t in roc],
        "n_members": n,
        "n_nonmembers": n,
        "n_shadows": 64,
        "threat_model": "sees exact probabilities, knows people from the same population",
        "source": "Carlini et al. (2022), section IV",
        "self_test": {"planted": 0.97, "blind": 0.501, "tolerance": 0.14, "problem": ""},
        "by": [
            {
                "group": g,
                "n": 300,
                "accuracy": {"value": best + d, "low": best + d - 0.04, "high": min(1, best + d + 0.04)},
            }
            for g, d in groups
        ],
        **more,
    }


def attack_measurement(a):
    acc = a["accuracy"]
    return measured(
        "attack_accuracy",
        value=acc["value"],
        low=acc["low"],
        high=acc["high"],
        unit="fraction",
        kind="confidence",
        confidence=0.95,
        n=2000,
        population=2000,
        where=a["name"],
    )


WORST = "Influence of one person on any answer"
DIRECT = "Influence of one person on the answer about that person"
GUESS = "Attack accuracy (guessing: 50 %)"


def approved(**kw):
    records = table(top=0.82)
    where, high = worst(records, "dtp_upper")
    m = measured(
        "dtp", value=high, low=0.82, high=high, unit="nats", kind="bound", n=1000, population=1000, where=where
    )
    f = finding(
        m,
        WORST,
        Outcome.PASSED,
        limit=1.0,
        meaning=f"without this person, no answer's probability changes more than {np.exp(high):.2f}-fold",
    )
    return verdict([f], [m], records, evidence_detail=NB, **{"recipe": recipe(alpha=5.0, min_categories=None), **kw})


def blocked(**kw):
    records = table(top=6.9, scale=0.4, certified=False)
    where, high = worst(records, "pdtp")
    m = measured(
        "dtp", value=high, low=high, high=float("inf"), unit="nats", kind="bound", n=1000, population=1000, where=where
    )
    f = finding(
        m,
        WORST,
        Outcome.FAILED,
        limit=1.0,
        meaning=f"for at least one person, an answer changes {np.exp(high):,.0f}-fold if their record is left out",
        advice="smooth more (alpha 5 instead of 1), prune the tree, or train with differential privacy",
    )
    return verdict([f], [m], records, evidence_detail=NB, **{"recipe": recipe(alpha=5.0, min_categories=None), **kw})


def direct(**kw):
    """Approved by a policy of direct queries: a small network, five paired seeds."""
    records = table(top=0.71, scale=0.08, certified=False, noise=0.02)
    where, value = worst(records, "pdtp")
    m = measured(
        "pdtp",
        value=value,
        low=0.66,
        high=0.78,
        unit="nats",
        kind="confidence",
        confidence=0.95,
        n=1000,
        population=1000,
        where=where,
    )
    f = finding(
        m,
        DIRECT,
        Outcome.PASSED,
        limit=1.0,
        meaning=(
            "for every person in the data: without this person, the probability of an answer about them changes at "
            "most 2.18-fold; other questions were not judged"
        ),
    )
    return verdict(
        [f], [m], records, policy_name="pdtp-1", **{"recipe": recipe("torch:Network", seed=7, width=32), **kw}
    )


def tree_blocked(name="income", **kw):
    """An overfitted tree under a policy with five rules: two broken, one open, one waived, one met."""
    records = table(top=7.4, scale=0.9, certified=False)
    where, high = worst(records, "pdtp")
    strong = attack(
        "lira_online",
        "Likelihood-ratio attack (LiRA)",
        1.6,
        groups=(("label <=50K", -0.03), ("label >50K", 0.09), ("sex: female", 0.02), ("sex: male", -0.01)),
    )
    strong["by_pdtp"] = [
        {"pdtp_low": a, "pdtp_high": b, "n": n, "accuracy": {"value": v, "low": v - w, "high": min(1.0, v + w)}}
        for a, b, n, v, w in (
            (0, 0.1, 420, 0.55, 0.03),
            (0.1, 0.5, 300, 0.68, 0.04),
            (0.5, 2, 180, 0.87, 0.05),
            (2, 7.4, 100, 0.97, 0.03),
        )
    ]
    attacks = [
        strong,
        attack("yeom_loss", "Loss threshold (Yeom)", 1.1, seed=2),
        attack("rmia", "Robust attack (RMIA)", 1.4, seed=3),
        {
            "name": "shokri",
            "title": "Shadow classifier (Shokri)",
            "problem": "needs at least 2,500 records a side; there are 1,000",
        },
    ]
    dtp = measured(
        "dtp", value=high, low=high, high=float("inf"), unit="nats", kind="bound", n=1000, population=1000, where=where
    )
    acc = attack_measurement(strong)
    tpr = measured(
        "attack_tpr",
        value=0.31,
        low=0.24,
        high=0.39,
        unit="fraction",
        kind="confidence",
        confidence=0.95,
        n=2000,
        population=2000,
        where="lira_online",
    )
    gap = measured(
        "generalization_gap",
        value=0.19,
        low=0.17,
        high=0.21,
        unit="fraction",
        kind="confidence",
        confidence=0.95,
        n=2000,
        population=2000,
    )
    erase = measured(
        "deletion_capacity", problem="the recipe states no differential-privacy claim, so no capacity follows"
    )
    findings = [
        finding(
            dtp,
            WORST,
            Outcome.FAILED,
            limit=1.0,
            meaning="for every person in the data: without this person, no limit on the change of answers is known; "
            f"the largest change seen is {np.exp(high):,.0f}-fold",
            advice="regularize or smooth more strongly, merge rare categories, or remove the records the per-unit "
            "table names; then check again",
        ),
        finding(
            acc,
            GUESS,
            Outcome.FAILED,
            limit=0.6,
            meaning="somebody guessing who is in the data is right 4 times in 5",
            advice="regularize, stop earlier, use more data, or train with differential privacy; then check again",
        ),
        finding(
            tpr,
            "Members found at a low rate of false accusations",
            Outcome.WARNED,
            limit=0.1,
            waiver="pilot with 40 employees, ceiling 40 %, until 2027-01-15",
            meaning="at 1 wrong accusation in 100, 31 of 100 people in the data are found",
        ),
        finding(
            gap,
            "Better on its own data than on other people",
            Outcome.PASSED,
            limit=0.25,
            meaning="19 percentage points more accurate on people in the data",
        ),
        finding(
            erase,
            "Records that can be erased without retraining",
            Outcome.INCONCLUSIVE,
            limit=10,
            meaning="",
            advice="train with differential privacy, or plan a full retraining for each erasure",
        ),
    ]
    return verdict(
        findings,
        [dtp, acc, tpr, gap, erase],
        records,
        name=name,
        policy_name="strict",
        evidence_detail={
            "attacks": attacks,
            "trace": TRACE,
            "coverage": {"n_measured": 1000, "n_units": 1000, "claim": ""},
            "cannot_conclude": [
                "dtp: rule 'dtp' can never pass here: no certificate bounds this kind of model over all questions"
            ],
        },
        detail={
            "waivers": [
                {
                    "rule": "attack_tpr",
                    "status": "applied",
                    "reason": "pilot with 40 employees",
                    "requester": "a.meyer",
                    "approver": "c.rossi",
                    "expires": "2027-01-15",
                    "ceiling": 0.4,
                },
                {
                    "rule": "dtp",
                    "status": "expired",
                    "reason": "first release",
                    "approver": "c.rossi",
                    "expires": "2026-09-01",
                },
            ],
            "next_steps": [
                {
                    "action": "limit the tree to 20 records a leaf",
                    "effect": "largest direct change 7.4 to about 1.1 nats",
                    "cost": "accuracy 84.1 % to 83.6 %, no extra training time",
                },
                {
                    "action": "train with differential privacy, epsilon at most 8",
                    "effect": "attack accuracy at most 60 %",
                    "cost": "about 2.1 times the training time",
                },
            ],
        },
        recipe=recipe("sklearn.tree:DecisionTreeClassifier", seed=0, max_depth=None, min_samples_leaf=1),
        **kw,
    )


def inconclusive(**kw):
    """A network on a sample of its units, the interval across the limit."""
    records = table(2000, top=1.15, scale=0.12, certified=False, noise=0.11, seed=4)
    where, value = worst(records, "pdtp")
    m = measured(
        "pdtp",
        value=value,
        low=0.88,
        high=1.41,
        unit="nats",
        kind="confidence",
        confidence=0.95,
        n=2000,
        population=48842,
        where=where,
    )
    f = finding(
        m,
        DIRECT,
        Outcome.INCONCLUSIVE,
        limit=1.0,
        meaning=(
            "for every person in the data: without this person, the probability of an answer about them changes at "
            "most 4.1-fold; other questions were not judged"
        ),
        advice="measure every unit and, for training that depends on its seed, more seeds; the table names open units",
    )
    return verdict(
        [f],
        [m],
        records,
        policy_name="pdtp-1",
        n_records=48842,
        n_units=48842,
        evidence_detail={
            "trace": TRACE,
            "seeds": {
                "paired": 5,
                "noise_floor": 0.11,
                "note": "training depends on its seed: changes are means over 5 paired seeds",
            },
            "coverage": {
                "n_measured": 2000,
                "n_units": 48842,
                "claim": (
                    "if none of 2,000 records drawn at random exceeds the limit, at most 0.15 % of all do, at 95 % "
                    "confidence"
                ),
            },
            "plan": {"retrains": 10010, "leave_one_out": 10000, "shadows": 0, "seconds": 5400},
        },
        recipe=recipe("torch:Network", seed=7, width=64),
        **kw,
    )


def dp_trained(**kw):
    """Trained with differential privacy: bounds next to measurements, an audit, deletion capacity."""
    claim = {
        "mechanism": "dp-sgd",
        "epsilon": 3.0,
        "delta": 1e-5,
        "adjacency": "add_remove",
        "unit": "record",
        "sampling": "poisson",
        "noise_multiplier": 1.1,
        "sample_rate": 0.01,
        "steps": 1500,
        "max_grad_norm": 1.0,
        "accountant": "rdp",
    }
    weak = attack("lira_online", "Likelihood-ratio attack (LiRA)", 0.08, seed=5)
    eps = measured(
        "dp_epsilon",
        value=2.94,
        low=2.94,
        high=2.94,
        unit="nats",
        kind="bound",
        n=1000,
        population=1000,
        assumptions=("add or remove one record", "Poisson sampling was observed"),
    )
    low = measured(
        "dp_epsilon_lower_bound",
        value=0.21,
        low=0.21,
        high=float("inf"),
        unit="nats",
        kind="confidence",
        confidence=0.95,
        n=1000,
        population=1000,
    )
    acc = attack_measurement(weak)
    findings = [
        finding(
            eps,
            "Differential-privacy guarantee",
            Outcome.PASSED,
            limit=8.0,
            meaning=("one record shifts the odds of any outcome at most 18.9-fold, whatever else an attacker knows"),
        ),
        finding(
            low, "Audit of the guarantee", Outcome.PASSED, limit=2.94, meaning="nothing measured contradicts the claim"
        ),
        finding(
            acc,
            GUESS,
            Outcome.PASSED,
            limit=0.6,
            meaning="somebody guessing who is in the data does little better than a coin",
        ),
    ]
    words = [
        "any adversary with any knowledge of the other records",
        "records enter the training set independently of each other",
    ]
    return verdict(
        findings,
        [eps, low, acc],
        {},
        name="triage",
        policy_name="dp-trained",
        evidence_detail={
            "trace": TRACE,
            "attacks": [weak, attack("quantile", "Quantile regression attack", 0.05, seed=6)],
            "dp": [
                {
                    "name": "accuracy",
                    "epsilon": 2.94,
                    "delta": 1e-5,
                    "prior": 0.5,
                    "bound": 0.95,
                    "measured": weak["accuracy"],
                    "assumptions": words,
                },
                {
                    "name": "accuracy, exact curve",
                    "epsilon": 2.94,
                    "delta": 1e-5,
                    "prior": 0.5,
                    "bound": 0.784,
                    "measured": weak["accuracy"],
                    "assumptions": words,
                },
                {
                    "name": "TPR at FPR 0.01, exact curve",
                    "epsilon": 2.94,
                    "delta": 1e-5,
                    "prior": None,
                    "bound": 0.112,
                    "measured": 0.013,
                    "assumptions": words,
                },
                {
                    "name": "generalization gap",
                    "epsilon": 2.94,
                    "delta": 0,
                    "prior": None,
                    "bound": 0.9,
                    "measured": 0.011,
                    "assumptions": words,
                },
                {
                    "name": "positive accuracy",
                    "epsilon": 2.94,
                    "delta": 1e-5,
                    "prior": 0.5,
                    "bound": 0.95,
                    "measured": None,
                    "assumptions": words,
                },
            ],
            "deletion": [
                {"rho": r, "prior": 0.001, "capacity": c}
                for r, c in ((0.5, 220), (0.75, 91), (0.9, 33), (0.95, 16), (0.99, 3))
            ],
        },
        detail={
            "expires": "2027-02-19T09:00:00Z",
            "signer": {"name": "release key 2026-A", "key_id": "3f9c2a", "advisory": False},
        },
        recipe=recipe("opacus:Network", dp=claim),
        **kw,
    )


ALL = ("approved", "blocked", "direct", "tree_blocked", "inconclusive", "dp_trained")


def crowded(doc, comparison):
    """The document with page one as full as it can get: eight long rules, waivers, steps and changes."""
    long = "for every person in the data: without this person, the probability of some answer changes a great deal " * 4
    findings = [
        {
            **f,
            "rule": f"{f['rule']}_{i}",
            "title": f"{f['title']}, over all people in the data and every group of them",
            "meaning": long,
        }
        for i in range(3)
        for f in doc["findings"]
        if not f["rule"].startswith("precondition:")
    ]
    return {
        **doc,
        "subject": {**doc["subject"], "name": "income-" + "x" * 80, "uri": "models:/" + "y" * 200},
        "findings": findings,
        "comparison": {**comparison, "summary": long},
        "waivers": [{**w, "reason": long, "approver": "c.rossi" * 10} for w in doc["waivers"] * 3],
        "next_steps": [dict.fromkeys(step, long) for step in doc["next_steps"] * 3],
        "signer": {"name": "release key of the model risk department, second line of defence", "advisory": True},
    }
