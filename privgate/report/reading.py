"""Reading a report document that may be old, sparse or written by others: what is absent reads as empty."""

from collections.abc import Mapping
from typing import Any

Doc = Mapping[str, Any]


def mapping(value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def rows(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings in a list; anything else is dropped."""
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list | tuple) else []


def detail(doc: Doc) -> Mapping[str, Any]:
    """Return ``evidence.detail`` of the document."""
    return mapping(mapping(doc.get("evidence")).get("detail"))


def measurements(doc: Doc) -> list[Mapping[str, Any]]:
    """Return the measurements of the document."""
    return rows(mapping(doc.get("evidence")).get("measurements"))


def subject(doc: Doc) -> Mapping[str, Any]:
    """Return what was judged."""
    return mapping(doc.get("subject"))


def findings(doc: Doc) -> list[Mapping[str, Any]]:
    """Return all findings in the order of the verdict."""
    return rows(doc.get("findings"))
