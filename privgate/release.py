"""The release: what one query to the deployed model returns."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

Form = Literal["probabilities", "rounded", "binned", "top_k", "label"]


@dataclass(frozen=True, slots=True)
class Release:
    """What the endpoint hands out for one query.

    Parameters
    ----------
    form : {"probabilities", "rounded", "binned", "top_k", "label"}
        Exact probabilities by default; the others are measured in addition to exact ones, never instead.
    step : float
        Rounding step or bin width, for "rounded" and "binned".
    k : int
        Number of labels listed, for "top_k".
    temperature : float
        Logits are divided by it before the softmax; 1 leaves them.
    """

    form: Form = "probabilities"
    step: float = 0.01
    k: int = 1
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.step < 1:
            raise ValueError(f"release: step must lie in (0, 1), not {self.step!r}")
        if self.k < 1:
            raise ValueError(f"release: k must be at least 1, not {self.k!r}")
        if not self.temperature > 0:
            raise ValueError(f"release: temperature must be above 0, not {self.temperature!r}")

    @property
    def exact(self) -> bool:
        """Whether exact probabilities leave the endpoint."""
        return self.form == "probabilities" and self.temperature == 1.0

    def payload(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        """Return the release that ``payload`` describes."""
        return cls(**payload)
