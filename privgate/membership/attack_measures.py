"""What attacks achieve, with limits: accuracy, advantage, and members found; and what the report shows of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError
from privgate.evidence import (
    AgainstPdtp,
    AttackFigures,
    AttackResult,
    BehindMembership,
    CellAccuracy,
    Count,
    Estimate,
    Measurement,
    MembershipPart,
    NullRuns,
    RateAtFpr,
    Request,
)
from privgate.evidence.telling import SMALL_CELL
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.membership import board as boards
from privgate.membership import limits, per_record
from privgate.membership.board import Attempt, Board, cells
from privgate.membership.limits import Figure, Interval
from privgate.run import pool as pools
from privgate.run.run import Run
from privgate.statistics import roc
from privgate.statistics.roc import APPROVING, LOOKS, Decisions

ASSUMPTIONS = (
    "candidates come from the same population as the training records (looked for in features and labels)",
    "nobody picked the candidates by what the model answers about them, which their features need not show",
    "shadow models saw random halves of the pool, drawn without regard to who was in the training set",
    "trials are the people of this pool against this one model; a model trained on other people is another question",
    "the limits are about the attacks that were run, not about every attack",
)


def measure_figure(run: Run, request: Request, figure: Figure) -> Measurement:
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
        return per_record.measure(run, request, figure)
    alpha = 1 - float(request.option("confidence", 0.95))
    if request.option("level") is None:
        found = one_look(run.once(boards.run), request, figure, low_alpha=alpha, high_alpha=alpha).shown
    elif request in run.attacked:
        found = over_looks(run.once(looked)[request])
    else:
        raise MeasurementError("whether a rule that names a level is settled is asked of its policy, and there is none")
    board = run.once(boards.run)
    note_attempts(board, board.wanted(str(request.option("attack", "any"))), 1 - alpha)
    return found


accuracy, advantage, members_found = (partial(measure_figure, figure=figure) for figure in Figure)


@dataclass(frozen=True, slots=True)
class Look:
    """What so many shadow models showed: a measurement, and its upper limit less what attacks that did not run add."""

    models: int
    shown: Measurement
    high: float


Looks = list[Look | MeasurementError]


def looked(run: Run, *, most: int = max(LOOKS)) -> dict[Request, Looks]:
    """Return what each look showed, by request; the last is where a rule is broken, none is open, or at ``most``.

    It is also the last where most trainings of a step fail: then it shows nothing, and is not tried again.
    """
    found: dict[Request, Looks] = {request: [] for request in run.attacked}
    try:
        for board in boards.growing(run):
            states = {_look(board, request, run.attacked[request], looks) for request, looks in found.items()}
            ended = not run.at_once and ("broken" in states or "" not in states)
            if ended or len(board.signals.shadow) >= most:
                break
    except MeasurementError as exc:
        for looks in found.values():
            looks.append(exc)
    return found


def _look(board: Board, request: Request, asked: tuple[str, Callable[[Measurement], str]], looks: Looks) -> str:
    """Look once more, and return what that settles."""
    (figure, settled), count = asked, len(board.signals.shadow)
    alpha, spent = 1 - float(request.option("confidence")), LOOKS[max(k for k in LOOKS if k <= count)]
    levels = {"low_alpha": alpha * spent, "high_alpha": alpha / len(APPROVING)}
    try:
        looks.append(one_look(board, request, Figure(figure), **levels))
        return settled(over_looks(looks))
    except MeasurementError as exc:  # an attack may need more shadow models than these
        looks.append(exc)
        return ""


def over_looks(looks: Looks) -> Measurement:
    """Return what attacks achieve, with limits over all looks; see section 9.2 of docs/mathematics.md.

    The lower limit is the largest of all looks: an attack with few shadow models is an attack. So is the upper one.
    Before the last look that the plan knows, what the last doubling of shadow models added to the figure is added once
    more; where nothing shows that, or shadow models are too few or could not be trained, the upper limit is 1.

    Raises
    ------
    MeasurementError
        The last look showed nothing.
    """
    last, before = looks[-1], looks[-2] if len(looks) > 1 else None
    if isinstance(last, MeasurementError):
        raise last
    ran = [look for look in looks if isinstance(look, Look)]
    best = max((look.shown for look in ran), key=lambda m: float(np.nan_to_num(m.value, nan=-1.0)))
    behind, added = BehindMembership.of(last.shown.behind), 0.0
    if last.models < max(LOOKS):
        added = last.shown.value - before.shown.value if isinstance(before, Look) else 1.0
        added = 0.0 if added <= 0 else added  # NaN stays
    high = float(np.max([last.shown.high, *(look.high for look in ran)])) + added
    if last.models < min(APPROVING) or behind.shadow_models < last.models or not high < 1:
        high = 1.0
    said = f"looks at {', '.join(str(look.models) for look in ran)} shadow models; limits hold over all looks together"
    if added and high < 1:
        said += f", and the upper one counts twice what the last doubling of their number added ({added:.2g})"
    behind = behind.model_copy(update={"searched": sum(BehindMembership.of(x.shown.behind).searched or 0 for x in ran)})
    return replace(
        last.shown, value=best.value, where=best.where, low=max(look.shown.low for look in ran), high=high,
        assumptions=(*last.shown.assumptions, said), behind=behind,
    )  # fmt: skip


def one_look(board: Board, request: Request, figure: Figure, *, low_alpha: float, high_alpha: float) -> Look:
    """Return what attacks achieve with the shadow models of a board."""
    attempts = board.wanted(str(request.option("attack", "any")))
    where = cells(board, str(request.option("scope", "model")), request.option("group"))
    if not where:
        raise MeasurementError("no class or group holds a training record")
    ran = [a for a in attempts if not a.problem]
    low_alpha /= max(1, len(ran) * len(where) * (1 if figure is Figure.MEMBERS_FOUND else 2))
    found = [
        (attempt.attack.name, cell, got)
        for attempt in ran
        for cell, who in where.items()
        for got in _limits(board, attempt, who, request, figure, low_alpha=low_alpha, high_alpha=high_alpha)
    ]
    return summarized(request, found, board, [a for a in attempts if a.problem], where)


def _limits(
    board: Board, attempt: Attempt, who: Bool, request: Request, figure: Figure, **levels: float
) -> list[Interval]:
    """Return the limits of each adversary who tries an attack on some people.

    Means over several records vary less than single records do, and tell members by that alone. So where members have
    several and candidates one, what is sure and what is likeliest is what one record of each shows.
    """
    if attempt.alone is not None:
        of_one, of_all = (
            _limits(board, one, who, request, figure, **levels) for one in (attempt.alone, replace(attempt, alone=None))
        )
        return [replace(a, high=max(a.high, b.high)) for a, b in zip(of_one, of_all, strict=True)]
    if figure is Figure.MEMBERS_FOUND:
        fpr, ranks = float(request.option("at_fpr")), board.ranks(attempt)[who]
        return [limits.tpr_limits(ranks, board.members[who], fpr=fpr, **levels)]
    got = [limits.balanced_accuracy(d, **levels) for d in board.decisions(attempt, who)]
    return [limits.as_advantage(g) for g in got] if figure is Figure.ADVANTAGE else got


def summarized(
    request: Request,
    found: list[tuple[str, str, Interval]],
    board: Board,
    missing: list[Attempt],
    where: dict[str, Bool],
) -> Look:
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
        how = "" if board.run.subject.release.alone else "exact probabilities and again on "
        said = (*said, f"every attack was run on {how}the declared release")
    said = (*said, board.run.once(pools.asked_beside)[0].said)
    said = (*said, board.pool.drawn) if board.pool.fit else said
    if board.later and str(request.option("attack", "any")) == "any":
        said = (*said, "attacks that train models of their own are left to later looks")
    hidden = board.pool.hidden
    if hidden:
        n = board.run.subject.data.n  # a share of a known number is a count
        few = Count(round(hidden * n), n)
        said = (*said, f"{few} of {n} members, copies of whom are among the candidates, count as found")
    if missing:
        said = (*said, "did not run, so that no upper limit exists: " + ", ".join(a.attack.name for a in missing))
    high = max(f[2].high for f in found)
    # in one class or group all of them may be hidden
    high += (1.0 if hidden and len(where) > 1 else hidden) * (1 - high)
    found_ = Measurement(
        request,
        value=worst.value,
        low=max(f[2].low for f in found),
        high=1.0 if missing else high,
        unit="fraction",
        kind="confidence",
        confidence=float(request.option("confidence", 0.95)),
        n=len(board.members),
        population=int(board.pool.unit.max()) + 1 if board.pool.fit else len(board.members),
        where=f"{name}, {shown}" if shown else name,
        assumptions=said,
        behind=behind,
    )
    return Look(len(board.signals.shadow), found_, high)


# What the report shows: figures with limits, curves, false alarms; small cells are suppressed.

#: false-positive rates that the report tries
RATES = (0.1, 0.01, 0.001)
#: runs with labels that mean nothing, which measure how often the limits alarm without cause
NULL_RUNS = 200


@dataclass
class Shown:
    """What was noted of the attacks of one run; an attack is noted once.

    Parameters
    ----------
    attacks : dict name -> AttackResult
    null_runs : NullRuns or None
        Of the largest set of attacks that were searched together.
    """

    attacks: dict[str, AttackResult] = field(default_factory=dict)
    null_runs: NullRuns | None = None


def shown(run: Run) -> Shown:
    """Return where a run's attacks are noted."""
    del run
    return Shown()


