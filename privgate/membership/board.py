"""What every attack scores against the subject's model: signals, self-tests, thresholds fixed before the trials."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Compute, Float, Index, compute_here
from privgate.errors import MeasurementError
from privgate.evidence import SelfTest
from privgate.membership import attacks, numbers
from privgate.membership.attacks.attack_base import Attack, Signals
from privgate.membership.attacks.observed import OnRelease, own_log
from privgate.membership.attacks.self_test import self_test
from privgate.membership.limits import untied
from privgate.run import near_questions
from privgate.run import pool as pools
from privgate.run.pool import AttackPool, train
from privgate.run.run import Run
from privgate.statistics.roc import APPROVING, LOOKS, Decisions, best_threshold
from privgate.subject.release import Laplace
from privgate.subject.subject import Subject
from privgate.training import ledger
from privgate.training.fleet import Fleet

#: shadow models that stand in for the target when a threshold is learned from shadow models alone
STAND_INS = 4


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attack on the subject's model, and its scores: one a person of the board, shape (U,); empty if it failed."""

    attack: Attack
    scores: Float
    #: "member" is said at or above it; fixed by the paper or by shadow models, never by the trials
    threshold: float
    #: threshold that was best on the half of the trials that the board calls ``known``
    learned: float
    test: SelfTest
    problem: str = ""  # why it did not run; empty if it did
    #: the same attack on one record of each person, where members have several and candidates have one
    alone: "Attempt | None" = None


@dataclass(eq=False)
class Board:
    """All trials: U people, members and candidates, whose records stand in ``rows`` of the pool, as in ``signals``."""

    signals: Signals
    pool: AttackPool
    rows: Index
    members: Bool  # ground truth, shape (U,)
    #: which of ``rows`` stands for each person, drawn at random: attacked alone, with its label and groups
    first: Index
    #: a random half of either side, fixed before looking: there a threshold may be chosen, on the rest it is tried
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

        On labels alone, too: comparing with shadow models finds more than the gap. ``MeasurementError`` where none ran.
        """
        from threadpoolctl import threadpool_limits

        named, release = {a.name: a for a in self.catalogue}, self.run.subject.release
        if name != "any" and name not in named:
            known = ", ".join(("any", *named))
            raise MeasurementError(f"no attack on this kind of model is called {name!r}; known: {known}")
        some = [a for a in self.catalogue if a not in self.later] if name == "any" else [named[name]]
        # where an endpoint adds noise, the signals are the noisy answers
        coarse = [] if release.noise is not None or release.exact else [OnRelease(a, release) for a in some]
        with threadpool_limits(1):  # on tables this small, threads wait for each other longer than they work
            if name != "any" and (problem := self.attempt(some[0]).problem):
                raise MeasurementError(f"the attack {name!r} did not run: {problem}")
            attempts = [self.attempt(a) for a in (*([] if release.alone else some), *coarse)]
        if all(a.problem for a in attempts):
            raise MeasurementError("no attack ran: " + "; ".join(f"{a.attack.name}: {a.problem}" for a in attempts))
        return attempts

    @property
    def catalogue(self) -> tuple[Attack, ...]:
        """The attacks on this kind of model; without those that ask beside records alone, where nothing can be."""
        known = numbers.ALL if self.run.subject.task == "regression" else attacks.ALL
        return tuple(a for a in known if self.signals.near is not None or a.asks != "near")

    @property
    def later(self) -> tuple[Attack, ...]:
        """Attacks that train a model of their own, where further looks will follow before one can approve."""
        last = max((k for k in LOOKS if k <= self.run.limits.shadow_models), default=min(LOOKS))
        growing = self.run.attacked and not self.run.at_once
        early = growing and len(self.signals.shadow) < min(*APPROVING, last)
        return tuple(a for a in self.catalogue if early and a.trains)

    def people(self, scores: Float) -> Float:
        """Return one score a person, shape (U,): the mean over the person's records."""
        place = np.searchsorted(self.units, self.pool.person[self.rows])
        total = np.bincount(place, scores, len(self.units))
        return np.asarray(total / np.bincount(place, minlength=len(self.units)), dtype=np.float64)

    def ranks(self, attempt: Attempt) -> Float:
        """Return an attempt's scores as ranks without ties, shape (U,): what is held to a false-positive rate."""
        return untied(attempt.scores, self.run.generator(f"ties of {attempt.attack.name}"))

    @property
    def units(self) -> Index:
        """Number of each person in the pool, ascending, shape (U,)."""
        return self.pool.person[self.rows[self.first]]

    @property
    def people_at(self) -> tuple[AttackPool, Index]:
        """The pool, and the row that stands for each person."""
        return self.pool, self.rows[self.first]

    @property
    def copies(self) -> float:
        """How many of the candidates may be members at most, more than chance explains."""
        return float(self.pool.copies * (~self.members).sum())

    @property
    def trained(self) -> int:
        """How many shadow models could be trained."""
        return int((~np.isnan(self.signals.shadow).any(axis=(1, 2))).sum())

    def decisions(self, attempt: Attempt, among: Bool) -> list[Decisions]:
        """Return counts of both adversaries on the people ``among``: threshold fixed, and learned on the other half."""
        rest = among & ~self.known
        return [
            Decisions.from_flags(attempt.scores[among] >= attempt.threshold, self.members[among]),
            Decisions.from_flags(attempt.scores[rest] >= attempt.learned, self.members[rest]),
        ]


