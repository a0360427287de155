"""What an attack is: signals in, membership scores out. It trains no target and no shadow model."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Compute, Float, Index, compute_here


@dataclass(frozen=True, eq=False)
class Signals:
    """What adversaries may observe of P pool records; a threat model says which part an attack may use."""

    #: log-probabilities of the model under attack, shape (P, K); of a regressor its residuals, K = 1
    target: Float
    labels: Index  # class positions, shape (P,)
    #: as ``target``, of N shadow models that are disjoint from it, shape (N, P, K); NaN where training failed
    shadow: Float
    shadow_members: Bool  # which records each was trained on, shape (N, P)
    #: ground truth for the target, shape (P,). Attacks never read it; statistics do
    members: Bool | None = None
    features: Any = None  # numeric ones, shape (P, d), for adversaries who know whole records
    #: mean loss on the training set as model cards publish it, nats; of a regressor the root mean square
    training_loss: float | None = None
    #: ``target`` and ``shadow`` at Q questions beside every record, shapes (P, Q, K) and (N, P, Q, K)
    near: Float | None = None
    shadow_near: Float | None = None
    compute: Compute = compute_here

    def without_truth(self) -> "Signals":
        """Return the same signals as an adversary gets them: nobody says who was a member."""
        return replace(self, members=None)

    def with_shadows(self, chosen: Any, **changes: Any) -> "Signals":
        """Return what is seen with the chosen shadow models alone; nobody says who was a member."""
        names = ("shadow", "shadow_members", "shadow_near")
        kept = {n: getattr(self, n)[chosen] for n in names if getattr(self, n) is not None}
        return replace(self, members=None, **kept, **changes)


#: whether an adversary asks about the record, beside it as well, or beside it only
Asks = Literal["record", "both", "near"]
#: scores of one more target model: what ``Attack.seen`` gives of its answers in, scores of shape (P,) out
Scorer = Callable[[Float], Float]


class Attack(ABC):
    """Turns what an adversary sees into membership scores. Stateless; one instance in the catalogue."""

    name: str  # catalogue key
    title: str  # plain name for the report
    source: str  # paper and section
    threat_model: str  # what the adversary sees and knows, one sentence for the report
    #: what the model under attack does: numbers have residuals in the place of log-probabilities
    task: Literal["classification", "regression"] = "classification"
    asks: Asks = "record"
    #: least number of shadow models on either side of a record; 0 for attacks without shadow models
    min_shadows: int = 0
    #: whether a record is judged by what other models answer on this very record, and not by one common cut
    per_record: bool = False
    #: above this score the paper's adversary says "member"; None where the paper leaves it open
    cut: float | None = None
    #: whether it trains a model of its own, which takes long: it is asked from the first look on that can approve, its
    #: self-test has few shadow models, and more than so many rows of answers change nothing but whom it learns from
    trains: bool = False
    planted_shadows: int = 16
    #: whether it imports a library for that, which its self-test does in a worker, too
    apart: bool = False
    rows: int = 0

    def seen(self, log_p: Float, near: Float | None = None) -> Float:
        """Return the answers that this adversary asks for: (..., P, K), or (..., P, Q, K) beside records, too."""
        if self.asks == "record" or near is None:
            return log_p
        return near if self.asks == "near" else np.concatenate([log_p[..., None, :], near], axis=-2)

    @abstractmethod
    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Learn from the shadow models once and return what scores any number of targets; or ``MeasurementError``."""

    def scores(self, signals: Signals, rng: Generator) -> Float:
        """Return one score a pool record, shape (P,), higher for members; or ``MeasurementError``."""
        return self.fit(signals, rng)(self.seen(signals.target, signals.near))
