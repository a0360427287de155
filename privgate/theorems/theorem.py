"""What a theorem is: hypotheses that are checked, a case that the kernel judges, and limits of people that follow."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.kernel import Case
from privgate.subject.domain import Domain
from privgate.subject.subject import Subject
from privgate.theorems.hypotheses import look_at, vanishing


@dataclass(frozen=True, eq=False)
class Certified:
    """What a theorem says of people, arrays of shape (U,), nats.

    No question of the domain changes any label's log-probability by more than ``upper``, infinite without a limit; one
    that the kernel knows changes it by ``lower``, 0 without one. ``assumptions`` are the hypotheses that were checked,
    and the domain, in words; ``why`` says why nobody is limited, where that is known; ``cases`` are what was judged.
    """

    upper: Float
    lower: Float
    assumptions: tuple[str, ...] = ()
    why: str = ""
    cases: tuple[Kept, ...] = ()

    @classmethod
    def nothing(cls, units: Index, words: tuple[str, ...] = (), why: str = "") -> Self:
        """Return limits that say nothing of anybody."""
        return cls(np.full(len(units), np.inf), np.zeros(len(units)), words, why)


@dataclass(frozen=True, eq=False)
class Units:
    """Whom a theorem is asked about: positions ``units`` in ``subject.data.units``, shape (U,).

    ``retrained`` are models without exactly these, in this order; a theorem about data reads none. ``limit`` is the
    policy's, nats: work goes first to people on both sides of it. ``fleet`` trains models that a theorem reads.
    """

    subject: Subject
    units: Index
    retrained: Any = None
    limit: float | None = None
    fleet: Any = None


class Theorem(ABC):
    """A theorem, applied to a recipe. Stateless; one instance in the catalogue.

    ``source`` says where it is proved. Where it ``needs_retrained``, it compares whole pipelines with and without
    people, and may train people again for it; else it reads recipe and data alone.
    """

    name: str
    source: str
    needs_retrained: bool = False

    @abstractmethod
    def unfit(self, subject: Subject) -> str:
        """Return why the theorem does not apply to a subject; empty if it does."""

    def refusal(self, subject: Subject) -> str:
        """Return why the theorem does not apply to a subject, or cannot even look; empty if it does."""
        return look_at(subject, self.unfit)

    @abstractmethod
    def canonical(self, subject: Subject, units: Index, case: Case) -> Case:
        """Return a kept case made again, but for what was proposed or trained."""

    @abstractmethod
    def certify(self, about: Units) -> Certified:
        """Return the limits of each person, nats, shapes (U,), by a theorem that applies."""


@dataclass(frozen=True)
class DataTheorem(Theorem):
    """A theorem about recipe and data alone: a case is made of them, and the kernel judges it.

    ``refuse`` says which hypothesis a subject misses; empty if none. ``pose`` makes the case of people, first in it,
    and says what was checked. ``lost`` is said where rounding leaves nothing of anybody's limit.
    """

    name: str
    source: str
    refuse: Callable[[Subject], str]
    pose: Callable[[Subject, Index], tuple[Case, tuple[str, ...]]]
    lost: str = ""

    def unfit(self, subject: Subject) -> str:
        """Return why the theorem does not apply to a subject; empty if it does."""
        return self.refuse(subject) or (_refuse_rounding(self, subject) if self.lost else "")

    def canonical(self, subject: Subject, units: Index, case: Case) -> Case:
        """Return the whole case."""
        del case
        return self.pose(subject, units)[0]

    def certify(self, about: Units) -> Certified:
        """Return the kernel's limits of each person; a second case is tight at the largest of them."""
        subject, units, limit = about.subject, about.units, 1.0 if about.limit is None else float(about.limit)
        case, words = self.pose(subject, units)
        # a design does not know that a class vanishes with somebody
        gone = vanishing(subject, units) & (case.family == "construction")
        try:
            cases = [Kept.judge_case(_set_limit(case, limit), units).about(~gone)]
            top = float(cases[0].high[np.isfinite(cases[0].high)].max(initial=0.0))
            if "limit" in case.settings and not limit < top <= 2 * limit:  # between these the first is tight
                cases.append(Kept.judge_case(_set_limit(case, top / 2), units))
        except kernel.Refused:
            return Certified.nothing(units, words)
        low = np.zeros(len(units)) if refuses_more(subject.accepted) else cases[0].low
        high, low = (np.where(gone, np.inf, v) for v in (np.min([k.high for k in cases], axis=0), low))
        return Certified(high, low, words, cases=tuple(cases))


def _set_limit(case: Case, limit: float) -> Case:
    return replace(case, settings={n: limit if n == "limit" else v for n, v in case.settings.items()})


@lru_cache(maxsize=8)
def _refuse_rounding(theorem: DataTheorem, subject: Subject) -> str:
    """Return that not even answers about people's own records are limited: for these no domain is too wide."""
    everybody = np.arange(len(subject.data.units))
    try:
        high = kernel.limits(replace(theorem.pose(subject, everybody)[0], scope="own")).high
    except kernel.Refused:
        return theorem.lost
    known = ~vanishing(subject, everybody)
    return theorem.lost if known.any() and np.isinf(high[known]).all() else ""


def refuses_more(domain: Domain | None) -> bool:
    """Return whether a domain refuses more than each feature's values say: limits hold, questions may show nothing."""
    return domain is not None and bool(domain.blocks)


def make_design(held: Index, **settings: Any) -> Case:
    """Return the case of people who hold so much of a design."""
    return Case("construction", "any", settings, {"held": held.astype(np.int64)})


def people_of(subject: Subject, units: Index) -> Index:
    """Return whose each record is: those asked about first, in their order, then everybody else."""
    order = np.concatenate([units, np.setdiff1d(np.arange(len(subject.data.units)), units)])
    return np.argsort(order)[subject.data.units.owner].astype(np.int64)
