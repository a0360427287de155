"""What every closed part of a policy file has in common, the least effort, and which names are one person."""

import re
import unicodedata
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

# What every closed part of a policy file has in common, and the least effort that a policy asks for.

Fraction = Annotated[float, Field(ge=0, le=1)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]


class Part(BaseModel):
    """A closed, frozen part of a policy: unknown keys, text for numbers, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


#: what may have kept training code from the host, least first
Isolation = Literal["none", "bubblewrap with network", "bubblewrap"]
ISOLATIONS: tuple[str, ...] = get_args(Isolation)


class Audit(Part):
    """The least effort that counts; less is inconclusive, however good the numbers look."""

    min_coverage: Fraction = Field(default=0.0, description="Share of people that leave-one-out must have measured.")
    min_units: PositiveInt = Field(default=1, description="People that leave-one-out must have measured.")
    min_seeds: PositiveInt = Field(default=1, description="Seeds compared, where training draws.")
    min_shadow_models: PositiveInt = Field(default=1, description="Shadow models behind every attack rule.")
    min_candidates: PositiveInt = Field(default=1, description="Candidates behind every attack rule.")
    min_isolation: Isolation = Field(
        default="none",
        description="What must have kept training code from the host: bubblewrap is a box without the network, "
        "bubblewrap with network one in which the recipe may declare that it needs it.",
    )


# Whether two names are two people: what looks the same to a reader is the same person.
#
# Names are compared by what is left when compatibility forms, case, accents, spaces, signs and the tag of an e-mail
# address are taken away and letters that look alike are made one. Whoever only differs in those must write more.

#: Default_Ignorable_Code_Point of Unicode, and a blank, outside the categories that are not printable anyhow
_UNSEEN = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
    | {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
)
#: scripts that one name may mix with another; letters of all others look too much alike
_MIXED = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "MODIFIER")
#: letters that look alike (Unicode Technical Standard 39): as capitals, and as small letters
_CAPITALS = str.maketrans("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕЅІЈКМНОРСТУХԌԜӀ", "ABEZHIKMNOPTYXABESIJKMHOPCTYXGWI")
_SMALL = str.maketrans("αγεηικνορτυχωаьгеѕіјкпморстухԁһԛԝӏıɑɡ", "ayenikvoptuxwabresijknmopctyxdhqwliag")
_STROKES = str.maketrans("i10łøđħŧ", "llolodht")


def unfit(name: str) -> str:
    r"""Return why a text cannot stand for a person; empty if it can.

    Examples
    --------
    >>> unfit("ann"), unfit("ann\u200b")
    ('', 'holds U+200B, which nobody sees')
    >>> unfit("\u0430nn"), unfit("--")
    ('mixes letters of several scripts (CYRILLIC, LATIN)', 'names nobody')
    """
    for c in name:
        if not c.isprintable() or ord(c) in _UNSEEN:
            return f"holds U+{ord(c):04X}, which nobody sees"
    letters = [c for c in unicodedata.normalize("NFKC", name) if c.isalpha()]
    scripts = {unicodedata.name(c, "UNKNOWN").split()[0].partition("-")[0] for c in letters} - set(_MIXED)
    if len(scripts) > 1:
        return f"mixes letters of several scripts ({', '.join(sorted(scripts))})"
    return "" if all(_skeletons(name)) else "names nobody"


def same(one: str, other: str) -> bool:
    r"""Whether two names may be one person's.

    Examples
    --------
    >>> same("Ann Lee", "ａnn  lee"), same("Jos\u00e9", "Jose\u0301"), same("ann", "ANN."), same("ann", "anna")
    (True, True, True, False)
    >>> same("Lee, Ann", "Ann Lee"), same("Ann Lee", "ann.lee@example.org"), same("ann@a.org", "ann@b.org")
    (True, True, False)
    """
    one, other = (re.sub(r"\+[^@]*@", "@", name) for name in (one, other))
    if ("@" in one) != ("@" in other):  # an address without its domain is a name
        one, other = (name.partition("@")[0] or name for name in (one, other))
    return bool((_skeletons(one) | _skeletons(_sorted(one))) & (_skeletons(other) | _skeletons(_sorted(other))))


def _sorted(name: str) -> str:
    """Return the words of a name in their order in the alphabet: some write the family name first."""
    local, at, domain = name.partition("@")
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", local).casefold())
    return " ".join(sorted(words)) + at + domain


def _skeletons(name: str) -> set[str]:
    """Return what is left of a name, read as capitals and as small letters."""
    text = re.sub(r"\+[^@]*@", "@", unicodedata.normalize("NFKD", name))
    found = set()
    for shown, looks in ((text.upper(), _CAPITALS), (text.casefold(), _SMALL)):
        # folding may compose or take apart once more
        plain = unicodedata.normalize("NFKD", shown.translate(looks).casefold())
        found.add("".join(c for c in plain.translate(_STROKES) if c.isalnum()))
    return found
