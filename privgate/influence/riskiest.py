"""Who is refitted first: everybody is ranked before anybody is drawn, so that no draw can depend on the ranking."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from privgate import digest
from privgate.arrays import Float, Index
from privgate.kernel.scores import largest
from privgate.run import near_questions, refit
from privgate.run.run import Run
from privgate.statistics.leakage import largest_change
from privgate.theorems.catalogue import find_closed_form
from privgate.theorems.closed_form import RefitRequest
from privgate.theorems.hypotheses import unit_rows, vanishing
from privgate.training.fit import Fit

#: models that rank people: each is trained without its share of them, and asked about it
FOLDS = 5
#: nats; beyond float64's range differences carry no ranking
FLOOR = -700.0


class Ranking(NamedTuple):
    """How much everybody may matter, shape (n_units,), and the digest of that; it shows nothing by itself."""

    score: Float
    digest: str


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """What a closed form answers about everybody; None where none does, and why others decline."""

    computed: refit.Computed | None
    declined: Mapping[str, str] = field(default_factory=dict)


def compute_everybody(run: Run) -> ClosedForm:
    """Return everybody's answers by a closed form, where there is one; nothing of it counts before it is compared."""
    engine, declined = find_closed_form(run.subject)
    if engine is None or run.averaged:
        return ClosedForm(None, declined)
    request = ask_about(run, np.arange(run.n_units, dtype=np.int64))
    computed = refit.compute(engine, request)
    if isinstance(computed, str):
        return ClosedForm(None, {**declined, engine.name: computed})
    return ClosedForm(computed, declined)


def ask_about(run: Run, units: Index) -> RefitRequest:
    """Return the question about some units: at their own records, and beside them where a rule wants it."""
    near = run.compute(near_questions.ask_near_people)
    return RefitRequest(near.extended, units, run.seeds, run.fleet, near.list_rows(units) if near.kinds else None)


def rank_everybody(run: Run) -> Ranking:
    """Return how much everybody may matter: by a closed form, or by models that leave out a fifth of all.

    Whoever a closed form leaves to refits, and whose class vanishes without them, comes first.
    """
    computed = run.compute(compute_everybody).computed
    score = np.zeros(run.n_units)
    if computed is not None:
        answers = computed.answers
        change = largest_change(answers.log_with[0], answers.log_without[0])
        own = largest(answers.row_unit, len(answers.units), np.nan_to_num(change, nan=np.inf))
        score[answers.units], score[computed.rest] = own, np.inf
    else:
        score = _leave_out_folds(run)
    score[vanishing(run.subject, np.arange(run.n_units, dtype=np.int64))] = np.inf
    return Ranking(score, digest.of_bytes(score.tobytes()))


def answer_without_folds(run: Run) -> tuple[Float, Float]:
    """Return answers about everybody's own records, shape (n, K): of the whole model, and of one without a fifth.

    NaN where a fold's training failed: without its people, a class may be missing that training asks for.
    """
    subject, n = run.subject, run.subject.data.n
    fold = subject.generator("folds").permutation(run.n_units) % FOLDS
    rows = [unit_rows(subject, np.flatnonzero(fold == k))[1] for k in range(FOLDS)]
    fits = [Fit(run.seeds[0], r, left_out=r) for r in rows if len(r)]
    with_ = refit.train_on_all(subject, run.seeds[:1], run.fleet)[0][:n]
    without = np.full_like(with_, np.nan)
    for fit, answer in zip(fits, run.fleet.fits(subject, fits, label="ranking people"), strict=True):
        if not answer.problem:
            without[fit.left_out] = answer.log_p
    return with_, without


def _leave_out_folds(run: Run) -> Float:
    with_, without = run.compute(answer_without_folds)
    change = np.nan_to_num(np.abs(np.maximum(with_, FLOOR) - np.maximum(without, FLOOR)).max(axis=1))
    return largest(run.subject.data.units.owner, run.n_units, change)


def look_riskiest_first(
    looks: Sequence[Index], score: Float, see: Callable[[Index], tuple[int, bool]], *, refusing: int, workers: int = 1
) -> int:
    """Let people be seen in rounds, riskiest first, and return how many of the drawn order the last look takes.

    A look after which nobody is above a limit is the last. Rounds are as small as a refusal may be, and grow while
    nobody more is above. Whatever ``score`` (n_units,) is, no look errs oftener. ``see`` refits people, and returns how
    many are above so far and whether that ends the work; ``refusing`` of them refuse at the least.
    """
    done, above, ends = looks[0][:0], 0, False
    for look in looks:
        rest = np.setdiff1d(look, done)
        rest, size = rest[np.argsort(-score[rest], kind="stable")], max(workers, refusing - above)
        while len(rest) and not ends and not (above and look is not looks[-1]):
            now, rest = np.sort(rest[:size]), rest[size:]
            done, before = np.append(done, now), above
            above, ends = see(now)
            size = 2 * size if above == before else max(workers, refusing - above)
        if ends or not above:
            break
    return len(looks[-1] if ends else look)
