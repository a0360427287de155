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
        f"between {m.low:.4g} and {m.high:.4g} {m.unit} ({m.where}); allowed is at most {limit:.4g}: {outcome.value}",
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


def approved(**kw):
    records = table(top=0.82)
    where, high = worst(records, "dtp_upper")
    m = measured(
        "dtp", value=high, low=0.82, high=high, unit="nats", kind="bound", n=1000, population=1000, where=where
    )
    f = finding(
        m,
        "Worst change for any person, over any question",
        Outcome.PASSED,
        limit=1.0,
        meaning=f"without this person, no answer's probability changes more than {np.exp(high):.2f}-fold",
    )
    return verdict([f], [m], records, **kw)


def blocked(**kw):
    records = table(top=6.9, scale=0.4, certified=False)
    where, high = worst(records, "pdtp")
    m = measured(
        "dtp", value=high, low=high, high=float("inf"), unit="nats", kind="bound", n=1000, population=1000, where=where
    )
    f = finding(
        m,
        "Worst change for any person, over any question",
        Outcome.FAILED,
        limit=1.0,
        meaning=f"for at least one person, an answer changes {np.exp(high):,.0f}-fold if their record is left out",
        advice="smooth more (alpha 5 instead of 1), prune the tree, or train with differential privacy",
    )
    return verdict([f], [m], records, **kw)
