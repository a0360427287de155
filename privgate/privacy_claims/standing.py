"""What the guarantee of one subject rests on, and the ε that follows at any δ."""

import dataclasses
import math
from dataclasses import dataclass

from privgate.errors import MeasurementError, UsageError
from privgate.evidence import Observation
from privgate.privacy_claims import accountant, bounds
from privgate.privacy_claims.accountant import Guarantee, Mechanism
from privgate.privacy_claims.tradeoff import EpsilonDelta
from privgate.subject.claim import Claim


@dataclass(frozen=True)
class GuaranteeBasis:
    """What the guarantee of one subject rests on.

    Parameters
    ----------
    claim : Claim
    observation : Observation or None
        None where the policy lets a claim count that nobody observed.
    group : int
        Largest number of records of one person that the guarantee is converted to.
    records : int
        Training size.
    """

    claim: Claim
    observation: Observation | None
    group: int = 1
    records: int = 0

    @property
    def pure(self) -> bool:
        """Whether ε holds at δ = 0."""
        if self.observation is not None and self.observation.library == "opacus":
            return False
        return self.claim.delta == 0 and self.claim.epsilon is not None

    def mechanism(self, adjacency: str) -> Mechanism | None:
        """Return the noised steps, as observed or else as claimed; None where there are none."""
        seen, claim = self.observation, self.claim
        if seen is not None:
            if seen.library != "opacus":
                return None
            return Mechanism(
                seen.noise_multiplier,
                seen.sample_rate,
                seen.steps,
                seen.sampling,
                adjacency,
                seen.records,
                passes=seen.passes,
            )
        if claim.noise_multiplier is None or claim.sample_rate is None or claim.steps is None:
            return None
        return Mechanism(
            claim.noise_multiplier, claim.sample_rate, claim.steps, claim.sampling or "unknown", adjacency, self.records
        )

    def guarantee(self, delta: float, adjacency: str | None = None) -> Guarantee:
        """Return the guarantee at ``delta`` for one unit of the data, converted to groups where people have several.

        Raises
        ------
        MeasurementError
            No theorem gives one; by Opacus none is given between data of other sizes.
        """
        wanted = adjacency or str(self.claim.adjacency)
        seen = self.observation
        if wanted == "add_remove" and seen is not None and seen.library == "opacus" and not seen.broken:
            raise MeasurementError(
                "Opacus divides its sums by a number that follows how many records there are, so whoever joins or "
                'leaves shows beside the noise; declare that number public with Claim(adjacency="replace_one")'
            )
        if self.group == 1:
            return self._for_records(delta, wanted)
        exact = self._for_all_records(delta, wanted)
        if exact is not None:
            return exact
        # k records cost k ε at a larger δ: look for the record δ at which the group's is small enough
        found = []
        for shrink in (0, *range(1, 13)):
            single = self._for_records(delta * 10.0**-shrink, wanted)
            epsilon, converted = accountant.for_groups(single.epsilon, single.delta, self.group)
            if converted <= delta:
                found.append((epsilon, single))
        if not found:
            raise MeasurementError(
                f"a person has up to {self.group} records here, and the guarantee for one record gives none for so many"
            )
        epsilon, single = min(found, key=lambda pair: pair[0])
        words = (*single.assumptions, f"converted from one record to the {self.group} that one person has at most")
        curve = EpsilonDelta(epsilon, delta) if math.isfinite(epsilon) else None
        return Guarantee(epsilon, delta, curve, single.accountant, assumptions=words)

    def _for_all_records(self, delta: float, adjacency: str) -> Guarantee | None:
        """Return the guarantee for all records of one person, accounted for together; None where no theorem does."""
        if delta <= 0 or (self.observation is not None and self.observation.broken):
            return None
        mechanism = self.mechanism(adjacency)
        if mechanism is None:
            return None
        try:
            found = accountant.recompute(dataclasses.replace(mechanism, copies=self.group), delta)
        except (MeasurementError, UsageError):
            return None
        words = (*found.assumptions, f"for the {self.group} records that one person has at most, each drawn on its own")
        return dataclasses.replace(found, assumptions=words)

    def _for_records(self, delta: float, adjacency: str) -> Guarantee:
        broken = "" if self.observation is None else self.observation.broken
        if broken:
            return Guarantee(math.inf, delta, None, "none", assumptions=(broken,))
        try:
            mechanism = self.mechanism(adjacency)
            if mechanism is not None:
                return accountant.recompute(mechanism, delta)
        except UsageError as exc:  # numbers that describe no mechanism: here a finding, not a wrong call
            raise MeasurementError(f"the guarantee cannot be recomputed: {exc}") from exc
        epsilon, own = self._stated()
        if own > delta:
            raise MeasurementError(
                f"the guarantee holds at delta {own:g} only, and nothing follows from it at the smaller {delta:g}"
            )
        words = {
            "add_remove": "neighbors differ in one record added or removed",
            "replace_one": "neighbors differ in one record replaced by another",
        }
        if adjacency == self.claim.adjacency:
            pass
        elif adjacency == "replace_one":
            epsilon, own = bounds.effective_guarantee(epsilon, own, adjacency="add_remove", inclusion="fixed_size")
            if own > delta:
                raise MeasurementError(f"replacing a record is two steps, whose delta {own:g} is above {delta:g}")
        else:
            raise MeasurementError(
                "the guarantee compares data sets with one record replaced; it says nothing about one added or removed"
            )
        source = "budget accountant" if self.observation is not None else "declared"
        return Guarantee(epsilon, own, EpsilonDelta(epsilon, own), source, assumptions=(words[adjacency],))

    def _stated(self) -> tuple[float, float]:
        """Return (ε, δ) that a budget accountant recorded, or that the claim states."""
        if self.observation is not None:
            return accountant.pure_composition(list(self.observation.spends))
        if self.claim.epsilon is None or self.claim.delta is None:
            raise MeasurementError("the claim states no epsilon, and its parameters are not those of noised steps")
        return self.claim.epsilon, self.claim.delta
