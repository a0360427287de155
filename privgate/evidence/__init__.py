"""What was measured: requests, measurements, the per-person table, and one part a question beside the run."""

from privgate.evidence.attack_facts import (
    AgainstPdtp,
    ArtifactPart,
    AttackFigures,
    AttackResult,
    AttributeGuesses,
    AttributeResult,
    AttributesPart,
    CarriedTrace,
    CellAccuracy,
    Estimate,
    MembershipPart,
    NullRuns,
    RateAtFpr,
    RobustAdversary,
    RobustPart,
    SelfTest,
)
from privgate.evidence.claim_facts import (
    AuditRuns,
    ClaimFact,
    ClaimsPart,
    DeletionRow,
    GuaranteeBound,
    ManyRuns,
    Observation,
    OneRun,
    TradeoffPoint,
    TradeoffPoints,
)
from privgate.evidence.evidence import COLUMNS, SENSITIVITY_COLUMNS, Evidence, EvidenceDocument
from privgate.evidence.influence_facts import (
    CaseNote,
    CertificateNote,
    EngineShare,
    IndirectQueries,
    InfluencePart,
    NextStep,
    PublishedBound,
    RecheckRow,
    Remembered,
    RunPart,
    RunTrace,
    SeedControl,
    SeedNoise,
    SensitivityFigures,
    TrainingPlan,
    UnitCoverage,
)
from privgate.evidence.measurement import (
    Behind,
    BehindClaim,
    BehindInfluence,
    BehindMembership,
    Expectation,
    Kind,
    Measurement,
    Precondition,
    Request,
)
from privgate.evidence.telling import Count, EvidenceModel, Json, Number, Option, decode, encode

__all__ = [
    "COLUMNS", "SENSITIVITY_COLUMNS", "AgainstPdtp", "ArtifactPart", "AttackFigures", "AttackResult",
    "AttributeGuesses", "AttributeResult", "AttributesPart", "AuditRuns", "Behind", "BehindClaim",
    "BehindInfluence", "BehindMembership", "CarriedTrace", "CaseNote", "CellAccuracy", "CertificateNote",
    "ClaimFact", "ClaimsPart", "Count", "DeletionRow",
    "EngineShare", "Estimate", "Evidence", "EvidenceDocument", "EvidenceModel", "Expectation", "GuaranteeBound",
    "IndirectQueries", "InfluencePart", "Json", "Kind", "ManyRuns", "Measurement", "MembershipPart",
    "NextStep", "NullRuns", "Number", "Observation", "OneRun", "Option", "Precondition", "PublishedBound",
    "RateAtFpr", "RecheckRow", "Remembered", "Request", "RobustAdversary",
    "RobustPart", "RunPart", "RunTrace", "SeedControl", "SeedNoise", "SelfTest", "SensitivityFigures", "Sign",
    "TradeoffPoint", "TradeoffPoints", "TrainingPlan", "UnitCoverage", "decode", "encode",
]  # fmt: skip
