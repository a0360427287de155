"""What every closed part of a policy file has in common, and the least effort that a policy asks for."""

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

Fraction = Annotated[float, Field(ge=0, le=1)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]


class Part(BaseModel):
    """A closed, frozen part of a policy: unknown keys, text for numbers, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


#: what may have kept training code from the host, least first
Isolation = Literal["none", "bubblewrap with network", "bubblewrap"]
ISOLATIONS: tuple[str, ...] = get_args(Isolation)


class Audit(Part):
    """The least effort that counts; less is inconclusive, however good the numbers look."""

    min_coverage: Fraction = Field(default=0.0, description="Share of all units that leave-one-out must have measured.")
    min_units: PositiveInt = Field(default=1, description="Units that leave-one-out must have measured.")
    min_seeds: PositiveInt = Field(default=1, description="Paired seeds, where training depends on its seed.")
    min_shadow_models: PositiveInt = Field(default=1, description="Shadow models behind every attack rule.")
    min_candidates: PositiveInt = Field(default=1, description="Non-members behind every attack rule.")
    min_isolation: Isolation = Field(
        default="none",
        description="What must have kept training code from the host: bubblewrap is a box without the network, "
        "bubblewrap with network one in which the recipe may declare that it needs it.",
    )
