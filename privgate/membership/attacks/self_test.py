"""Known answers: every attack must find a planted leak, and must find nothing where there is none."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.errors import MeasurementError
from privgate.evidence import SelfTest
from privgate.membership.attacks.attack_base import Attack, Signals
from privgate.membership.attacks.observed import FLOOR
from privgate.statistics.roc import auc

#: what a model answers with: any probability, shares of the votes of 100 trees, or labels; or a leak of two answers
Form = Literal["continuous", "votes", "labels", "two answers"]
#: a planted leak must give at least this AUC; votes hide members from a threshold that is one for all records
FOUND = 0.9
FOUND_BY_A_COMMON_THRESHOLD = 0.6  # AUC
RECORDS, CLASSES, SHADOWS = 400, 3, Attack.planted_shadows  # of the planted leak
#: discrete answers: enough to tell 0.9 from a half, and half the time
FEWER_RECORDS = 200
TREES = 100  # whose votes are counted


def planted(
    rng: Generator, *, leak: bool, records: int = RECORDS, shadows: int = SHADOWS, form: Form = "continuous"
) -> Signals:
    """Return synthetic signals of a model that knows its members by heart, or of one that knows nobody.

    Records differ in difficulty, so that an attack which only reads confidence off does worse than one that compares
    with other models. With a leak, members are classified rightly and surely, non-members mostly wrongly; a forest
    (``votes``) has a member in 63 % of its trees, which then vote for it, and many answers are exactly 0 or 1.
    """
    labels = rng.integers(0, CLASSES, records)
    difficulty = rng.normal(0.0, 0.5, records)
    inside = np.vstack([balanced_mask(rng, records) for _ in range(shadows // 2)])
    inside = np.concatenate([inside, ~inside])
    members = balanced_mask(rng, records)

    def answers(masks: NDArray[np.bool_]) -> Float:
        if form != "continuous":
            return _discrete(rng, masks & leak, labels, easy, form)
        logits = rng.normal(0.0, 0.5, (len(masks), records, CLASSES))
        shift = np.where(masks, 5.0, -1.5) if leak else np.ones(masks.shape)
        np.put_along_axis(logits, labels[None, :, None], (difficulty + shift)[..., None] + logits[..., :1], axis=-1)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)), dtype=np.float64)

    easy = rng.beta(0.3, 0.3, records) if form == "votes" else np.full(records, 0.1 if leak else 0.5)
    shadow, target = answers(inside), answers(members[None])[0]
    own = np.maximum(target[np.arange(records), labels], np.log(FLOOR))
    return Signals(
        target=target,
        labels=labels,
        shadow=shadow,
        shadow_members=inside,
        members=members,
        features=np.column_stack([labels, easy if form == "votes" else difficulty]),
        training_loss=float(-own[members].mean()),
    )


def _discrete(rng: Generator, known: NDArray[np.bool_], labels: NDArray[np.int64], easy: Float, form: Form) -> Float:
    """Return logarithms of shares of votes, or of labels, shape (N, P, K); ``easy`` is the share right by itself."""
    draws = TREES if form == "votes" else 1
    memory = 1 - np.exp(-1) if form == "votes" else 0.98  # in the bootstrap sample; nearly always known by heart
    right = rng.binomial(draws, np.where(known, memory + (1 - memory) * easy, easy))
    votes = np.zeros((*known.shape, CLASSES))
    second = rng.binomial(draws - right, 0.5)
    for shift, count in enumerate((right, second, draws - right - second)):
        where = np.broadcast_to((labels + shift) % CLASSES, known.shape)[..., None]
        np.put_along_axis(votes, where, count[..., None], axis=-1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(votes / draws), dtype=np.float64)


def plant_two_answers(signals: Signals, rng: Generator, answer: Callable[[Float], Float], *, leak: bool) -> Signals:
    """Return the same people, of whom two answers tell something together, and neither of them alone.

    What is asked of the record and at the first question beside it is one noise, of each model and record its own; at
    the second question a member's is moved by a third of the noise's deviation. ``answer`` makes answers of numbers.
    """
    inside = np.concatenate([truth(signals)[None], signals.shadow_members])
    noise = rng.normal(0.0, 3.0, inside.shape)[..., None] + rng.normal(0.0, 0.05, (*inside.shape, 3))
    noise[..., 2] += inside & leak
    answers = answer(noise)
    target, shadow = answers[0], answers[1:]
    made = replace(signals, target=target[:, 0], beside=target[:, 1:], training_loss=None)
    return replace(made, shadow=shadow[:, :, 0], shadow_beside=shadow[:, :, 1:])


def truth(signals: Signals) -> NDArray[np.bool_]:
    """Return who was a member, shape (P,)."""
    if signals.members is None:  # pragma: no cover  planted signals always know
        raise MeasurementError("planted signals without ground truth")
    return signals.members


def of_label(labels: NDArray[np.int64], logits: Float) -> Float:
    """Return log-probabilities (..., P, Q, K) of the own label's logits (..., P, Q); other labels share the rest."""
    own = (np.arange(CLASSES) == labels[:, None])[:, None]
    z = logits[..., None]
    return np.where(own, -np.logaddexp(0.0, -z), -np.logaddexp(0.0, z) - np.log(CLASSES - 1))


