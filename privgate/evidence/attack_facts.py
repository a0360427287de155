"""What attacks and the look at the stored file found out beside their numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from privgate.evidence.telling import Count, EvidenceModel, Json, Known, Number, OfRecords, Part, Sample, share, told

# The second question: whether an attack tells who was in the training data.


class Estimate(EvidenceModel):
    """A figure with its interval."""

    value: Number | None = Field(description="null where the sample cannot resolve it.")
    low: Number | None = Field(default=None, description="Lower limit; null where none can be given.")
    high: Number | None = Field(default=None, description="Upper limit; null where none can be given.")
    problem: str = Field(default="", description="Why there is no figure; empty if there is one.")


class RateAtFpr(Estimate):
    """The share of members found at one rate of false accusations; fractions, larger is worse."""

    fpr: Number = Field(description="False-positive rate, fraction.")


class CellAccuracy(EvidenceModel):
    """An attack's balanced accuracy in one class or group that is large enough to be shown; larger is worse."""

    name: str
    value: Number = Field(description="Fraction; 0.5 is guessing.")
    low: Number
    high: Number
    members: Part = Field(description="Training people of the cell.")
    candidates: Part = Field(description="Other people of the cell.")


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What an attack achieved where the answer is known.

    Parameters
    ----------
    planted, blind : float
        AUC on a planted leak (must be at least 0.9) and without any (must be 0.5 within ``tolerance``).
    votes, labels : float
        AUC on leaks planted in a forest's shares of votes (at least 0.9 for an attack that judges each record by other
        models' answers on it, else 0.6) and in labels (at least 0.9).
    tolerance : float
        Five standard errors of an AUC of one half with 200 records a side. Votes and labels without a leak must be
        blind too, within five standard errors of their own.
    problem : str
        Why the attack is not to be believed; empty if it is.
    """

    planted: Number
    blind: Number
    tolerance: Number
    problem: str = ""
    votes: Number = float("nan")
    labels: Number = float("nan")


class AttackFigures(EvidenceModel):
    """What one attack achieved; limits are for this attack alone, not corrected for others."""

    auc: Number = Field(description="Area under the ROC; 0.5 is guessing.")
    auc_error: Number = Field(description="Its standard error.")
    accuracy: Estimate = Field(description="Balanced accuracy at the threshold fixed beforehand, fraction.")
    advantage: Number = Field(description="TPR less FPR at that threshold.")
    precision: Number = Field(description="Share of members among those called members.")
    recall: Number = Field(description="Share of members called members.")
    tpr_at_fpr: tuple[RateAtFpr, ...] = Field(description="Falling in fpr.")
    roc: tuple[tuple[Number, Number], ...] = Field(description="Points (fpr, tpr), ascending in fpr; fractions.")
    classes: tuple[CellAccuracy, ...] = Field(default=(), description="One a label large enough to be shown.")
    groups: tuple[CellAccuracy, ...] = Field(default=(), description="One a group large enough to be shown.")
    seconds: Number = Field(default=0.0, description="Wall-clock seconds.")


class AttackResult(EvidenceModel):
    """One attack that was tried."""

    name: str = Field(description="Catalogue key.")
    title: str = Field(description="Plain name.")
    kind: str = Field(default="membership inference", description="What the attack is after.")
    scope: str = Field(default="model", description="model: over all people of the trials.")
    threat_model: str = Field(default="", description="What the adversary sees and knows.")
    source: str = ""
    self_test: SelfTest
    problem: str = Field(default="", description="Why it did not run; it then counts as not tested.")
    figures: AttackFigures | None = Field(default=None, description="null where it did not run.")


class NullRuns(EvidenceModel):
    """How often the limits rise above guessing where everybody was outside, so that every alarm is false."""

    attacks: int = Field(description="Attacks searched together.")
    runs: int = Field(description="Runs with labels that mean nothing.")
    alarms: int = Field(description="Of these, with an alarm.")
    nominal: Number = Field(description="Share of alarms that is allowed, fraction.")
    low: Number = Field(description="Lower 95 % limit of the share of alarms.")
    high: Number = Field(description="Upper 95 % limit of the share of alarms.")


class AgainstPdtp(EvidenceModel):
    """The best attack's accuracy on single records over their PDTP: point estimates from rotated targets, no limits."""

    problem: str = Field(default="", description="Why there are no figures; empty if there are.")
    attacks: tuple[str, ...] = Field(default=(), description="Whose best accuracy on each record is taken.")
    kind: str = ""
    targets: int = Field(default=0, description="Shadow models that took turns as the target.")
    pearson: Number | None = Field(default=None, description="Correlation; null where it has no value.")
    p_value: Number | None = None
    n: Sample = Field(default=0, description="Records.")
    records_above_1: Part = Field(default=0, description="Records with a PDTP above 1 nat.")
    share_above_1_found: Number | None = Field(default=None, description="Of these, share with accuracy above 0.8.")
    points: tuple[tuple[Number, Number], ...] = Field(default=(), description="(mean PDTP, nats; mean accuracy).")


