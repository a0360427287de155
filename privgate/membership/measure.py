"""What attacks achieve, with limits: accuracy, advantage, and members found at a low rate of false accusations."""

import numpy as np
from numpy.typing import NDArray

from privgate.errors import MeasurementError
from privgate.evidence import BehindMembership, Measurement, Request
from privgate.membership import board as boards
from privgate.membership import limits, single_records, told
from privgate.membership.board import Attempt, Board, cells
from privgate.membership.limits import Figure, Interval
from privgate.run.run import Run

Bool = NDArray[np.bool_]

#: fewer members or candidates than this, and a class or group is judged but neither named nor shown
SMALL_CELL = 10

ASSUMPTIONS = (
    "candidates come from the same population as the training records (looked for in features and labels)",
    "nobody picked the candidates by what the model answers about them, which their features need not show",
    "shadow models saw random halves of the pool, drawn without regard to who was in the training set",
    "trials are the people of this pool against this one model; a model trained on other people is another question",
    "the limits are about the attacks that were run, not about every attack",
)


def accuracy(run: Run, request: Request) -> Measurement:
    """Return the balanced accuracy of an attack, or of the best of all; see ``measure``."""
    return measure(run, request, Figure.ACCURACY)


def advantage(run: Run, request: Request) -> Measurement:
    """Return an attack's true-positive rate less its false-positive rate; see ``measure``."""
    return measure(run, request, Figure.ADVANTAGE)


def members_found(run: Run, request: Request) -> Measurement:
    """Return an attack's true-positive rate at the false-positive rate ``at_fpr``; see ``measure``."""
    return measure(run, request, Figure.MEMBERS_FOUND)


def measure(run: Run, request: Request, figure: Figure) -> Measurement:
    """Return what an attack, or the best of all that apply, achieves against the subject's model.

    ``low`` and ``high`` each err with probability at most 1 - confidence: ``low`` over everything that was searched
    (attacks x thresholds x classes or groups, by Holm's first step), ``high`` as an intersection-union test, which
    needs no correction. Two adversaries try every attack: one whose threshold the paper or the shadow models fix, and
    one who learned the best threshold on a random half of the trials and is tried on the other half.

    Raises
    ------
    MeasurementError
        No candidates, too few people, no shadow models, or the attack did not run.
    """
    if request.option("scope", "model") == "record" and run.subject.task == "regression":
        raise MeasurementError("scope record is not measured on regressors; judge by scope model or group")
    if request.option("scope", "model") == "record":
        return single_records.measure(run, request, figure)
    board = run.once(boards.run)
    attempts = board.wanted(str(request.option("attack", "any")))
    where = cells(board, str(request.option("scope", "model")), request.option("group"))
    if not where:
        raise MeasurementError("no class or group holds a training record")
    ran = [a for a in attempts if not a.problem]
    found = searched(board, ran, where, request, figure)
    if not run.rehearsed:  # nobody reads a search's figures of single attacks
        told.note(board, attempts, float(request.option("confidence", 0.95)))
    return summarized(request, found, board, [a for a in attempts if a.problem], where)


def searched(
    board: Board, ran: list[Attempt], where: dict[str, Bool], request: Request, figure: Figure
) -> list[tuple[str, str, Interval]]:
    """Return (attack, class or group, limits) of everything that was tried."""
    alpha = 1 - float(request.option("confidence", 0.95))
    per_attack = 1 if figure is Figure.MEMBERS_FOUND else 2
    tries = len(ran) * len(where) * per_attack
    found: list[tuple[str, str, Interval]] = []
    for attempt in ran:
        for cell, who in where.items():
            if figure is Figure.MEMBERS_FOUND:
                got = [_tpr(board, attempt, who, request, low_alpha=alpha / tries, high_alpha=alpha)]
            else:
                got = [
                    limits.balanced_accuracy(d, low_alpha=alpha / tries, high_alpha=alpha)
                    for d in board.decisions(attempt, who)
                ]
            if figure is Figure.ADVANTAGE:
                got = [limits.as_advantage(g) for g in got]
            found += [(attempt.attack.name, cell, g) for g in got]
    return found


def _tpr(
    board: Board, attempt: Attempt, who: Bool, request: Request, *, low_alpha: float, high_alpha: float
) -> Interval:
    fpr = float(request.option("at_fpr"))
    ranks = board.ranks(attempt)[who]
    return limits.tpr_limits(ranks, board.members[who], fpr=fpr, low_alpha=low_alpha, high_alpha=high_alpha)


def summarized(
    request: Request,
    found: list[tuple[str, str, Interval]],
    board: Board,
    missing: list[Attempt],
    where: dict[str, Bool],
) -> Measurement:
    """Return one number over all that was tried; an attack that did not run keeps the upper limit at its maximum."""
    values = np.array([np.nan_to_num(f[2].value, nan=-1.0) for f in found])
    name, cell, worst = found[int(values.argmax())]
    small = sorted(c for c, who in where.items() if min((board.members & who).sum(), (~board.members & who).sum())
                   < SMALL_CELL) if len(where) > 1 else []  # fmt: skip
    shown = "a class or group too small to name" if cell in small else cell
    behind = BehindMembership(
        searched=len(found),
        cells=len(where),
        cells_too_small_to_show=len(small),
        did_not_run={a.attack.name: a.problem for a in missing},
        removed_candidates=dict(board.pool.removed),
        members=int(board.members.sum()),
        candidates=int((~board.members).sum()),
        shadow_models=int((~np.isnan(board.signals.shadow).any(axis=(1, 2))).sum()),
    )
    said: tuple[str, ...] = ASSUMPTIONS
    if (noise := board.run.subject.release.noise) is not None:
        said = (*said, f"one answer a record, with {type(noise).__name__} noise of scale {noise.scale:g} on it")
    elif not board.run.subject.release.exact:
        said = (*said, "every attack was run on exact probabilities and again on the declared release")
    hidden = board.pool.hidden
    if hidden:
        said = (*said, f"{hidden:.1%} of the members, copies of whom are among the candidates, count as found")
    if missing:
        said = (*said, "did not run, so that no upper limit exists: " + ", ".join(a.attack.name for a in missing))
    high = max(f[2].high for f in found)
    # in one class or group all of them may be hidden
    spread = 1.0 if hidden and len(where) > 1 else hidden
    return Measurement(
        request,
        value=worst.value,
        low=max(f[2].low for f in found),
        high=1.0 if missing else high + spread * (1 - high),
        unit="fraction",
        kind="confidence",
        confidence=float(request.option("confidence", 0.95)),
        n=len(board.members),
        population=len(board.members),
        where=f"{name}, {shown}" if shown else name,
        assumptions=said,
        behind=behind,
    )
