"""What an attack is: signals in, membership scores out. It trains no target and no shadow model."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float


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
    features : array of shape (P, d), optional
        Numeric features of every pool record, for attacks whose adversary knows the whole record.
    training_loss : float, optional
        Mean loss of the target on its training set, nats, as model cards publish it.
    beside, shadow_beside : float64 arrays of shape (P, Q, K) and (N, P, Q, K), optional
        ``target`` and ``shadow`` at Q questions beside every pool record.
    """

    target: Float
    labels: NDArray[np.int64]
    shadow: Float
    shadow_members: NDArray[np.bool_]
    members: NDArray[np.bool_] | None = None
    features: Any = None
    training_loss: float | None = None
    beside: Float | None = None
    shadow_beside: Float | None = None

    def without_truth(self) -> "Signals":
        """Return the same signals as an adversary gets them: nobody says who was a member."""
        return replace(self, members=None)

    def with_shadows(self, chosen: NDArray[Any], **changes: Any) -> "Signals":
        """Return what is seen with the chosen shadow models alone; nobody says who was a member."""
        around = None if self.shadow_beside is None else self.shadow_beside[chosen]
        made = replace(self, shadow=self.shadow[chosen], shadow_members=self.shadow_members[chosen])
        return replace(made, shadow_beside=around, members=None, **changes)


#: whether an adversary asks about the record, beside it as well, or beside it only
Asks = Literal["record", "both", "beside"]
#: scores of one more target model: what ``Attack.seen`` gives of its answers in, scores of shape (P,) out
Scorer = Callable[[Float], Float]


class Attack(ABC):
    """Turns what an adversary sees into membership scores. Stateless; one instance in the catalogue.

    Attributes
    ----------
    name : str
        Catalogue key, equal to the file's name.
    title : str
        Plain name for the report.
    source : str
        Paper and section.
    threat_model : str
        What the adversary sees and knows, one sentence for the report.
    min_shadows : int
        Least number of shadow models on either side of a record; 0 for attacks without shadows.
    per_record : bool
        Whether a record is judged by what other models answer on this very record, and not by one common cut.
    cut : float or None
        Above this score the paper's adversary says "member"; None where the paper leaves it open.
    asks : {"record", "both", "beside"}
        Whether it asks about the record, beside it as well, or beside it only.
    planted_shadows : int
        Shadow models of its self-test: few where it trains models of its own, which is nearly all the time of a test.
    trains : bool
        Whether it trains a model of its own, which takes most of the time of all attacks: it is asked from the first
        look on that can approve.
    rows : int
        Answers of shadow models that fill what it trains on; more change nothing but whom it learns from. 0: unknown.
    """

    name: str
    title: str
    source: str
    threat_model: str
    min_shadows: int = 0
    per_record: bool = False
    cut: float | None = None
    asks: Asks = "record"
    planted_shadows: int = 16
    trains: bool = False
    rows: int = 0

    def seen(self, log_p: Float, beside: Float | None = None) -> Float:
        """Return the answers that this adversary asks for: (..., P, K), or (..., P, Q, K) where it asks beside records.

        Where nothing was asked beside records, the one answer stands for all.
        """
        if self.asks == "record" or beside is None:
            return log_p
        return beside if self.asks == "beside" else np.concatenate([log_p[..., None, :], beside], axis=-2)

    @abstractmethod
    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        """Learn from the shadow models once and return what scores any number of targets.

        Raises
        ------
        MeasurementError
            It cannot run on these signals.
        """

    def scores(self, signals: Signals, rng: Generator) -> Float:
        """Return one score a pool record, shape (P,); higher means "more likely a member".

        Raises
        ------
        MeasurementError
            It cannot run on these signals.
        """
        return self.fit(signals, rng)(self.seen(signals.target, signals.beside))

    def each_in_turn(self, log_p: Float, inside: NDArray[np.bool_], labels: NDArray[np.int64]) -> Float | None:
        """Return scores of every shadow model, the others (without its twin) being the shadow models, shape (N, P).

        None where an attack knows no faster way than to ``fit`` on all but one pair, again and again.

        Parameters
        ----------
        log_p : float64 array of shape (N, P, K)
            No NaN; models 2j and 2j + 1 are trained on complementary halves.
        inside : bool array of shape (N, P)
        labels : int64 array of shape (P,)
        """
        del log_p, inside, labels
        return None
