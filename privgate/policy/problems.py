"""What is wrong with a policy file, said so that a person can mend it: line, key, what was expected, nearest name."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from privgate.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in one place of a policy file.

    Parameters
    ----------
    file : str
        As the user named it.
    line : int
        Counted from 1; 0 where no line can be named.
    key : str
        Path of the key, for example ``rules.0.max``.
    what : str
        What is wrong.
    expected : str
        What would be right; may be empty.
    nearest : str
        The valid name that is nearest to the one given; may be empty.
    """

    file: str
    line: int
    key: str
    what: str
    expected: str = ""
    nearest: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        parts = [f"{place}: {self.key}: {self.what}" if self.key else f"{place}: {self.what}"]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.nearest:
            parts.append(f"did you mean {self.nearest!r}?")
        return "; ".join(parts)


class PolicyFileError(PolicyError):
    """A policy file cannot be used; ``problems`` names every mistake that was found."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("\n".join(str(p) for p in self.problems))


def nearest(word: object, known: Iterable[str]) -> str:
    """Return the known name that looks most like ``word``, or an empty text."""
    found = difflib.get_close_matches(str(word).lower(), list(known), n=1, cutoff=0.5)
    return found[0] if found else ""
