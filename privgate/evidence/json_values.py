"""JSON values of evidence: numbers that may be infinite, and the base of every typed part."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, WithJsonSchema

from privgate.evidence.telling import Known

Json = Any
Option = str | float | int | bool | None | tuple[str, ...]
#: a float; in JSON a number, or one of the words "inf", "-inf", "nan", which JSON has no number for
Number = Annotated[float, WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]})]


class EvidenceModel(BaseModel):
    """What every typed part of the evidence is: frozen, and without a key that nobody declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def payload(self, known: Known | None = None) -> dict[str, Json]:
        """Return JSON values as they may be told; infinities and NaN become text."""
        found: dict[str, Json] = encode(self.model_dump(context=known))
        return found


def encode(value: Any) -> Any:
    """Return ``value`` with non-finite floats as the words "inf", "-inf", "nan", and arrays as lists."""
    if isinstance(value, np.ndarray):
        return [encode(v) for v in value.tolist()]
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return "nan" if np.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v) for v in value]
    return value


def decode(value: Any) -> Any:
    """Return the float that ``encode`` wrote as a word; anything else unchanged."""
    return float(value) if isinstance(value, str) else value
