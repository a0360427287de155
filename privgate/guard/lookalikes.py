"""Names of models, aliases and stages as databases and eyes see them, and letters that look like others."""

import re
import unicodedata
from functools import lru_cache
from itertools import product

# Names of models, aliases and stages as databases and eyes see them: what they take for one is one.

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


# Names of models that eyes take for protected ones: letters of other scripts, digits for letters, two letters for one.
#
# A name is reduced to what it looks like in plain Latin letters. Letters of other scripts are those of Unicode's list
# of confusable characters that models are named by; in a word that mixes scripts, an unknown letter may look like any.

#: stands for a letter that may look like any
_ANY = "\uffff"
_CYRILLIC = "аaвbгrеeзеиuкkмmнhоoпnрpсcтtуyхxьbѕsіiјjһhӏlԁdԛqԝwѵvөoғfүyҫcԍgԑeӕaҡkӄkқkңhҳxҽeӏlєeґrљnњhћhђh"
_GREEK = "αaβbγyεeζzηnιiκkμuνvοoπnρpσoςcτtυuχxωwϳjϲcϵeᴦrϱpϝf"
_ARMENIAN = "աwզqլlհhյjոnսuօoցgքpռnւiեtբpգqվy"
_CHEROKEE = "ᎠdᎡrᎢtᎥiᎪaᎫjᎬeᎳwᎷmᎻhᎽyᏀgᏃzᏍaᏎsᏏbᏒrᏔwᏕsᏙvᏚsᏞlᏟcᏢpᏦkᏧdᏮgᏴbᎩyᎸqᏳgᏂhᎾo"
_LISU = "ꓐbꓑpꓓdꓔtꓖgꓗkꓙjꓚcꓜzꓝfꓟmꓠnꓡlꓢsꓣrꓦvꓧhꓪwꓫxꓬyꓮaꓰeꓲlꓳoꓴu"
_COPTIC = "ⲁaⲃbⲅrⲉeⲏhⲓiⲕkⲙmⲛnⲟoⲡnⲣpⲥcⲧtⲩyⲭxⲱwⲫo"
_SIGNS = "0o1l|l5s2z8b_-‐-‑-‒-–-—-―-−-·.•.ǀl∣l⁄/∕/ⵏlⵔoⵎcօoჿoꞏ."
_EYES = {
    ord(pair[0]): pair[1]
    for script in (_CYRILLIC, _GREEK, _ARMENIAN, _CHEROKEE, _LISU, _COPTIC, _SIGNS)
    for pair in (script[at : at + 2] for at in range(0, len(script), 2))
}
#: ones in a name up to which each is read both ways
_ONES = 6
_WORD = re.compile(r"[^\W\d_]+")


def looks(name: str) -> frozenset[str]:
    """Return what a name may be read as: a capital I is an i, and is an l; so is a 1."""
    return frozenset(_look(v) for read in _ones(name) for v in (read, read.replace("I", "l"), read.casefold()))


def _ones(name: str) -> set[str]:
    """Return a name with each 1 in it read as an l and as an i; beyond a few, all of them as the one or the other."""
    parts = name.split("1")
    if len(parts) - 1 > _ONES:
        return {"l".join(parts), "i".join(parts)}
    ends = product("li", repeat=len(parts) - 1)
    return {parts[0] + "".join(c + part for c, part in zip(read, parts[1:], strict=True)) for read in ends}


@lru_cache(maxsize=4096)
def pattern(protected: str) -> re.Pattern[str]:
    """Return what matches the look of every name that may be taken for one of an operator's pattern."""
    made = []
    for read in sorted(_ones(protected)):
        parts = re.split(r"(\[[^\]]+\]|[*?])", read)
        made.append(
            "".join(
                {"*": ".*", "?": "."}.get(part, ".")
                if at % 2
                else "".join(f"[{re.escape(c)}{_ANY}]" for c in _look(part))
                for at, part in enumerate(parts)
            )
        )
    return re.compile("|".join(made), re.DOTALL)


def _look(name: str) -> str:
    seen = "".join(_read(word) for word in re.split(r"([^\W\d_]+)", name))
    return seen.replace("rn", "m").replace("vv", "w").replace("cl", "d")


def _read(part: str) -> str:
    """Return a word, or what stands between words, as eyes read it."""
    folded = fold("".join(c for c in part if unicodedata.category(c) not in {"Cf", "Cc", "Mn", "Me"}))
    read = "".join(_EYES.get(ord(c)) or _EYES.get(ord(c.upper()[0])) or _latin(c) for c in folded)
    if any(c.isascii() for c in folded) and _WORD.fullmatch(part):
        return "".join(c if c.isascii() else _ANY for c in read)
    return read


def _latin(character: str) -> str:
    """Return the plain letter that a letter of the Latin script is a form of: a stroke, a hook or a tail hides much."""
    if character.isascii():
        return character
    words = unicodedata.name(character, "").split()
    letters = [word for word in words[1:] if len(word) == 1]
    return letters[0].lower() if words[:1] == ["LATIN"] and letters else character