def note_attempts(board: Board, attempts: list[Attempt], confidence: float) -> None:
    """Note all attacks that were tried, each once, those that did not run by name."""
    noted = board.run.once(shown)
    for attempt in attempts:
        if attempt.attack.name not in noted.attacks:
            noted.attacks[attempt.attack.name] = result(board, attempt, 1 - confidence)
    ran = [a for a in attempts if not a.problem]
    if ran and (noted.null_runs is None or noted.null_runs.attacks < len(ran)):
        noted.null_runs = null_runs(board, ran, confidence)


def part(run: Run, against_pdtp: AgainstPdtp | None = None) -> MembershipPart | None:
    """Return what the second question found out beside its numbers; None where no attack was tried."""
    if not run.made(shown) and against_pdtp is None:
        return None
    noted = run.once(shown)
    return MembershipPart(attacks=tuple(noted.attacks.values()), null_runs=noted.null_runs, against_pdtp=against_pdtp)


def result(board: Board, attempt: Attempt, alpha: float) -> AttackResult:
    """Return one attack for the report."""
    attack = attempt.attack
    return AttackResult(
        name=attack.name,
        title=attack.title,
        threat_model=attack.threat_model,
        source=attack.source,
        self_test=attempt.test,
        problem=attempt.problem,
        figures=None if attempt.problem else _figures(board, attempt, alpha),
    )


