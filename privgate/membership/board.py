"""What every attack scores against the subject's model: signals, self-tests, thresholds fixed before the trials."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from operator import itemgetter
from typing import cast

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.errors import MeasurementError
from privgate.evidence import SelfTest
from privgate.membership import attacks, limits, numbers
from privgate.membership.attacks.attack_base import Attack, Signals
from privgate.membership.attacks.observed import own_log
from privgate.membership.attacks.on_release import OnRelease
from privgate.membership.attacks.self_test import self_test
from privgate.run import beside
from privgate.run import pool as pools
from privgate.run.pool import AttackPool, train
from privgate.run.run import Run
from privgate.statistics.roc import APPROVING, LOOKS, Decisions, best_threshold
from privgate.subject.release import Laplace

#: shadow models that stand in for the target when a threshold is learned from shadow models alone
STAND_INS = 4


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attack on the subject's model.

    Parameters
    ----------
    attack : Attack
    scores : float64 array of shape (U,)
        One a person of the board; empty where the attack did not run.
    threshold : float
        "member" is said at or above it; fixed by the paper or by shadow models, never by the trials.
    learned : float
        Threshold that was best on the half of the trials that the board calls ``known``.
    test : SelfTest
    problem : str
        Why it did not run; empty if it did.
    seconds : float
    alone : Attempt, optional
        The same attack on one record of each person, where members have several and candidates have one.
    """

    attack: Attack
    scores: Float
    threshold: float
    learned: float
    test: SelfTest
    problem: str = ""
    seconds: float = 0.0
    alone: "Attempt | None" = None


@dataclass(eq=False)
class Board:
    """The board of all trials: one a person, member or candidate.

    Parameters
    ----------
    signals : Signals
        On the trials of the pool only.
    pool : Pool
    rows : int64 array of shape (E,)
        The trials among the rows of the pool, in the order of ``signals``.
    members, labels : arrays of shape (U,)
        Ground truth and class position of each person (of the ``first`` record, where a person has several).
    first : int64 array of shape (U,)
        Which of ``rows`` stands for each person, drawn at random: it is attacked alone, with its label and groups.
    known : bool array of shape (U,)
        A random half of either side, fixed before looking: there a threshold may be chosen, on the rest it is tried.
    """

    signals: Signals
    pool: AttackPool
    rows: Index
    members: Bool
    labels: Index
    first: Index
    known: Bool
    run: Run
    attempts: dict[str, Attempt] = field(default_factory=dict)

    def attempt(self, attack: Attack) -> Attempt:
        """Return what an attack scored; it runs once."""
        if attack.name not in self.attempts:
            self.attempts[attack.name] = _attempt(self, attack)
        return self.attempts[attack.name]

    def wanted(self, name: str) -> list[Attempt]:
        """Return the attempt of one attack, or with ``"any"`` of all; on a declared release in addition.

        A model that gives labels only (0 and 1) is attacked by all of them too: an attack that compares with shadow
        models finds more in labels than the label-only gap attack does.

        Raises
        ------
        MeasurementError
            The attack is unknown or did not run; with ``"any"``: none ran.
        """
        known = {a.name: a for a in self.catalogue}
        if name != "any":
            if name not in known:
                raise MeasurementError(
                    f"no attack on this kind of model is called {name!r}; known: any, {', '.join(known)}"
                )
            one = self.attempt(known[name])
            if one.problem:
                raise MeasurementError(f"the attack {name!r} did not run: {one.problem}")
            return [*([] if self.run.subject.release.alone else [one]), *self._on_release((one.attack,))]
        later = self.later
        some = tuple(a for a in self.catalogue if a not in later)
        exact = () if self.run.subject.release.alone else some
        made = [self.attempt(a) for a in exact] + self._on_release(some)
        if all(a.problem for a in made):
            raise MeasurementError("no attack ran: " + "; ".join(f"{a.attack.name}: {a.problem}" for a in made))
        return made

    def _on_release(self, of: tuple[Attack, ...]) -> list[Attempt]:
        release = self.run.subject.release
        if release.noise is not None:
            return []  # the signals are the noisy answers
        return [] if release.exact else [self.attempt(OnRelease(a, release)) for a in of]

    @property
    def catalogue(self) -> tuple[Attack, ...]:
        """The attacks on this kind of model; without those that ask beside records alone, where nothing can be."""
        known = numbers.ALL if self.run.subject.task == "regression" else attacks.ALL
        return tuple(a for a in known if self.signals.beside is not None or a.asks != "beside")

    @property
    def later(self) -> tuple[Attack, ...]:
        """Attacks that train a model of their own, where further looks will follow before one can approve."""
        asked, count = self.run, len(self.signals.shadow)
        last = max((k for k in LOOKS if k <= asked.limits.shadow_models), default=min(LOOKS))
        early = asked.attacked and not asked.at_once and count < min(*APPROVING, last)
        return tuple(a for a in self.catalogue if early and a.trains)

    def people(self, scores: Float) -> Float:
        """Return one score a person: the mean over the person's records."""
        place = np.searchsorted(self.units, self.pool.unit[self.rows])
        total = np.bincount(place, scores, len(self.units))
        return np.asarray(total / np.bincount(place, minlength=len(self.units)), dtype=np.float64)

    def ranks(self, attempt: Attempt) -> Float:
        """Return an attempt's scores as ranks without ties, shape (U,): what is held to a false-positive rate."""
        return limits.untied(attempt.scores, self.run.generator(f"ties of {attempt.attack.name}"))

    @property
    def units(self) -> Index:
        """Number of each person in the pool, ascending, shape (U,)."""
        return self.pool.unit[self.rows[self.first]]

    def decisions(self, attempt: Attempt, among: Bool) -> list[Decisions]:
        """Return counts of both adversaries on the people ``among``: threshold fixed, and learned on the other half."""
        rest = among & ~self.known
        return [
            Decisions.of(attempt.scores[among] >= attempt.threshold, self.members[among]),
            Decisions.of(attempt.scores[rest] >= attempt.learned, self.members[rest]),
        ]


