"""Whether the served model refuses what the declared domain rules out: a theorem about a domain speaks of no other.

The model is asked one question at a time, alone or beside a record, as its clients may: a value just beyond an end, far
beyond it, infinite, missing or of an unknown category. Which, is drawn anew in each run.
"""

import contextlib
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.evidence import Precondition
from privgate.families import listed
from privgate.subject.accepted_questions import AcceptedQuestions
from privgate.subject.containers import stack, take
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: questions that are put to a model at most
MOST = 128
#: what is called in a worker, by name
_ASK = "privgate.run.refusals:asked"
HOW = "log it by privgate.log_model, which has it refuse all others, or have it refuse them itself"
_LOOKED: "weakref.WeakKeyDictionary[Subject, Subject]" = weakref.WeakKeyDictionary()


def looked(subject: Subject, fleet: Fleet) -> Subject:
    """Return the subject, which says what its stored model does with questions outside of the declared domain."""
    if subject.model is None or subject.data.domain is None:
        return subject
    if subject not in _LOOKED:
        domain = subject.data.domain
        inside = domain.queries is not None or bool(domain.holds(subject.data.pool()[0]).all())
        said = (
            fleet.examined(subject, _ASK) if inside else {"problem": "people in the data lie outside of it themselves"}
        )
        why, count = str(said.get("problem", "")), said.get("asked")
        if not why and not (isinstance(count, int) and count > 0):
            why = "no question outside of it could be made up"
        if not why and said.get("answered") != 0:
            what = "".join(c for c in str(said.get("example")) if c.isprintable())[:80]
            why = f"the served model answers questions outside of the declared domain ({what}); {HOW}"
        elif why:
            why = f"whether the served model refuses what the declared domain rules out is not known: {why}"
        text = why or f"the served model refuses what the declared domain rules out: it answered none of {count} such"
        found = Precondition("domain_enforced", "warned" if why else "passed", text)
        detail = {**subject.detail, "preconditions": [*subject.detail.get("preconditions", ()), found]}
        _LOOKED[subject] = replace(subject, beyond=why, detail=detail)
    return _LOOKED[subject]


def _among(opened: Any, X: Any, rng: Generator) -> Any:
    """Return a question alone, before or behind a record, or among many, as it falls."""
    before, behind = (int(rng.choice([0, 0, 1, 150])) for _ in range(2))
    made = X
    with contextlib.suppress(TypeError, ValueError):  # types that no table holds together
        for count, first in ((before, True), (behind, False)):
            others = take(opened.X, rng.integers(opened.n, size=count))
            made = made if not count else stack(others, made) if first else stack(made, others)
    return made


def asked(opened: Any) -> dict[str, Any]:
    """Put questions outside of the domain to the stored model (workers only); how many, and how many it answered."""
    rng, accepted = np.random.default_rng(), AcceptedQuestions(opened.domain)
    made = [(what, X) for what, X in listed.odd(opened.domain, opened.X, rng) if not accepted.holds(X).any()]
    made = [made[k] for k in rng.permutation(len(made))[:MOST]]
    made = [(what, _among(opened, X, rng)) for what, X in made]
    inside, listing = np.flatnonzero(accepted.holds(opened.X))[:1], opened.domain.get("queries")
    if not (len(inside) or listing):
        return {"problem": "no record of the data lies inside of it"}
    known = take(opened.X, inside) if listing is None else listed.made_like(np.array(listing[:1]), opened.X)
    control, *answered = opened.stored.answering([known, *(X for _, X in made)])
    if not control:
        return {"problem": "the served model did not answer about a record inside of it either"}
    first = next((what for (what, _), yes in zip(made, answered, strict=True) if yes), "")
    return {"asked": len(made), "answered": sum(answered), "example": first}
