"""The bench: everything measured about one subject in one run, each thing once."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from privgate.retrain.fleet import Fleet
from privgate.retrain.retrained import Shadows
from privgate.subject import Subject


@dataclass
class Bench:
    """What the measurements of one run share; lazily filled, never twice.

    Parameters
    ----------
    subject : Subject
    fleet : Fleet
        Runs and remembers training.
    detail : dict
        JSON values collected for the report: curves, re-checks, warnings.
    """

    subject: Subject
    fleet: Fleet
    shadow_models: int = 64
    detail: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def shadows(self) -> Shadows:
        """Models on balanced random subsets of the pool, shared by every attack."""
        raise NotImplementedError
