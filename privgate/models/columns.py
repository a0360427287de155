"""Where models that an earlier version stored find the class of their columns."""

from privgate.subject.domain import Column

__all__ = ["Column"]
