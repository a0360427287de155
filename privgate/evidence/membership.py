"""The second question: whether an attack tells who was in the training data."""

from dataclasses import dataclass

from pydantic import Field

from privgate.evidence.values import Count, EvidenceModel, Number


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
    members: Count = Field(description="Training people of the cell.")
    candidates: Count = Field(description="Other people of the cell.")


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
    n: int = Field(default=0, description="Records.")
    records_above_1: Count = Field(default=0, description="Records with a PDTP above 1 nat.")
    share_above_1_found: Number | None = Field(
        default=None, description="Of these, the share with accuracy above 0.8; null without any."
    )
    points: tuple[tuple[Number, Number], ...] = Field(
        default=(), description="(mean PDTP in nats, mean accuracy) of records of like PDTP."
    )


class MembershipPart(EvidenceModel):
    """All attacks that were tried, and how far their figures can be believed."""

    attacks: tuple[AttackResult, ...] = Field(default=(), description="Each once, those that did not run too.")
    null_runs: NullRuns | None = Field(default=None, description="null where no attack ran.")
    against_pdtp: AgainstPdtp | None = Field(
        default=None, description="null where not both were measured, or not everybody closely."
    )
