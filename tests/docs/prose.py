"""How long the sentences of the documentation are, and which words it does without; `make lint` runs this.

Code, tables, quotations and headings are left out: a table holds figures, and a quotation is somebody else's.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from markdown_it import MarkdownIt

from privgate.report.text import read_sentences

ROOT = Path(__file__).resolve().parents[2]
LONGEST, AVERAGE = 25, 15
PAGES = ("README.md", "docs/**/*.md", "hooks/**/*.md", "examples/**/*.md", ".github/*.md")
#: what nobody outside understands or what has another name in privgate/vocabulary.py -> what to write
WORDS = {
    r"blocked|blocks|blocking": "refused, refuses",
    r"inconclusive|screened": "undecided",
    r"preconditions?": "condition",
    r"thresholds?": "limit",
    r"non-members?|people outside|outsiders?": "candidate",
    r"units?|individuals?": "person",
    r"(?:by|bound by) (?:a )?(?:theorem|proof)": "certified, by a certificate",
    r"hand-ons?|riddles?": "say who does what",
    r"(?:rules?|question) (?:that )?(?:is|are|was|were )?(?:not )?(?:passed|passes|failed|fails|met)": "kept, approved",
}
ENDS = re.compile(r"(?<=[.!?])[)\"”’*_]*\s+(?=[\"“(*_]*(?:[A-ZΑ-Ω\d§\x00]|privgate\b))")
SHORT = re.compile(r"\b(e\.g|i\.e|et al|vs|cf|No|Dr|approx)\.", flags=re.IGNORECASE)


class Said(NamedTuple):
    """One sentence with the line where its paragraph begins; inline code is the character NUL."""

    line: int
    text: str

    @property
    def words(self) -> int:
        return sum(any(c.isalnum() or c == "\0" for c in word) for word in self.text.split())


def split(text: str, line: int = 0) -> Iterator[Said]:
    """Yield the sentences of a paragraph."""
    whole = SHORT.sub(lambda m: m[0].replace(".", "․"), " ".join(text.split()))
    yield from (Said(line, part) for part in ENDS.split(whole) if Said(line, part).words)


def sentences(markdown: str) -> Iterator[Said]:
    """Yield the sentences of a page's paragraphs and list items."""
    skipped = 0
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type in {"table_open", "blockquote_open", "heading_open"}:
            skipped += 1
        elif token.type in {"table_close", "blockquote_close", "heading_close"}:
            skipped -= 1
        elif token.type == "inline" and not skipped and not token.content.startswith(":::"):  # mkdocstrings
            shown = {"text": lambda c: c.content, "softbreak": lambda _: " ", "code_inline": lambda _: "\0"}
            parts = (shown[c.type](c) for c in token.children or () if c.type in shown)
            yield from split("".join(parts), token.map[0] + 1 if token.map else 0)


def faults(where: str, said: list[Said]) -> list[str]:
    """Return what is wrong with the sentences of a page."""
    found = [f"{where}:{s.line}: {s.words} words: {s.text[:70]}" for s in said if s.words > LONGEST]
    average = mean(s.words for s in said) if said else 0
    if average > AVERAGE:
        found.append(f"{where}: {average:.1f} words a sentence on average, {AVERAGE} at most")
    for pattern, instead in WORDS.items():
        words = ((s.line, re.search(rf"\b(?:{pattern})\b", s.text, flags=re.IGNORECASE)) for s in said)
        found += [f"{where}:{line}: “{word[0]}”, instead: {instead}" for line, word in words if word]
    return [line.replace("\0", "`…`") for line in found]


def pages() -> dict[str, list[Said]]:
    """Return the sentences of every page, and of the words that every report uses."""
    files = sorted({p for pattern in PAGES for p in ROOT.glob(pattern)})
    read = {str(p.relative_to(ROOT)): list(sentences(p.read_text(encoding="utf-8"))) for p in files}
    read["privgate/report/sentences.yaml"] = [
        s for text in read_sentences().values() for s in split(re.sub(r"\{\w*\}|`[^`]*`", "\0", text))
    ]
    return read


def main() -> int:
    """Print a line for each fault, or with `--table` one for each page; end with 1 where a page has a fault."""
    read = pages()
    if "--table" in sys.argv:
        for name, said in read.items():
            long = [s.words for s in said]
            share = sum(n > LONGEST for n in long) / max(len(long), 1)
            print(f"{name:45} {len(long):4} {mean(long or [0]):5.1f} {max(long or [0]):4} {share:5.0%}")
        return 0
    found = [line for name, said in read.items() for line in faults(name, said)]
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
