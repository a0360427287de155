"""What a metric is: how one number about a model is measured, what it needs and reaches, and how it is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from privgate.run.needs import Need

#: what a model may answer with
ANY_ANSWERS = frozenset({"probabilities", "numbers", "noisy numbers"})


#: what a release is asked, in words
QUESTIONS: Mapping[str, str] = {
    "influence": "the influence of one person",
    "membership": "who was in the data",
    "file": "records in the file",
    "claim": "a claim of differential privacy",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One number about a model that a rule may limit; it stands beside its rule, and nothing else spells its name."""

    #: as policies, findings and requests have it
    name: str
    #: plain name for the report
    title: str
    #: smallest, guessing and largest value, one phrase for people
    reaches: str
    #: of the number; "" where the request decides
    unit: str
    #: the worst value that can be measured at all; NaN where the request decides
    worst: float
    #: ``room.file:function`` of the package that measures it; a name only, because who verifies needs nothing of it
    measured_by: str = ""
    #: what is reached by knowing nothing, if it is always the same: a limit there can never be kept
    guessing: float | None = None
    #: one of {"max", "min"}: "max" if larger is worse, "min" if smaller is worse: what a rule calls its limit
    direction: Literal["max", "min"] = "max"
    #: what the number rests on
    needs: frozenset[Need] = frozenset()
    #: aggregated from one number a unit: coverage counts, and a limit in nats is one on every unit
    per_unit: bool = False
    #: columns of the per-person table that such a limit speaks about, the one that decides last
    columns: tuple[str, ...] = ()
    #: whether a limit says what attacks achieve
    limits_attacks: bool = False
    #: of an attack's success, if the number is one of a single attack
    figure: str = ""
    #: whether a good value shows nothing: no model is safe by it
    shows_leaks_only: bool = False
    #: unit in reports, where the unit itself would be read as something else
    written_as: str = ""
    #: of ``QUESTIONS``; empty where it is about none of them
    question: str = ""
    #: what a model may answer with for it to mean anything ("probabilities", "numbers", "noisy numbers"); of others it
    #: is never measured, and never passes
    answers: frozenset[str] = frozenset({"probabilities"})

    @property
    def over_all_queries(self) -> bool:
        """Whether it speaks of every unit at every question, which only theorems limit from above."""
        return self.per_unit and Need.EVERY_QUERY in self.needs

    @property
    def direct_only(self) -> bool:
        """Whether it speaks of units at their own features only."""
        return self.per_unit and Need.EVERY_QUERY not in self.needs


#: what is known of a metric that a report names and this privgate does not have: nothing
UNKNOWN = Metric("", "", reaches="", unit="", worst=math.nan)
