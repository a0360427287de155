"""The figures of the evidence, section by section; ``templates/sections.html`` holds the words around them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from privgate import evidence, vocabulary
from privgate.evidence.figures import fold, number, percent, sure
from privgate.policy.rules import about
from privgate.report import assertions, page_one, people
from privgate.report.compare import lay_out
from privgate.report.schema import ReportDocument
from privgate.report.text import Section, capital, fill_section, moment, plain, prose, say, shown
from privgate.run.needs import Need

#: what the template is told of a section
Told = Mapping[str, Any]
#: an attack that ran, with what it achieved
Ran = tuple[evidence.AttackResult, evidence.AttackFigures]


def findings(doc: ReportDocument) -> Told:
    """Return every rule's finding, worst first; what must hold before any figure counts has a section of its own."""
    rules = [a for a in assertions.list_assertions(doc) if not a.condition]
    named = {a.finding.rule: a.title for a in rules}
    steps = page_one.steps(doc)
    return {
        "rows": [(a.title, a.result, a.sentence, capital(prose(a.finding.meaning)), a.finding.rule, a.finding.mode)
                 for a in rules],
        "waivers": [(named.get(w.rule) or w.rule, w.status, w.reason, w.ceiling, w.requester, w.approver,
                     moment(w.expires)) for w in doc.waivers],
        "steps": steps if len(steps) > 1 or not doc.approved else [],
    }  # fmt: skip


def model(doc: ReportDocument) -> Told:
    """Return the model's facts, what the deployed model hands out, what its file carries and whether that decided."""
    s, part, recipe = doc.subject, doc.evidence.artifact, doc.subject.recipe
    seed = recipe and ("none recorded" if recipe.seed is None else str(recipe.seed))
    return {
        "subject": s,
        "settings": ", ".join(f"{k} = {v}" for k, v in recipe.settings.items()) if recipe else "",
        "seed": seed if recipe and recipe.kind else "",
        "released": page_one.released(s),
        "file": part,
        "ruled": ", ".join(dict.fromkeys(f.metric for f in doc.findings if Need.LOOKED in about(f.metric).needs)),
        "carried": [(c.what, c.where) for c in part.carried] if part else [],
        "unknown": [plain(u, 160) for u in part.unknown] if part else [],
    }


def data(doc: ReportDocument) -> list[tuple[str, ...]]:
    """Return the preconditions in the order in which they were checked."""
    return [(assertions.condition(p.name), say(f"result.{p.outcome}"), prose(p.message))
            for p in doc.evidence.preconditions]  # fmt: skip


def attacks(doc: ReportDocument) -> Told:
    """Return the attacks that ran with their figures and curves, and those that could not run."""
    part, features = doc.evidence.membership or evidence.MembershipPart(), doc.evidence.attributes
    ranked, tested, robust = rank_attacks(part.attacks), page_one.kinds_tested(doc), doc.evidence.robust
    return {
        **achieve(ranked),
        "how": [(title(a), a.threat_model, _tested(a.self_test), a.source) for a, _ in ranked],
        "failed": [f"{title(a)}: {plain(a.problem, 240)}" for a in part.attacks if not a.figures],
        "attributes": features and [{"found": f, "guesses": [
            (g.title, shown(g.inside, percent), shown(g.outside, percent), _estimate(g.advantage))
            for g in (*f.adversaries, f.without_model)
        ]} for f in features.attributes],
        "robust": robust and {"how": robust.how, "rows": [
            (a.title, "" if a.radius is None else a.radius, percent(a.inside), percent(a.outside),
             _estimate(a.advantage)) for a in robust.adversaries
        ]},
        "kinds": [(capital(say(f"kind.{k}")), "tested" if k in tested else "not tested")
                  for k in page_one.ATTACK_KINDS],
    }  # fmt: skip


def rank_attacks(attacks: Iterable[evidence.AttackResult]) -> list[Ran]:
    """Return the attacks that ran, strongest first: by the larger of AUC and accuracy."""
    ran = [(a, a.figures) for a in attacks if a.figures]
    return sorted(ran, key=lambda r: np.nanmax([r[1].auc, r[1].accuracy.value or 0.0, 0.0]), reverse=True)


def title(attack: evidence.AttackResult) -> str:
    """Return an attack's plain name."""
    return plain(attack.title or attack.name, 60)


def achieve(ranked: Sequence[Ran]) -> Told:
    """Return what each attack achieved, at the smallest rates that the sample resolves."""
    every = [r for _, f in ranked for r in f.tpr_at_fpr]
    rates, resolved = sorted({r.fpr for r in every})[:3], {r.fpr for r in every if not r.problem}
    told, rows = [p for p in rates if p in resolved], []
    for a, f in ranked:
        at = {r.fpr: r for r in f.tpr_at_fpr}
        rows.append((title(a), a.scope, f.auc, _estimate(f.accuracy), *(_estimate(at.get(p)) for p in told)))
    coarse = " or ".join(percent(p) for p in rates if p not in told)
    return {"achieved": rows, "rates": [f"Found at {percent(p)} false accusations" for p in told], "coarse": coarse}


def _estimate(estimate: evidence.Estimate | None) -> str:
    """Return a fraction with its interval, as far as either is known."""
    e = estimate or evidence.Estimate(value=None)
    ends = "" if e.low is None or e.high is None else f"{percent(e.low)} to {percent(e.high)}"
    if e.problem:
        return "not resolvable with this sample"
    if e.value is None or math.isnan(e.value):
        return ends or "not measured"
    return f"{percent(e.value)} ({ends})" if ends else f"{percent(e.value)}, no interval"


