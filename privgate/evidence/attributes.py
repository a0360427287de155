"""The fourth question: what the model tells about a sensitive feature of somebody whose other features are known."""

from pydantic import Field

from privgate.evidence.membership import Estimate
from privgate.evidence.values import Count, EvidenceModel, Number


class AttributeGuesses(EvidenceModel):
    """How often one adversary guesses a feature."""

    name: str
    title: str
    source: str = ""
    inside: Number | None = Field(
        description="Share of members whose feature is guessed; in a report null where a small count follows from it."
    )
    outside: Number | None = Field(description="Share of people outside whose feature is guessed: the baseline.")
    members: Count = Field(description="Members asked about.")
    others: Count = Field(description="People outside asked about.")
    advantage: Estimate = Field(
        description="inside less outside, fraction; 0 where the model tells nothing of members."
    )


class AttributeResult(EvidenceModel):
    """What was found about one sensitive feature."""

    name: str
    values: int = Field(description="Values that were put in.")
    adversaries: tuple[AttributeGuesses, ...]
    without_model: AttributeGuesses = Field(description="The same guess without any answer of the model.")
    prior_guess: Number | None = Field(
        description="Share that guessing the most frequent value gets right; in a report null where it tells a few."
    )
    influence: Number = Field(description="How far the feature alone moves an answer, mean over people.")
    influence_in: str = Field(description="Its unit.")
    theorem: Number | None = Field(
        default=None, description="Advantage by Theorem 5 for normal errors of these sizes; null where it has no sense."
    )
    by_value: tuple[AttributeGuesses, ...] = Field(default=(), description="Inversion, by the true value; large cells.")


class AttributesPart(EvidenceModel):
    """Every sensitive feature that was inferred."""

    attributes: tuple[AttributeResult, ...]
