"""What a certificate is: an upper bound on DTP from a theorem whose hypotheses were checked."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.kernel import Case
from privgate.subject.subject import Subject
from privgate.theorems.hypotheses import ODD, Reach, odd


@dataclass(frozen=True, eq=False)
class Certified:
    """What a certificate says about each unit.

    Parameters
    ----------
    upper : float64 array of shape (U,)
        No query of the domain changes any label's log-probability by more; nats; inf where the theorem gives no bound.
    lower : float64 array of shape (U,)
        Change at a query that the kernel knows, rounding taken off; nats, 0 where it knows none.
    assumptions : tuple of str
        The hypotheses, in words, that were checked, and the domain.
    detail : mapping
        JSON values for the report.
    cases : tuple of Kept
        What the kernel was asked: a unit's ``upper`` is what they say of it, and infinite where they say nothing.
    """

    upper: Float
    lower: Float
    assumptions: tuple[str, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)
    cases: tuple[Kept, ...] = ()

    @classmethod
    def without_data(cls, kept: Kept | None, units: Index, words: tuple[str, ...]) -> Self:
        """Return what a design says; nothing of anybody where the kernel refused it."""
        upper = np.full(len(units), np.inf) if kept is None else np.where(kept.units < 0, np.inf, kept.high)
        return cls(upper, np.zeros(len(units)), words, cases=() if kept is None else (kept,))

    @classmethod
    def nothing(cls, units: Index, words: tuple[str, ...] = (), **detail: Any) -> Self:
        """Return limits that say nothing of anybody."""
        return cls(np.full(len(units), np.inf), np.zeros(len(units)), words, detail)


@dataclass(frozen=True, eq=False)
class Units:
    """What a certificate is about.

    Parameters
    ----------
    units : int64 array of shape (U,)
        Positions in ``subject.data.units``.
    retrained : Retrained, optional
        Exactly these units, in this order. Whoever makes a case of data alone loads none.
    limit : float, optional
        The policy's, nats: a certificate that can trade time for tightness spends it first on units that lie on both
        sides of it.
    fleet : Fleet, optional
        Trains models that a theorem reads.
    """

    subject: Subject
    units: Index
    retrained: Any = None
    limit: float | None = None
    fleet: Any = None


class Certificate(ABC):
    """A theorem, applied to a recipe. Stateless; one instance in the catalogue.

    Attributes
    ----------
    name : str
        Catalogue key.
    source : str
        Where it is proved, with its number.
    needs_retrained : bool
        Whether ``bound`` compares retrained models, those of a whole pipeline, or speaks from recipe and data alone.
    whole : bool
        Whether it reads the models of a whole pipeline that it asked, and may train people again for it.
    """

    name: str
    source: str
    needs_retrained: bool = False
    whole: bool = False

    @abstractmethod
    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis of recipe, records or domain fails, as far as nothing is trained to know it."""
        return self.unfit(subject)

    def canonical(self, subject: Subject, units: Index, case: Case) -> Case | None:
        """Return a case's canonical part, made of the subject again; None where only trained models could say it.

        These are records, labels, whose each record is, accepted questions, and parameters of the training: all but
        the certificate. Nothing is trained. ``misfit`` must have been empty.
        """
        del subject, units, case
        return None

    def applies(self, subject: Subject) -> str:
        """Return "does not apply, because …" or an empty text."""
        try:
            why = self.unfit(subject)
        except ODD as exc:
            why = odd(exc)
        return f"does not apply, because {why}" if why else ""

    def alone(self, subject: Subject) -> str:
        """Return why its bounds count only beside an attack rule; empty where they count by themselves."""
        del subject
        return ""

    def every_data_set(self, subject: Subject) -> float:
        """Return what a person changes any answer by at most whatever the data are, nats; infinite for these data only.

        A value for the given data is no such number, even the largest: on another data set it may be larger. It
        applies, so hypotheses about the recipe were checked.
        """
        del subject
        return np.inf

    @abstractmethod
    def certify(self, about: Units) -> Certified:
        """Return the bound for each of the units; it applies."""

    def bound(
        self, subject: Subject, units: Index, retrained: Any, *, limit: float | None = None, fleet: Any = None
    ) -> Certified:
        """Return the bound for each of ``units``; ``Units`` has the parameters."""
        return self.certify(Units(subject, units, retrained, limit, fleet))


class ByDesign(Certificate):
    """A theorem about a design, whatever the records are."""

    @abstractmethod
    def design(self, subject: Subject, units: Index) -> Case:
        """Return how much of the design each of the units holds; ``misfit`` must have been empty."""

    def canonical(self, subject: Subject, units: Index, case: Case) -> Case:
        """Return the whole case: a design needs no certificate."""
        del case
        return self.design(subject, units)

    def judged(self, about: Units) -> Kept | None:
        """Return the kernel's limits of the units; None where it refuses the design."""
        try:
            return Kept.of(self.design(about.subject, about.units), about.units)
        except kernel.Refused:
            return None


def designed(held: Index, **settings: Any) -> Case:
    """Return the case of people who hold so much of a design."""
    return Case("construction", "any", settings, {"held": held.astype(np.int64)})


def smoothed(subject: Subject, alpha: float) -> float:
    """Return ``ln(1 + 1/alpha)``, what one record changes smoothed shares of declared labels by at most, for any data.

    Infinite where labels are read off the data, or a person may have several records: how many is declared nowhere.
    """
    if subject.declared_classes is None or subject.data.groups is not None or not alpha > 0:
        return np.inf
    try:
        one = designed(np.ones(1, dtype=np.int64), design="shares", alpha=float(alpha))
        return float(kernel.limits(one).high[0])
    except kernel.Refused:
        return np.inf


def accepted_settings(reach: Reach) -> dict[str, Any]:
    """Return what the kernel is told of a declared domain beside arrays."""
    stated = {"length": reach.length, "norm": reach.norm}
    return {"whole": bool(reach.whole), **{k: float(v) for k, v in stated.items() if v is not None}}


def accepted_arrays(reach: Reach, d: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of a declared domain of d features, as the kernel wants them."""
    made: dict[str, NDArray[Any]] = {}
    if reach.low is not None and reach.high is not None:
        made["box"] = np.array([reach.low, reach.high], dtype=np.float64)
    if reach.blocks:
        made["blocks"] = np.full(d, -1, dtype=np.int64)
        for k, block in enumerate(reach.blocks):
            made["blocks"][block] = k
    return made


def people_of(subject: Subject, units: Index) -> Index:
    """Return whose each record is: those asked about first, in their order, then everybody else."""
    order = np.concatenate([units, np.setdiff1d(np.arange(len(subject.data.units)), units)])
    return np.argsort(order)[subject.data.units.owner].astype(np.int64)
