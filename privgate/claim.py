"""The claim of a recipe trained with differential privacy: what is asserted, before anything was observed."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self


@dataclass(frozen=True, slots=True)
class Claim:
    """A differential-privacy claim, as its author states it.

    Parameters
    ----------
    mechanism : str
        For example ``"dp-sgd"`` or ``"objective-perturbation"``.
    epsilon, delta : float, optional
        The claimed guarantee; epsilon in nats.
    noise_multiplier, sample_rate, steps, max_grad_norm : optional
        The mechanism's parameters, from which the guarantee is recomputed.
    accountant : str, optional
        Which accountant gave epsilon.
    adjacency : {"add_remove", "replace_one"}
        Never guessed: a claim without it is refused.
    sampling : {"poisson", "fixed_size", "shuffled"}, optional
        How batches were drawn.
    unit : str
        What one neighbour differs in, for example ``"record"`` or ``"person"``.
    """

    mechanism: str
    adjacency: Literal["add_remove", "replace_one"]
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    sample_rate: float | None = None
    steps: int | None = None
    max_grad_norm: float | None = None
    accountant: str | None = None
    sampling: Literal["poisson", "fixed_size", "shuffled"] | None = None
    unit: str = "record"

    def payload(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        """Return the claim that ``payload`` describes."""
        return cls(**payload)
