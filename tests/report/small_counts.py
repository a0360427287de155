"""Finds small counts of people in sentences: what a report may not say. Nothing in the package filters texts."""

import re
from collections.abc import Iterable, Mapping

from privgate.evidence import Count
from privgate.evidence.telling import SMALL_CELL

#: keys of evidence whose text names or measures something and counts nobody
OURS = frozenset({"rule", "outcome", "metric", "unit", "mode", "kind", "name", "title", "request", "status", "key",
                  "where", "source", "command", "threat_model", "engine", "sentence", "system",
                  "isolation"})  # fmt: skip
_NUMBER = r"\d{1,3}(?:,\d{3})+|\d+"
_PEOPLE = r"(?:people|persons?|records?|units?|members?|candidates?|non-members?)"
# what is counted by "3 of 4 …" and is nobody
_THINGS = (
    "expectations|trainings|such trainings|retrains|rules|preconditions|conditions|theorems|models|figures|seeds|steps|"
    "features|columns|attacks|bounds|entries|draws|updates|questions|runs|cells|limits|shadow|target|canaries|guesses|signs"
)
_ALONE = r"(?<![\w.,=-])(?<! to )(?<!-fold )"
# "4 of 1000 people were trained without": how large a sample is tells nothing about anybody in it
_PART = re.compile(rf"{_ALONE}(?<!was trained without )(?P<part>{_NUMBER}) of "
                   rf"(?P<all>(?:the |all |these )?)(?P<total>{_NUMBER})"
                   rf"(?![\w.,]*\d| (?:{_THINGS})\b| units were (?:measured|retrained)"
                   r"| people (?:measured|were trained without))"
                   rf"(?P<noun> {_PEOPLE}\b)?(?P<share> \([\d.e+-]+ %\))?")  # fmt: skip
_COUNT = re.compile(rf"{_ALONE}(?<!up to )(?<!at most )(?<!at least )(?<!than )(?<!\d of )(?<!group of )"
                    rf"(?<!all )(?<!these )"
                    rf"(?P<count>{_NUMBER})"
                    rf"(?P<noun> (?:more |other |training )?{_PEOPLE}\b(?! each))"
                    r"(?P<share> \([\d.e+-]+ %\))?")  # fmt: skip
# how large a sample is tells nothing about anybody in it, unless it is of a hidden few
_SAMPLE = re.compile(r"training function on $")
_BARE = re.compile(rf"{_ALONE}(?P<count>[1-9])(?P<noun> (?:are|were)\b| labels? of one person)")


def sentence(text: str, totals: Iterable[int] = ()) -> str:
    """Return a sentence with every small count of people in it as a range; ``totals`` are numbers everybody knows.

    >>> sentence("4 of 1000 are above the limit now; 996 people are not", [1000])
    '1 to 9 of 1000 are above the limit now; 991 to 999 people are not'
    >>> sentence("1 label of one person only; 3 records (0.3 %) are alike")
    '1 to 9 label of one person only; 1 to 9 records are alike'
    """
    known = {t for t in totals if t}

    def ranged(count: int, *all_: int) -> str:
        for total in () if count in known else (None, *all_):
            if (few := Count(count, total)).hidden:
                return " to ".join(map(str, few.ends))
        return ""

    def part(m: re.Match[str]) -> str:
        count, total = (int(m[key].replace(",", "")) for key in ("part", "total"))
        # of a few there is no part to tell, and how many they are is hidden itself
        few = ranged(total, *known)
        if not few and _SAMPLE.search(text, 0, m.start()):
            return m[0]
        told = ranged(count, total, *known) if count != total else few
        if few and total < SMALL_CELL:
            return f"{few if count else f'none of {few}'}{m['noun'] or ''}"
        of = f"{m['all']}{few or m['total']}{m['noun'] or ''}"
        return m[0] if not told and not few else f"{told or m['part']} of {of}"

    def count(m: re.Match[str]) -> str:
        told = ranged(int(m["count"].replace(",", "")), *known)
        return f"{told}{m['noun']}" if told else m[0]

    text = _PART.sub(part, text)
    return _BARE.sub(count, _COUNT.sub(count, text))


def told(value, totals):
    """Yield (text, what it should say) of every text of a JSON value that tells a small count."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in OURS:
                yield from told(part, totals)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from told(part, totals)
    elif isinstance(value, str) and (said := sentence(value, totals)) != value:
        yield value, said


def told_by(doc):
    """Return what a report document tells that it may not; a rule's own figure is what the rule is about."""
    subject = doc["subject"]
    records, units, outside = (int(subject.get(k) or 0) for k in ("n_records", "n_units", "n_candidates"))
    findings = [f for f in doc["findings"] if f.get("unit") not in ("people", "records")]
    parts = [doc["evidence"][p] for p in ("run", "influence", "membership", "claims", "preconditions")]
    measurements = [m for m in doc["evidence"]["measurements"] if m.get("unit") not in ("people", "records")]
    return list(told([findings, measurements, doc["next_steps"], parts], (records, units, outside, records + outside)))
