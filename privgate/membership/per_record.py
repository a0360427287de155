"""What attacks achieve on single records: independent target models, so that each record has trials of its own."""

from dataclasses import replace

import numpy as np

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError
from privgate.evidence import BehindMembership, Measurement, Request
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.membership import board as boards
from privgate.membership.board import Attempt, Board
from privgate.membership.limits import Figure, Interval, as_advantage, find_worst, tpr_limits, untied
from privgate.run import pool as pools
from privgate.run.refit import Shadows
from privgate.run.run import Run
from privgate.statistics.roc import least_nonmembers
from privgate.theorems.closed_form import Status


def train_targets(run: Run) -> Shadows:
    """Return target models on fresh random halves of the trials, as many as shadow models and disjoint from those.

    A record's inclusion in one target says nothing about its inclusion in another: no complementary pairs here.
    """
    rng, count = run.generator("target subsets"), len(run.compute(pools.train).status)
    pool = run.compute(pools.of_attacks)
    masks = pools.draw_halves(pool, count, rng) | pool.others
    return pools.trained(run, masks, pools.seeds_for(run, count, rng))


def measure_records(run: Run, request: Request, figure: Figure) -> Measurement:
    """Return what attacks achieve on the training record at greatest risk, over independent target models.

    ``low`` holds over all records and attacks together (Holm's first step), ``high`` is an intersection-union test over
    them. The claim is about models trained on random halves of the trials, not about the registered model.
    ``MeasurementError`` where an attack did not run, or target models are too few for the rate that was asked for.
    """
    board = run.compute(boards.make_board)
    attempts = board.wanted(str(request.option("attack", "any")))
    ran, missing = [a for a in attempts if not a.problem], [a.attack.name for a in attempts if a.problem]
    targets, alpha = run.compute(train_targets), 1 - float(request.option("confidence", 0.95))
    people = int(board.members.sum())
    count, tries = int((targets.status != Status.FAILED).sum()), len(ran) * people
    fpr = float(request.option("at_fpr")) if figure is Figure.MEMBERS_FOUND else None
    intervals: dict[str, Interval] = {}
    for attempt in ran:
        scores, inside = score_targets(board, attempt, targets)
        if fpr is not None:
            rng = run.generator(f"ties of {attempt.attack.name} on targets")
            each = [
                _limit_rate(untied(own, rng), mask, fpr, low_alpha=alpha / tries, high_alpha=alpha)
                for own, mask in zip(scores.T, inside.T, strict=True)
            ]
            intervals[attempt.attack.name] = find_worst(dict(enumerate(each)))[1]
        else:
            right = ((scores >= attempt.threshold) == inside).sum(axis=0)
            low, high = lower_limit(right, count, alpha=alpha / tries), upper_limit(right, count, alpha=alpha)
            intervals[attempt.attack.name] = Interval(right.max() / count, float(low.max()), float(high.max()))
    name, worst = find_worst(intervals)
    if figure is Figure.ADVANTAGE:
        worst = as_advantage(worst)
    copied = board.pool.copies
    said = (
        f"{count} target models on independent random halves of the trials, disjoint from the shadow models",
        "the claim is about models that this recipe trains on random halves, not about the registered model",
        "copies of members are among the candidates; no limit exists for them" if copied else "",
        f"{board.pool.drawn}; no limit exists for the others" if board.pool.fit else "",
        "did not run, so that no upper limit exists: " + ", ".join(missing) if missing else "",
    )
    unlimited = missing or copied or board.pool.fit
    return Measurement(
        request, float(worst.value), worst.low, 1.0 if unlimited else worst.high, "fraction", "confidence", 1 - alpha,
        n=people, population=int(run.n_units), where=name, assumptions=tuple(filter(None, said)),
        behind=BehindMembership(
            targets=count, searched=tries, candidates=int((~board.members).sum()), shadow_models=board.trained
        ),
    )  # fmt: skip


def score_targets(board: Board, attempt: Attempt, targets: Shadows) -> tuple[Float, Bool]:
    """Return (scores, membership) of every member of the board against every target, both of shape (R, members)."""
    signals = replace(board.signals, members=None, training_loss=None)
    scorer = attempt.attack.fit(signals, board.run.generator(f"attack {attempt.attack.name} on targets"))
    live, near = np.flatnonzero(targets.status != Status.FAILED), targets.near
    seen = (attempt.attack.seen(targets.log_p[i], None if near is None else near[i]) for i in live)
    scores = np.stack([board.people(scorer(answers)) for answers in seen])
    return scores[:, board.members], targets.masks[live][:, board.first][:, board.members]


def _limit_rate(scores: Float, inside: Bool, fpr: float, *, low_alpha: float, high_alpha: float) -> Interval:
    without, least = int((~inside).sum()), least_nonmembers(fpr, alpha=high_alpha / 2)
    if without < least:
        raise MeasurementError(
            f"{without} target models without a record cannot resolve a false-positive rate of {fpr:g} "
            f"for single records; train at least {2 * least} (shadow_models), or use scope model"
        )
    return tpr_limits(scores, inside, fpr=fpr, low_alpha=low_alpha, high_alpha=high_alpha)
