"""The rules a policy may use, one line each here."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from privgate.policy.rules import attacks, claims, people
from privgate.policy.rules.file_records import FileRecords
from privgate.policy.rules.metric import UNKNOWN, Metric
from privgate.policy.rules.rule_base import Rule

_RULES: tuple[type[Rule], ...] = (
    *(people.Dtp, people.Pdtp),
    *(attacks.AttackAccuracy, attacks.AttackAdvantage, attacks.AttackTpr, attacks.GeneralizationGap),
    *(claims.DpEpsilon, claims.DpAttackAccuracyBound, claims.DpEpsilonLowerBound, claims.DeletionCapacity),
    *(people.Sensitivity, FileRecords, attacks.AttributeAdvantage, attacks.RobustAdvantage),
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
