"""The rules a policy may use, one line each here."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from privgate.policy.rules.attacks import (
    AttackAccuracy,
    AttackAdvantage,
    AttackTpr,
    AttributeAdvantage,
    GeneralizationGap,
    RobustAdvantage,
)
from privgate.policy.rules.claims import DeletionCapacity, DpAttackAccuracyBound, DpEpsilon, DpEpsilonLowerBound
from privgate.policy.rules.file_records import FileRecords
from privgate.policy.rules.metric import UNKNOWN, Metric
from privgate.policy.rules.people import Dtp, Pdtp, Sensitivity
from privgate.policy.rules.rule_base import Rule

_RULES: tuple[type[Rule], ...] = (
    Dtp,
    Pdtp,
    AttackAccuracy,
    AttackAdvantage,
    AttackTpr,
    GeneralizationGap,
    DpEpsilon,
    DpAttackAccuracyBound,
    DpEpsilonLowerBound,
    DeletionCapacity,
    Sensitivity,
    FileRecords,
    AttributeAdvantage,
    RobustAdvantage,
)

#: metric -> rule
ALL: dict[str, type[Rule]] = {rule.about.name: rule for rule in _RULES}
#: name -> metric
METRICS: dict[str, Metric] = {rule.about.name: rule.about for rule in _RULES}


def about(name: str) -> Metric:
    """Return the metric of this name; one of which nothing is known where a report names another."""
    return METRICS.get(name, UNKNOWN)


if TYPE_CHECKING:
    AnyRule = Rule
else:
    AnyRule = Annotated[reduce(or_, _RULES), Field(discriminator="metric")]

__all__ = ["ALL", "METRICS", "AnyRule", "Metric", "Rule", "about"]
