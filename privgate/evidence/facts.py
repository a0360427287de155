"""What was found out beside the numbers: models that are the JSON of a report, and what of it may be told."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from privgate.evidence.telling import (
    SMALL_CELL,
    Count,
    EvidenceModel,
    Json,
    Known,
    Number,
    OfRecords,
    OfUnits,
    Part,
    Sample,
    cells,
    share,
    tell_count,
)

# What a run says about itself: how closely it looked, what it planned, what its controls found, how to repeat it.


class TrainingPlan(EvidenceModel):
    """What was to be trained, counted before it started."""

    earlier = frozenset({"ranking"})
    retrains: int = Field(description="Trainings planned, all together.")
    leave_one_out: int = Field(default=0, description="Of these, without one person.")
    shadows: int = Field(default=0, description="Of these, on random halves of the trials.")
    seconds: Number = Field(default=0.0, description="Expected wall-clock seconds; 0 where only closed forms answer.")


class SeedControl(EvidenceModel):
    """Whether training depends on its seed, and what was compared."""

    dependent: bool = Field(description="Another seed gives another model.")
    coins: Literal["seed", "order", "both"] = Field(default="seed", description="What gives another model.")
    paired: int = Field(default=0, description="Seeds used, each with and without the person; 0 if none matters.")
    moved_by: Number = Field(default=0.0, description="Largest change of a probability by another seed; fraction.")
    compared: int = Field(default=2, description="Seeds compared to see whether they matter.")
    median: Number = Field(default=0.0, description="What other seeds change with nobody removed, of half; nats.")
    floor: Number = Field(default=0.0, description="The same for the person whose answer they change most; nats.")
    unread: bool = Field(default=False, description="No part of the estimator reads a seed: none was compared.")
    note: str = Field(default="", description="What was found, one sentence.")


class NextStep(EvidenceModel):
    """One thing that would make a refused or undecided model approved."""

    earlier = frozenset({"measured"})
    action: str = Field(description="What to do.")
    effect: str = Field(description="Expected effect, computed for this recipe and data.")
    cost: str = Field(description="Expected cost.")


class RunTrace(EvidenceModel):
    """What a reader needs to run this again."""

    versions: Mapping[str, str] = Field(default_factory=dict, description="Library to version.")
    system: str = Field(default="", description="Operating system, processor, cores.")
    command: str = Field(default="", description="To run the check again; empty where no command line started it.")
    seeds: tuple[int | None, ...] = Field(default=(), description="Paired seeds of leave-one-out; null: the recipe's.")
    training_calls: int = Field(default=0, description="Calls of the training function in this run.")
    digests: Mapping[str, str] = Field(default_factory=dict, description="What was judged: name to sha256:<hex>.")


class Remembered(EvidenceModel):
    """How much of the run's training was remembered."""

    earlier = frozenset({"compared", "different", "noisy"})
    signable: bool = Field(description="Nobody could foretell what was asked, or nothing was remembered.")
    trained: int = Field(description="Trainings made in this run.")
    remembered: int = Field(description="Answers taken from the ledger.")


class RunPart(EvidenceModel):
    """The run itself; the three questions' parts are beside it."""

    earlier = frozenset({"removals", "single_median", "mode"})
    cannot_conclude: tuple[str, ...] = Field(default=(), description="What the policy can never conclude here.")
    plan: TrainingPlan | None = Field(default=None, description="null where a control stopped the run before it.")
    seeds: SeedControl | None = Field(default=None, description="null where the controls ended before it.")
    next_steps: tuple[NextStep, ...] = Field(default=(), description="Cheapest first; empty if no limit is exceeded.")
    trace: RunTrace | None = Field(default=None, description="How to repeat the run; null in evidence made by hand.")
    isolation: str = Field(default="none", description="What kept the recipe's code from the rest of the machine.")
    remembered: Remembered | None = Field(default=None, description="null in evidence made by hand: not signable.")
    nonce: str = Field(default="", description="Who asked for the check; a signer refuses the report of any other.")

    def payload(self, known: Known | None = None) -> dict[str, Json]:
        """Return JSON values, as if nine people had been retrained where a few were: each takes a training a seed."""
        values = super().payload(known)
        if known and Count(known.retrained).hidden:
            more = (SMALL_CELL - 1 - known.retrained) * max(1, (values["seeds"] or {}).get("paired") or 0)
            for part, keys in _TRAININGS.items():
                for key in keys if values[part] else ():
                    values[part][key] += more if values[part][key] else 0
        return values


