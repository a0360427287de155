"""Known answers for attacks on numbers: residuals of a model that knows its members, and of one that knows nobody."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.errors import MeasurementError
from privgate.evidence import SelfTest
from privgate.membership.attacks.base import Attack, Signals
from privgate.membership.attacks.self_test import (
    FOUND,
    FOUND_BY_A_COMMON_THRESHOLD,
    RECORDS,
    SHADOWS,
    balanced_mask,
    blind_tolerance,
)
from privgate.statistics.roc import auc


def planted(rng: Generator, *, leak: bool, records: int = RECORDS, shadows: int = SHADOWS) -> Signals:
    """Return residuals: of members a tenth of what they are of others, where there is a leak; each record has its own.

    A record's residual without it is what its model misses it by, the same for all models but for a little noise.
    """
    usual = rng.normal(0.0, 1.0, records)
    inside = np.vstack([balanced_mask(rng, records) for _ in range(shadows // 2)])
    inside, members = np.concatenate([inside, ~inside]), balanced_mask(rng, records)

    def residuals(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        share = np.where(masks & leak, 0.1, 1.0)
        return np.asarray((share * usual + rng.normal(0.0, 0.05, masks.shape))[..., None])

    target = residuals(members[None])[0]
    rms = float(np.sqrt((target[members] ** 2).mean()))
    return Signals(target, np.zeros(records, dtype=np.int64), residuals(inside), inside, members, training_loss=rms)


def self_test(attack: Attack) -> SelfTest:
    """Run ``attack`` on both known answers; always the same ones."""
    found = {}
    for leak in (True, False):
        rng = np.random.default_rng([11, leak])
        signals = planted(rng, leak=leak)
        if signals.members is None:  # pragma: no cover  planted signals always know
            raise MeasurementError("planted signals without ground truth")
        try:
            found[leak] = auc(attack.scores(signals.without_truth(), rng), signals.members)
        except MeasurementError as exc:
            return SelfTest(float("nan"), float("nan"), float("nan"), f"{attack.name}: {exc}")
    tolerance, problem = blind_tolerance(RECORDS // 2, RECORDS - RECORDS // 2), ""
    due = FOUND if attack.per_record else FOUND_BY_A_COMMON_THRESHOLD
    if not found[True] >= due:
        problem = f"{attack.name} misses a planted leak: AUC {found[True]:.3f}, at least {due} is due"
    elif not abs(found[False] - 0.5) <= tolerance:
        problem = f"{attack.name} finds a leak where there is none: AUC {found[False]:.3f}"
    return SelfTest(found[True], found[False], tolerance, problem)
