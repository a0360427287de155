"""Names of models, aliases and stages as databases and eyes see them, and letters that look like others."""

import re
import unicodedata
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain, pairwise

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


#: beside the table: eyes take these for one another as well, and two letters for one
_ALSO = {"0": "o", "1": "il", "|": "il", "5": "s", "2": "z", "8": "b", "-": "_", "_": "-", "·": ".", "β": "b"}
_TWO = {"m": "rn", "w": "vv", "d": "cl"}
#: a letter that may look like any: nothing plain looks like it, in a word that has plain letters
_ANY = frozenset({"?"})
_MARKS = frozenset({"Cf", "Cc", "Mn", "Me"})
_WORD = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"\[!?+\]?+[^\]]*\]|.", re.DOTALL)


def looks(name: str) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Return what each letter of a name may be read as, and what it and the one before may be read as together."""
    shown = [c for c in name if unicodedata.category(c) not in _MARKS or any(map(str.isascii, _readings(c)))]
    read = [_readings(c) | ({""} if unicodedata.category(c) in _MARKS else set()) for c in shown]
    for word in _WORD.finditer("".join(shown)):
        if any(c.isascii() for c in word[0]):
            part = slice(*word.span())
            read[part] = [r if any(map(str.isascii, r)) else _ANY for r in read[part]]
    pairs = (
        frozenset(a + b for a in one for b in two if len(a) == len(b) == 1 and (a + b).isalpha())
        for one, two in pairwise(read)
    )
    return list(zip(read, chain([frozenset[str]()], pairs), strict=False))


@lru_cache(maxsize=4096)
def _readings(letter: str) -> frozenset[str]:
    """Return a letter as it is, case aside, and each plain text that it may be read as."""
    found = {fold(letter) or letter} | ({"l"} if letter == "I" else set())
    if not letter.isascii():
        near = _near({letter})
        plain = {t for t in near if t.isascii()} or {t for t in _near({letter.upper()}) if t.isascii()}
        found |= plain or set(filter(None, map(_latin, near)))
        found |= {"i"} if "l" in found and not _latin(letter) else set()  # a stroke: capital I, or l
        found |= {"-"} if unicodedata.category(letter) in {"Pd", "Pc"} else set()
    found |= {also for text in found for also in _ALSO.get(text, "")}
    return frozenset(found | {_TWO[one] for one in found & _TWO.keys()} | {m for m, rn in _TWO.items() if rn in found})


def _near(texts: set[str]) -> set[str]:
    """Return what the table takes for one of some texts, and for what these are in another form or case."""
    for _ in range(2):
        texts = {t for text in texts for like in (text, *_table().get(text, ())) for t in (text, like, fold(like))}
    return {text.strip("'") for text in texts} - {""}


@lru_cache(maxsize=1)
def _table() -> dict[str, list[str]]:
    from confusable_homoglyphs.confusables import confusables_data as table

    # reading ends at plain letters; marks of direction stand around some of the others
    bare = ((text.strip("\u200e"), found) for text, found in table.items() if not text.isascii())
    return {text: [like["c"].strip("\u200e") for like in found] for text, found in bare}


def _latin(letter: str) -> str:
    """Return the plain letter that a letter of the Latin script is a form of: a stroke, a hook or a tail hides much."""
    words = unicodedata.name(letter, "").split() if len(letter) == 1 else []
    letters = [word for word in words[1:] if len(word) == 1]
    return letters[0].lower() if words[:1] == ["LATIN"] and letters else ""


@lru_cache(maxsize=4096)
def _automaton(pattern: str) -> tuple[dict[str, int], int, int, int]:
    """Return reading -> places in an operator's pattern that take it, those of ``?`` and ``*``, and their number."""
    places: dict[str, int] = {}
    free = stars = at = 0
    for part in _TOKEN.findall(pattern):
        stars |= (part == "*") << at
        free |= (part == "?" or (len(part) > 1 and part[1] == "!")) << at
        members = {c for c in map(chr, range(33, 127)) if fnmatchcase(c, part)} | set(part[1:-1]) - {"-", "!"}
        letters = () if part in {"?", "*"} else members if len(part) > 1 else part
        for text in {text for c in letters for text in _readings(c)}:
            places[text] = places.get(text, 0) | 1 << at
        at += part != "*"
    return places, free, stars, at


def taken_for(seen: list[tuple[frozenset[str], frozenset[str]]], pattern: str) -> bool:
    """Whether a name, as `looks` gives it, has a reading that an operator's pattern matches.

    Bit n of a state: n places are matched. All readings are followed at once, so time is linear in the name.
    """
    places, free, stars, last = _automaton(pattern)
    before, now = 0, 1
    for readings, pairs in seen:
        then = now & stars | (now & (-1 if readings is _ANY else free)) << 1 | (now if "" in readings else 0)
        for text in readings:
            then |= (now & places.get(text, 0)) << 1
            if len(text) > 1:
                along = now
                for c in text:
                    along = (along & places.get(c, 0)) << 1
                then |= along
        for text in pairs:
            then |= (before & (places.get(text, 0) | (free if text in _TWO.values() else 0))) << 1
        before, now = now, then
        if not before | now:
            return False
    return bool(now >> last & 1)
