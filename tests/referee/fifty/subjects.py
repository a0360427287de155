"""Every subject of the catalogue, by name."""

from fifty import (  # noqa: F401  each enters its subjects
    by_attacks,
    by_controls,
    by_policy,
    by_privacy,
    by_release,
    by_theorem,
)
from fifty.catalogue import CASES as ALL

__all__ = ["ALL"]
