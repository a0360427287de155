"""The fleet: runs calls of the training function in worker processes, each once, and remembers the answers."""

from collections.abc import Sequence

from privgate.retrain.fit import Answer, Fit, Index
from privgate.subject import Subject


class Fleet:
    """A memoised map over calls of the training function."""

    #: calls of the training function really made, in this process's lifetime; remembered answers do not count
    calls: int = 0

    def fits(self, subject: Subject, fits: Sequence[Fit], *, label: str = "retraining") -> list[Answer]:
        """Return one answer a fit, in order; a failed one carries its problem, nothing is dropped."""
        raise NotImplementedError

    def registered(self, subject: Subject, rows: Index) -> Answer:
        """Return the stored model's probabilities on pool rows; it is opened in a worker only."""
        raise NotImplementedError
