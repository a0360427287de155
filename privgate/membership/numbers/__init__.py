"""Membership attacks on regressors: residuals in, membership scores out.

The signals are residuals, ``(target - answer)`` in deviations of the training targets: ``target`` (P, 1), ``shadow``
(N, P, 1), ``training_loss`` the root mean square on the training set, as model cards publish it.
"""

from privgate.membership.attacks.attack_base import Attack
from privgate.membership.attacks.rmia import Rmia
from privgate.membership.numbers.residual_adversaries import (
    AsProbability,
    ErrorDensities,
    ErrorThreshold,
    ResidualBeside,
    ResidualLira,
    ResidualNeighbours,
    SquaredLoss,
)

#: every attack on numbers, strongest first
ALL: tuple[Attack, ...] = (
    ResidualLira(),
    ResidualNeighbours(),
    ResidualBeside(),
    AsProbability(Rmia()),
    ErrorDensities(),
    ErrorThreshold(),
    SquaredLoss(),
)

BY_NAME: dict[str, Attack] = {a.name: a for a in ALL}

__all__ = ["ALL", "BY_NAME"]
