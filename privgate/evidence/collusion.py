"""The fifth question: signs that training code hides messages about its records in the model."""

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import Field

from privgate.evidence.values import EvidenceModel, Number

#: where a sign may show
Sign = Literal["records", "reads", "held", "randomness", "watched", "store", "off_domain", "sources"]
SIGNS: tuple[Sign, ...] = get_args(Sign)


class CollusionSign(EvidenceModel):
    """What one detector saw."""

    name: Sign
    title: str
    outcome: Literal["clear", "found", "unknown"] = Field(description="unknown: it could not look; never a pass.")
    sentence: str = Field(description="What was seen, or why nothing could be.")
    figures: Mapping[str, Number] = Field(default_factory=dict, description="Numbers behind it.")


class CollusionPart(EvidenceModel):
    """Every detector that looked, and what none of them can see."""

    signs: tuple[CollusionSign, ...]
    undetectable: str = Field(description="What stays possible whatever was seen, one sentence.")
    sources: Mapping[str, str] = Field(
        default_factory=dict, description="Source file of the recipe to sha256:<hex>, for the next check to compare."
    )
