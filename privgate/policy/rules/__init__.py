"""The rules a policy may use: one file each, one line each here; the metric's name is the file's name."""

from typing import Annotated

from pydantic import Field

from privgate.policy.rules.attack_accuracy import AttackAccuracy
from privgate.policy.rules.attack_advantage import AttackAdvantage
from privgate.policy.rules.attack_tpr import AttackTpr
from privgate.policy.rules.base import Rule
from privgate.policy.rules.deletion_capacity import DeletionCapacity
from privgate.policy.rules.dp_attack_accuracy_bound import DpAttackAccuracyBound
from privgate.policy.rules.dp_epsilon import DpEpsilon
from privgate.policy.rules.dp_epsilon_lower_bound import DpEpsilonLowerBound
from privgate.policy.rules.dtp import Dtp
from privgate.policy.rules.generalization_gap import GeneralizationGap
from privgate.policy.rules.pdtp import Pdtp
from privgate.policy.rules.table import Table

AnyRule = Annotated[
    Dtp
    | Pdtp
    | AttackAccuracy
    | AttackAdvantage
    | AttackTpr
    | GeneralizationGap
    | DpEpsilon
    | DpAttackAccuracyBound
    | DpEpsilonLowerBound
    | DeletionCapacity
    | Table,
    Field(discriminator="metric"),
]

#: metric -> rule
ALL: dict[str, type[Rule]] = {
    "dtp": Dtp,
    "pdtp": Pdtp,
    "attack_accuracy": AttackAccuracy,
    "attack_advantage": AttackAdvantage,
    "attack_tpr": AttackTpr,
    "generalization_gap": GeneralizationGap,
    "dp_epsilon": DpEpsilon,
    "dp_attack_accuracy_bound": DpAttackAccuracyBound,
    "dp_epsilon_lower_bound": DpEpsilonLowerBound,
    "deletion_capacity": DeletionCapacity,
    "table": Table,
}

__all__ = ["ALL", "AnyRule", "Rule"]
