"""Names of models, aliases and stages as databases and eyes see them: what they take for one is one."""

import re
import unicodedata

# letters and digits that eyes take for one another, lower case
_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s", "2": "z", "8": "b", "-": None, "_": None})
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def fold(name: str) -> str:
    """Return ``name`` as a database or a reader may see it: accents, width and case folded away."""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


def is_plain(target: str) -> bool:
    """Whether an alias or stage is of ASCII letters, digits, ``_`` and ``-`` alone, which no reader confuses."""
    return _PLAIN.fullmatch(target) is not None


def looks_like(target: str) -> str:
    """Return what a person may take an alias for: two aliases of one look are not two for who reads them."""
    return fold(target).translate(_ALIKE).replace("rn", "m").replace("vv", "w")
