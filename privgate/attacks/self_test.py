"""Known answers: every attack must find a planted leak, and must find nothing where there is none."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.attacks.base import Attack, Signals
from privgate.errors import MeasurementError
from privgate.statistics.membership import auc

Float = NDArray[np.float64]

#: a planted leak must give at least this AUC
FOUND = 0.9
RECORDS, CLASSES, SHADOWS = 400, 3, 16


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What an attack achieved where the answer is known.

    Parameters
    ----------
    planted, blind : float
        AUC on a planted leak (must be at least 0.9) and without any (must be 0.5 within ``tolerance``).
    tolerance : float
        Five standard errors of an AUC of one half with 200 records a side.
    problem : str
        Why the attack is not to be believed; empty if it is.
    """

    planted: float
    blind: float
    tolerance: float
    problem: str = ""


def planted(rng: Generator, *, leak: bool, records: int = RECORDS, shadows: int = SHADOWS) -> Signals:
    """Return synthetic signals of a model that knows its members by heart, or of one that knows nobody.

    Records differ in difficulty, so that an attack which only reads confidence off does worse than one that compares
    with other models. With a leak, members are classified rightly and surely, non-members mostly wrongly.
    """
    labels = rng.integers(0, CLASSES, records)
    difficulty = rng.normal(0.0, 0.5, records)
    inside = np.vstack([balanced_mask(rng, records) for _ in range(shadows // 2)])
    inside = np.concatenate([inside, ~inside])
    members = balanced_mask(rng, records)

    def answers(masks: NDArray[np.bool_]) -> Float:
        logits = rng.normal(0.0, 0.5, (len(masks), records, CLASSES))
        shift = np.where(masks, 5.0, -1.5) if leak else np.ones(masks.shape)
        np.put_along_axis(logits, labels[None, :, None], (difficulty + shift)[..., None] + logits[..., :1], axis=-1)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)), dtype=np.float64)

    shadow, target = answers(inside), answers(members[None])[0]
    own = target[np.arange(records), labels]
    return Signals(
        target=target,
        labels=labels,
        shadow=shadow,
        shadow_members=inside,
        members=members,
        features=np.column_stack([labels, difficulty]),
        training_loss=float(-own[members].mean()),
    )


def balanced_mask(rng: Generator, n: int) -> NDArray[np.bool_]:
    """Return a random half of ``n``."""
    return np.asarray(rng.permutation(n) < n // 2)


def blind_tolerance(n1: int, n0: int) -> float:
    """Return five standard errors of an AUC of one half: ``5 sqrt((n1 + n0 + 1) / (12 n1 n0))`` (Mann-Whitney)."""
    return float(5 * np.sqrt((n1 + n0 + 1) / (12 * n1 * n0)))


def self_test(attack: Attack) -> SelfTest:
    """Run ``attack`` on both known answers; always the same ones, so that a passing attack passes every time."""
    found = {}
    for leak in (True, False):
        rng = np.random.default_rng([7, leak])
        signals = planted(rng, leak=leak)
        members = signals.members
        if members is None:  # pragma: no cover  planted signals always know
            raise MeasurementError("planted signals without ground truth")
        try:
            found[leak] = auc(attack.scores(signals.without_truth(), rng), members)
        except MeasurementError as exc:
            return SelfTest(float("nan"), float("nan"), float("nan"), f"{attack.name}: {exc}")
    tolerance = blind_tolerance(RECORDS // 2, RECORDS - RECORDS // 2)
    problem = ""
    if not found[True] >= FOUND:
        problem = f"{attack.name} misses a planted leak: AUC {found[True]:.3f}, at least {FOUND} is due"
    elif not abs(found[False] - 0.5) <= tolerance:
        problem = f"{attack.name} finds a leak where there is none: AUC {found[False]:.3f}"
    return SelfTest(found[True], found[False], tolerance, problem)
