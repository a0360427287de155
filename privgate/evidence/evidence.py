"""All that was found out about one subject: the per-person table, every measurement, and one part a question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import Any, Self

from numpy.typing import NDArray
from pydantic import Field, ValidationError

from privgate.evidence.attack_facts import ArtifactPart, AttributesPart, MembershipPart, RobustPart
from privgate.evidence.facts import ClaimsPart, InfluencePart, RunPart
from privgate.evidence.measurement import BehindMembership, Measurement, Precondition, Request
from privgate.evidence.telling import EvidenceModel, Json, Known, encode, told

#: columns of the per-person table that always exist, with their meaning
COLUMNS: Mapping[str, str] = {
    "unit": "name of the person (a record, or several)",
    "label": "its label; text, 'mixed' if its records differ",
    "pdtp": "largest change of any label's log-probability at the person's own features, nats; larger is worse",
    "dtp_lower": "the same at the worst query actually evaluated, nats",
    "dtp_upper": "certificate: the same over all queries of the domain, nats; inf where none applies",
    "error": "bound on the numerical error of pdtp, nats; 0 where exact",
    "noise_floor": "change seen between seeds with nobody removed, nats; 0 for training without randomness",
    "seeds": "number of paired seeds behind the figures",
    "engine": "how the retrained model was obtained",
    "status": "exact, converged, failed or undefined; the last two mean infinite leakage",
}

#: columns of a regressor's table, with their meaning; with Laplace noise on the answers those of ``COLUMNS`` as well
SENSITIVITY_COLUMNS: Mapping[str, str] = {
    "unit": COLUMNS["unit"],
    "moved": "largest change of the answer at the person's own features, residual deviations; larger is worse",
    "moved_low": "the same less its error or confidence limit",
    "moved_high": "the same and its error or confidence limit",
    "moved_upper": "certificate: the same over all questions of the declared domain; inf where none applies",
    "noise_floor": "change seen between seeds with nobody removed, residual deviations",
    "seeds": COLUMNS["seeds"],
    "engine": COLUMNS["engine"],
    "status": COLUMNS["status"],
}


class EvidenceDocument(EvidenceModel):
    """Evidence as a report holds it: everything but the per-person table."""

    earlier = frozenset({"collusion"})
    subject: Mapping[str, Json] = Field(description="Names, digests and counts of what was judged.")
    preconditions: tuple[Precondition, ...] = Field(description="In the order in which they were checked.")
    measurements: tuple[Measurement, ...] = Field(description="One a request, in the order of the policy.")
    run: RunPart
    influence: InfluencePart | None = Field(description="null where no rule asked, or stopped before.")
    membership: MembershipPart | None = Field(description="null where no rule asked, or stopped before.")
    claims: ClaimsPart | None = Field(description="null where no rule asked, or stopped before.")
    attributes: AttributesPart | None = Field(default=None, description="Absent if unasked, or stopped before.")
    artifact: ArtifactPart | None = Field(default=None, description="Absent if nothing is stored and unasked.")
    robust: RobustPart | None = Field(default=None, description="Absent if unasked, or stopped before.")


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that was found out about one subject; judging needs nothing else. ``EvidenceDocument`` says what is what.

    ``measurements`` has one for each request, no exceptions. ``records`` has a column of shape (n_units,) for each of
    ``COLUMNS`` and possibly more; it is empty when no rule needed leave-one-out. ``cases`` (of ``cases.Kept``) are what
    theorems' limits rest on: personal data, which stay beside the per-person table.
    """

    subject: Mapping[str, Json]
    preconditions: tuple[Precondition, ...]
    measurements: Mapping[Request, Measurement]
    records: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    cases: tuple[Any, ...] = ()
    run: RunPart = field(default_factory=RunPart)
    influence: InfluencePart | None = None
    membership: MembershipPart | None = None
    claims: ClaimsPart | None = None
    attributes: AttributesPart | None = None
    artifact: ArtifactPart | None = None
    robust: RobustPart | None = None

    def payload(
        self, floors: Sequence[int] = (), limits: Mapping[str, Sequence[float]] = MappingProxyType({})
    ) -> dict[str, Json]:
        """Return JSON values as they may be told, without the per-person table (that is ``records.parquet``).

        ``floors`` are sample sizes that the policy asks for, ``limits`` are those of a request's rules: whoever judges
        what is told comes to the same end.
        """
        known = self.known(floors, limits)
        parts = {n: getattr(self, n) for n in list(EvidenceDocument.model_fields)[3:]}
        kept = {n: p for n, p in parts.items() if p is not None or EvidenceDocument.model_fields[n].is_required()}
        return {
            "subject": encode(self.subject),
            "preconditions": [p.payload(known) for p in self.preconditions],
            "measurements": [m.payload(known) for m in self.measurements.values()],
            **{name: part and part.payload(known) for name, part in kept.items()},
        }

    def known(self, floors: Sequence[int], limits: Mapping[str, Sequence[float]]) -> Known:
        """Return what every reader knows.

        Who knows how many candidates there are, and how many of them were left out for one reason, knows how many were
        left out for another: what is left of a total without those whose number is told is a total too.
        """
        records, units, outside = (int(self.subject.get(k) or 0) for k in ("n_records", "n_units", "n_candidates"))
        totals = (records, units, outside, records + outside)
        trials = [BehindMembership.of(m.behind) for m in self.measurements.values()]
        removed = [[told(n) or 0 for n in b.removed_candidates.values()] for b in trials]
        sums = {sum(some) for counts in removed for k in range(len(counts) + 1) for some in combinations(counts, k)}
        engines = self.influence.engines if self.influence else ()
        return Known(
            units=units or None,
            records=records or None,
            totals=tuple(dict.fromkeys([*totals, *(t - s for t in totals for s in sums if 0 < s < t)])),
            floors=tuple(floors),
            limits=limits,
            members=max((b.members or 0 for b in trials), default=0),
            candidates=max((b.candidates or 0 for b in trials), default=0),
            retrained=next((e.asked or 0 for e in engines if e.engine == "refit"), 0),
        )

    @classmethod
    def from_payload(cls, payload: Mapping[str, Json]) -> Self:
        """Return evidence without its per-person table.

        ``ValueError``: a key is unknown, missing or of the wrong kind, or an earlier version of privgate wrote it.
        """
        if "run" not in payload:
            raise ValueError("an earlier version of privgate wrote this evidence; check the model again")
        try:
            told = EvidenceDocument.model_validate(payload)
        except ValidationError as exc:
            first = exc.errors()[0]
            raise ValueError(f"evidence.{'.'.join(map(str, first['loc']))}: {first['msg']}") from exc
        parts = {name: getattr(told, name) for name in EvidenceDocument.model_fields}
        return cls(**{**parts, "measurements": {m.request: m for m in told.measurements}})