def _tested(test: evidence.SelfTest) -> str:
    if test.problem:
        return f"failed: {plain(test.problem, 120)}"
    kinds = {"in probabilities": test.planted, "in shares of votes": test.votes, "in labels": test.labels}
    areas = [f"{number(v)} {w}" for w, v in kinds.items() if not math.isnan(v)]
    return f"AUC on a planted leak {', '.join(areas)}; {number(test.blind)} on none"


def dp(doc: ReportDocument) -> Told:
    """Return the claim, and the bounds that follow with their hypotheses."""
    part, claim = doc.evidence.claims or evidence.ClaimsPart(), doc.subject.claim
    return {"claim": claim and claim.model_dump(exclude_none=True), "bounds": list(map(_bound, part.bounds))}


def _bound(b: evidence.GuaranteeBound) -> tuple[float | str, ...]:
    show = percent if 0 <= b.bound <= 1 else number
    prior = "any" if b.prior is None else percent(b.prior)
    return b.name, b.epsilon, b.delta, prior, show(b.bound), "; ".join(b.assumptions)


def methods(doc: ReportDocument) -> Told:
    """Return engines, theorems, published bounds beside corrected ones, measurements and sources."""
    influence, seeds = doc.evidence.influence or evidence.InfluencePart(), doc.evidence.run.seeds
    drawn = seeds and {"median": _by(seeds.median, " or more"), "floor": _by(seeds.floor)}
    certificates = influence.certificates
    return {
        "privgate": doc.privgate,
        "influence": influence,
        "seeds": seeds,
        "drawn": drawn if doc.evidence.influence and seeds and seeds.dependent else None,
        **_engines(influence.engines),
        "theorems": [(_spaced(c.name), "; ".join(prose(a, 200) for a in c.assumptions), c.source)
                     for c in certificates if c.applies],
        "silent": [(_spaced(c.name), prose(c.because, 300), c.source) for c in certificates if not c.applies],
        "published": [(p.name, p.value, p.corrected, p.because, p.source) for p in influence.as_published],
        **_measurements(doc.evidence.measurements),
    }  # fmt: skip


def _engines(shares: Sequence[evidence.EngineShare]) -> Told:
    """Return which engine answered for how many people, and what it handed on and why."""
    rows = []
    for s in shares:
        part = f" ({percent(s.handed_on / s.asked)})" if s.handed_on and s.asked else ""
        said = ["; ".join(f"{plain(k, 200)} ({shown(v)})" for k, v in why.items()) for why in (s.why, s.without_limit)]
        rows.append((_spaced(s.engine), shown(s.answered), f"{shown(s.handed_on)}{part}", *said))
    width = 5 if any(s.without_limit for s in shares) else 4
    return {"engines": [row[:width] for row in rows], "width": width}


def _by(nats: float, more: str = "") -> str:
    return f"by {fold(nats)}{more}" if math.isfinite(nats) else "without limit"


def _spaced(name: str) -> str:
    return plain(name, 60).replace("_", " ")


def _measurements(measurements: Sequence[evidence.Measurement]) -> Told:
    """Return what was measured; conditions that several share are listed once, by number."""
    held = list(dict.fromkeys(a for m in measurements for a in m.assumptions))
    rows = []
    for m in measurements:
        exact = f"{number(m.low)} {plain(m.unit, 20)} (exact)"
        ends = exact if m.low == m.high else f"{number(m.low)} to {number(m.high)} {plain(m.unit, 20)}"
        n = f"{number(m.n)} of {number(m.population)}" if m.population else ""
        numbers = ", ".join(str(held.index(a) + 1) for a in m.assumptions)
        rows.append((m.request.key, prose(m.problem, 200) or ends, sure(m), n, m.where, numbers))
    return {"measurements": rows, "conditions": [(str(i), text) for i, text in enumerate(held, 1)]}


def trace(doc: ReportDocument) -> Told:
    """Return everything needed to check or repeat this run."""
    run, policy = doc.evidence.run.trace or evidence.RunTrace(), doc.policy
    digests = {f"the {plain(k, 40)}": v for k, v in {**doc.subject.digests, **run.digests}.items()}
    digests[f"policy {plain(policy.name, 40)}"] = policy.digest
    return {
        "doc": doc,
        "trace": run,
        "digests": [(f"Digest of {k}", v) for k, v in digests.items()],
        "versions": ", ".join(f"{k} {v}" for k, v in run.versions.items()),
        "seeds": ", ".join("none" if v is None else str(v) for v in run.seeds),
        "verify": page_one.verify(doc),
    }


def glossary(doc: ReportDocument) -> list[tuple[str, str]]:
    """Return the words of this report in plain language."""
    more = vocabulary.SENSITIVITY if doc.subject.task == "regression" else {}
    return [(capital(word), meaning) for word, meaning in (vocabulary.WORDS | more).items()]


#: in the order of the report, each by its anchor
CATALOGUE: Mapping[str, Callable[[ReportDocument], Any]] = {
    "judged": page_one.judged,
    "limits": page_one.limits,
    "findings": findings,
    "model": model,
    "data": data,
    "units": people.section,
    "attacks": attacks,
    "dp": dp,
    "coverage": lambda doc: doc.evidence,
    "comparison": lambda doc: doc.comparison and lay_out(doc.comparison),
    "methods": methods,
    "trace": trace,
    "glossary": glossary,
}


def sections(doc: ReportDocument) -> list[Section]:
    """Return all sections for which the document holds data."""
    filled = (fill_section(name, section(doc)) for name, section in CATALOGUE.items())
    return [section for section in filled if section.body]
