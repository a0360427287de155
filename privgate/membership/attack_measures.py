"""What attacks achieve, with limits: accuracy, advantage, and members found; and what the report shows of them."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from privgate import evidence
from privgate.arrays import Bool
from privgate.errors import MeasurementError
from privgate.evidence import BehindMembership, Estimate, Measurement, MembershipPart, Request
from privgate.evidence.telling import SMALL_CELL
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.membership import board as boards
from privgate.membership import limits, trial_sets
from privgate.membership.board import Attempt, Board, cells
from privgate.membership.limits import Figure, Interval
from privgate.run import pool as pools
from privgate.run.run import Run
from privgate.statistics import roc
from privgate.statistics.roc import APPROVING, LOOKS, Decisions

ASSUMPTIONS = (
    "candidates come from the same population as the training records (looked for in features and labels)",
    "nobody picked the candidates by what the model answers about them, which their features need not show",
    "shadow models saw random halves of the trials, drawn without regard to who was in the training set",
    "trials are the people of this pool against this one model; a model trained on other people is another question",
    "the limits are about the attacks that were run, not about every attack",
)


def measure_figure(run: Run, request: Request, figure: Figure) -> Measurement:
    """Return what an attack, or the best of all that apply, achieves against the subject's model.

    ``low`` and ``high`` each err with probability at most 1 - confidence: ``low`` over everything that was searched
    (attacks x thresholds x classes or groups, by Holm's first step), ``high`` as an intersection-union test. Two
    adversaries try each: one whose threshold paper or shadow models fix, and one who learned the best on a random half
    of the trials and is tried on the other. ``MeasurementError``: too few people or shadow models, or none ran.
    """
    alpha = 1 - float(request.option("confidence", 0.95))
    if request.option("level") is None:
        measured = look_once(run.compute(boards.make_board), request, figure, low_alpha=alpha, high_alpha=alpha).shown
    else:  # whether a rule is settled, its policy has told the run
        measured = join_looks(run.compute(look_in_turn)[request])
    board = run.compute(boards.make_board)
    note_attempts(board, board.wanted(str(request.option("attack", "any"))), 1 - alpha)
    return measured


accuracy, advantage, members_found = (partial(measure_figure, figure=figure) for figure in Figure)


class Look(NamedTuple):
    """What so many shadow models showed: a measurement, and its upper limit less what attacks that did not run add."""

    models: int
    shown: Measurement
    high: float


Looks = list[Look | MeasurementError]


def look_first(run: Run) -> bool:
    """Return whether the first look breaks a rule on attacks: as few shadow models as a refusal may rest on."""
    return bool(run.attacked) and not run.at_once and next(run.compute(plan_looks)[1], False)


def look_in_turn(run: Run) -> dict[Request, Looks]:
    """Return what each look showed, by request; the last is where a rule is broken, none is open, or all are trained.

    It is also the last where most trainings of a step fail; where people refuse, the first look is the last.
    """
    shown, looks = run.compute(plan_looks)
    for _ in () if run.refused else looks:
        pass
    return shown


def count_approving(run: Run) -> int:
    """Return how many shadow models the first look takes that may approve; all where a rule names no level."""
    most = run.limits.shadow_models
    return most if run.at_once or not run.attacked else min(most, *APPROVING)


def limit_guess(run: Run, request: Request) -> float | None:
    """Return the upper limit that one attack has which only guesses, of as many trials; None where they are too few."""
    try:
        pool = run.compute(pools.of_attacks)
        first = np.flatnonzero(pool.trial)[np.unique(pool.person[pool.trial], return_index=True)[1]]
        sets = trial_sets.find_sets(pool, first)
        first = first[sets.get(trial_sets.RARE, sets[trial_sets.EVERYBODY])]  # its limits are the wider ones
        members, ranks = pool.members[first], np.empty(len(first))  # both sides spread evenly over all ranks
        for side in (members, ~members):
            ranks[side] = np.linspace(0, 1, side.sum(), endpoint=False)
        alpha = (1 - float(request.option("confidence"))) / len(APPROVING)
        if run.attacked[request][0] == Figure.MEMBERS_FOUND:
            fpr = float(request.option("at_fpr"))
            return limits.tpr_limits(ranks, members, fpr=fpr, low_alpha=alpha, high_alpha=alpha).high
        half = np.arange(len(first)) % 2 == 0  # the threshold is learned on the others
        guess = Decisions.from_flags(ranks[half] >= 0.5, members[half])
        limited = limits.balanced_accuracy(guess, low_alpha=alpha, high_alpha=alpha)
        return (limits.as_advantage(limited) if run.attacked[request][0] == Figure.ADVANTAGE else limited).high
    except MeasurementError:
        return None


def plan_looks(run: Run) -> tuple[dict[Request, Looks], Iterator[bool]]:
    """Return where looks are noted, and what takes the next one and says whether a rule is broken."""
    shown: dict[Request, Looks] = {request: [] for request in run.attacked}
    return shown, _take_looks(run, shown)


def _take_looks(run: Run, shown: dict[Request, Looks]) -> Iterator[bool]:
    try:
        for board in boards.grow_boards(run):
            states = {_look(board, request, run.attacked[request], looks) for request, looks in shown.items()}
            yield "broken" in states
            ended = not run.at_once and ("broken" in states or "" not in states)
            if ended or len(board.signals.shadow) >= max(LOOKS):
                break
    except MeasurementError as exc:
        for looks in shown.values():
            looks.append(exc)


def _look(board: Board, request: Request, rule: tuple[str, Callable[[Measurement], str]], looks: Looks) -> str:
    (figure, settle), count = rule, len(board.signals.shadow)
    alpha, spent = 1 - float(request.option("confidence")), LOOKS[max(k for k in LOOKS if k <= count)]
    levels = {"low_alpha": alpha * spent, "high_alpha": alpha / len(APPROVING)}
    try:
        looks.append(look_once(board, request, Figure(figure), **levels))
        return settle(join_looks(looks))
    except MeasurementError as exc:  # an attack may need more shadow models than these
        looks.append(exc)
        return ""


def join_looks(looks: Looks) -> Measurement:
    """Return what attacks achieve, with limits over all looks; see section 9.2 of docs/mathematics.md.

    Both limits are the largest of all looks. Before the last look that the plan knows, what the last doubling of shadow
    models added to the figure is added once more; where nothing shows that, or shadow models are too few or could not
    be trained, the upper limit is 1. ``MeasurementError`` where the last look showed nothing.
    """
    last, before = looks[-1], looks[-2] if len(looks) > 1 else None
    if isinstance(last, MeasurementError):
        raise last
    ran = [look for look in looks if isinstance(look, Look)]
    best = max((look.shown for look in ran), key=lambda m: float(np.nan_to_num(m.value, nan=-1.0)))
    behind, added = BehindMembership.read(last.shown.behind), 0.0
    if last.models < max(LOOKS):
        added = last.shown.value - before.shown.value if isinstance(before, Look) else 1.0
        added = 0.0 if added <= 0 else added  # NaN stays
    high = float(np.max([last.shown.high, *(look.high for look in ran)])) + added
    if last.models < min(APPROVING) or behind.shadow_models < last.models or not high < 1:
        high = 1.0
    said = f"looks at {', '.join(str(look.models) for look in ran)} shadow models; limits hold over all looks together"
    if added and high < 1:
        said += f", and the upper one counts twice what the last doubling of their number added ({added:.2g})"
    behind = behind.model_copy(
        update={"searched": sum(BehindMembership.read(x.shown.behind).searched or 0 for x in ran)}
    )
    return replace(
        last.shown, value=best.value, where=best.where, low=max(look.shown.low for look in ran), high=high,
        assumptions=(*last.shown.assumptions, said), behind=behind,
    )  # fmt: skip


def look_once(board: Board, request: Request, figure: Figure, *, low_alpha: float, high_alpha: float) -> Look:
    """Return what attacks achieve with the shadow models of a board; who did not run keeps the upper limit at 1."""
    attempts = board.wanted(str(request.option("attack", "any")))
    where = cells(board, str(request.option("scope", "model")), request.option("group"))
    if not where:
        raise MeasurementError("no class or group holds a training record")
    ran, missing = [a for a in attempts if not a.problem], {a.attack.name: a.problem for a in attempts if a.problem}
    every = trial_sets.find_sets(*board.people_at)
    sets = {(cell, some): who & among for cell, who in where.items() for some, among in every.items()}
    # where nobody of a class or group has a rare record, nobody is to be looked at apart
    sets = {k: who for k, who in sets.items() if k[1] == trial_sets.EVERYBODY or who.any()}
    low_alpha /= max(1, len(sets) * len(ran) * (1 if figure is Figure.MEMBERS_FOUND else 2))
    alphas = {"low_alpha": low_alpha, "high_alpha": high_alpha, "copies": board.copies}
    intervals = {
        (attempt.attack.name, cell, some, k): got
        for attempt in ran
        for (cell, some), who in sets.items()
        for k, got in enumerate(_limit_among(board, attempt, (some, who), request, figure, **alphas))
    }
    (name, cell, some, _), worst = trial_sets.join_sets(intervals)
    sides = board.members, ~board.members
    small = {c for c, who in where.items() if len(where) > 1 and min((who & side).sum() for side in sides) < SMALL_CELL}
    shown = "a class or group too small to name" if cell in small else cell
    level = {**alphas, "low_alpha": low_alpha / (2 if figure is Figure.MEMBERS_FOUND else 1)}
    tells = any(
        one.low > 0.5
        for attempt in ran
        for (_, some), who in sets.items()
        if some == trial_sets.ALONE
        for one in limit_figure(board, attempt, who, request, Figure.ACCURACY, **level)
    )
    high = 1.0 if tells else worst.high
    behind = BehindMembership(
        searched=len(intervals), cells=len(where), cells_too_small_to_show=len(small), did_not_run=missing,
        removed_candidates=dict(board.pool.removed), members=int(sides[0].sum()), candidates=int(sides[1].sum()),
        shadow_models=board.trained,
    )  # fmt: skip
    measured = Measurement(
        request, worst.value, worst.low, 1.0 if missing else high, "fraction", "confidence",
        float(request.option("confidence", 0.95)), n=len(board.members),
        population=int(board.pool.person.max()) + 1 if board.pool.fit else len(board.members),
        where=", ".join(filter(None, (name, shown, some))),
        assumptions=_list_assumptions(board, tuple(missing), every=request.option("attack", "any") == "any"),
        behind=behind,
    )  # fmt: skip
    return Look(len(board.signals.shadow), measured, high)


def _list_assumptions(board: Board, missing: tuple[str, ...], *, every: bool) -> tuple[str, ...]:
    release, pool = board.run.subject.release, board.pool
    exact = "" if release.alone else "exact probabilities and again on "
    coarse = "" if release.exact else f"every attack was run on {exact}the declared release"
    if release.noise is not None:
        coarse = (
            f"one answer a record, with {type(release.noise).__name__} noise of scale {release.noise.scale:g} on it"
        )
    copies = f"up to {pool.copies:.0%} of the candidates may be people stored once more" if pool.copies else ""
    said = (
        coarse,
        board.run.compute(pools.ask_near_trials)[0].sentence,
        trial_sets.describe_sets(*board.people_at),
        pool.drawn if pool.fit else "",
        "attacks that train models of their own are left to later looks" if board.later and every else "",
        copies,
        "did not run, so that no upper limit exists: " + ", ".join(missing) if missing else "",
    )
    return (*ASSUMPTIONS, *filter(None, said))


def _limit_among(
    board: Board, attempt: Attempt, among: tuple[str, Bool], request: Request, figure: Figure, **alphas: float
) -> list[Interval]:
    """Return limits on some of a class's or group's people; open where those are too few to say anything."""
    some, who = among
    try:
        return limit_figure(board, attempt, who, request, figure, **alphas)
    except MeasurementError:
        if some == trial_sets.EVERYBODY:
            raise
        return [Interval(np.nan, -1.0, 1.0)]


def limit_figure(
    board: Board, attempt: Attempt, who: Bool, request: Request, figure: Figure, **alphas: float
) -> list[Interval]:
    """Return the limits of each adversary who tries an attack on some people.

    Means over several records vary less than single records do, and tell members by that alone. So where members have
    several and candidates one, what is sure and what is likeliest is what one record of each shows.
    """
    if attempt.alone is not None:
        of_one, of_all = (
            limit_figure(board, a, who, request, figure, **alphas)
            for a in (attempt.alone, replace(attempt, alone=None))
        )
        return [replace(a, high=max(a.high, b.high)) for a, b in zip(of_one, of_all, strict=True)]
    if figure is Figure.MEMBERS_FOUND:
        fpr, ranks = float(request.option("at_fpr")), board.ranks(attempt)[who]
        return [limits.tpr_limits(ranks, board.members[who], fpr=fpr, **alphas)]
    limited = [limits.balanced_accuracy(d, **alphas) for d in board.decisions(attempt, who)]
    return [limits.as_advantage(one) for one in limited] if figure is Figure.ADVANTAGE else limited


def measure_gap(run: Run, request: Request) -> Measurement:
    """Return the error rate on candidates less that on training records (Yeom et al., 2020, Definition 3), a fraction.

    The training error is known exactly; limits are Clopper-Pearson's of the population's, estimated from candidates.
    Records that somebody else's equals are left out on both sides.
    """
    answers, pool = boards.target_answers(run), pools.build_pool(run.subject.data)  # everybody, not only trials
    wrong, alpha = answers.argmax(axis=1) != pool.labels, 1 - float(request.option("confidence"))
    inside, outside = wrong[pool.alone & pool.members], wrong[pool.alone & ~pool.members]
    if not len(inside) or not len(outside):
        raise MeasurementError("no training record, or no candidate, is left that equals nobody else's")
    low, high = (float(f(outside.sum(), len(outside), alpha=alpha)) for f in (lower_limit, upper_limit))
    train, count = float(inside.mean()), len(inside) + len(outside)
    return Measurement(
        request, float(outside.mean()) - train, low - train, np.inf if pool.copies else high - train, "fraction",
        "confidence", 1 - alpha, n=count, population=count, assumptions=ASSUMPTIONS[:1],
        behind=BehindMembership(removed_candidates=dict(pool.removed)),
    )  # fmt: skip


# What the report shows: figures with limits, and curves.

#: false-positive rates that the report tries
RATES = (0.1, 0.01, 0.001)


def note_attempts(board: Board, attempts: list[Attempt], confidence: float) -> None:
    """Note all attacks that were tried, each once, those that did not run by name."""
    attacks = {a.name: a for a in board.run.notes.get("membership", MembershipPart()).attacks}
    for attempt in attempts:
        if (attack := attempt.attack).name not in attacks:
            attacks[attack.name] = evidence.AttackResult(
                name=attack.name, title=attack.title, threat_model=attack.threat_model, source=attack.source,
                self_test=attempt.test, problem=attempt.problem,
                figures=None if attempt.problem else _compute_figures(board, attempt, 1 - confidence),
            )  # fmt: skip
    board.run.notes["membership"] = MembershipPart(attacks=tuple(attacks.values()))


def _compute_figures(board: Board, attempt: Attempt, alpha: float) -> evidence.AttackFigures:
    scores, members = attempt.scores, board.members
    fixed = board.decisions(attempt, np.ones(len(members), dtype=bool))[0]
    accuracy = limits.balanced_accuracy(fixed, low_alpha=alpha / 2, high_alpha=alpha / 2)
    return evidence.AttackFigures(
        auc=roc.auc(scores, members), accuracy=Estimate(**asdict(accuracy)),
        tpr_at_fpr=tuple(_estimate_rate(board, attempt, fpr, alpha) for fpr in RATES),
        roc=evidence.thin([*zip(*(rate.tolist() for rate in roc.roc(scores, members)[:2]), strict=True)]),
    )  # fmt: skip


def _estimate_rate(board: Board, attempt: Attempt, fpr: float, alpha: float) -> evidence.RateAtFpr:
    try:
        got = limits.tpr_limits(board.ranks(attempt), board.members, fpr=fpr, low_alpha=alpha, high_alpha=alpha)
    except MeasurementError as exc:
        return evidence.RateAtFpr(fpr=fpr, value=None, problem=str(exc))
    return evidence.RateAtFpr(fpr=fpr, **asdict(got))
