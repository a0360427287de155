"""Known answers: every attack must find a planted leak, and must find nothing where there is none."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float, Index
from privgate.errors import MeasurementError
from privgate.evidence import SelfTest
from privgate.membership.attacks.attack_base import Attack, Signals
from privgate.membership.attacks.observed import FLOOR
from privgate.statistics.roc import auc

#: what a model answers with: any probability, shares of votes of 100 trees, labels, numbers (residuals); or a leak that
#: only two answers show
Form = Literal["continuous", "votes", "labels", "two answers", "numbers", "two numbers"]
#: a planted leak must give at least this AUC; votes hide members from a threshold that is one for all records
LEAST_AUC, LEAST_AUC_OF_A_COMMON_THRESHOLD = 0.9, 0.6
RECORDS, CLASSES, SHADOWS = 400, 3, Attack.planted_shadows  # of the planted leak
#: discrete answers: enough to tell 0.9 from a half, and half the time
FEWER_RECORDS = 200
TREES = 100  # whose votes are counted


def plant(
    rng: Generator, *, leak: bool, records: int = RECORDS, shadows: int = SHADOWS, form: Form = "continuous"
) -> Signals:
    """Return synthetic signals of a model that knows its members by heart, or of one that knows nobody.

    Records differ in difficulty, so that who compares with other models does better. With a leak, members are
    classified rightly and surely, others mostly wrongly; a forest (``votes``) has a member in 63 % of its trees, which
    vote for it, and many answers are exactly 0 or 1. Members' residuals are a tenth of what they would be without them.
    """
    numbers = form in ("numbers", "two numbers")
    if form in ("two answers", "two numbers"):
        signals = plant(rng, leak=False, records=records, shadows=shadows, form="numbers" if numbers else "continuous")
        answer = partial(np.expand_dims, axis=-1) if numbers else partial(of_label, signals.labels)
        return plant_two_answers(signals, rng, answer, leak=leak)
    labels = np.zeros(records, dtype=np.int64) if numbers else rng.integers(0, CLASSES, records)
    difficulty = rng.normal(0.0, 1.0 if numbers else 0.5, records)
    inside = np.vstack([balanced_mask(rng, records) for _ in range(shadows // 2)])
    inside, members = np.concatenate([inside, ~inside]), balanced_mask(rng, records)
    easy = rng.beta(0.3, 0.3, records) if form == "votes" else np.full(records, 0.1 if leak else 0.5)

    def answers(masks: Bool) -> Float:
        if numbers:
            own = difficulty * np.where(masks & leak, 0.1, 1.0)
            return np.asarray((own + rng.normal(0.0, 0.05, own.shape))[..., None])
        if form != "continuous":
            return _discrete(rng, masks & leak, labels, easy, form)
        logits = rng.normal(0.0, 0.5, (len(masks), records, CLASSES))
        shift = np.where(masks, 5.0, -1.5) if leak else np.ones(masks.shape)
        np.put_along_axis(logits, labels[None, :, None], (difficulty + shift)[..., None] + logits[..., :1], axis=-1)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)), dtype=np.float64)

    if numbers:
        target, shadow = answers(members[None])[0], answers(inside)
        loss = float(np.sqrt((target[members] ** 2).mean()))
        return Signals(target, labels, shadow, inside, members, training_loss=loss)
    shadow, target = answers(inside), answers(members[None])[0]
    loss = float(-np.maximum(target[np.arange(records), labels], np.log(FLOOR))[members].mean())
    features = np.column_stack([labels, easy if form == "votes" else difficulty])
    return Signals(target, labels, shadow, inside, members, features, loss)


def _discrete(rng: Generator, known: Bool, labels: Index, easy: Float, form: Form) -> Float:
    """Return logarithms of shares of votes, or of labels, shape (N, P, K); ``easy`` is the share right by itself."""
    trees = TREES if form == "votes" else 1
    memory = 1 - np.exp(-1) if form == "votes" else 0.98  # in the bootstrap sample; nearly always known by heart
    right = rng.binomial(trees, np.where(known, memory + (1 - memory) * easy, easy))
    votes, second = np.zeros((*known.shape, CLASSES)), rng.binomial(trees - right, 0.5)
    for shift, count in enumerate((right, second, trees - right - second)):
        where = np.broadcast_to((labels + shift) % CLASSES, known.shape)[..., None]
        np.put_along_axis(votes, where, count[..., None], axis=-1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(votes / trees), dtype=np.float64)


def plant_two_answers(signals: Signals, rng: Generator, answer: Callable[[Float], Float], *, leak: bool) -> Signals:
    """Return the same people, of whom two answers tell something together, and neither of them alone.

    What is asked of the record and at the first question beside it is one noise, of each model and record its own; at
    the second question a member's is moved by a third of the noise's deviation. ``answer`` makes answers of numbers.
    """
    inside = np.concatenate([np.asarray(signals.members)[None], signals.shadow_members])
    noise = rng.normal(0.0, 3.0, inside.shape)[..., None] + rng.normal(0.0, 0.05, (*inside.shape, 3))
    noise[..., 2] += inside & leak
    answers = answer(noise)
    target, shadow = answers[0], answers[1:]
    near = {"near": target[:, 1:], "shadow_near": shadow[:, :, 1:]}
    return replace(signals, target=target[:, 0], shadow=shadow[:, :, 0], training_loss=None, **near)


def of_label(labels: Index, logits: Float) -> Float:
    """Return log-probabilities (..., P, Q, K) of the own label's logits (..., P, Q); other labels share the rest."""
    own = (np.arange(CLASSES) == labels[:, None])[:, None]
    z = logits[..., None]
    return np.where(own, -np.logaddexp(0.0, -z), -np.logaddexp(0.0, z) - np.log(CLASSES - 1))


