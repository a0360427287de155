"""Keyed hashes in place of the names of records and people: the key stays with the controller."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import UsageError

#: hexadecimal digits shown; 64 bits keep 50,000 names apart with probability above 1 - 1e-10
_DIGITS = 16
_TOKEN = re.compile(r"[^\s()\[\]{}'\",;:=|]+")
# fields whose text is ours, not found in the data
_OURS = frozenset({"rule", "outcome", "metric", "direction", "unit", "mode", "kind", "name", "request", "status"})
# where a feature vector or a row of the data could stand: left out of every report
_WITHHELD = frozenset({"query", "queries", "position", "positions", "features", "rows"})
# a row number is too common a word to be replaced wherever it stands; these phrases name one
_NUMBERED = re.compile(r"\b(unit|record|person|row)s? (\d+)\b")


class Pseudonyms:
    """Keyed hashes of unit names.

    Parameters
    ----------
    key : bytes
        At least 16 bytes; whoever holds it can find a person's row again, nobody else can.
    names : iterable of str
        Names of all units.

    Raises
    ------
    UsageError
        The key is too short to withstand guessing.
    """

    def __init__(self, key: bytes, names: Iterable[Any] = ()) -> None:
        if len(key) < 16:
            raise UsageError(f"the key for record names has {len(key)} bytes; pass at least 16 random ones")
        self._key = key
        self._names = {str(n) for n in names}
        self._spoken = {n for n in self._names if not n.isdigit()}
        # names of several words, by their first: a text is searched for those only whose first word it holds
        self._phrases: dict[str, list[str]] = {}
        for name in sorted((n for n in self._spoken if _TOKEN.fullmatch(n) is None), key=len, reverse=True):
            self._phrases.setdefault(next(iter(_TOKEN.findall(name)), ""), []).append(name)

    @property
    def key_id(self) -> str:
        """Which key it was, without telling the key: 8 hexadecimal digits."""
        return hmac.new(self._key, b"privgate record names", hashlib.sha256).hexdigest()[:8]

    def of(self, name: Any) -> str:
        """Return the keyed hash of one name: HMAC-SHA256, 16 hexadecimal digits."""
        return hmac.new(self._key, str(name).encode(errors="surrogatepass"), hashlib.sha256).hexdigest()[:_DIGITS]

    def column(self, names: NDArray[Any]) -> NDArray[Any]:
        """Return the keyed hashes of a column of names, shape (n_units,)."""
        return np.array([self.of(n) for n in names], dtype=object)

    def text(self, text: str, also: str = "") -> str:
        """Return ``text`` with every unit name in it replaced.

        Parameters
        ----------
        text : str
            A sentence.
        also : str
            The worst unit's name, which rules put in brackets.
        """
        if also in self._names:
            text = text.replace(f"({also})", f"(record {self.of(also)})")
        if self._phrases:
            for first in {"", *_TOKEN.findall(text)}:
                for name in self._phrases.get(first, ()):
                    if name.strip():
                        text = text.replace(name, f"record {self.of(name)}")
        text = _TOKEN.sub(lambda m: f"record {self.of(m.group())}" if m.group() in self._spoken else m.group(), text)
        return _NUMBERED.sub(self._numbered, text)

    def _numbered(self, match: re.Match[str]) -> str:
        return f"{match[1]} {self.of(match[2])}" if match[2] in self._names else match[0]

    def scrub(self, value: Any, also: str = "") -> Any:
        """Return a JSON value without unit names: replaced in every text that may quote the data.

        Keys that hold queries or positions of rows are left out: a query may be a person's own features.
        """
        if isinstance(value, Mapping):
            return {k: self._field(k, v, also) for k, v in value.items() if k not in _WITHHELD}
        if isinstance(value, list | tuple):
            return [self.scrub(v, also) for v in value]
        return self.text(value, also) if isinstance(value, str) else value

    def _field(self, key: str, value: Any, also: str) -> Any:
        if key in ("unit", "where") and isinstance(value, str) and value in self._names:
            return f"record {self.of(value)}"
        return value if key in _OURS and isinstance(value, str) else self.scrub(value, also)
