"""Training functions that do no more than fit an estimator: recognised by watched runs, re-checked like any engine.

What a function does on all records and on two halves says nothing about what it would do without one person: that is
what the re-check's refits, which call the function itself, are for. They look at some people, and a function may be
written to treat another one differently: a run that is to be signed uses an engine only where the source shows that
it cannot (``plain``). No theorem rests on it.
"""

import weakref
from dataclasses import replace

from privgate.errors import SubjectError
from privgate.evidence import Precondition
from privgate.families.pipelines import plain
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: fewer units than this are refitted sooner than a function is recognised and an engine re-checked
LEAST_UNITS = 150
_KNOWN: "weakref.WeakKeyDictionary[Recipe, Recipe]" = weakref.WeakKeyDictionary()


def recognise(subject: Subject, fleet: Fleet) -> Precondition | None:
    """Look at a training function once, and return what was found; None where there is nothing to look at.

    Until then a function is a stranger to every engine but refits.
    """
    recipe = subject.recipe
    if recipe.is_estimator or recipe.payload["predict"] is not None or recipe.payload["dp"] is not None:
        return None
    if len(subject.data.units) < LEAST_UNITS:
        return None
    found = fleet.recognised(subject)
    made, why = None, str(found.get("why", "its worker said nothing"))
    if "estimator" in found:
        payload = {**recipe.payload, "kind": "estimator", "estimator": found["estimator"], "params": {}}
        payload.pop("fit", None)
        try:
            made = Recipe.read(payload, None)
            known = made.library_estimator
        except SubjectError as exc:
            made, known, why = None, None, str(exc)
        if known is None:
            made, why = None, "what it fits is no estimator of scikit-learn's or ours alone"
    if made is not None and fleet.signable and (way := plain.strange(recipe)):
        made, why = None, f"{way}, and so may do otherwise without single people; give the estimator itself, Recipe(…)"
    if made is None:
        text = f"the training function is not recognised as the fit of one estimator ({why}); everybody is refitted"
        return Precondition("recognised", "passed", text, {"why": why})
    _KNOWN[recipe] = made
    name = _name(made)
    text = (
        f"the training function fits {name} to exactly its records and labels, on all of them and on two halves; its "
        "engine is used, and re-checked by refits of the function itself"
    )
    return Precondition("recognised", "passed", text, {"estimator": name})


def known(subject: Subject) -> Recipe | None:
    """Return the recipe of the estimator that a subject's training function was seen to fit; None if none was."""
    return None if subject.recipe.is_estimator else _KNOWN.get(subject.recipe)


def as_estimator(subject: Subject, recipe: Recipe) -> Subject:
    """Return the subject with the recipe of what its function fits."""
    return replace(subject, recipe=recipe)


def _name(recipe: Recipe) -> str:
    estimator = recipe.library_estimator
    steps = [s for _, s in estimator.steps] if type(estimator).__name__ == "Pipeline" else [estimator]
    return " + ".join(type(s).__name__ for s in steps)