def balanced_mask(rng: Generator, n: int) -> Bool:
    """Return a random half of ``n``."""
    return np.asarray(rng.permutation(n) < n // 2)


def blind_tolerance(n1: int, n0: int) -> float:
    """Return five standard errors of an AUC of one half: ``5 sqrt((n1 + n0 + 1) / (12 n1 n0))`` (Mann-Whitney)."""
    return float(5 * np.sqrt((n1 + n0 + 1) / (12 * n1 * n0)))


def self_test(attack: Attack) -> SelfTest:
    """Run ``attack`` on the known answers, always the same ones; the first that it fails ends the test.

    Who asks beside records gets a leak, too, that only two answers show.
    """
    numbers, nan, problem = attack.task == "regression", float("nan"), ""
    forms: tuple[Form, ...] = (
        ("numbers", "two numbers") if numbers else ("continuous", "votes", "labels", "two answers")
    )
    reached: dict[tuple[Form, bool], float] = {}
    for k, form in enumerate(forms if attack.asks != "record" else forms[:-1]):
        records = RECORDS if numbers or not k else FEWER_RECORDS
        due = LEAST_AUC if attack.per_record or not (numbers or form == "votes") else LEAST_AUC_OF_A_COMMON_THRESHOLD
        for leak in (True, False):
            rng = np.random.default_rng([11 if numbers else 7, leak, *[k] * bool(k)])
            signals = plant(rng, leak=leak, form=form, records=records, shadows=attack.planted_shadows)
            try:
                scores = attack.scores(signals.without_truth(), rng)
                reached[form, leak] = auc(scores, np.asarray(signals.members))
            except MeasurementError as exc:
                return SelfTest(nan, nan, nan, f"{attack.name}: {exc}")
        among, planted, blind = f" in {form}" if k else "", reached[form, True], reached[form, False]
        if not planted >= due:
            problem = f"{attack.name} misses a planted leak{among}: AUC {planted:.3f}, at least {due} is due"
        elif not abs(blind - 0.5) <= blind_tolerance(records // 2, records - records // 2):
            problem = f"{attack.name} finds a leak where there is none{among}: AUC {blind:.3f}"
        if problem:
            break
    tolerance = blind_tolerance(RECORDS // 2, RECORDS - RECORDS // 2)
    votes, labels = (reached.get((form, True), nan) for form in ("votes", "labels"))
    return SelfTest(reached[forms[0], True], reached[forms[0], False], tolerance, problem, votes, labels)