_TESTED: dict[str, SelfTest] = {}


def tested(name: str, compute: Compute = compute_here) -> SelfTest:  # noqa: PT028  no test of pytest
    """Return the self-test of a catalogued attack, always the same one."""
    if name not in _TESTED:
        attack = (attacks.BY_NAME | numbers.BY_NAME)[name]
        _TESTED[name] = SelfTest(**(compute if attack.apart else compute_here)(run_test, attack))
    return _TESTED[name]


def run_test(attack: Attack) -> dict[str, Any]:
    """Return an attack's self-test as JSON values."""
    return asdict(self_test(attack))


def recall_test(fleet: Fleet, name: str, compute: Compute = compute_here) -> SelfTest:
    """Return an attack's self-test, which a run to be signed remembers while package and libraries stay as they are.

    A remembered one is sealed as answers are; one that failed is made again.
    """
    if not fleet.signable:
        return tested(name, compute)
    where = f"self-tests/{hashlib.sha256(ledger.digest_package() + name.encode()).hexdigest()}"
    if (body := fleet.ledger.read(where)) is not None:
        return SelfTest(**json.loads(body))
    if not (test := tested(name, compute)).problem:
        fleet.ledger.write(where, json.dumps(asdict(test)).encode())
    return test


def grow_boards(run: Run) -> Iterator[Board]:
    """Yield the board at each look; whoever asks the run for its board or shadow models later has the last ones."""
    before: dict[str, Attempt] = {}
    for shadows in pools.growing(run):
        run.keep(train, shadows)
        board = make_board(run)
        board.attempts = before
        run.keep(make_board, board)
        yield board
        # what learned from as many answers as it ever does, of enough models, would be trained again for nothing
        before, answers = {}, board.signals.shadow_members
        if len(answers) >= min(APPROVING):
            full = (a for a in board.attempts.values() if 0 < a.attack.rows <= answers.size)
            before = {a.attack.name: a for a in full if not a.problem}