#: where trainings are counted, those without one person among them
_TRAININGS = {"plan": ("retrains", "leave_one_out"), "trace": ("training_calls",), "remembered": ("trained",)}


# The first question: how far leaving out one person moves an answer, and how that is known.


class UnitCoverage(EvidenceModel):
    """For how many units the figures speak."""

    n_measured: Sample = Field(description="Units measured.")
    n_units: int = Field(description="People there are.")
    claim: str = Field(default="", description="What the sample says about all, one sentence; empty if nothing.")
    not_computed: int = Field(default=0, description="People left out of the work, because the verdict was decided.")
    decided_by: str = Field(default="", description="The rule that decided it by refusing; empty if none did.")


class EngineShare(EvidenceModel):
    """What one engine answered of the units it was asked about."""

    engine: str
    asked: Part = Field(description="People it was asked about.")
    answered: Part = Field(description="People it answered.")
    handed_on: Part = Field(description="People handed on to the next engine: asked less answered.")
    why: Mapping[str, Part] = Field(default_factory=dict, description="Reason to number of people handed on.")
    without_limit: Mapping[str, Part] = Field(default_factory=dict, description="Why people leak without limit.")

    @classmethod
    def from_parts(
        cls, engine: str, requested: int, answered: int, why: Mapping[str, Part] = MappingProxyType({}),
        without_limit: Mapping[str, Part] = MappingProxyType({}),
    ) -> Self:  # fmt: skip
        """Return the share of an engine that handed on all people that it was asked about and did not answer."""
        counts = {"asked": requested, "answered": answered, "handed_on": requested - answered}
        return cls(engine=engine, **counts, why=why, without_limit=without_limit)


class CertificateNote(EvidenceModel):
    """What one theorem of the catalogue said about this model."""

    earlier = frozenset({"guarantee", "epsilon"})
    name: str
    applies: bool = Field(description="Whether it gave the best bound of any person.")
    units: OfUnits = Field(default=0, description="People for whom it gave the best bound.")
    because: str = Field(default="", description="Why it was silent; empty if it spoke or nothing is known.")
    source: str = Field(default="", description="Where the theorem is stated.")
    assumptions: tuple[str, ...] = Field(default=(), description="Hypotheses in words.")


class CaseNote(EvidenceModel):
    """One case that limits rest on; the case itself tells the data, and stays beside the per-person table."""

    digest: str = Field(description="SHA-256 of the case and of whom it is about.")
    family: str = Field(description="The kernel's family.")
    asked: Literal["own", "any"] = Field(description="About each person's own records, or about any question.")
    people: OfUnits = Field(description="People that it is about.")
    low: Number = Field(description="Largest lower limit of one of them, nats, or in the case's measure.")
    high: Number = Field(description="Largest upper limit of one of them; inf where nothing is shown of somebody.")

    @classmethod
    def from_kept(cls, kept: Any) -> Self:
        """Return what a report tells of a ``cases.Kept``, which a judge need not load."""
        low, high = (float(v.max(initial=0.0)) for v in (kept.low, kept.high))
        facts = {"family": kept.case.family, "asked": kept.case.scope, "people": len(kept.units)}
        return cls(digest=kept.digest(), **facts, low=low, high=high)


class PublishedBound(EvidenceModel):
    """A published bound beside the corrected one; approves nothing."""

    name: str
    value: Number = Field(description="DTP as the publication bounds it, nats.")
    corrected: Number = Field(description="DTP as the certificate bounds it, nats; inf where none applies.")
    because: str = Field(description="Why the published one is not used.")
    source: str


class SensitivityFigures(EvidenceModel):
    """What one person moves a regressor's answers by; sensitivity is not DTP."""

    earlier = frozenset({"noise_advantage"})
    residual_inside: Number = Field(description="Root mean square of training residuals, unit of the targets.")
    residual_outside: Number = Field(description="The same at records left out: the unit of sensitivity.")
    median: Number = Field(description="Sensitivity at a person's own record, half are below, residual deviations.")
    p99: Number = Field(description="99 % are below.")
    most: Number = Field(description="The largest.")
    over_domain: Number | None = Field(default=None, description="Largest over the declared domain; null if unknown.")
    why_no_domain: str = Field(default="", description="Why it is unknown.")
    noise: str = Field(default="", description="Noise that the endpoint adds, in words; empty if none.")


