"""A yes by theorem is confirmed: made of the data again, by as little of this package as can make it.

What passed because of theorems' limits is shown once more. The canonical arrays are made of the subject again and
compared with the case; the kernel runs; its limits are aggregated, and held against what the policy states. Engines,
searches, tables, ledger, aggregation and rules are not asked: a bug in one of them makes no yes by theorem. What does
not come out again is inconclusive.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from privgate import cases
from privgate.arrays import Index
from privgate.cases import Kept, Yes
from privgate.documents import strict_json
from privgate.errors import Outcome
from privgate.kernel import Case, Refused
from privgate.subject.subject import Subject
from privgate.theorems import catalogue, pipelines
from privgate.theorems.hypotheses import ODD, vanishing

#: what is proposed, by family: all other arrays and settings are canonical
PROPOSED: Mapping[str, frozenset[str]] = {
    "logistic": frozenset(
        ["at", "factor", "moves", "question", "swept", "alone_people", "alone_at", "alone_factor", "limit"]
    ),
    "construction": frozenset(),
    "linear": frozenset(["with", "without"]),  # of trained models, which were compared with what they answer
}
#: of families that need no certificate: a question that shows much, and where to be tight
_QUESTIONS = frozenset(("question", "limit"))
#: engines whose people no theorem of data limits in their place: they are certain
TRAINED = ("logistic", "refit")
#: nats by which a table's limit may be below the kernel's, which ran twice
_SAME = 1e-9


def confirm_findings(
    findings: Sequence[Any],
    policy: Mapping[str, Any],
    subject: Subject,
    evidence: Any,
    order: Callable[[], Index] | None = None,
) -> tuple[Any, ...]:
    """Return the findings; whatever passed by theorems and does not come out again is inconclusive.

    ``findings`` are of preconditions, and then one a rule of the resolved ``policy``, in its order; ``evidence`` has
    the cases that limits rest on. ``order`` gives all people in the order in which they are drawn, by a secret; without
    it no person can be a sample.
    """
    rules, problem, kept, confirmed = policy["rules"], None, evidence.cases, list(findings)
    first, measurements = len(confirmed) - len(rules), {request.key: m for request, m in evidence.measurements.items()}
    if [f.rule for f in confirmed[max(first, 0) :]] != [r.get("id") or r["metric"] for r in rules]:
        why = "the findings are not one for each rule of the policy, in its order"
        return tuple(_doubted(f, {}, why) if f.outcome.releases else f for f in confirmed)
    for k, rule in enumerate(rules, start=first):
        f, m = confirmed[k], measurements.get(confirmed[k].request)
        told_up_to = [w for w in policy["waivers"] if f.waiver.startswith(f"waived up to {w['ceiling']:g} until ")]
        waived = [float(w["ceiling"]) for w in told_up_to if w["rule"] == f.rule]
        soft = _soft(rule) or (not f.applies and not rule.get("required", True))
        released = f.outcome == "passed" or (f.outcome == "warned" and not soft)
        rests = by_theorem(rule, subject, m, evidence.records) if released or waived else ""
        if not rests:
            continue
        if problem is None:
            problem = upper(subject, evidence) if kept else "no case of it was kept"
        off = cases.apart(((p.name, p.detail) for p in evidence.preconditions), every=rule["metric"] == "dtp")
        most = max([float(rule["max"]), *waived])
        limits = problem
        if isinstance(limits, str):
            why = limits
        elif m is not None and m.population != len(limits):
            why = f"it is about {m.population} people, and the data hold {len(limits)}"
        elif rests == "limits":
            yes = Yes(f.rule, rule, most, np.inf, apart=off, drawn=0 if m is None else m.n)
            why = _strangers(yes, kept, len(limits), order) or yes.shortfall(limits, cases.people(kept))
        else:
            place = {name: row for row, name in enumerate(subject.data.person_names.tolist())}
            whose = [place[name] for name in np.asarray(evidence.records["unit"]).tolist()]
            fine = (limits[whose] <= np.asarray(evidence.records["dtp_upper"]) + _SAME).all()
            why = "" if fine else "the per-person table limits somebody to less than the kernel does"
        if why:
            confirmed[k] = _doubted(f, rule, why)
    return tuple(confirmed)


def _soft(rule: Mapping[str, Any]) -> bool:
    return rule.get("mode") == "warn" or rule.get("bound") == "lower"


def _doubted(finding: Any, rule: Mapping[str, Any], why: str) -> Any:
    said = f"its theorem's limit does not come out again of the data: {why}; {finding.message}"
    return replace(finding, outcome=Outcome.WARNED if _soft(rule) else Outcome.INCONCLUSIVE, message=said)


def _strangers(yes: Yes, kept: Sequence[Kept], people: int, order: Callable[[], Index] | None) -> str:
    """Return that the cases name other people than were drawn; empty where they do not, or all people were asked."""
    named = np.unique(np.concatenate([k.units[k.units >= 0] for k in kept]))
    drawn = max(yes.drawn, len(named))
    whole = yes.options.get("aggregate", "max") == "max" or drawn >= people
    fine = whole or (order is not None and np.isin(named, order()[:drawn]).all())
    return "" if fine else "its cases are about other people than were drawn at random"


def by_theorem(rule: Mapping[str, Any], subject: Subject, measured: Any, records: Mapping[str, Any]) -> str:
    """Return what of a rule's yes is a theorem's: "limits" of people, the "table"'s, or nothing.

    About any question all of it is. About people's own records limits are where fewer people were trained without than
    all, or than the sample, or an engine only ranks. Regressors are not confirmed.
    """
    if subject.task != "classification":
        return ""
    metric = rule["metric"]
    if metric == "dtp" or (metric == "pdtp" and measured is None):
        return "limits"
    if metric != "pdtp":
        return ""
    limits = np.asarray(records.get("dtp_upper", ()), dtype=np.float64)
    ranked = ~np.isin(np.asarray(records.get("engine", ()), dtype=str), TRAINED)
    share, few = rule["aggregate"] == "share_above", measured.n < measured.population
    sampled = share or rule["aggregate"] != "max" or getattr(measured.behind, "beyond", None) is not None
    sure = measured.confidence is None or not sampled
    if sure and (few or ranked.any()):  # nobody else makes a closed form's answers certain
        return "limits"
    return "table" if (ranked & (limits < np.inf)).any() else ""


def upper(subject: Subject, evidence: Any) -> Any:
    """Return everybody's upper limit, shape (n_units,), made again; a sentence where a case is not the data's."""
    again = []
    for k in evidence.cases:
        if why := canonical(subject, k):
            return why
        try:
            remade = k.judge_again()
        except Refused as exc:
            return f"the kernel refuses the case of {k.theorem}: {exc}"
        again.append(claimed(subject, remade))
    return cases.upper(again, len(subject.data.units))


def claimed(subject: Subject, kept: Kept) -> Kept:
    """Return the case, which claims nothing of people with which a class vanishes."""
    return kept.about(~vanishing(subject, kept.everybody))


def canonical(subject: Subject, kept: Kept) -> str:
    """Return how a case is not what the subject's data and recipe make it; empty where it is."""
    theorem = catalogue.THEOREMS.get(kept.theorem)
    if theorem is None:
        others = f"cases of {kept.theorem!r} are not made of data again"
        return f"{others}; privgate verify --recompute runs the kernel on them"
    if not (subject.release.exact or subject.release.alone):
        return "something else is released than the probabilities that theorems are about"
    units = kept.everybody
    if len(np.unique(units)) != len(units) or units.max(initial=-1) >= len(subject.data.units):
        return f"the case of {kept.theorem} names somebody twice, or somebody who is not there"
    if kept.seed != 0:
        return "its theorem has one seed"
    try:
        inner = subject if theorem.needs_retrained else _through_first_steps(subject).subject
        if why := theorem.unfit(inner):  # where its trainings end is asked, too
            return f"{kept.theorem} does not apply, because {why}"
        return _differs(kept, theorem.canonical(inner, units, kept.case))
    except ODD as exc:
        return f"the case of {kept.theorem} cannot be compared ({strict_json.why(exc)})"


_through_first_steps = lru_cache(maxsize=1)(pipelines.through)


def _differs(kept: Kept, remade: Case) -> str:
    """Return which array or setting is not the data's, or is none that this family has; empty if all are."""
    case = kept.case
    if (remade.family, remade.scope) != (case.family, case.scope):
        return f"the case of {kept.theorem} is of another kind"
    free = PROPOSED.get(case.family, _QUESTIONS)
    for name in sorted((case.arrays.keys() | remade.arrays.keys()) - free):
        one, other = case.arrays.get(name), remade.arrays.get(name)
        if one is None or other is None or one.dtype != other.dtype or not np.array_equal(one, other):
            return f"array {name!r} of {kept.theorem} is not what the first steps make of the data"
    settings = dict(case.settings).items() ^ dict(remade.settings).items()
    odd = sorted({name for name, _ in settings} - free)
    return f"setting {odd[0]!r} of {kept.theorem} is not the recipe's" if odd else ""
