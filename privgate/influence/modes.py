"""How closely leave-one-out answers, and when it may stop: decided, proven, or a mere ranking."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.evidence import ModeUsed, Request
from privgate.families import answering as families
from privgate.families import bound as bounds
from privgate.families import designs, refit
from privgate.families.certificate import Certified
from privgate.families.designs import vanishing
from privgate.families.engine import DRAWN, Asked, Engine, Mode, Refitting
from privgate.families.refit import MODELS, SHARE
from privgate.families.retrained import Retrained, Shown
from privgate.run.needs import Need
from privgate.run.run import Run
from privgate.training.fit import Fit

# How closely leave-one-out answers: everybody, only who could hold the largest value, or a mere ranking.
#
# The mode is the operator's, like a budget: it is no key of a policy, and no mode makes an approval easier. ``max``
# gives the same largest value for less; ``screen`` can block but never approve.

AGAIN = "check with --mode all"
#: what a request needs of everybody, by its aggregate
_EVERYBODY = {"quantile": "a quantile", "share_above": "a share of people"}


def used(run: Run) -> Mode:
    """Return the mode of this run: ``max`` only where an engine that covers the subject has a cheaper way to it.

    Who cannot hold the largest change of exact probabilities may hold the largest change of what is released instead,
    so everybody is measured there.
    """
    wanted = run.limits.mode
    if run.subject.task == "regression":
        return "all"  # no ranking and no shortcut speaks about numbers
    if wanted != "max":
        return wanted
    if not run.subject.release.exact:
        return "all"
    return "max" if "max" in families.first(run.subject)[0].modes else "all"


def told(run: Run) -> ModeUsed:
    """Return the mode for the evidence."""
    said = [note(run)] if note(run) else []
    return ModeUsed(asked=run.limits.mode, used=run.once(used), note="; ".join(said))


def note(run: Run) -> str:
    """Return what the mode means for this subject, in one sentence; empty where everybody is measured as usual."""
    if run.once(used) == "screen":
        return (
            f"mode screen: where only retraining is left, {MODELS} shadow models rank everybody and the top "
            f"{SHARE:.0%} are retrained; it can refuse, and end undecided at best"
        )
    if run.once(used) == "max":
        less_sharp = "; dtp's theorems are less sharp for those" if Need.EVERY_QUERY in run.asked else ""
        return (
            "mode max: only people who could hold the largest PDTP are measured closely, the others only bounded"
            + less_sharp
        )
    if run.limits.mode == "max" and not run.subject.release.exact:
        return (
            "mode max is about exact probabilities, and something else is released: whose release changes most can be "
            "anybody, so everybody is measured"
        )
    if run.limits.mode == "max":
        return "mode max saves nothing here: no engine has a cheaper way to the largest value, everybody is measured"
    return ""


def refusal(run: Run, request: Request, needs: frozenset[Need]) -> str:
    """Return why this run cannot answer a request that needs these things; empty if it can."""
    if Need.LEAVE_ONE_OUT not in needs or run.once(used) == "all":
        return ""
    if Need.EVERYBODY in needs:
        what = "a suite over the per-person table"
    elif run.once(used) == "max":
        what = _EVERYBODY.get(str(request.option("aggregate", "max")), "")
    else:  # who was only ranked has an interval without an end: whatever is aggregated stays open
        what = ""
    return f"{what} needs everybody's own value, which mode {run.once(used)} does not measure; {AGAIN}" if what else ""


def never(run: Run) -> list[str]:
    """Return what the mode rules out for a whole policy, said before anything is trained."""
    return [f"{note(run)}; {AGAIN} for an approval"] if run.once(used) == "screen" else []


# Stop when decided: people are trained without one after another, riskiest first, until an enforced rule is broken.
#
# Where only training answers, the recipe's own or an engine's, one proven violation blocks, and nothing that the other
# people's models show can take it back. So they are not trained: what was not computed is a lower limit, which can
# block and never approve, and evidence and report say so (`--full` computes it all the same).
#
# The order may depend on anything, because no statement depends on the order. Without randomness in training a
# violation is a fact. With it, every unit has one test at a level that is fixed beforehand: 95 % shared by Bonferroni
# among all units that might be tested, their labels, and the two looks at few and at many seeds. The probability that
# any of them blocks falsely is at most the sum of the levels, whichever are tested, in whatever order, and whenever it
# ends (section 15 of docs/mathematics.md asks for a level spent over looks: here it is spent before the first). A
# sample drawn at random stays one: it is complete, and whoever of it was not computed counts as possibly below and
# possibly above.

#: models that rank the units: each is trained without its share of them, and asked about it
FOLDS = 5
#: units of the first round for each worker, and for each training that a unit takes; every round doubles
FIRST = 2
#: nats; beyond float64's range differences carry no ranking
FLOOR = -700.0


def until(broken: Callable[[Retrained], str]) -> Refitting:
    """Return how to refit, riskiest first, until ``broken`` names a rule; whoever is left is handed back."""

    def answers(engine: Engine, asked: Asked, parts: Sequence[Retrained]) -> tuple[Retrained, Index]:
        done = list(parts)
        if done and broken(_whole(done)):  # a fast engine's people decide
            return parts[0].select(np.zeros(len(parts[0].units), dtype=bool)), asked.units
        made, over, left = list[Retrained](), list[Index](), riskiest_first(asked)
        size = max(1, -(-FIRST * asked.fleet.workers // len(asked.seeds)))
        while len(left):
            now, left, size = np.sort(left[:size]), left[size:], 2 * size
            found, handed_on = engine.answers(_some(asked, now))
            # what ends the work early is looked at again when some of it is refitted
            made.append(replace(found, shown=np.full(len(found.units), Shown.LIMITED, dtype=object)))
            over.append(handed_on)
            if len(left) and broken(_whole([*done, *made])):
                break
        return _whole(made), np.sort(np.concatenate([*over, asked.units[left]]))

    return answers


def riskiest_first(asked: Asked) -> Index:
    """Return positions in ``asked.units``, first those whose answers change most where a fold of people is left out.

    A unit whose class vanishes with it needs no training and comes first. Five trainings rank everybody: at default
    boosting of 1,000 records the first refit already exceeds the limit. A ranking alone shows nothing.
    """
    subject, units, (row_unit, row_query) = asked.subject, asked.units, asked.rows
    if len(units) <= FOLDS:
        return np.arange(len(units), dtype=np.int64)
    # folds of everybody, asked about everybody in them: whoever is to be ranked, the trainings are the same
    fold = subject.generator("folds").permutation(len(subject.data.units)) % FOLDS
    rows = [designs.unit_rows(subject, np.flatnonzero(fold == k))[1] for k in range(FOLDS)]
    fits = [Fit(asked.seeds[0], r, left_out=r) for r in rows]
    without = refit.full(subject, asked.seeds[:1], asked.fleet)[0]
    with_ = np.maximum(without[row_query], FLOOR)
    for r, answer in zip(rows, asked.fleet.fits(subject, fits, label="ranking people"), strict=True):
        if not answer.problem:  # a fold without its people may lack a class that training asks for
            without[r] = answer.log_p
    score = np.zeros(len(units))
    np.maximum.at(score, row_unit, np.abs(with_ - np.maximum(without[row_query], FLOOR)).max(axis=1))
    score[vanishing(subject, units)] = np.inf
    return np.argsort(-score, kind="stable").astype(np.int64)


def _some(asked: Asked, chosen: Index) -> Asked:
    """Return the same question about some units: ascending positions in ``asked.units``."""
    keep = np.zeros(len(asked.units), dtype=bool)
    keep[chosen] = True
    row_unit, row_query = asked.rows
    rows: NDArray[np.bool_] = keep[row_unit]
    place = np.cumsum(keep) - 1
    queries = place[row_unit[rows]].astype(np.int64), row_query[rows]
    return replace(asked, units=asked.units[keep], queries=queries)


def _whole(parts: Sequence[Retrained]) -> Retrained:
    return parts[0] if len(parts) == 1 else Retrained.concatenate(list(parts))


# Where a theorem limits everybody within the policy, a random sample of people is trained without, and no one else.
#
# A theorem over all questions bounds the answer about a person as well, under every seed and in the mean over seeds.
# What theorems of models in parts say (shards, trees drawn without looking) needs nobody's model; the sample is there
# to contradict them: whoever of it changes by more than the theorem allows silences it, and then nothing is limited.

#: how the sentence about it begins
CLAIM = "a certificate over all questions limits everybody's change"
#: people who are trained without all the same
SAMPLE = DRAWN
#: paired seeds of each of them: the theorem holds under every seed, and one that is broken need be seen once
SEEDS = 2
#: trainings up to which everybody's own value is worth having beside the theorem
WORTH = 1_000


def limits(run: Run) -> Float | None:
    """Return each person's limit by theorems, shape (n_units,), nats; None where everybody has to be measured.

    This is what theorems say before people were trained without.
    """
    asked = run.limits
    if not (run.by_theorem and run.thresholds) or asked.full or asked.mode != "all" or not run.subject.release.exact:
        return None
    if not (asked.max_retrains is None and asked.budget_seconds is None):
        return None  # the operator says how many
    if run.subject.task != "classification" or _trainings(run) <= WORTH:
        return None
    before = bounds_of(run, None).upper
    return before if before.max() <= min(run.thresholds) else None


def of(found: Float | None, units: NDArray[np.int64], low: Float, high: Float) -> tuple[Float, Float, Float]:
    """Return (low, high) of the measured units and high of the others; as they are where no theorem limits everybody.

    What was seen above a limit would disprove the theorem: the larger number is the safe one.
    """
    if found is None:
        return low, high, np.zeros(0)
    others = np.setdiff1d(np.arange(len(found)), units)
    return low, np.maximum(np.minimum(high, found[units]), low), found[others]


def fewer_seeds(run: Run) -> Run:
    """Return the run with as many paired seeds as contradicting a theorem takes, where one limits everybody."""
    return run if run.once(limits) is None else replace(run, seeds=run.seeds[:SEEDS], more_seeds=())


def said(found: Float | None) -> str:
    """Return what is known of whom by each person's limit, one sentence; empty where everybody has to be measured."""
    if found is None or not np.isfinite(found).all():
        return ""
    return f"{CLAIM} to {found.max():.4g} nats; {SAMPLE} people drawn at random are trained without, to contradict it"


def bounds_of(run: Run, witness: bounds.Witness | None) -> Certified:
    """Return what theorems say of everybody; a witness silences those that it contradicts."""
    everybody = np.arange(run.n_units, dtype=np.int64)
    attacked = Need.SHADOWS in run.asked
    return bounds.bound(run.subject, everybody, None, witness=witness, attacked=attacked, fleet=run.fleet)[0]


def _trainings(run: Run) -> int:
    everybody = np.arange(run.n_units, dtype=np.int64)
    seeds = run.more_seeds if run.more_seeds and Need.UPPER_LIMIT in run.asked else run.seeds
    return families.first(run.subject)[0].cost(run.subject, everybody, seeds).fits
