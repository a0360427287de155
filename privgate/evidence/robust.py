"""Membership by robustness: what the distance to the nearest wrong answer tells."""

from pydantic import Field

from privgate.evidence.membership import Estimate
from privgate.evidence.values import EvidenceModel, Number


class RobustAdversary(EvidenceModel):
    """How many people one adversary calls members."""

    name: str
    title: str
    inside: Number = Field(description="Share of members called members.")
    outside: Number = Field(description="Share of people outside called members.")
    members: int = Field(description="Members asked about.")
    others: int = Field(description="People outside asked about.")
    radius: Number | None = Field(default=None, description="Largest change of a feature; null where there is none.")
    advantage: Estimate = Field(description="inside less outside, fraction; 0 is guessing.")


class RobustPart(EvidenceModel):
    """Adversaries 1, 8 and 9 of Yeom et al. (2020) on one model."""

    how: str = Field(description="How distances to the nearest wrong answer were measured.")
    adversaries: tuple[RobustAdversary, ...]
