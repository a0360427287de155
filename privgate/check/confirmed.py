"""A yes by theorem is confirmed: made of the data again, by as little of this package as can make it.

What passed because of theorems' limits is shown once more. The canonical arrays are made of the subject again and
compared with the case; the kernel runs; its limits are aggregated, and held against what the policy states. Engines,
searches, tables, ledger, aggregation and rules are not asked: a bug in one of them makes no yes by theorem. What does
not come out again is inconclusive.

Models of trees rest on trainings: of their cases the kernel's part alone is done again. A declared list of questions is
put to real models, and is no theorem's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privgate import cases, recomputed
from privgate.cases import Kept
from privgate.documents import strict_json
from privgate.errors import DigestMismatchError, SubjectError
from privgate.families.certificate import Certificate
from privgate.families.designs import vanishing
from privgate.families.of_data import ALL as OF_DATA
from privgate.families.pipelines import first_steps
from privgate.kernel import Case, Refused
from privgate.outcome import Outcome
from privgate.recomputed import Yes
from privgate.subject.subject import Subject

#: the theorem about models that training makes
OF_MODELS = "tree_cells"
#: beginnings of modules whose estimators are trees; of a function's (builtins) nothing is known here
TREES = ("sklearn.ensemble", "sklearn.tree", "lightgbm", "xgboost", "privgate.models", "builtins")
#: what is proposed, by family: all other arrays and settings are canonical
PROPOSED: Mapping[str, frozenset[str]] = {
    "logistic": frozenset(
        ["at", "factor", "moves", "question", "swept", "alone_people", "alone_at", "alone_factor", "limit"],
    ),
    "construction": frozenset(),
}
#: why a yes has nothing to rest on
NOTHING_KEPT = f"no case of it was kept; of trees, cases above {cases.MOST >> 21} MiB are not: judge fewer people"
#: of families that need no certificate: a question that shows much, and where to be tight
_QUESTIONS = frozenset(("question", "limit"))


def confirmed(
    findings: Sequence[Any],
    policy: Mapping[str, Any],
    subject: Subject,
    measured: Mapping[Any, Any],
    kept: Sequence[Kept],
) -> tuple[Any, ...]:
    """Return the findings; whatever passed by theorems and does not come out again is inconclusive.

    Parameters
    ----------
    findings : sequence of Finding
        Of preconditions, and then one a rule.
    policy : mapping
        Resolved; its rules in its order.
    subject : Subject
    measured : mapping Request -> Measurement
        Of how many people each number speaks.
    kept : sequence of Kept
        What the limits rest on.
    """
    made, found, rules = list(findings), None, policy["rules"]
    told = {request.key: m for request, m in measured.items()}
    for k, rule in enumerate(rules, start=len(findings) - len(rules)):
        f = made[k]
        waived = [float(w["ceiling"]) for w in policy["waivers"] if f.waiver and w["rule"] == f.rule]
        released = f.outcome == "passed" or (f.outcome == "warned" and rule.get("mode") != "warn")
        if not (released or waived) or not by_theorem(rule, subject, told.get(f.request)):
            continue
        if found is None:
            found = upper(subject, kept) if kept else NOTHING_KEPT
        if isinstance(found, str):
            why = found
        else:
            yes = Yes(f.rule, rule, max([float(rule["max"]), *waived]), np.inf)
            why = yes.shortfall(found, cases.people(kept))
        if why:
            said = f"its theorem's limit does not come out again of the data: {why}; {f.message}"
            made[k] = replace(f, outcome=Outcome.INCONCLUSIVE, message=said)
    return tuple(made)


def again(subject: Subject, document: Mapping[str, Any], folder: Path) -> list[str]:
    """Return a sentence for each rule of a report that passes again, by cases that are made of the subject's data.

    Raises
    ------
    DigestMismatchError
        The report is about other data or another recipe, a case is not what they make, or says something else.
    SubjectError
        What the folder holds cannot be read, or no rule passed by a theorem.
    """
    with strict_json.reading("report.json cannot be recomputed", SubjectError):
        told = document["evidence"]["subject"]["digests"]
        for name in ("data", "recipe", "model"):
            if told.get(name) != subject.digests.get(name):
                raise DigestMismatchError(f"the report is about another {name} than {subject.uri or 'the subject'}")
        noted = (document["evidence"]["influence"] or {}).get("cases") or []
    kept = recomputed.named(noted, folder) if noted else ()
    for k in kept:
        if why := canonical(subject, k):
            raise DigestMismatchError(f"{why}; the report rests on something else than these data")
    made = {True: "its models rest on trainings, and were not made again", False: "its arrays are what the data make"}
    said = dict.fromkeys(f"{k.theorem}: {made[k.theorem == OF_MODELS]}" for k in kept)
    return [*said, *recomputed.again(document, folder)]


def by_theorem(rule: Mapping[str, Any], subject: Subject, measured: Any) -> bool:
    """Return whether a rule's yes can only be a theorem's.

    About any question it is, but for a declared list of them. About people's own records it is where fewer people were
    trained without than there are, or than the rule's sample asks for, and nothing is concluded from a sample.
    """
    if subject.task != "classification":
        return False
    if rule["metric"] == "dtp":
        return subject.data.domain is None or subject.data.domain.queries is None
    if rule["metric"] != "pdtp" or measured is None:
        return bool(rule["metric"] == "pdtp")
    sure = rule["aggregate"] == "max" or measured.confidence is None
    return sure and measured.n < min(measured.population, rule.get("sample") or measured.population)


def upper(subject: Subject, kept: Iterable[Kept]) -> Any:
    """Return everybody's upper limit, shape (n_units,), made again; a sentence where a case is not the data's."""
    again = []
    for k in kept:
        if why := canonical(subject, k):
            return why
        try:
            made = k.again()
        except Refused as exc:
            return f"the kernel refuses the case of {k.theorem}: {exc}"
        gone = np.zeros(len(k.units), dtype=bool)
        if k.theorem != OF_MODELS:
            gone[k.units >= 0] = vanishing(subject, k.units[k.units >= 0])
        again.append(made.about(~gone))
    return cases.upper(again, len(subject.data.units))


def canonical(subject: Subject, kept: Kept) -> str:
    """Return how a case is not what the subject's data and recipe make it; empty where it is."""
    if not subject.release.exact:
        return "something else is released than the probabilities that theorems are about"
    inner = first_steps.through(subject)
    if kept.theorem == OF_MODELS:
        library = type(inner.subject.recipe.library_estimator).__module__
        if not library.startswith(TREES):
            return f"the recipe is of {library}, which trains no trees"
        fits = [name for name, theorem in OF_DATA.items() if not theorem.misfit(inner.subject)]
        return f"the recipe is one that {fits[0]} is about" if fits else _of_kind(kept, "cells")
    theorem = OF_DATA.get(kept.theorem)
    if theorem is None:
        return (
            f"cases of {kept.theorem!r} are not made of data again; privgate verify --recompute runs the kernel on them"
        )
    if why := theorem.unfit(inner.subject):  # where its trainings end is asked, too
        return f"{kept.theorem} does not apply, because {why}"
    units = kept.units
    if kept.seed or not np.array_equal(np.unique(units[units >= 0]), np.sort(units[units >= 0])):
        return f"the case of {kept.theorem} names somebody twice"
    if (units < 0).any():  # whom nothing is claimed of stands where they stood
        return _differs(theorem, inner.subject, replace(kept, units=_filled(units, subject)))
    return _differs(theorem, inner.subject, kept)


