"""The claim of a recipe trained with differential privacy: what is asserted, before anything was observed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from privgate.errors import SubjectError

#: beyond this many nats a guarantee allows certainty for every practical purpose, and is more likely a typing error
ABSURD = 100.0
#: mechanisms whose noise is Gaussian: no finite epsilon exists at delta 0
GAUSSIAN = ("dp-sgd", "gaussian")
#: numbers of a claim -> what each must be
_NUMBERS: dict[str, tuple[Callable[[float], bool], str]] = {
    "epsilon": (lambda v: v >= 0, "that is not negative"),
    "delta": (lambda v: 0 <= v < 1, "in [0, 1)"),
    "noise_multiplier": (lambda v: v >= 0, "that is not negative"),
    "sample_rate": (lambda v: 0 < v <= 1, "in (0, 1]"),
    "steps": (lambda v: v >= 1 and v == int(v), "that is whole, and at least 1"),
    "max_grad_norm": (lambda v: v > 0, "above 0"),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """A differential-privacy claim, as its author states it; ``SubjectError``: it contradicts itself.

    Parameters
    ----------
    mechanism : str
        For example ``"dp-sgd"`` or ``"objective-perturbation"``.
    adjacency : {"add_remove", "replace_one"}
        Never guessed: a claim without it is refused.
    epsilon, delta : float, optional
        The claimed guarantee; epsilon in nats. Both or neither: a pure guarantee says ``delta=0``.
    noise_multiplier, sample_rate, steps, max_grad_norm : optional
        The mechanism's parameters, from which the guarantee is recomputed.
    accountant : str, optional
        Which accountant gave epsilon.
    sampling : {"poisson", "shuffled"}, optional
        How batches were drawn; needed with a ``sample_rate`` below 1.
    unit : str
        What one neighbor differs in, for example ``"record"`` or ``"person"``.
    """

    mechanism: str
    adjacency: Literal["add_remove", "replace_one"] | None = None
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    sample_rate: float | None = None
    steps: int | None = None
    max_grad_norm: float | None = None
    accountant: str | None = None
    sampling: Literal["poisson", "shuffled"] | None = None
    unit: str = "record"

    def __post_init__(self) -> None:
        for name, (fits, must) in _NUMBERS.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if value is not None and not (number and fits(value)):
                raise SubjectError(f"the claim's {name} must be a finite number {must}, not {value!r:.80}")
        epsilon, noise, rate = self.epsilon, self.noise_multiplier, self.sample_rate
        samplings = ("poisson", "shuffled")
        problems = {
            "needs the name of its mechanism and of its unit": not (self.mechanism and self.unit),
            f"has adjacency {self.adjacency!r}; say 'add_remove' (neighbors differ in one record more or less) or "
            "'replace_one' (in one record exchanged)": self.adjacency not in ("add_remove", "replace_one"),
            f"has the unknown sampling {self.sampling!r}": self.sampling not in (None, *samplings),
            "states neither epsilon nor all of noise_multiplier, sample_rate and steps, and nothing can be checked": (
                epsilon is None and None in (noise, rate, self.steps)
            ),
            "states no delta; say delta=0 if the guarantee is pure": self.delta is None,
            f"guarantees nothing: at epsilon {epsilon} odds may change e^{ABSURD:g}-fold; state a real one or none": (
                epsilon is not None and epsilon > ABSURD
            ),
            "contradicts itself: Gaussian noise has no finite epsilon at delta 0; state its delta": (
                self.delta == 0 and (self.mechanism in GAUSSIAN or noise is not None)
            ),
            "contradicts itself: without noise no epsilon is finite": epsilon is not None and noise == 0,
            f"samples {rate} of the records a step but does not say how; say sampling= one of {', '.join(samplings)}": (
                rate is not None and rate < 1 and self.sampling is None
            ),
        }
        if problem := next((text for text, holds in problems.items() if holds), ""):
            raise SubjectError(f"the differential-privacy claim {problem}")

    def doubts(self, records: int) -> tuple[str, ...]:
        """Return what makes this claim weaker than it reads for a training set of so many records."""
        doubts = []
        if self.delta is not None and self.delta * records >= 1:
            doubts.append(
                f"delta {self.delta:g} is at least 1/n = {1 / records:.2g}: publishing one random record outright "
                "would satisfy such a claim"
            )
        if self.sampling == "shuffled":
            doubts.append("batches are shuffled, for which no amplification by sampling is proved")
        return tuple(doubts)

    def payload(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Return the claim that ``payload`` describes."""
        known = {f.name for f in fields(cls)}
        if (unknown := sorted(set(payload) - known)) or "mechanism" not in payload:
            what = f"has unknown entries {', '.join(unknown)}" if unknown else "names no mechanism"
            raise SubjectError(f"the recorded differential-privacy claim {what}; it has {', '.join(sorted(known))}")
        return cls(**payload)