class MembershipPart(EvidenceModel):
    """All attacks that were tried, and how far their figures can be believed."""

    attacks: tuple[AttackResult, ...] = Field(default=(), description="Each once, those that did not run too.")
    null_runs: NullRuns | None = Field(default=None, description="null where no attack ran.")
    against_pdtp: AgainstPdtp | None = Field(default=None, description="null where not both are known of everybody.")

    def payload(self, known: Known | None = None) -> dict[str, Json]:
        """Return JSON values: no rate of few members or few others, no cell that tells how many are in small ones."""
        made, known = super().payload(known), known or Known()
        against = made["against_pdtp"]
        if against and (above := told(against["records_above_1"], against["n"])) is None:
            against |= {"records_above_1": above, "share_above_1_found": None}
        for attack in made["attacks"]:
            if figures := attack["figures"]:
                figures["roc"] = thin(figures["roc"])
                if attack["scope"] == "model" and known.members and known.candidates:
                    _hide_rates(figures, known.members, known.candidates)
                for name in ("classes", "groups"):
                    for side, total in (("members", known.members), ("candidates", known.candidates)):
                        _hide_rest(figures[name], side, total)
        return made


def _hide_rates(figures: dict[str, Any], members: int, others: int) -> None:
    """Hide where an attack finds few members, or wrongly accuses few others: a rate of a known number is a count."""
    few = [
        any(Count(round(v * n), n).hidden for v, n in zip(p, (others, members), strict=True)) for p in figures["roc"]
    ]
    figures["roc"] = [point for point, hidden in zip(figures["roc"], few, strict=True) if not hidden]
    for rate in figures["tpr_at_fpr"]:
        if rate["value"] is not None:
            rate["value"] = share(rate["value"], rate["value"], members)[1]


def _hide_rest(shown: Sequence[dict[str, Any]], side: str, total: int) -> None:
    """Hide the smallest count where all together would leave a small rest: that of the cells too small to show."""
    given = [c for c in shown if c[side] is not None]
    if given and Count(total - sum(c[side] for c in given)).hidden:
        min(given, key=lambda c: c[side])[side] = None


def thin(curve: Sequence[Sequence[Any]], most: int = 120) -> list[Sequence[Any]]:
    """Return at most ``most`` points of a curve: the last one at each rate, at evenly spaced logarithms of the rate."""
    corners = [p for p, q in zip(curve, [*curve[1:], [None]], strict=True) if p[0] != q[0]]
    if len(corners) <= most:
        return corners
    low, high = (math.log(max(corners[i][0], 1e-9)) for i in (1, -1))
    step = (high - low) / (most - 2) or 1.0
    kept, place = [corners[0]], -1
    for point in corners[1:]:
        cell = int((math.log(max(point[0], 1e-9)) - low) / step)
        if cell > place or point is corners[-1]:
            kept.append(point)
            place = cell
    return kept


# The fourth question: what the model tells about a sensitive feature of somebody whose other features are known.


class AttributeGuesses(EvidenceModel):
    """How often one adversary guesses a feature."""

    name: str
    title: str
    source: str = ""
    inside: Number | None = Field(description="Share of members whose feature is guessed; null where it tells a few.")
    outside: Number | None = Field(description="Share of candidates whose feature is guessed: the baseline.")
    members: Part = Field(description="Members asked about.")
    others: Part = Field(description="Candidates asked about.")
    advantage: Estimate = Field(description="inside less outside, fraction; 0: the model tells nothing.")


