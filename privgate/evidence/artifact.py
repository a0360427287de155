"""The fifth question: what the stored file itself carries about single records."""

from typing import Literal

from pydantic import Field

from privgate.evidence.values import Count, EvidenceModel


class CarriedTrace(EvidenceModel):
    """One kind of trace of single records in one part of a model."""

    kind: str = Field(description="Key of what it is.")
    what: str = Field(description="What it is, in words.")
    where: str = Field(description="Class and attribute, or file.")
    least: Count = Field(description="Records of which it carries a trace, at least.")
    most: Count = Field(description="Records, at most.")
    beside: Count = Field(default=0, description="Records that share it with fewer than five; not counted.")


class ArtifactPart(EvidenceModel):
    """What was found in the file, or in the model that the recipe trains where no file is stored."""

    judged: Literal["file", "model"] = Field(description="What was walked.")
    records: int = Field(description="Training records that it was compared with.")
    least: Count = Field(description="Records of which a trace was found.")
    most: Count = Field(description="Records of which it may carry a trace: all where a part is unknown.")
    carried: tuple[CarriedTrace, ...] = ()
    unknown: tuple[str, ...] = Field(default=(), description="Parts that could not be walked; never taken for nothing.")
    problem: str = Field(default="", description="Why it was not walked at all.")
