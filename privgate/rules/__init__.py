"""The rules a policy may use: one file each, one line each here; the metric's name is the file's name."""

from typing import Annotated

from pydantic import Field

from privgate.rules.attack_accuracy import AttackAccuracy
from privgate.rules.attack_advantage import AttackAdvantage
from privgate.rules.attack_tpr import AttackTpr
from privgate.rules.base import Rule
from privgate.rules.deletion_capacity import DeletionCapacity
from privgate.rules.dp_attack_accuracy_bound import DpAttackAccuracyBound
from privgate.rules.dp_epsilon import DpEpsilon
from privgate.rules.dp_epsilon_lower_bound import DpEpsilonLowerBound
from privgate.rules.dtp import Dtp
from privgate.rules.generalization_gap import GeneralizationGap
from privgate.rules.pdtp import Pdtp
from privgate.rules.table import Table

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
