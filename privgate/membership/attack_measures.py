"""What attacks achieve, with limits: accuracy, advantage, members found, and the gap between losses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError
from privgate.evidence import BehindMembership, Count, Measurement, Request
from privgate.evidence.telling import SMALL_CELL
from privgate.families.retrained import Shadows, Status
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.membership import attack_figures, limits
from privgate.membership import board as boards
from privgate.membership.board import Attempt, Board, cells
from privgate.membership.limits import Figure, Interval
from privgate.run import pool as pools
from privgate.run.pool import AttackPool
from privgate.run.run import Run
from privgate.statistics.roc import APPROVING, LOOKS, least_nonmembers

# Scope ``record``: independent target models, so that every single record has trials of its own.


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


# What attacks achieve, with limits: accuracy, advantage, and members found at a low rate of false accusations.

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
        return measure(run, request, figure)
    alpha = 1 - float(request.option("confidence", 0.95))
    if request.option("level") is None:
        found = one_look(run.once(boards.run), request, figure, low_alpha=alpha, high_alpha=alpha).shown
    elif request in run.attacked:
        found = over_looks(run.once(looked)[request])
    else:
        raise MeasurementError("whether a rule that names a level is settled is asked of its policy, and there is none")
    board = run.once(boards.run)
    attack_figures.note(board, board.wanted(str(request.option("attack", "any"))), 1 - alpha)
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
        said = (*said, "every attack was run on exact probabilities and again on the declared release")
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


# The metric ``generalization_gap``: mean loss on candidates less mean loss on training records.


def measure_gap(run: Run, request: Request) -> Measurement:
    """Return R_gen of the subject's model, over all records or in the worst class or group.

    The training loss is known exactly (every training record is evaluated); the limits are those of the population's
    loss, estimated from candidates: Clopper-Pearson for ``zero_one``, Student for ``cross_entropy``. Records that
    somebody else's equals are left out on both sides, for the reason that ``Pool.trial`` gives.

    References
    ----------
    Yeom et al. (2020), Definition 3 and Theorem 2.

    Raises
    ------
    MeasurementError
        No candidates, or an infinite loss on both sides.
    """
    where = {}
    answers = boards.target_answers(run)
    p = pools.of(run.subject.data)  # everybody, whom attacks need not all be tried on
    loss = losses(answers, p.labels, str(request.option("loss", "zero_one")))
    scope = str(request.option("scope", "model"))
    if scope == "model":
        where[""] = np.ones(len(loss), dtype=bool)
    elif scope == "class":
        where = {f"label {c}": p.labels == k for k, c in enumerate(run.subject.classes)}
    elif scope == "group":
        for name, values in pools.groups(run.subject.data, request.option("group")).items():
            where |= {f"{name} = {v}": values == v for v in np.unique(values)}
    else:
        raise MeasurementError(f"unknown scope {scope!r} for a generalization gap; known: model, class, group")
    where = {name: who & p.trial for name, who in where.items() if (who & p.trial & p.members).any()}
    if not where:
        raise MeasurementError("no class or group holds a training record that could be compared")
    alpha = 1 - float(request.option("confidence", 0.95))
    zero_one = request.option("loss", "zero_one") == "zero_one"
    found = {
        name: gap(
            loss[who & p.members],
            loss[who & ~p.members],
            zero_one=zero_one,
            low_alpha=alpha / len(where),
            high_alpha=alpha,
        )
        for name, who in where.items()
    }
    worst = max(found, key=lambda k: np.nan_to_num(found[k].value, nan=-np.inf))
    return Measurement(
        request,
        value=found[worst].value,
        low=max(g.low for g in found.values()),
        high=max(g.high for g in found.values()),
        unit="fraction" if zero_one else "nats",
        kind="confidence",
        confidence=1 - alpha,
        n=int(p.trial.sum()),
        population=int(p.trial.sum()),
        where=worst if len(where) == 1 or (where[worst] & ~p.members).sum() >= 10 else "a cell too small to name",
        assumptions=(
            "candidates come from the same population as the training records",
            *(() if zero_one else ("the mean loss on candidates is roughly normal",)),
        ),
        behind=BehindMembership(
            training_loss=float(loss[p.members & p.trial].mean()), removed_candidates=dict(p.removed)
        ),
    )


def losses(log_p: Float, labels: NDArray[np.int64], kind: str) -> Float:
    """Return the loss of every pool record, shape (P,): 0 or 1, or nats."""
    if kind == "zero_one":
        return np.asarray(log_p.argmax(axis=1) != labels, dtype=np.float64)
    if kind == "cross_entropy":
        return np.asarray(-log_p[np.arange(len(labels)), labels], dtype=np.float64)
    raise MeasurementError(f"unknown loss {kind!r}; known: zero_one, cross_entropy")


def gap(inside: Float, outside: Float, *, zero_one: bool, low_alpha: float, high_alpha: float) -> Interval:
    """Return mean loss outside less mean loss inside, with limits of the population's; nothing outside: no limits."""
    training = float(inside.mean())
    n = len(outside)
    if np.isinf(training):
        raise MeasurementError("the model gives a training record probability 0: its cross-entropy has no value")
    if zero_one:
        wrong = int(outside.sum())
        share = wrong / n if n else float("nan")
        low, high = lower_limit(wrong, n, alpha=low_alpha), upper_limit(wrong, n, alpha=high_alpha)
        return Interval(share - training, float(low) - training, float(high) - training)
    if n < 2:
        return Interval(float("nan"), -np.inf, np.inf)
    from scipy.special import stdtrit

    mean = float(outside.mean())
    if np.isinf(mean):
        return Interval(np.inf, np.inf, np.inf)
    step = float(outside.std(ddof=1)) / np.sqrt(n)
    low = mean - stdtrit(n - 1, 1 - low_alpha) * step
    return Interval(
        mean - training, float(low) - training, float(mean + stdtrit(n - 1, 1 - high_alpha) * step) - training
    )
