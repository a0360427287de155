"""Names that mean one thing to every reader: what a URI, a pattern or an eye could take for another is refused."""

import unicodedata

from privgate.errors import SubjectError

#: what URIs (``#?%@:/``), patterns (``*?[]!``), shells and paths give a meaning to
_MEANING = frozenset("#?%@:/\\*[]!$`|<>\"'\x7f")
#: control and format characters, unassigned ones, and every space but the plain one
_UNSEEN = ("C", "Zl", "Zp", "Zs")


def oddity(name: str) -> str:
    """Return why a registered model of this name can be neither checked nor released; empty if it can.

    >>> oddity("credit risk, 2024"), oddity("m-1#")
    ('', "its name holds '#', which URIs or patterns read as something else")
    """
    for character in name:
        if character in _MEANING:
            return f"its name holds {character!r}, which URIs or patterns read as something else"
        if character != " " and unicodedata.category(character).startswith(_UNSEEN):
            return f"its name holds the character U+{ord(character):04X}, which nobody sees"
    if not name or name != name.strip() or name in {".", ".."}:
        return "its name is empty, begins or ends with a space, or is a path"
    if unicodedata.normalize("NFKC", name) != name:
        return "its name can be written in several ways that look the same"
    return ""


def plain_name(name: str, what: str) -> str:
    """Return ``name`` if it means one thing to every reader.

    Raises
    ------
    SubjectError
        It does not; ``what`` begins the sentence.
    """
    if problem := oddity(name):
        raise SubjectError(f"{what} can be neither checked nor released: {problem}; register it under a plain name")
    return name