def make_board(run: Run) -> Board:
    """Return the board of a subject's trials; attacks run when they are asked for."""
    pool, shadows, near = run.compute(pools.of_attacks), run.compute(train), run.compute(pools.ask_near_trials)[2]
    rows = np.flatnonzero(pool.trial)
    target, shadow, shadow_near = target_answers(run)[rows], shadows.log_p, shadows.near
    labels, members = pool.labels[rows], pool.members[rows]
    if run.subject.task == "regression":
        target, shadow = (residuals(run, rows, a) for a in (target, shadow))
        near = residuals(run, rows, near, questions=True)
        shadow_near = None if shadow_near is None else residuals(run, rows, shadow_near, questions=True)
        loss = float(np.sqrt((target[members, 0] ** 2).mean()))
    else:
        loss = float(-own_log(target, labels)[members].mean())
    signals = Signals(
        target, labels, shadow, shadows.masks, members, pools.features(run.subject.data, rows), loss,
        near=None if shadow_near is None else near, shadow_near=shadow_near,
        compute=partial(run.fleet.compute, run.subject),
    )  # fmt: skip
    order = run.generator("one record of each").permutation(len(rows))
    first = order[np.unique(pool.person[rows[order]], return_index=True)[1]]
    rng, known = run.generator("half of the trials"), np.zeros(len(first), dtype=bool)
    for side in (True, False):
        people = rng.permutation(np.flatnonzero(members[first] == side))
        known[people[: len(people) // 2]] = True
    return Board(signals, pool, rows, members[first], first, known, run)


def target_answers(run: Run) -> Float:
    """Return the stored model's log-probabilities on the whole pool, or those of the recipe's own fit; or raise."""
    if run.has_computed(pools.ask_near_trials):
        log_p = run.compute(pools.ask_near_trials)[1]
    else:
        log_p = ask_model(run, run.subject, np.arange(len(run.compute(pools.of_run).labels), dtype=np.int64))
    if run.subject.task == "classification" and log_p.shape[1] < 2:
        raise MeasurementError("the training set holds one class only; a model's answers tell nobody apart")
    return log_p


def ask_model(run: Run, subject: Subject, rows: Index) -> Float:
    """Return log-probabilities of the model under attack at pool rows of ``subject``, shape (R, K); or raise."""
    answer = near_questions.ask_model(run, subject, rows)
    if answer.problem:
        raise MeasurementError(f"the model under attack gave no answer: {answer.problem}")
    return answer.log_p


def residuals(run: Run, rows: Index, answers: Float, *, noisy: bool = True, questions: bool = False) -> Float:
    """Return targets less a regressor's answers on pool rows, in deviations of the training targets; shape of answers.

    Where the endpoint adds noise, whoever asks sees it, and draws its kind for his own models.
    """
    (mean, deviation), noise = run.subject.scale, run.subject.release.noise
    y = (run.subject.data.pool_labels[rows].astype(np.float64) - mean) / deviation
    residual = y.reshape(-1, *[1] * (1 + questions)) - answers
    if noise is not None and noisy:
        draw = run.generator(f"noise on {answers.shape}")
        kind = draw.laplace if isinstance(noise, Laplace) else draw.normal
        residual = residual - kind(0.0, noise.scale / deviation, residual.shape)
    return np.asarray(residual, dtype=np.float64)


def _attempt(board: Board, attack: Attack) -> Attempt:
    """Run one attack: its self-test, its scores on the target, and its two thresholds."""
    ways = list[Callable[[Float], Float]]([board.people])
    if len(board.rows) > len(board.first):
        ways.insert(0, itemgetter(board.first))
    name = attack.base.name if isinstance(attack, OnRelease) else attack.name
    attempt = Attempt(attack, np.zeros(0), np.nan, np.nan, recall_test(board.run.fleet, name, board.signals.compute))
    if attempt.test.problem:
        return replace(attempt, problem=f"self-test failed: {attempt.test.problem}")
    try:
        scores = attack.scores(board.signals.without_truth(), board.run.generator(f"attack {attack.name}"))
        thresholds = fix_thresholds(attack, board, board.run.generator(f"threshold {attack.name}"), ways)
    except MeasurementError as exc:
        return replace(attempt, problem=str(exc))
    for way, threshold in zip(ways, thresholds, strict=True):
        own, alone = way(scores), attempt if len(attempt.scores) else None
        learned = best_threshold(own[board.known], board.members[board.known])
        attempt = replace(attempt, scores=own, threshold=threshold, learned=learned, alone=alone)
    return attempt


def fix_thresholds(attack: Attack, board: Board, rng: Generator, ways: list[Callable[[Float], Float]]) -> list[float]:
    """Return the paper's threshold, or those that serve best against shadow models, attacked with the others' help.

    One for each of the ``ways`` from scores of records to those of people; ``MeasurementError``: none can be spared.
    """
    if attack.cut is not None:
        return [float(np.nextafter(attack.cut, np.inf))] * len(ways)
    signals = board.signals if attack.asks != "record" else replace(board.signals, near=None, shadow_near=None)
    trained = np.flatnonzero(~np.isnan(signals.shadow).any(axis=(1, 2)))
    chosen = rng.permutation(trained)[: max(1, min(STAND_INS, len(trained) // 4))]
    # a complement says as much about a stand-in as the stand-in itself: the pair goes together
    rest = np.setdiff1d(trained, np.concatenate([chosen, chosen ^ 1]))
    if len(rest) < 2 or not len(chosen):
        raise MeasurementError(f"{len(trained)} shadow models are too few to learn a threshold; train more of them")
    scorer, near = attack.fit(signals.with_shadows(rest, target=signals.shadow[chosen[0]]), rng), signals.shadow_near
    scores = [scorer(attack.seen(signals.shadow[i], None if near is None else near[i])) for i in chosen]
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
    everybody = pools.build_pool(data)
    inside = np.flatnonzero(everybody.trial & everybody.members)
    if scope == "class":
        names, labels = board.run.subject.classes.astype(str), everybody.labels
        return {f"label {names[c]}": labels[own] == c for c in np.unique(labels[inside])}
    values = pools.groups(data, column)
    return {f"{name} = {v}": at[own] == v for name, at in values.items() for v in np.unique(at[inside])}
