"""The best bound of every unit over all certificates that apply."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families import certificates, remembered
from privgate.families.certificate import Certificate, Certified
from privgate.families.pipelines import behind
from privgate.families.pipelines.behind import OTHER_KIND
from privgate.families.pipelines.seen_through import seen
from privgate.families.retrained import Index, Retrained
from privgate.families.witness import Witness
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet


def applicable(subject: Subject, *, attacked: bool = True) -> tuple[list[Certificate], list[str]]:
    """Return the certificates that apply, and a sentence for each that does not.

    Without an attack rule (``attacked``) those are left out that lower DTP and leave attacks as they were.
    """
    if subject.task != "classification":
        return [], []  # theorems of the catalogue are about probabilities
    good, notes = [], []
    for name, certificate in behind.certificates(subject, certificates.ALL).items():
        if problem := certificate.applies(subject):
            notes.append(f"{name} {problem}")
        elif not attacked and (problem := certificate.alone(subject)):
            notes.append(f"{name} does not apply, because {problem}")
        else:
            good.append(certificate)
    return good, notes


def no_theorem(subject: Subject) -> str:
    """Return why no theorem is about this kind of model at all."""
    covered = "`privgate list` names those that have one"
    if not subject.recipe.is_estimator:
        return f"the recipe is a function, and what it trains is not known; a theorem is about an estimator; {covered}"
    if subject.recipe.payload["predict"] is not None:
        return "the recipe releases something else than predict_proba, and no theorem is about that"
    kind = seen(subject).last or str(subject.recipe.payload["estimator"]["class"]).rpartition(":")[2]
    return f"no theorem bounds all answers of {kind}; {covered}"


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
    witness: Witness | None = None,
    attacked: bool = True,
    fleet: Fleet | None = None,
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
    witness : Witness, optional
        What real models were seen to do: a certificate with one bound below that is silent.
    attacked : bool
        Whether the same policy judges attacks, beside which alone some bounds count.
    fleet : Fleet, optional
        Whose ledger remembers bounds, for a run that is not to be signed.

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
    exact = np.zeros(len(units), dtype=bool)
    by = np.full(len(units), "", dtype=object)
    assumptions: list[str] = []
    detail: dict[str, Any] = {}
    listed = subject.data.domain is not None and subject.data.domain.queries is not None
    good, notes = applicable(subject, attacked=attacked)
    for certificate in good:
        if (
            limit is not None
            and np.isfinite(upper).all()
            and not ((lower <= limit) & (limit < upper)).any()
            and len(by)
        ):
            notes.append(f"{certificate.name} was not asked, because {by[0]} and those before it decide every unit")
            continue
        if certificate.needs_retrained and retrained is None:
            notes.append(f"{certificate.name} does not apply, because it needs retrained models and there are none")
            continue
        found = remembered.bound(certificate, subject, units, retrained, fleet, limit=limit)
        if np.isnan(found.upper).any() or np.isnan(found.lower).any():
            raise FloatingPointError(f"certificate {certificate.name} returned NaN: a bug, not a bound")
        if witness is not None and (objection := witness.objects(certificate, units, found.upper)):
            notes.append(f"{certificate.name} {objection}")
            continue
        better = (found.upper < upper) | (by == "")
        upper = np.where(better, found.upper, upper)
        by[better] = certificate.name
        if not listed or certificate.name == "listed_questions":  # others attain theirs anywhere in the box
            lower = np.maximum(lower, found.lower)
            exact |= found.exact
        assumptions += [a for a in found.assumptions if a not in assumptions]
        detail[certificate.name] = found.detail
    if witness is not None:
        seen = witness.change(units)
        lower = np.maximum(lower, np.where(np.isfinite(seen), seen, 0.0))
    # a real query above an upper bound would disprove the theorem; the larger number is the safe one
    return Certified(np.maximum(upper, lower), lower, exact, tuple(assumptions), detail), by, notes
