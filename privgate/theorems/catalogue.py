"""The theorems and closed forms that there are, and the best limit of every person over all theorems that apply."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.cases import Kept, needed
from privgate.subject.subject import Subject
from privgate.theorems import naive_bayes
from privgate.theorems.closed_form import Engine, Retrained
from privgate.theorems.designs import NEIGHBORS, SHARDED
from privgate.theorems.hypotheses import OUTSIDE
from privgate.theorems.least_squares import LEAST_SQUARES
from privgate.theorems.newton import LOGISTIC, NEWTON
from privgate.theorems.pipelines import seen
from privgate.theorems.theorem import Certified, Theorem, Units
from privgate.theorems.two_models import LINEAR

_ALL = (*naive_bayes.ALL, NEIGHBORS, SHARDED, NEWTON, LINEAR)
THEOREMS: dict[str, Theorem] = {theorem.name: theorem for theorem in _ALL}
#: of leave-one-out; whoever has none is refitted
CLOSED_FORMS: tuple[Engine, ...] = (LEAST_SQUARES, LOGISTIC)
_OTHER_KIND = "the recipe is not "  # how a theorem's refusal begins where it is about another kind of model


def find_closed_form(subject: Subject) -> tuple[Engine | None, dict[str, str]]:
    """Return the closed form of a subject, and why others decline; it is asked about ``seen(subject).subject``.

    Closed forms are about exact probabilities: what is rounded, binned or cut is refitted.
    """
    declined: dict[str, str] = {}
    if subject.task == "classification" and not subject.release.exact:
        why = "something else is released than exact probabilities"
        return None, {e.name: why for e in CLOSED_FORMS}
    inner = seen(subject).subject
    for engine in CLOSED_FORMS:
        if not (why := engine.refusal(inner) or engine.declines(inner)):
            return engine, declined
        declined[engine.name] = why
    return None, declined


def applicable(subject: Subject) -> tuple[list[Theorem], list[str]]:
    """Return the theorems that apply, and a sentence for each that does not."""
    if subject.task != "classification":
        return [], []  # theorems of the catalogue are about probabilities
    whys = {name: _refuse(theorem, subject) for name, theorem in THEOREMS.items()}
    notes = [f"{name} does not apply, because {why}" for name, why in whys.items() if why]
    return [THEOREMS[name] for name, why in whys.items() if not why], notes


def _refuse(theorem: Theorem, subject: Subject) -> str:
    if theorem.needs_retrained:
        return theorem.refusal(subject)
    behind = seen(subject)
    why = theorem.refusal(behind.subject)
    # it is about the last step, and would speak if the first steps did not learn
    return behind.problem if behind.problem and why.startswith(_OTHER_KIND) and f"{behind.last} " in why else why


def _certify(theorem: Theorem, about: Units) -> Certified:
    """Return a theorem's limits over everything that fixed first steps make of a query."""
    if theorem.needs_retrained:
        return theorem.certify(about)
    behind = seen(about.subject)
    limits, domain = theorem.certify(replace(about, subject=behind.subject)), behind.subject.accepted
    if not (behind.steps or (domain is not None and domain.blocks)):
        return limits
    said = list(limits.assumptions)
    if behind.steps:
        anywhere = "whatever is asked, the first steps map it into fixed ranges"
        said = [behind.words, *(anywhere if s == OUTSIDE else s for s in said)]
    return replace(limits, lower=np.where(np.isinf(limits.lower), np.inf, 0.0), assumptions=tuple(said))


def no_theorem(subject: Subject) -> str:
    """Return why no theorem is about this kind of model at all."""
    covered = "`privgate explain --list --all` names those that have one"
    if not subject.recipe.is_estimator:
        return f"the recipe is a function, and what it trains is not known; a theorem is about an estimator; {covered}"
    if subject.recipe.payload["predict"] is not None:
        return "the recipe releases something else than predict_proba, and no certificate is about that"
    kind = seen(subject).last or str(subject.recipe.payload["estimator"]["class"]).rpartition(":")[2]
    return f"no certificate limits all answers of {kind}; {covered}"


def reasons(notes: Iterable[str]) -> list[str]:
    """Return why theorems made for this kind of model do not apply, each reason once; nothing about other kinds."""
    whys = (note.partition("because ")[2] for note in notes)
    return list(dict.fromkeys(why for why in whys if why and not why.startswith(_OTHER_KIND)))


def bound(
    subject: Subject, units: Index, retrained: Retrained | None, *, limit: float | None = None, fleet: Any = None
) -> tuple[Certified, NDArray[Any], list[str]]:
    """Return the best limits of people, the theorem of each upper limit, and why the others do not apply.

    The smallest upper and the largest lower limit over all that apply; infinite, 0 and no theorem where none does.
    ``Units`` has the parameters; theorems that need retrained models are left out without them.
    """
    upper, lower = np.full(len(units), np.inf), np.zeros(len(units))
    by, kept, words = np.full(len(units), "", dtype=object), list[Kept](), dict[str, None]()
    good, notes = applicable(subject)
    for theorem in good:
        name, open_ = theorem.name, np.isinf(upper)
        if limit is not None:
            open_ |= (lower <= limit) & (limit < upper)
        if len(by) and not open_.any() and (limit is not None or theorem.needs_retrained):
            notes.append(f"{name} was not asked, because {by[0]} and those before it decide everybody")
            continue
        if theorem.needs_retrained and retrained is None:
            why = "it compares retrained models, and there are none or no rule asks over all questions"
            notes.append(f"{name} was not asked, because {why}")
            continue
        some = open_ if theorem.needs_retrained else np.ones(len(units), dtype=bool)  # it may train people again
        refits = None if retrained is None else retrained.select(some)
        certified = _certify(theorem, Units(subject, units[some], refits, limit, fleet))
        if certified.why:
            notes.append(f"{name} does not apply, because {certified.why}")
            continue
        if np.isnan([certified.upper, certified.lower]).any():
            raise FloatingPointError(f"theorem {name} returned NaN: a bug, not a limit")
        most, least = np.full(len(units), np.inf), np.zeros(len(units))
        most[some], least[some] = certified.upper, certified.lower
        better = (most < upper) | (by == "")
        upper, by[better] = np.where(better, most, upper), name
        lower = np.maximum(lower, least)
        kept += [replace(k, theorem=name) for k in certified.cases]
        words |= dict.fromkeys(certified.assumptions)
    # a real query above an upper limit would disprove the theorem; the larger number is the safe one
    cases = needed(kept, len(subject.data.units))
    return Certified(np.maximum(upper, lower), lower, tuple(words), cases=cases), by, notes