class InfluencePart(EvidenceModel):
    """How the per-person table was come by; the table itself is ``Evidence.records``."""

    earlier = frozenset({"registered", "certificates_compared", "indirect_queries", "noise", "recheck"})
    coverage: UnitCoverage | None = Field(default=None, description="null where nobody was measured.")
    engines: tuple[EngineShare, ...] = Field(default=(), description="In the order in which they were asked.")
    declined: Mapping[str, str] = Field(default_factory=dict, description="Engine to why it was not used.")
    certificates: tuple[CertificateNote, ...] = Field(default=(), description="Every theorem of the catalogue.")
    as_published: tuple[PublishedBound, ...] = Field(default=(), description="Approves nothing.")
    sensitivity: SensitivityFigures | None = Field(default=None, description="null for classifiers.")
    cases: tuple[CaseNote, ...] = Field(default=(), description="What theorems' limits rest on; empty in old reports.")

    def payload(self, known: Known | None = None) -> dict[str, Json]:
        """Return JSON values: an engine's answers follow neither from those handed on nor from the next engine."""
        values, known, coverage = super().payload(known), known or Known(), self.coverage
        everybody = self.engines[0].asked if self.engines else None  # or a sample of the people
        sample = set()  # of a run that stopped: a sample's size, where the coverage tells it
        if coverage and coverage.not_computed and known.sample(coverage.n_measured) == coverage.n_measured:
            sample = {0, coverage.n_measured, coverage.not_computed}
        for engine in values["engines"]:
            if len(engine["why"]) != 1 or not {engine["answered"], engine["handed_on"]} <= sample:
                _hide_counts(engine, known.units, everybody)
        return values


