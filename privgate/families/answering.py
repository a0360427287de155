"""Engines: what the model would have been without a unit, as fast as theory allows, re-checked in every run."""

from privgate.families.catalogue import ALL, first, of
from privgate.families.chain import Answered, answer
from privgate.families.pipelines.seen_through import understood

__all__ = ["ALL", "Answered", "answer", "first", "of", "understood"]