def _filled(units: Any, subject: Subject) -> Any:
    """Return the units with those of whom nothing is claimed, who vanish with a class, in their order."""
    missing = np.setdiff1d(np.arange(len(subject.data.units)), units)
    made = units.copy()
    made[units < 0] = missing[: int((units < 0).sum())]
    return made


def _differs(theorem: Certificate, subject: Subject, kept: Kept) -> str:
    """Return which array or setting is not the data's, or is none that this family has; empty if all are."""
    case = kept.case
    made = theorem.canonical(subject, kept.units, case)
    if made is None or (made.family, made.asked) != (case.family, case.asked):
        return f"the case of {kept.theorem} is of another kind"
    free = PROPOSED.get(case.family, _QUESTIONS)
    for name in sorted((case.arrays.keys() | made.arrays.keys()) - free):
        one, other = case.arrays.get(name), made.arrays.get(name)
        if one is None or other is None or not _same(one, other):
            return f"array {name!r} of {kept.theorem} is not what the first steps make of the data"
    for name in sorted((case.settings.keys() | made.settings.keys()) - free):
        if name not in case.settings or name not in made.settings or case.settings[name] != made.settings[name]:
            return f"setting {name!r} of {kept.theorem} is not the recipe's"
    return ""


def _same(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other)


def _of_kind(kept: Kept, family: str) -> str:
    case: Case = kept.case
    return "" if case.family == family and case.asked == "any" else f"the case of {kept.theorem} is of another kind"
