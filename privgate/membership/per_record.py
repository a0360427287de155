"""What attacks achieve on single records: independent target models, so that each record has trials of its own."""

from dataclasses import replace

import numpy as np

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError
from privgate.evidence import BehindMembership, Measurement, Request
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.membership import board as boards
from privgate.membership import limits
from privgate.membership.board import Attempt, Board
from privgate.membership.limits import Figure
from privgate.run import pool as pools
from privgate.run.pool import AttackPool
from privgate.run.refit import Shadows
from privgate.run.run import Run
from privgate.statistics.roc import least_nonmembers
from privgate.theorems.retrained import Status


def independent_masks(pool: AttackPool, count: int, rng: np.random.Generator) -> Bool:
    """Return ``count`` random halves of the people, drawn independently of each other, shape (count, P).

    A record's inclusion in one target says nothing about its inclusion in another: no complementary pairs here.
    """
    people = np.unique(pool.unit[pool.eligible])
    place = np.minimum(np.searchsorted(people, pool.unit), len(people) - 1)
    halves = np.stack([rng.permutation(len(people)) < len(people) // 2 for _ in range(count)])
    return np.asarray(halves[:, place] & pool.eligible)


def train(run: Run) -> Shadows:
    """Return target models on fresh random halves, as many as there are shadow models and disjoint from those."""
    rng = run.generator("target subsets")
    count = len(run.once(pools.train).status)
    masks = independent_masks(run.once(pools.of_run), count, rng)
    return pools.trained(run, masks, pools.seeds_for(run, count, rng))


def correct(board: Board, attempt: Attempt, targets: Shadows) -> tuple[Float, Bool]:
    """Return (scores, membership) of every person against every target, both of shape (R, U)."""
    live = np.flatnonzero(targets.status != Status.FAILED)
    signals = replace(board.signals, members=None, training_loss=None)
    scorer = attempt.attack.fit(signals, board.run.generator(f"attack {attempt.attack.name} on targets"))
    around = targets.beside
    seen = (attempt.attack.seen(targets.log_p[i], around if around is None else around[i]) for i in live)
    scores = np.stack([board.people(scorer(answers)) for answers in seen])
    return scores, targets.masks[live][:, board.rows[board.first]]


def measure(run: Run, request: Request, figure: Figure) -> Measurement:
    """Return what attacks achieve on the training record at greatest risk, over independent target models.

    ``low`` holds over all records and attacks together (Holm's first step), ``high`` is an intersection-union test over
    them. The claim is about models trained on random halves of the pool, not about the registered model.

    Raises
    ------
    MeasurementError
        An attack did not run, or there are too few target models for the rate that was asked for.
    """
    board = run.once(boards.run)
    attempts = board.wanted(str(request.option("attack", "any")))
    ran = [a for a in attempts if not a.problem]
    targets = run.once(train)
    alpha = 1 - float(request.option("confidence", 0.95))
    people = np.flatnonzero(board.members)
    tries = len(ran) * len(people)
    low = high = -1.0
    value, name = -1.0, ""
    count = 0
    for attempt in ran:
        scores, inside = correct(board, attempt, targets)
        count = len(scores)
        scores, inside = scores[:, people], inside[:, people]
        if figure is Figure.MEMBERS_FOUND:
            rng = run.generator(f"ties of {attempt.attack.name} on targets")
            got = [
                _tpr(limits.untied(scores[:, j], rng), inside[:, j], request, alpha, tries) for j in range(len(people))
            ]
            lows, highs, values = (np.array([getattr(g, k) for g in got]) for k in ("low", "high", "value"))
        else:
            right = ((scores >= attempt.threshold) == inside).sum(axis=0)
            lows = lower_limit(right, count, alpha=alpha / tries)
            highs = upper_limit(right, count, alpha=alpha)
            values = right / count
        if figure is Figure.ADVANTAGE:
            lows, highs, values = 2 * lows - 1, 2 * highs - 1, 2 * values - 1
        low, high = max(low, float(lows.max())), max(high, float(highs.max()))
        if values.max() > value:
            value, name = float(values.max()), attempt.attack.name
    missing = [a.attack.name for a in attempts if a.problem]
    return Measurement(
        request,
        value=value,
        low=low,
        high=1.0 if missing or board.pool.hidden or board.pool.fit else high,
        unit="fraction",
        kind="confidence",
        confidence=1 - alpha,
        n=len(people),
        population=int(run.n_units),
        where=name,
        assumptions=(
            f"{count} target models on independent random halves of the pool, disjoint from the shadow models",
            "the claim is about models that this recipe trains on random halves, not about the registered model",
            *(["copies of members are among the candidates; no limit exists for them"] if board.pool.hidden else []),
            *([f"{board.pool.drawn}; no limit exists for the others"] if board.pool.fit else []),
            *(["did not run, so that no upper limit exists: " + ", ".join(missing)] if missing else []),
        ),
        behind=BehindMembership(
            targets=count,
            searched=tries,
            candidates=int((~board.members).sum()),
            shadow_models=int((~np.isnan(board.signals.shadow).any(axis=(1, 2))).sum()),
        ),
    )


def _tpr(scores: Float, inside: Bool, request: Request, alpha: float, tries: int) -> limits.Interval:
    fpr = float(request.option("at_fpr"))
    least = least_nonmembers(fpr, alpha=alpha / 2)
    if (~inside).sum() < least:
        raise MeasurementError(
            f"{int((~inside).sum())} target models without a record cannot resolve a false-positive rate of {fpr:g} "
            f"for single records; train at least {2 * least} (shadow_models), or use scope model"
        )
    return limits.tpr_limits(scores, inside, fpr=fpr, low_alpha=alpha / tries, high_alpha=alpha)
