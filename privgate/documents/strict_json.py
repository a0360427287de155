"""Strict JSON: each key once, finite numbers of 64 bits, text that is UTF-8, nothing deeper than its limit."""

import json
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

from privgate.documents.door import SMALL, DocumentError, DocumentLimits, content, too_large

#: a text, or what an unclosed one holds: it matches at every quote, so each byte is looked at once
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = [0] * 256
for _opening, _closing in ("[]", "{}"):
    _STEP[ord(_opening)], _STEP[ord(_closing)] = 1, -1
_LARGEST = 1 << 63


def read(path: Path, limits: DocumentLimits = SMALL) -> Any:
    """Return what a JSON file says.

    Raises
    ------
    DocumentError
        It is no regular file, too large, or no strict JSON.
    OSError
        It cannot be opened or read.
    """
    return loads(content(path, limits), limits)


def loads(text: str | bytes, limits: DocumentLimits = SMALL) -> Any:
    """Return the value that JSON writes.

    Parameters
    ----------
    text : str or bytes
        Of UTF-8.
    limits : DocumentLimits
        What it may be at most.

    Raises
    ------
    DocumentError
        It is too large, too deep, or no strict JSON.
    """
    try:
        raw = text.encode() if isinstance(text, str) else bytes(text)
        if len(raw) > limits.size:
            raise too_large(limits)
        _bounded(raw, limits)
        value = json.loads(
            raw.decode(),
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_no_constant,
            object_pairs_hook=_each_key_once,
        )
        if b"\\u" in raw:
            # a lone half of a pair is no text: nothing could write it again
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError as exc:
        raise DocumentError("is not UTF-8 text") from exc
    except DocumentError:
        raise
    except (ValueError, RecursionError) as exc:
        raise DocumentError(f"is not JSON: {' '.join(str(exc).split())[:200]}") from exc
    return value


def _bounded(raw: bytes, limits: DocumentLimits) -> None:
    """Refuse more values or deeper nesting than allowed, before anything is built of them."""
    # a text has two quotes that are not escaped, at least one by this count; counted first, for room and time
    if raw.count(b'"') - raw.count(b'\\"') > 2 * limits.values:
        raise DocumentError(f"holds more than {limits.values} values")
    if raw.count(b"\\") > 2 * limits.values:  # each costs a hundred bytes while it is read
        raise DocumentError(f"holds more than {2 * limits.values} escaped characters")
    bare = _TEXTS.sub(b"", raw)
    if sum(bare.count(mark) for mark in (b",", b"[", b"{")) > limits.values:
        raise DocumentError(f"holds more than {limits.values} values")
    brackets = bare.translate(None, _NO_BRACKETS)
    if max(accumulate(_STEP[b] for b in brackets), default=0) > limits.depth:
        raise DocumentError(f"is nested more than {limits.depth} deep")


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -_LARGEST <= (value := int(digits)) < _LARGEST:
        raise DocumentError(f"holds the whole number {digits[:20]}…, which has more than 64 bits")
    return value


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise DocumentError(f"holds the number {digits[:20]}, which is not finite")
    return value


def _no_constant(name: str) -> float:
    raise DocumentError(f"holds {name}, which is not JSON")


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]  # None: go on
        raise DocumentError(f"holds the key {twice[:80]!r} twice")
    return found
