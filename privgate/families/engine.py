"""What an engine is: an accelerated training function, re-checked against the real one in every run."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privgate.families.retrained import Index, Retrained, Shadows
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Cost:
    """What a piece of work will take, before it starts.

    Parameters
    ----------
    fits : int
        Calls of the user's training function; 0 for a closed form.
    cpu_seconds : float
        Estimate over all cores.
    memory_bytes : int
        Estimate of the peak.
    """

    fits: int
    cpu_seconds: float
    memory_bytes: int = 0


class Declined(Exception):  # noqa: N818  not an error: the next engine is asked
    """Raised by ``leave_out`` where only the work itself shows that the recipe is not covered; says why."""


class Engine(Protocol):
    """Answers what the model would have been without a unit. Stateless; one instance in the catalogue.

    ``version`` enters every digest: raise it whenever a number could change. Some attributes are optional: ``gives``
    names what ``leave_out(..., changes=True)`` puts into ``Retrained.changes`` (``coef`` (S, U, K, d), ``intercept``
    (S, U, K) without the unit, ``coef_with``, ``intercept_with``, and ``coef_error`` (S, U), a bound on the Euclidean
    error of the parameters without the unit); ``modes`` lists what it does with ``leave_out(..., mode=...)``, whose
    price ``cost(..., mode=...)`` says; ``precisions`` what ``leave_out(..., precision=...)`` knows; ``tolerance``
    (nats) is what the re-check allows beyond each unit's own error bound; ``hands_on`` says why units are handed on,
    beside those of several records where ``single_records`` is set; ``complements`` that the model releases 1 - p as
    the first of two probabilities; ``drawn(subject)`` returns units whose refit the seed decides, so that seeds are
    compared without them; ``notes(subject)`` returns JSON values for the report; and ``declines(subject)`` says
    beforehand why ``leave_out`` will raise ``Declined``.
    """

    @property
    def name(self) -> str:
        """Catalogue key, equal to the file's name."""
        ...

    @property
    def version(self) -> int:
        """Raised whenever a number could change."""
        ...

    def supports(self, subject: Subject) -> str:
        """Return why this engine does not cover the recipe and data; empty if it does."""
        ...

    def cost(self, subject: Subject, units: Index, seeds: tuple[int | None, ...]) -> Cost:
        """Return what ``leave_out`` would take."""
        ...

    def leave_out(
        self,
        subject: Subject,
        units: Index,
        seeds: tuple[int | None, ...],
        fleet: Fleet,
        *,
        queries: tuple[Index, Index] | None = None,
    ) -> tuple[Retrained, Index]:
        """Return what it can answer, and the units that it hands on to the next engine.

        Parameters
        ----------
        subject : Subject
        units : int64 array of shape (U,)
            Positions in ``subject.data.units``.
        seeds : tuple
            Paired seeds; closed forms of training without randomness ignore them and answer for one.
        fleet : Fleet
            Runs and remembers calls of the training function; closed forms do not use it.
        queries : (row_unit, row_query), optional
            As in ``Retrained``; each unit's own records if absent. ``row_query`` names pool rows.

        Returns
        -------
        Retrained
            Of the units that it covers.
        int64 array
            Units handed on (ties, leverage near 1, …), with nothing said about them. The last engine hands on none.
        """
        ...

    def subsets(
        self, subject: Subject, masks: NDArray[np.bool_], seeds: tuple[int | None, ...], fleet: Fleet
    ) -> Shadows | None:
        """Return models trained on subsets of the pool, or None where this engine has no fast way."""
        ...