class AttributeResult(EvidenceModel):
    """What was found about one sensitive feature."""

    name: str
    values: int = Field(description="Values that were put in.")
    adversaries: tuple[AttributeGuesses, ...]
    without_model: AttributeGuesses = Field(description="The same guess without any answer of the model.")
    prior_guess: Number | None = Field(description="Right by the most frequent value; null where it tells a few.")
    influence: Number = Field(description="How far the feature alone moves an answer, mean over people.")
    influence_in: str = Field(description="Its unit.")
    theorem: Number | None = Field(default=None, description="Advantage by Theorem 5; null where it has no sense.")
    by_value: tuple[AttributeGuesses, ...] = Field(default=(), description="Inversion, by the true value; large cells.")


class AttributesPart(EvidenceModel):
    """Every sensitive feature that was inferred."""

    attributes: tuple[AttributeResult, ...]


# The fifth question: what the stored file itself carries about single records.


class CarriedTrace(EvidenceModel):
    """One kind of trace of single records in one part of a model."""

    kind: str = Field(description="Key of what it is.")
    what: str = Field(description="What it is, in words.")
    where: str = Field(description="Class and attribute, or file.")
    least: OfRecords = Field(description="Records of which it carries a trace, at least.")
    most: OfRecords = Field(description="Records, at most.")
    beside: OfRecords = Field(default=0, description="Records that share it with fewer than five; not counted.")


class ArtifactPart(EvidenceModel):
    """What was found in the file, or in the model that the recipe trains where no file is stored."""

    judged: Literal["file", "model"] = Field(description="What was walked.")
    how: Literal["walked", "bytes"] = Field(default="walked", description="Opened and walked, or read as bytes.")
    records: int = Field(description="Training records that it was compared with.")
    least: OfRecords = Field(description="Records of which a trace was found.")
    most: OfRecords = Field(description="Records of which it may carry a trace: all where a part is unknown.")
    carried: tuple[CarriedTrace, ...] = ()
    unknown: tuple[str, ...] = Field(default=(), description="Parts that could not be walked; never taken for nothing.")
    problem: str = Field(default="", description="Why it was not walked at all.")
    read: int = Field(default=0, description="Bytes that could be read.")
    size: int = Field(default=0, description="Bytes that there are.")

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return JSON values; what was walked says so by saying nothing, as it always did."""
        made: dict[str, Any] = dump(self)
        if made.get("how") == "walked":
            del made["how"]
        if not made.get("size"):  # of before 0.2.0
            made = {k: v for k, v in made.items() if k not in ("read", "size")}
        return made

    @property
    def read_said(self) -> str:
        """How much of the file was searched."""
        return f"{self.read:,} of {self.size:,} bytes"

    @property
    def bytes_said(self) -> str:
        """What a look at a file's bytes showed, the end of a sentence."""
        if self.problem:
            return f"could not be looked at: {self.problem}; it may hold every record"
        if self.least:
            first = f" ({self.carried[0].where})" if self.carried else ""
            return f"holds {Count(self.least, self.records)} of {self.records} records of the training data{first}"
        unread = self.unknown[0] if self.unknown and self.most else ""
        if self.size:
            more = f"; it may hold some: {unread}" if unread else ""
            return f"holds no record that was found in what could be read ({self.read_said}){more}"
        if self.most:
            return f"was not read whole, and no record was found in the rest{f': {unread}' if unread else ''}"
        return "holds no record of the training data that could be found"


# Membership by robustness: what the distance to the nearest wrong answer tells.


class RobustAdversary(EvidenceModel):
    """How many people one adversary calls members."""

    name: str
    title: str
    inside: Number = Field(description="Share of members called members.")
    outside: Number = Field(description="Share of candidates called members.")
    members: int = Field(description="Members asked about.")
    others: int = Field(description="Candidates asked about.")
    radius: Number | None = Field(default=None, description="Largest change of a feature; null where there is none.")
    advantage: Estimate = Field(description="inside less outside, fraction; 0 is guessing.")


class RobustPart(EvidenceModel):
    """Adversaries 1, 8 and 9 of Yeom et al. (2020) on one model."""

    how: str = Field(description="How distances to the nearest wrong answer were measured.")
    adversaries: tuple[RobustAdversary, ...]