def _figures(board: Board, attempt: Attempt, alpha: float) -> AttackFigures:
    scores, members = attempt.scores, board.members
    fixed = board.decisions(attempt, np.ones(len(members), dtype=bool))[0]
    accuracy = limits.balanced_accuracy(fixed, low_alpha=alpha / 2, high_alpha=alpha / 2)
    return AttackFigures(
        auc=roc.auc(scores, members),
        auc_error=roc.auc_error(scores, members),
        accuracy=Estimate(value=accuracy.value, low=accuracy.low, high=accuracy.high),
        advantage=fixed.advantage,
        precision=fixed.precision,
        recall=fixed.recall,
        tpr_at_fpr=tuple(_rate(board, attempt, fpr, alpha) for fpr in RATES),
        roc=tuple((a, b) for a, b in roc.thinned_roc(scores, members)),
        classes=shown_cells(board, attempt, "class", alpha),
        groups=shown_cells(board, attempt, "group", alpha) if board.run.subject.data.sensitive else (),
        seconds=round(attempt.seconds, 3),
    )


def _rate(board: Board, attempt: Attempt, fpr: float, alpha: float) -> RateAtFpr:
    """Return TPR at one FPR with limits, or why the sample cannot resolve it."""
    try:
        got = limits.tpr_limits(board.ranks(attempt), board.members, fpr=fpr, low_alpha=alpha, high_alpha=alpha)
    except MeasurementError as exc:
        return RateAtFpr(fpr=fpr, value=None, problem=str(exc))
    return RateAtFpr(fpr=fpr, value=got.value, low=got.low, high=got.high)


def shown_cells(board: Board, attempt: Attempt, scope: str, alpha: float) -> tuple[CellAccuracy, ...]:
    """Return accuracy in every class or group that is large enough to be shown."""
    try:
        where = cells(board, scope, None)
    except MeasurementError:
        return ()
    out = []
    for name, who in where.items():
        inside, outside = int((who & board.members).sum()), int((who & ~board.members).sum())
        if min(inside, outside) < SMALL_CELL:
            continue
        got = limits.balanced_accuracy(board.decisions(attempt, who)[0], low_alpha=alpha / 2, high_alpha=alpha / 2)
        out.append(
            CellAccuracy(name=name, value=got.value, low=got.low, high=got.high, members=inside, candidates=outside)
        )
    return tuple(out)


def null_runs(board: Board, ran: list[Attempt], confidence: float) -> NullRuns:
    """Return how often the lower limit rises above guessing when candidates are called members at random.

    All candidates were outside the training set, so any alarm among them is false; the same scores, thresholds, limits
    and correction are used as for the verdict.
    """
    rng = board.run.generator("null runs")
    outside = np.flatnonzero(~board.members)
    scores = np.stack([a.scores[outside] for a in ran])
    fixed = scores >= np.array([[a.threshold] for a in ran])
    alpha, found = 1 - confidence, []
    for _ in range(NULL_RUNS):
        order = rng.permutation(len(outside))
        called = np.zeros(len(outside), dtype=bool)
        called[order[: len(outside) // 2]] = True
        half = np.zeros(len(outside), dtype=bool)
        half[order[::2]] = True
        counts = [Decisions.of(f, called) for f in fixed]
        for s in scores:
            at = roc.best_threshold(s[half], called[half])
            counts.append(Decisions.of(s[~half] >= at, called[~half]))
        found.append([(d.tp, d.fn, d.tn, d.fp) for d in counts])
    alarms = int((lower_limits(np.array(found), alpha / len(found[0])) > 0.5).any(axis=1).sum())
    low, high = (float(limit(alarms, NULL_RUNS, alpha=0.025)) for limit in (lower_limit, upper_limit))
    return NullRuns(attacks=len(ran), runs=NULL_RUNS, alarms=alarms, nominal=alpha, low=low, high=high)


def lower_limits(counts: NDArray[np.int64], alpha: float) -> Float:
    """Return lower limits of balanced accuracies from counts (..., tp, fn, tn, fp): thousands at once, to be shown.

    The kernel's, by which is judged, are taken one after another, which took longer than the attacks.
    """
    from scipy.stats import beta

    right, wrong = counts[..., ::2], counts[..., 1::2]
    return np.asarray(np.where(right > 0, beta.ppf(alpha / 2, right, wrong + 1), 0.0).mean(axis=-1))