def _hide_counts(engine: dict[str, Any], units: int | None, everybody: int | None) -> None:
    """Hide small counts of an engine's share; reasons add up to the people handed on, and to those answered."""
    requested = engine["asked"]
    hidden = tell_count(requested, everybody) is None
    engine["asked"] = None if hidden else tell_count(requested, units)
    for key, whole in (("why", "handed_on"), ("without_limit", "answered")):
        parts, count = engine[key], engine[whole]
        engine[whole] = (count and None) if hidden else tell_count(count, requested)
        known = None not in (engine["asked"], engine[whole], *parts.values())
        engine[key] = dict(zip(parts, cells(parts.values()), strict=True)) if known else dict.fromkeys(parts)


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


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What an attack achieved where the answer is known: AUC on planted leaks, and without any."""

    planted: Annotated[Number, Field(description="On a planted leak; at least 0.9.")]
    blind: Annotated[Number, Field(description="Without any; 0.5 within the tolerance.")]
    #: votes and labels without a leak must be blind too, within five standard errors of their own
    tolerance: Annotated[Number, Field(description="Five standard errors of an AUC of one half, 200 records a side.")]
    problem: Annotated[str, Field(description="Why the attack is not to be believed; empty if it is.")] = ""
    #: at least 0.9 for an attack that judges each record by other models' answers on it, else 0.6
    votes: Annotated[Number, Field(description="On leaks planted in a forest's shares of votes.")] = float("nan")
    labels: Annotated[Number, Field(description="On leaks planted in labels; at least 0.9.")] = float("nan")


class AttackFigures(EvidenceModel):
    """What one attack achieved; limits are for this attack alone, not corrected for others."""

    earlier = frozenset({"auc_error", "seconds", "classes", "groups", "advantage", "precision", "recall"})
    auc: Number = Field(description="Area under the ROC; 0.5 is guessing.")
    accuracy: Estimate = Field(description="Balanced accuracy at the threshold fixed beforehand, fraction.")
    tpr_at_fpr: tuple[RateAtFpr, ...] = Field(description="Falling in fpr.")
    roc: tuple[tuple[Number, Number], ...] = Field(description="Points (fpr, tpr), ascending in fpr; fractions.")


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


class MembershipPart(EvidenceModel):
    """All attacks that were tried, and how far their figures can be believed."""

    earlier: ClassVar[frozenset[str]] = frozenset({"against_pdtp", "null_runs"})

    attacks: tuple[AttackResult, ...] = Field(default=(), description="Each once, those that did not run too.")

    def payload(self, known: Known | None = None) -> dict[str, Json]:
        """Return JSON values: no rate of few members or of few others."""
        values, known = super().payload(known), known or Known()
        for attack in values["attacks"]:
            if figures := attack["figures"]:
                figures["roc"] = thin(figures["roc"])
                if attack["scope"] == "model" and known.members and known.candidates:
                    _hide_rates(figures, known.members, known.candidates)
        return values


def _hide_rates(figures: dict[str, Any], members: int, others: int) -> None:
    """Hide where an attack finds few members, or wrongly accuses few others: a rate of a known number is a count."""
    points = [(p, [Count(round(v * n), n) for v, n in zip(p, (others, members), strict=True)]) for p in figures["roc"]]
    figures["roc"] = [p for p, counts in points if not any(count.hidden for count in counts)]
    for rate in figures["tpr_at_fpr"]:
        if rate["value"] is not None:
            rate["value"] = share(rate["value"], rate["value"], members)[1]


def thin(curve: Sequence[Sequence[Any]], most: int = 120) -> list[Sequence[Any]]:
    """Return at most ``most`` points of a curve: the last one at each rate, at evenly spaced logarithms of the rate."""
    corners = [p for p, q in zip(curve, [*curve[1:], [None]], strict=True) if p[0] != q[0]]
    if len(corners) <= most:
        return corners
    low, high = (math.log(max(corners[i][0], 1e-9)) for i in (1, -1))
    step = (high - low) / (most - 2) or 1.0
    first = {int((math.log(max(p[0], 1e-9)) - low) / step): p for p in reversed(corners[1:])}
    kept = [corners[0], *reversed(first.values())]
    return kept if kept[-1] is corners[-1] else [*kept, corners[-1]]


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

    earlier = frozenset({"by_value", "influence", "influence_in", "theorem"})
    name: str
    values: int = Field(description="Values that were put in.")
    adversaries: tuple[AttributeGuesses, ...]
    without_model: AttributeGuesses = Field(description="The same guess without any answer of the model.")
    prior_guess: Number | None = Field(description="Right by the most frequent value; null where it tells a few.")


class AttributesPart(EvidenceModel):
    """Every sensitive feature that was inferred."""

    attributes: tuple[AttributeResult, ...]


# The fifth question: what the stored file itself carries about single records.


class CarriedTrace(EvidenceModel):
    """One part of a model that holds records."""

    earlier = frozenset({"kind", "least", "most", "beside"})
    what: str = Field(description="What it is, in words.")
    where: str = Field(description="Class and attribute, or file.")


class ArtifactPart(EvidenceModel):
    """What was found in the file, or in the model that the recipe trains where no file is stored."""

    earlier = frozenset({"how"})
    judged: Literal["file", "model"] = Field(description="What was looked at.")
    records: int = Field(description="Training records that it was compared with.")
    least: OfRecords = Field(description="Records of which a trace was found.")
    most: OfRecords = Field(description="Records of which it may carry a trace: all where a part is unknown.")
    carried: tuple[CarriedTrace, ...] = ()
    unknown: tuple[str, ...] = Field(default=(), description="Parts that could not be read; never taken for nothing.")
    problem: str = Field(default="", description="Why it was not looked at.")
    read: int = Field(default=0, description="Bytes that could be read.")
    size: int = Field(default=0, description="Bytes that there are.")

    @property
    def read_said(self) -> str:
        """How much of the file was searched."""
        return f"{self.read:,} of {self.size:,} bytes" if self.size else "an earlier version did not count bytes"

    @property
    def bytes_said(self) -> str:
        """What a look at a file's bytes showed, the end of a sentence."""
        if self.problem:
            return f"could not be looked at: {self.problem}; it may hold every record"
        if self.least:
            first = f" ({self.carried[0].where})" if self.carried else ""
            return f"holds {Count(self.least, self.records)} of {self.records} records of the training data{first}"
        more = f"; it may hold some: {self.unknown[0]}" if self.unknown and self.most else ""
        return f"holds no record that was found in what could be read ({self.read_said}){more}"


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


