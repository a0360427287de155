"""In a worker: what was seen of one training, and which learner is at work."""

import threading
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from privgate.lab.collusion.learned import Learned, as_rows
from privgate.lab.collusion.unchanged import Left


@dataclass
class Watch:
    """What was seen of one training."""

    learners: dict[str, Learned] = field(default_factory=dict)
    draws: int = 0
    entropy: int = 0
    steps: int = 0
    asked: int = 0
    unreadable: set[str] = field(default_factory=set)
    pried: set[str] = field(default_factory=set)
    left: Left = field(default_factory=Left)
    #: what the network was given last, whose labels the loss brings
    network: Learned | None = None
    _inside: threading.local = field(default_factory=threading.local)

    def enter(self, frame: FrameType) -> bool:
        """Return whether a learner is called from outside of every other one, and mark that one is at work."""
        if getattr(self._inside, "frame", None) is not None:
            return False
        self._inside.frame = frame
        return True

    def leave(self) -> None:
        """Mark that no learner is at work any more."""
        self._inside.frame = None

    def left_by(self, frame: FrameType) -> bool:
        """Return whether a frame that ends is the learner at work, and mark that it is no more."""
        if getattr(self._inside, "frame", None) is not frame:
            return False
        self.leave()
        return True

    def note(self, name: str, records: Any, labels: Any) -> Learned | None:
        """Keep what a learner was given."""
        table = as_rows(records)
        if table is None:
            self.unreadable.add(name)
            return None
        key = f"{name} of {table.shape[1]}"
        if key not in self.learners:
            self.learners[key] = Learned()
        learner = self.learners[key]
        learner.add(table, labels)
        return learner
