"""What a run says about itself: how closely it looked, what it planned, what its controls found, how to repeat it."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from privgate.evidence.values import EvidenceModel, Number


class ModeUsed(EvidenceModel):
    """How closely leave-one-out answered."""

    asked: Literal["all", "max", "screen"] = Field(description="What the operator asked for.")
    used: Literal["all", "max", "screen"] = Field(description="What was done: a cheaper way needs an engine for it.")
    precision: Literal["full", "mixed"] = Field(default="full", description="mixed: networks in half the bits.")
    note: str = Field(default="", description="What that means for this subject, one sentence; empty for all.")


class TrainingPlan(EvidenceModel):
    """What was to be trained, counted before it started."""

    retrains: int = Field(description="Trainings planned, all together.")
    leave_one_out: int = Field(default=0, description="Of these, without one unit.")
    ranking: int = Field(default=0, description="Of these, to rank units (mode screen).")
    shadows: int = Field(default=0, description="Of these, on random halves of the pool.")
    seconds: Number = Field(default=0.0, description="Expected wall-clock seconds; 0 where only closed forms answer.")


class SeedControl(EvidenceModel):
    """Whether training depends on its seed, and over how many seeds figures are averaged."""

    dependent: bool = Field(description="Another seed gives another model.")
    paired: int = Field(default=0, description="Seeds used, each with and without the unit; 0 if none matters.")
    moved_by: Number = Field(default=0.0, description="Largest change of a probability by another seed; fraction.")
    compared: int = Field(default=2, description="Seeds compared to see whether they matter.")
    unread: bool = Field(default=False, description="No part of the estimator reads a seed: none was compared.")
    note: str = Field(default="", description="What was found, one sentence.")


class StepMeasured(EvidenceModel):
    """What a change does, beside the model as it stands."""

    measure: str = Field(description="Of usefulness, cross-validated over people; larger is better.")
    useful: Number
    useful_now: Number
    of_limit: Number = Field(description="Risk over the limit of the rule that is nearest to it or furthest beyond.")
    of_limit_now: Number


class Removals(EvidenceModel):
    """The largest value while the riskiest people go one after another; it may rise when one goes."""

    meaning: str = Field(description="What the values are: certified DTP, or PDTP of direct queries.")
    path: tuple[Number, ...] = Field(description="Largest upper limit over all who are left after 0, 1, … removals.")
    limit: Number = Field(description="The policy's strictest limit on people, in the same unit.")
    best: int = Field(description="The fewest removals that keep the limit, or that give the smallest value.")
    stopped: str = Field(description="Why no more were removed, one sentence.")


class NextStep(EvidenceModel):
    """One thing that would make a blocked or undecided model pass."""

    action: str = Field(description="What to do.")
    effect: str = Field(description="Expected effect, computed for this recipe and data.")
    cost: str = Field(description="Expected cost.")
    measured: StepMeasured | None = Field(default=None, description="null where the change is only planned.")


class RunTrace(EvidenceModel):
    """What a reader needs to run this again."""

    versions: Mapping[str, str] = Field(default_factory=dict, description="Library to version.")
    system: str = Field(default="", description="Operating system, processor, cores.")
    command: str = Field(default="", description="To run the check again; empty where no command line started it.")
    seeds: tuple[int | None, ...] = Field(default=(), description="Paired seeds of leave-one-out; null: the recipe's.")
    training_calls: int = Field(default=0, description="Calls of the training function in this run.")
    digests: Mapping[str, str] = Field(default_factory=dict, description="What was judged: name to sha256:<hex>.")


class Remembered(EvidenceModel):
    """What of the run's trainings was remembered, and what became of those that were trained again to compare."""

    signable: bool = Field(description="Nothing was believed that was not trained or compared as the signer demands.")
    trained: int = Field(description="Trainings made in this run.")
    remembered: int = Field(description="Answers taken from the ledger.")
    compared: int = Field(description="Of these, trained afresh and compared.")
    different: int = Field(description="Of these, not what training gives now; one blocks.")
    noisy: int = Field(description="Of these, of a recipe that never repeats itself: nothing follows.")


class RunPart(EvidenceModel):
    """The run itself; the three questions' parts are beside it."""

    mode: ModeUsed | None = Field(default=None, description="How closely leave-one-out answered.")
    cannot_conclude: tuple[str, ...] = Field(
        default=(), description="What the policy can never conclude for this model, said before anything was trained."
    )
    plan: TrainingPlan | None = Field(default=None, description="null where a control stopped the run before it.")
    single_median: Number | None = Field(
        default=None,
        description="Median change of a probability when single records are relabelled, fraction; null where "
        "the control did not run.",
    )
    seeds: SeedControl | None = Field(default=None, description="null where the controls ended before it.")
    next_steps: tuple[NextStep, ...] = Field(default=(), description="Cheapest first; empty if no limit is exceeded.")
    removals: Removals | None = Field(
        default=None, description="null where nothing was refused, or where a removal costs trainings."
    )
    trace: RunTrace | None = Field(default=None, description="How to repeat the run; null in evidence made by hand.")
    isolation: str = Field(default="none", description="What kept the recipe's code from the rest of the machine.")
    remembered: Remembered | None = Field(default=None, description="null in evidence made by hand: not signable.")
    nonce: str = Field(default="", description="Who asked for the check; a signer refuses the report of any other.")