# What a claim of differential privacy is worth, given what a rerun of its recipe was seen to do.


class Observation(EvidenceModel):
    """Sampling, noise and steps of a watched training; what earlier versions saw beside that is passed over."""

    earlier = frozenset((
        "unclipped_steps", "bypassed_updates", "noise_repeats", "noise_defect", "same_model_twice", "leaks", "rows",
        "copies", "replays", "by_number", "scales", "entered",
    ))  # fmt: skip
    library: str = Field(default="", description="opacus or diffprivlib; empty if none was seen at work.")
    runs: int = Field(default=0, description="Trainings that were watched.")
    records: int = Field(default=0, description="Training records that were handed to the recipe.")
    steps: int = Field(default=0, description="Updates of the model, or releases.")
    noiseless_steps: int = Field(default=0, description="Of these, without noise, or with noise that can be redrawn.")
    noise_multiplier: Number = Field(default=math.nan, description="Deviation over the clipping norm as added; least.")
    noise_stated: Number = Field(default=math.nan, description="The same as stated.")
    noise_share: Number = Field(default=math.nan, description="Deviation that was measured over the stated one.")
    noise_error: Number = Field(default=math.nan, description="Its standard error.")
    max_grad_norm: Number = Field(default=math.nan, description="Largest clipping norm of all steps.")
    sampling: str = Field(default="", description="poisson, shuffled (each epoch passes through once) or unknown.")
    sample_rate: Number = Field(default=math.nan, description="Expected share of the records in a batch.")
    passes: int = Field(default=0, description="Times that shuffled batches went through the records.")
    populations: tuple[int, ...] = Field(default=(), description="Records that each training drew from; 0: not known.")
    spends: tuple[tuple[float, float], ...] = Field(default=(), description="(epsilon, delta) by a budget accountant.")
    hazards: tuple[str, ...] = Field(default=(), description="What the libraries warned of.")
    leftovers: str = Field(default="", description="Gradients of records on a network: rerun (returned) or stored.")
    problem: str = Field(default="", description="Why it could not be observed; then nothing else counts.")


class GuaranteeBound(EvidenceModel):
    """One bound that follows from the guarantee, with its hypotheses in words."""

    earlier = frozenset({"measured"})
    name: str = Field(description="What is bounded.")
    epsilon: Number = Field(description="Of the guarantee that counts for this adversary, nats.")
    delta: Number
    prior: Number | None = Field(default=None, description="Share of members the bound assumes; null for any.")
    fpr: Number | None = Field(default=None, description="Rate of errors the bound is about; null if about none.")
    bound: Number = Field(description="No adversary achieves more; fraction unless the name says otherwise.")
    assumptions: tuple[str, ...] = ()


class ManyRuns(EvidenceModel):
    """The audit by many trainings with and without one mislabelled record."""

    epsilon: Number = Field(description="Lower bound, nats.")
    trainings: int
    counted: int = Field(description="Trainings on which the fixed test was counted.")
    misses: int
    false_alarms: int
    fpr: Number
    tpr: Number


class OneRun(EvidenceModel):
    """The audit by one training with many mislabelled records, each included by a coin."""

    epsilon: Number = Field(description="Lower bound, nats.")
    canaries: int
    guesses: int
    right: int


class AuditRuns(EvidenceModel):
    """Both audits of a claim; they can contradict a guarantee and never show it."""

    many_runs: ManyRuns
    one_run: OneRun | None = Field(default=None, description="null for replace-one claims and without canaries.")
    delta: Number = Field(description="At which epsilon is bounded.")
    trainings: int = Field(description="Trainings made by both.")

    @property
    def epsilon(self) -> float:
        """The better of both lower bounds, nats."""
        return max(self.many_runs.epsilon, 0.0 if self.one_run is None else self.one_run.epsilon)


class ClaimsPart(EvidenceModel):
    """The claim against what was observed, and what follows from the guarantee."""

    earlier = frozenset({"deletion", "deletion_by_prior", "points", "audit", "curve", "facts"})
    observation: Observation | None = Field(default=None, description="What a rerun did; null where none was needed.")
    bounds: tuple[GuaranteeBound, ...] = Field(default=(), description="Empty where no finite guarantee holds.")
