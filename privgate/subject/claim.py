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
    "epsilon": (lambda v: v >= 0, "not be negative, and is"),
    "delta": (lambda v: 0 <= v < 1, "lie in [0, 1), not"),
    "noise_multiplier": (lambda v: v >= 0, "not be negative, and is"),
    "sample_rate": (lambda v: 0 < v <= 1, "lie in (0, 1], not"),
    "steps": (lambda v: v >= 1 and v == int(v), "be a whole number, at least 1, not"),
    "max_grad_norm": (lambda v: v > 0, "be above 0, not"),
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
    sampling : {"poisson", "fixed_size", "shuffled"}, optional
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
    sampling: Literal["poisson", "fixed_size", "shuffled"] | None = None
    unit: str = "record"

    def __post_init__(self) -> None:
        if not self.mechanism or not self.unit:
            raise SubjectError("a differential-privacy claim needs the name of its mechanism and of its unit")
        if self.adjacency not in ("add_remove", "replace_one"):
            raise SubjectError(
                f"the differential-privacy claim has adjacency {self.adjacency!r}; say 'add_remove' (neighbors differ "
                "in one record more or less) or 'replace_one' (in one record exchanged): epsilon means another thing"
            )
        if self.sampling not in (None, "poisson", "fixed_size", "shuffled"):
            raise SubjectError(f"sampling {self.sampling!r} is unknown; say 'poisson', 'fixed_size' or 'shuffled'")
        for name, (fits, must) in _NUMBERS.items():
            if (value := getattr(self, name)) is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise SubjectError(f"the claim's {name} must be a finite number, not {value!r:.80}")
            if not fits(value):
                raise SubjectError(f"the claim's {name} must {must} {value!r}")
        self._check_guarantee()

    def _check_guarantee(self) -> None:
        if self.epsilon is None and None in (self.noise_multiplier, self.sample_rate, self.steps):
            raise SubjectError(
                "the claim states neither epsilon nor all of noise_multiplier, sample_rate and steps; "
                "one of them must be there to be checked"
            )
        if self.delta is None:
            raise SubjectError("the claim states no delta; say delta=0 if the guarantee is pure")
        if self.epsilon is not None and self.epsilon > ABSURD:
            raise SubjectError(
                f"the claim's epsilon of {self.epsilon:g} guarantees nothing: odds may change e^{ABSURD:g}-fold; "
                "state a real guarantee or no claim"
            )
        if self.delta == 0 and (self.mechanism in GAUSSIAN or self.noise_multiplier is not None):
            raise SubjectError(
                "the claim contradicts itself: Gaussian noise has no finite epsilon at delta 0; state its delta"
            )
        if self.epsilon is not None and self.noise_multiplier == 0:
            raise SubjectError("the claim contradicts itself: without noise no epsilon is finite")
        if self.sample_rate is not None and self.sample_rate < 1 and self.sampling is None:
            raise SubjectError(
                f"the claim samples {self.sample_rate:g} of the records a step but does not say how; say "
                "sampling='poisson', 'fixed_size' or 'shuffled': their guarantees differ"
            )

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
