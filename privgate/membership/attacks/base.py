"""What an attack is: signals in, membership scores out. It trains no target and no shadow model."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Signals:
    """What adversaries may observe; which part an attack may use is said by its threat model.

    Parameters
    ----------
    target : float64 array of shape (P, K)
        Log-probabilities of the target model on every pool record.
    labels : int64 array of shape (P,)
        Class position of every pool record.
    shadow : float64 array of shape (N, P, K)
        Log-probabilities of N shadow models, disjoint from the target model.
    shadow_members : bool array of shape (N, P)
        Which records each shadow model was trained on.
    members : bool array of shape (P,), optional
        Ground truth for the target. Attacks never read it; statistics do.
    groups : mapping name -> int64 array of shape (P,)
        Group codes for group-wise statistics.
    features : array of shape (P, d), optional
        Numeric features of every pool record, for attacks whose adversary knows the whole record.
    training_loss : float, optional
        Mean loss of the target on its training set, nats, as model cards publish it.
    """

    target: Float
    labels: NDArray[np.int64]
    shadow: Float
    shadow_members: NDArray[np.bool_]
    members: NDArray[np.bool_] | None = None
    groups: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    features: Any = None
    training_loss: float | None = None

    def without_truth(self) -> "Signals":
        """Return the same signals as an adversary gets them: nobody says who was a member."""
        return replace(self, members=None)


#: scores of one more target model: log-probabilities of shape (P, K) in, scores of shape (P,) out
Scorer = Callable[[Float], Float]


class Attack(Protocol):
    """Turns what an adversary sees into membership scores. Stateless; one instance in the catalogue."""

    @property
    def name(self) -> str:
        """Catalogue key, equal to the file's name."""
        ...

    @property
    def title(self) -> str:
        """Plain name for the report."""
        ...

    @property
    def source(self) -> str:
        """Paper and section."""
        ...

    @property
    def needs_probabilities(self) -> bool:
        """Whether it needs more than labels from the target."""
        ...

    @property
    def min_shadows(self) -> int:
        """Least number of shadow models on either side of a record; 0 for attacks without shadows."""
        ...

    @property
    def per_record(self) -> bool:
        """Whether a record is judged by what other models answer on this very record, and not by one common cut."""
        ...

    @property
    def threat_model(self) -> str:
        """What the adversary sees and knows, one sentence for the report."""
        ...

    @property
    def cut(self) -> float | None:
        """Above this score the paper's adversary says "member"; None where the paper leaves it open."""
        ...

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Learn from the shadow models once and return what scores any number of targets.

        Raises
        ------
        MeasurementError
            It cannot run on these signals.
        """
        ...

    def scores(self, signals: Signals, rng: Generator) -> Float:
        """Return one score a pool record, shape (P,); higher means "more likely a member".

        Raises
        ------
        MeasurementError
            It cannot run on these signals.
        """
        ...