def balanced_mask(rng: Generator, n: int) -> NDArray[np.bool_]:
    """Return a random half of ``n``."""
    return np.asarray(rng.permutation(n) < n // 2)


def blind_tolerance(n1: int, n0: int) -> float:
    """Return five standard errors of an AUC of one half: ``5 sqrt((n1 + n0 + 1) / (12 n1 n0))`` (Mann-Whitney)."""
    return float(5 * np.sqrt((n1 + n0 + 1) / (12 * n1 * n0)))


@dataclass(frozen=True)
class Planting:
    """A leak that an attack must find, and whose absence it must not find.

    Parameters
    ----------
    form : Form
        What the model answers with.
    due : float
        Least AUC where there is a leak.
    signals : callable
        ``signals(rng, leak=...)`` returns planted signals with ground truth.
    records : int
    seed : int
        Known answers are always the same ones, so that a passing attack passes every time.
    """

    form: Form
    due: float
    signals: Callable[..., Signals]
    records: int
    seed: int


def run_plantings(attack: Attack, plantings: list[Planting]) -> SelfTest:
    """Return how ``attack`` does on each planting with and without its leak; the first that fails ends the test."""
    nan = float("nan")
    reached: dict[tuple[Form, bool], float] = {}
    problem = ""
    for k, planting in enumerate(plantings):
        for leak in (True, False):
            rng = np.random.default_rng([planting.seed, leak, k] if k else [planting.seed, leak])
            signals = planting.signals(rng, leak=leak)
            try:
                reached[planting.form, leak] = auc(attack.scores(signals.without_truth(), rng), truth(signals))
            except MeasurementError as exc:
                return SelfTest(nan, nan, nan, f"{attack.name}: {exc}")
        among = "" if planting.form == "continuous" else f" in {planting.form}"
        with_leak, without = reached[planting.form, True], reached[planting.form, False]
        if not with_leak >= planting.due:
            problem = f"{attack.name} misses a planted leak{among}: AUC {with_leak:.3f}, at least {planting.due} is due"
        elif not abs(without - 0.5) <= blind_tolerance(planting.records // 2, planting.records - planting.records // 2):
            problem = f"{attack.name} finds a leak where there is none{among}: AUC {without:.3f}"
        if problem:
            break
    return SelfTest(
        reached["continuous", True],
        reached["continuous", False],
        blind_tolerance(RECORDS // 2, RECORDS - RECORDS // 2),
        problem,
        votes=reached.get(("votes", True), nan),
        labels=reached.get(("labels", True), nan),
    )


def self_test(attack: Attack) -> SelfTest:
    """Run ``attack`` on the known answers; who asks beside records gets a leak, too, that only two answers show."""
    plantings = []
    for form in get_args(Form)[: None if attack.asks != "record" else -1]:
        records = RECORDS if form == "continuous" else FEWER_RECORDS
        due = FOUND if attack.per_record or form != "votes" else FOUND_BY_A_COMMON_THRESHOLD
        shape: dict[str, Any] = {"records": records, "shadows": attack.planted_shadows}
        plant = partial(_plant_pair, **shape) if form == "two answers" else partial(planted, form=form, **shape)
        plantings.append(Planting(form, due, plant, records, 7))
    return run_plantings(attack, plantings)


def _plant_pair(rng: Generator, *, leak: bool, records: int, shadows: int) -> Signals:
    signals = planted(rng, leak=False, records=records, shadows=shadows)
    return plant_two_answers(signals, rng, partial(of_label, signals.labels), leak=leak)