@cache
def tested(name: str) -> SelfTest:
    """Return the self-test of a catalogued attack; it is always the same one."""
    if name in numbers.BY_NAME:
        return numbers.self_test(numbers.BY_NAME[name])
    return self_test(attacks.BY_NAME[name])


def growing(one: Run) -> Iterator[Board]:
    """Yield the board at each look; whoever asks the run for its board or shadow models later has the last ones."""
    before: dict[str, Attempt] = {}
    for made in pools.growing(one):
        one.keep(train, made)
        board = run(one)
        board.attempts = before
        one.keep(run, board)
        yield board
        # what learned from as many answers as it ever does, of enough models, would be trained again for nothing
        before, answers = {}, board.signals.shadow_members
        if len(answers) >= min(APPROVING):
            full = (a for a in board.attempts.values() if 0 < a.attack.rows <= answers.size)
            before = {a.attack.name: a for a in full if not a.problem}


def run(run: Run) -> Board:
    """Return the board of a subject's trials; attacks run when they are asked for."""
    pool = run.once(pools.of_run)
    rows = np.flatnonzero(pool.trial)
    beside_target = run.once(pools.asked_beside)[2]
    target, shadows = target_answers(run)[rows], run.once(train)
    features = pools.features(run.subject.data, rows)
    labels, members = pool.labels[rows], pool.members[rows]
    answers, beside_shadow = shadows.log_p, shadows.beside
    if run.subject.task == "regression":
        target, answers = (residuals(run, rows, a) for a in (target, answers))
        beside_target = residuals(run, rows, beside_target, beside=True)
        beside_shadow = None if beside_shadow is None else residuals(run, rows, beside_shadow, beside=True)
        loss = float(np.sqrt((target[members, 0] ** 2).mean()))
    else:
        loss = float(-own_log(target, labels)[members].mean())
    signals = Signals(
        target=target,
        labels=labels,
        shadow=answers,
        shadow_members=shadows.masks[:, rows],
        members=members,
        features=features,
        training_loss=loss,
        beside=None if beside_shadow is None else beside_target,
        shadow_beside=beside_shadow,
    )
    order = run.generator("one record of each").permutation(len(rows))
    first = order[np.unique(pool.unit[rows[order]], return_index=True)[1]]
    rng = run.generator("half of the trials")
    known = np.zeros(len(first), dtype=bool)
    for side in (True, False):
        people = rng.permutation(np.flatnonzero(members[first] == side))
        known[people[: len(people) // 2]] = True
    return Board(signals, pool, rows, members[first], labels[first], first, known, run)


def target_answers(run: Run) -> Float:
    """Return the model's log-probabilities on the whole pool: the stored model's, or those of the recipe's own fit.

    Raises
    ------
    MeasurementError
        The model could not be opened or trained, or gave NaN.
    """
    if run.made(pools.asked_beside):
        log_p = run.once(pools.asked_beside)[1]
    else:
        answer = beside.ask(run, run.subject, np.arange(len(run.once(pools.of_run).labels), dtype=np.int64))
        if answer.problem:
            raise MeasurementError(f"the model under attack gave no answer: {answer.problem}")
        log_p = answer.log_p
    if run.subject.task == "classification" and log_p.shape[1] < 2:
        raise MeasurementError("the training set holds one class only; a model's answers tell nobody apart")
    return log_p


def residuals(run: Run, rows: Index, answers: Float, *, beside: bool = False) -> Float:
    """Return targets less a regressor's answers on pool rows, in deviations of the training targets; shape of answers.

    Where the endpoint adds noise, whoever asks sees it, and draws the same kind for the models that he trains himself.
    """
    (mean, deviation), noise = run.subject.scale, run.subject.release.noise
    y = run.subject.data.pool_labels[rows].astype(np.float64)
    found = ((y - mean) / deviation).reshape(-1, *[1] * (1 + beside)) - answers
    if noise is not None:
        draw = run.generator(f"noise on {answers.shape}")
        kind = draw.laplace if isinstance(noise, Laplace) else draw.normal
        found = found - kind(0.0, noise.scale / deviation, found.shape)
    return np.asarray(found, dtype=np.float64)


def _attempt(board: Board, attack: Attack) -> Attempt:
    """Run one attack: its self-test, its scores on the target, and its two thresholds."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # on tables this small, threads wait for each other longer than they work
        return _attempted(board, attack)


def _attempted(board: Board, attack: Attack) -> Attempt:
    started = time.perf_counter()
    nothing = np.zeros(0)
    test = tested(attack.base.name if isinstance(attack, OnRelease) else attack.name)
    if test.problem:
        return Attempt(attack, nothing, np.nan, np.nan, test, f"self-test failed: {test.problem}")
    signals = board.signals.without_truth()
    try:
        scores = attack.scores(signals, board.run.generator(f"attack {attack.name}"))
        ways = list[Callable[[Float], Float]]([board.people])
        if len(board.rows) > len(board.first):
            ways.append(itemgetter(board.first))
        if attack.cut is None:
            rng = board.run.generator(f"threshold {attack.name}")
            thresholds = thresholds_from_shadows(attack, board, rng, ways)
        else:
            thresholds = [float(np.nextafter(attack.cut, np.inf))] * len(ways)
    except MeasurementError as exc:
        return Attempt(attack, nothing, np.nan, np.nan, test, str(exc))
    made: Attempt | None = None
    for way, threshold in zip(reversed(ways), reversed(thresholds), strict=True):
        own = way(scores)
        learned, seconds = best_threshold(own[board.known], board.members[board.known]), time.perf_counter() - started
        made = Attempt(attack, own, threshold, learned, test, seconds=seconds, alone=made)
    return cast(Attempt, made)


def thresholds_from_shadows(
    attack: Attack, board: Board, rng: Generator, ways: list[Callable[[Float], Float]]
) -> list[float]:
    """Return the thresholds that serve best against shadow models, each attacked with the help of the others.

    One for each of the ``ways`` from scores of records to scores of people.

    Raises
    ------
    MeasurementError
        There are too few shadow models to spare any.
    """
    signals = board.signals if attack.asks != "record" else replace(board.signals, beside=None, shadow_beside=None)
    trained = np.flatnonzero(~np.isnan(signals.shadow).any(axis=(1, 2)))
    chosen = rng.permutation(trained)[: max(1, min(STAND_INS, len(trained) // 4))]
    # a complement says as much about a stand-in as the stand-in itself: the pair goes together
    rest = np.setdiff1d(trained, np.concatenate([chosen, chosen ^ 1]))
    if len(rest) < 2 or not len(chosen):
        raise MeasurementError(f"{len(trained)} shadow models are too few to learn a threshold; train more of them")
    scorer = attack.fit(signals.with_shadows(rest, target=signals.shadow[chosen[0]]), rng)
    around = signals.shadow_beside
    scores = [scorer(attack.seen(signals.shadow[i], around if around is None else around[i])) for i in chosen]
    inside = np.concatenate([signals.shadow_members[i][board.first] for i in chosen])
    return [best_threshold(np.concatenate([way(s) for s in scores]), inside) for way in ways]


def cells(board: Board, scope: str, column: str | None) -> dict[str, Bool]:
    """Return ``name -> people`` of every class or group that holds members; all people for scope "model".

    Where trials were drawn, nobody may be drawn of a class or group that is rare: it stays, and its limits are open.
    """
    if scope == "model":
        return {"": np.ones(len(board.members), dtype=bool)}
    data, own = board.run.subject.data, board.rows[board.first]
    if scope == "class" and board.run.subject.task == "regression":
        raise MeasurementError("a regressor has no labels to look at one by one; judge by scope model or group")
    everybody = pools.of(data)
    inside = np.flatnonzero(everybody.trial & everybody.members)
    if scope == "class":
        names = board.run.subject.classes.astype(str)
        return {f"label {names[c]}": board.labels == c for c in np.unique(everybody.labels[inside])}
    if scope == "group":
        values = pools.groups(data, column)
        return {f"{name} = {v}": at[own] == v for name, at in values.items() for v in np.unique(at[inside])}
    raise MeasurementError(f"unknown scope {scope!r}; known: model, class, group, record")
