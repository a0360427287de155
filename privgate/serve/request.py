"""What a version asks for, and who works on it: the value of one tag, so that one write changes both."""

from dataclasses import dataclass, replace
from typing import Self

from privgate.errors import UsageError

TAG = "privgate.request"


@dataclass(frozen=True)
class CheckRequest:
    """The value of the tag ``privgate.request``: ``policy[,alias][;holder;until;since]``.

    Parameters
    ----------
    policy : str
        Name of one of the operator's policies; empty for the first.
    target : str
        Alias to move when the version is approved; empty for none.
    holder : str
        Who works on it; empty for nobody.
    until : float
        When the holder's lease ends, Unix time, seconds.
    since : int
        When work on this request first began, Unix time, seconds; 0 if it has not. A result decided since then answers
        it, whoever began; asking again is a new request.
    """

    policy: str = ""
    target: str = ""
    holder: str = ""
    until: float = 0.0
    since: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the request that a tag's value states.

        Raises
        ------
        UsageError
            The value means nothing.
        """
        asked, *lease = text.split(";")
        policy, _, target = (part.strip() for part in asked.partition(","))
        if not lease:
            return cls(policy, target)
        try:
            holder, until, since = lease
            return cls(policy, target, holder, float(until), int(since))
        except ValueError as exc:
            raise UsageError(f"tag {TAG} is {text[:100]!r}; write policy or policy,alias") from exc

    def text(self) -> str:
        """Return the tag's value."""
        asked = f"{self.policy},{self.target}" if self.target else self.policy
        return f"{asked};{self.holder};{self.until:.3f};{self.since}" if self.since else asked

    def held(self, now: float) -> bool:
        """Whether somebody works on it; NaN and infinity, which nobody of ours writes, hold nothing."""
        return bool(self.holder) and now < self.until < now + 86400

    def taken(self, holder: str, now: float, seconds: float) -> Self:
        """Return the request as ``holder`` works on it."""
        return replace(self, holder=holder, until=now + seconds, since=self.since or int(now))

    def free(self) -> Self:
        """Return the request as nobody works on it; that work began stays known."""
        return replace(self, holder="", until=0.0)
