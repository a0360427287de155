"""The theorems and closed forms that there are, and the best limit of every person over all theorems that apply."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.cases import Kept, needed
from privgate.subject.subject import Subject
from privgate.theorems import naive_bayes, pipelines
from privgate.theorems.certificate import Certificate, Certified, Units
from privgate.theorems.closed_form import Engine
from privgate.theorems.designs import BallLogisticCertificate, NeighborsCertificate, ShardedMembers
from privgate.theorems.least_squares import LEAST_SQUARES, RIDGE
from privgate.theorems.listed import ListedQuestions
from privgate.theorems.logistic import LOGISTIC, NEWTON
from privgate.theorems.pipelines import OTHER_KIND, seen
from privgate.theorems.retrained import Retrained
from privgate.theorems.two_models import LINEAR

_ALL = (
    ListedQuestions(),
    *naive_bayes.ALL,
    NeighborsCertificate(),
    BallLogisticCertificate(),
    ShardedMembers(),
    NEWTON,
    LINEAR,
)
THEOREMS: dict[str, Certificate] = {theorem.name: theorem for theorem in _ALL}
#: of leave-one-out; whoever has none is refitted
CLOSED_FORMS: tuple[Engine, ...] = (RIDGE, LEAST_SQUARES, LOGISTIC)


def find_closed_form(subject: Subject) -> tuple[Engine | None, dict[str, str]]:
    """Return the closed form of a subject, and why others decline; a pipeline's fixed first steps are seen through.

    Closed forms are about exact probabilities: what is rounded, binned or cut is refitted.
    """
    declined: dict[str, str] = {}
    if subject.task == "classification" and not subject.release.exact:
        why = "something else is released than exact probabilities"
        return None, {engine.name: why for engine in CLOSED_FORMS}
    for engine in pipelines.engines(subject, CLOSED_FORMS):
        why = engine.refusal(subject) or engine.declines(subject)
        if not why:
            return engine, declined
        declined[engine.name] = why
    return None, declined


def applicable(subject: Subject, *, attacked: bool = True) -> tuple[list[Certificate], list[str]]:
    """Return the certificates that apply, and a sentence for each that does not.

    Without an attack rule (``attacked``) those are left out that lower DTP and leave attacks as they were.
    """
    if subject.task != "classification":
        return [], []  # theorems of the catalogue are about probabilities
    good, notes = [], []
    for name, certificate in pipelines.certificates(subject, THEOREMS).items():
        if problem := certificate.applies(subject):
            notes.append(f"{name} {problem}")
        elif not attacked and (problem := certificate.alone(subject)):
            notes.append(f"{name} does not apply, because {problem}")
        else:
            good.append(certificate)
    return good, notes


def no_theorem(subject: Subject) -> str:
    """Return why no theorem is about this kind of model at all."""
    covered = "`privgate list --all` names those that have one"
    if not subject.recipe.is_estimator:
        return f"the recipe is a function, and what it trains is not known; a theorem is about an estimator; {covered}"
    if subject.recipe.payload["predict"] is not None:
        return "the recipe releases something else than predict_proba, and no certificate is about that"
    kind = seen(subject).last or str(subject.recipe.payload["estimator"]["class"]).rpartition(":")[2]
    return f"no certificate limits all answers of {kind}; {covered}"


def reasons(notes: Iterable[str]) -> list[str]:
    """Return why certificates made for this kind of model do not apply, each reason once; nothing about other kinds."""
    found = (note.partition("because ")[2] for note in notes)
    return list(dict.fromkeys(why for why in found if why and not why.startswith(OTHER_KIND)))


def bound(
    subject: Subject,
    units: Index,
    retrained: Retrained | None,
    *,
    limit: float | None = None,
    attacked: bool = True,
    fleet: Any = None,
) -> tuple[Certified, NDArray[Any], list[str]]:
    """Return the best upper and lower bound of each unit.

    Parameters
    ----------
    subject : Subject
    units : int64 array of shape (U,)
        Positions in ``subject.data.units``.
    retrained : Retrained, optional
        Exactly these units, in this order; certificates that need it are left out without it.
    limit : float, optional
        Policy limit, nats: effort goes first to units that lie on both sides of it.
    attacked : bool
        Whether the same policy judges attacks, beside which alone some bounds count.
    fleet : Fleet, optional
        Trains models that a theorem reads.

    Returns
    -------
    Certified
        Smallest upper, largest lower over all that apply; infinite and 0 where none does.
    object array of shape (U,) of str
        Whose upper bound it is; empty where none applies.
    list of str
        Why the others do not apply.
    """
    upper, lower = np.full(len(units), np.inf), np.zeros(len(units))
    by = np.full(len(units), "", dtype=object)
    assumptions: list[str] = []
    detail: dict[str, Any] = {}
    kept: list[Kept] = []
    listed = subject.accepted is not None and subject.accepted.queries is not None
    good, notes = applicable(subject, attacked=attacked)
    for certificate in good:
        open_ = np.isinf(upper) if limit is None else np.isinf(upper) | ((lower <= limit) & (limit < upper))
        if len(by) and not open_.any() and (limit is not None or certificate.whole):
            notes.append(f"{certificate.name} was not asked, because {by[0]} and those before it decide everybody")
            continue
        if certificate.needs_retrained and retrained is None:
            why = "it compares retrained models, and there are none or no rule asks over all questions"
            notes.append(f"{certificate.name} was not asked, because {why}")
            continue
        about = Units(subject, units, retrained, limit, fleet)
        found = _bound_open(certificate, about, open_) if certificate.whole else certificate.certify(about)
        if "why" in found.detail:
            notes.append(f"{certificate.name} does not apply, because {found.detail['why']}")
            continue
        if np.isnan(found.upper).any() or np.isnan(found.lower).any():
            raise FloatingPointError(f"certificate {certificate.name} returned NaN: a bug, not a bound")
        better = (found.upper < upper) | (by == "")
        upper = np.where(better, found.upper, upper)
        by[better] = certificate.name
        if not listed or certificate.name == "listed_questions":  # others attain theirs anywhere in the box
            lower = np.maximum(lower, found.lower)
        kept += [replace(k, theorem=certificate.name) for k in found.cases]
        assumptions += [a for a in found.assumptions if a not in assumptions]
        detail[certificate.name] = found.detail
    # a real query above an upper bound would disprove the theorem; the larger number is the safe one
    cases = needed(kept, len(subject.data.units))
    return Certified(np.maximum(upper, lower), lower, tuple(assumptions), detail, cases=cases), by, notes


def _bound_open(certificate: Certificate, about: Units, open_: NDArray[np.bool_]) -> Certified:
    """Return what a theorem that may train people again says of those whom others leave open, and nothing of others."""
    made = certificate.certify(replace(about, units=about.units[open_], retrained=about.retrained.select(open_)))
    wide = Certified.nothing(about.units)
    wide.upper[open_], wide.lower[open_] = made.upper, made.lower
    return replace(made, upper=wide.upper, lower=wide.lower)
