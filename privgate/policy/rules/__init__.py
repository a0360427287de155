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
from privgate.policy.rules.deletion_capacity import DeletionCapacity
from privgate.policy.rules.dp_attack_accuracy_bound import DpAttackAccuracyBound
from privgate.policy.rules.dp_epsilon import DpEpsilon
from privgate.policy.rules.dp_epsilon_lower_bound import DpEpsilonLowerBound
from privgate.policy.rules.dtp import Dtp
from privgate.policy.rules.file_records import FileRecords
from privgate.policy.rules.metric import UNKNOWN, Metric
from privgate.policy.rules.pdtp import Pdtp
from privgate.policy.rules.rule_base import Rule
from privgate.policy.rules.sensitivity import Sensitivity

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
