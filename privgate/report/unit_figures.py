"""The per-unit table as a reader may see it: a part of the report document."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from privgate.evidence.values import Count, EvidenceModel, Number

FigureName = Literal["pdtp", "dtp_lower", "dtp_upper"]
Quantile = Literal["0.5", "0.9", "0.99", "1.0"]


def _all_quantiles(found: Mapping[Quantile, float]) -> Mapping[Quantile, float]:
    if len(found) != len(get_args(Quantile)):
        raise ValueError(f"needs the quantiles {', '.join(get_args(Quantile))}")
    return found


Quantiles = Annotated[Mapping[Quantile, Number], AfterValidator(_all_quantiles)]


class FigureSummary(EvidenceModel):
    """One figure over all units."""

    edges: tuple[Number, ...] = Field(description="Edges of the bins, nats; one more than counts.")
    counts: tuple[Count, ...] = Field(description="Units in each bin; null where suppressed.")
    unbounded: Count = Field(description="Units without a finite figure; null where suppressed.")
    quantiles: Quantiles

    @model_validator(mode="after")
    def _one_count_a_bin(self) -> Self:
        if len(self.edges) < 2 or len(self.edges) != len(self.counts) + 1:
            raise ValueError("needs one count a bin and one edge more")
        return self


class AboveLimit(EvidenceModel):
    """How many units lie above a limit of the policy."""

    figure: FigureName
    limit: Number = Field(description="Nats.")
    count: Count
    between: tuple[int, int] | None = Field(default=None, description="Range of a count that is small or nearly all.")


class WorstUnit(EvidenceModel):
    """One of the units with the largest figures, under its keyed hash (HMAC-SHA256); nats."""

    unit: str
    pdtp: Number
    dtp_lower: Number
    dtp_upper: Number
    error: Number
    noise_floor: Number
    seeds: int
    engine: str
    status: str


class UnitsSummary(EvidenceModel):
    """The per-unit table as a reader may see it."""

    n: int = Field(description="Units in the table.")
    key_id: str = Field(description="Which key made the hashes; tells nothing about the key.")
    small_cell: int = Field(description="Counts from 1 to one less are suppressed.")
    figures: Mapping[FigureName, FigureSummary] = Field(description="Per figure; empty unless everybody was measured.")
    above: tuple[AboveLimit, ...]
    worst: tuple[WorstUnit, ...]
    next_worst: tuple[str, ...] = Field(
        default=(), description="Others of the worst, in no order: their figures would tell a small count."
    )
    close: Count = Field(default=None, description="Units measured closely, where not all were.")
    everybody: bool = Field(default=True, description="Every unit was measured closely: there is a distribution.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.everybody and (not self.worst or set(self.figures) != set(get_args(FigureName))):
            raise ValueError("needs every figure and the worst units where everybody was measured")
        return self
