"""What a closed form is: the answers of models without people, without training; the training function checks it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from privgate.arrays import Index
from privgate.subject.subject import Subject
from privgate.theorems.hypotheses import ODD, odd, unit_rows
from privgate.theorems.retrained import Retrained, Seeds, Status

#: nats by which a refit may differ; closed forms agree to 1e-9, and no limit of a policy is stated more finely
TOLERANCE = 1e-6


class Declined(Exception):  # noqa: N818  not an error: people are refitted instead
    """Only the work itself shows that recipe or data are not covered; says why."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What models without people, positions ``units`` in ``subject.data.units``, each once, are asked for.

    ``seeds`` are paired; training without randomness is answered for the first one only. ``fleet`` trains where there
    is no closed form. ``queries`` are ``(row_unit, row_query)`` as in ``Retrained``; each person's own records if
    absent. ``limits`` are the policy's, nats: closed forms look closer near them.
    """

    subject: Subject
    units: Index
    seeds: Seeds
    fleet: Any
    queries: tuple[Index, Index] | None = None
    limits: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", np.asarray(self.units, dtype=np.int64))

    @cached_property
    def rows(self) -> tuple[Index, Index]:
        """The rows, (row_unit, row_query), asked about."""
        return unit_rows(self.subject, self.units) if self.queries is None else self.queries


class Engine(ABC):
    """Answers what the model would have been without a person. Stateless; one instance in the catalogue.

    Refits may differ by its ``tolerance``, nats, beyond each person's own error. ``hands_on`` says why people are left
    to refits. Where it ``complements``, the model releases 1 - p as the first of two probabilities. ``tasks`` are the
    kinds of models that it answers for. Where it is ``certain``, its errors are the kernel's.
    """

    name: str
    tolerance: float = TOLERANCE
    hands_on: str = "it could not answer them"
    complements: bool = False
    tasks: tuple[str, ...] = ("classification",)
    certain: bool = False

    def refusal(self, subject: Subject) -> str:
        """Return why it does not answer for the subject: another task than its own, or what ``supports`` says."""
        if subject.task not in self.tasks:
            return f"it answers for {' and '.join(self.tasks)}, and the recipe is a {subject.task}"
        try:
            return self.supports(subject)
        except ODD as exc:
            return odd(exc)

    @abstractmethod
    def supports(self, subject: Subject) -> str:
        """Return why it does not cover recipe and data; empty if it does."""

    @abstractmethod
    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return what it can answer, and the people whom it leaves to refits; it may raise ``Declined``."""

    def declines(self, subject: Subject) -> str:
        """Return beforehand why ``answers`` will raise ``Declined``; the subject must be supported."""
        del subject
        return ""

    def notes(self, subject: Subject) -> Mapping[str, Any]:
        """Return JSON values for the report."""
        del subject
        return {}


# Of two classes scikit-learn computes the second probability and releases the first as 1 - p: near 0 it carries a
# rounding of up to 1e-16, and is exactly 0 below 6e-17. A closed form knows ln q better, but what is released counts:
# 0 where that is certain; a rounding that matters little is charged to the person's error (docs/mathematics.md, section
# 16), and where it matters the person is refitted.

#: ln q: e^-18 is 1.5e-8, of which a rounding of 1.1e-16 takes less than 1e-8 nats
WHOLE = -18.0
#: ln q: half the distance from 1 to the next smaller number is 5.6e-17 = e^-37.4, below which 1 - p is 0
NOTHING = -38.0
#: how far 1 - p may be from q: p is off by at most two units in the last place below 1, and 1 - p itself is exact
ROUNDING = 2.0**-52
#: nats of rounding that are charged to the error; beyond, the training function is asked
CHARGED = 1e-3
WHY = "the probability of their first class, released as 1 - p, has no digits left"


def as_released(answers: Retrained) -> tuple[Retrained, Index]:
    """Return answers of exact arithmetic as they are released, and the people whose first probability is too rounded.

    With more than two classes nothing is subtracted from 1.
    """
    if answers.log_with.shape[-1] != 2 or not len(answers.units):
        return answers, answers.units[:0]
    first = np.stack([answers.log_with[..., 0], answers.log_without[..., 0]])
    margin = np.nan_to_num(answers.error, nan=0.0)[answers.row_unit]
    rounded = (first < WHOLE + margin) & (first > NOTHING - margin)
    with np.errstate(over="ignore", divide="ignore"):
        off = -np.log1p(-np.minimum(ROUNDING * np.exp(margin - first), 1.0))
    charge, live = np.zeros(len(answers.units)), np.isin(answers.status, (Status.EXACT, Status.CONVERGED))
    np.maximum.at(charge, answers.row_unit, np.where(rounded, off, 0.0).max(axis=(0, 1)))
    unsure = live & (charge > CHARGED)
    with_, without = answers.log_with.copy(), answers.log_without.copy()
    for values in (with_, without):
        values[..., 0][values[..., 0] <= NOTHING] = -np.inf
    error = answers.error + np.where(live & ~unsure, charge, 0.0)
    answers = replace(answers, error=error, log_with=with_, log_without=without)
    return answers.select(~unsure), answers.units[unsure]
