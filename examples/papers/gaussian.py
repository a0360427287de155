"""Yeom et al. (2020), Theorems 3 and 5 on simulated normal errors: the gate's own adversaries beside closed forms."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers.pictures import Picture, Series
from papers.table import Row, Table
from privgate.membership.attacks.attack_base import Signals
from privgate.membership.numbers import BY_NAME
from privgate.membership.sensitive import Seen, invert, normal
from privgate.statistics.roc import Decisions
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]

#: members, and as many others
TRIALS = 40_000
#: sigma_D / sigma_S, and tau in units of sigma_S
RATIOS = (1.0, 1.05, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
INFLUENCES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
PRIOR_ALONE = "Definition 6 beside a simulator who knows the prior alone, and nobody's answers."
#: largest standard error of a difference of two shares
ERROR = math.sqrt(0.5 / TRIALS)


def run(folder: Path, fleet: Fleet | None, say: Callable[[str], None]) -> Iterator[Table]:
    """Simulate members' errors N(0, 1) and others' N(0, r^2): advantages beside Theorems 3 and 5."""
    del folder, fleet
    yield Table(
        "Yeom et al. (2020), Theorem 3, simulated normal errors",
        [row for r in RATIOS for row in oracle(r, np.random.default_rng([3, int(100 * r)]))],
        (f"{TRIALS} members and as many others; one standard error is at most {ERROR:.4f}.",),
    )
    say("Theorem 3 is done")
    for r in RATIOS[3:]:
        rng = np.random.default_rng([5, int(100 * r)])
        found = [inversion(tau, r, rng) for tau in INFLUENCES]
        yield Table(
            f"Yeom et al. (2020), Theorem 5 and Figure 1, simulated normal errors, sigma_D / sigma_S = {r:g}",
            [row for pair in found for row in pair],
            (f"{TRIALS} members and as many others; one standard error is at most {ERROR:.4f}.", PRIOR_ALONE),
        )
    yield figure_1()


def theorem_3(r: float) -> float:
    """Return the advantage of Adversary 2 who knows both deviations."""
    if r == 1:
        return 0.0
    root = math.sqrt(math.log(r) / (r * r - 1))
    return math.erf(r * root) - math.erf(root)


def oracle(r: float, rng: Generator) -> list[Row]:
    """Return Adversary 2 who knows both deviations, and who knows the members' alone."""
    members = np.arange(2 * TRIALS) < TRIALS
    inside = np.stack([members, ~members])
    shadow = rng.normal(size=inside.shape) * np.where(inside, 1.0, r)
    target = rng.normal(size=2 * TRIALS) * np.where(members, 1.0, r)
    nobody = np.zeros(2 * TRIALS, dtype=np.int64)
    signals = Signals(target[:, None], nobody, shadow[..., None], inside, None, training_loss=1.0)
    due = {
        "error_densities": theorem_3(r),
        "error_threshold": math.erf(1 / math.sqrt(2)) - math.erf(1 / (math.sqrt(2) * r)),
    }
    words = {"error_densities": "both deviations known", "error_threshold": "sigma_S known"}
    made = []
    for name, published in due.items():
        found = Decisions.from_flags(BY_NAME[name].scores(signals, rng) > 0, members).advantage
        made.append(_row(f"sigma_D / sigma_S = {r:g}, {words[name]}: advantage", published, float(found)))
    return made


def definition_6(tau: float, inside: float) -> float:
    """Return Adversary 4's advantage on members over a simulator who knows two equally frequent values alone."""
    return 0.5 * math.erf(tau / (2 * math.sqrt(2) * inside))


def figure_1() -> Table:
    """Return Figure 1 whole: Theorem 5 at every ratio, and Definition 6."""
    tau = np.linspace(0, INFLUENCES[-1], 161)
    curves = {f"sigma_D / sigma_S = {r:g}": [theorem_5(float(t), 1.0, r) for t in tau] for r in RATIOS[3:]}
    curves["Definition 6"] = [definition_6(float(t), 1.0) for t in tau]
    rows = [Row(f"{name}: largest advantage", None, max(y), f"at tau = {tau[int(np.argmax(y))]:g} sigma_S")
            for name, y in curves.items()]  # fmt: skip
    return Table(
        "Yeom et al. (2020), Figure 1 and Definition 6, closed forms", rows,
        ("the paper draws the curves and prints no number; it leaves Definition 6 to others",),
        Picture("yeom-1", "influence tau, in units of sigma_S", "advantage of Adversary 4",
                [Series(name, tau.tolist(), y) for name, y in curves.items()]),
    )  # fmt: skip


def theorem_5(influence: float, inside: float, outside: float) -> float:
    """Return the advantage of Adversary 4 on a feature of two equally frequent values, for normal errors.

    ``influence`` is by how much it moves the answer, ``inside`` and ``outside`` are standard errors, all in one unit.
    """
    inner, outer = (math.erf(influence / (2 * math.sqrt(2) * error)) for error in (inside, outside))
    return 0.5 * (inner - outer)


def inversion(tau: float, r: float, rng: Generator) -> tuple[Row, Row]:
    """Return Adversary 4 on a feature of two equally frequent values that moves the answer by tau: both definitions."""
    right = []
    for deviation in (1.0, r):
        t = rng.integers(0, 2, TRIALS)
        residual = deviation * rng.normal(size=(TRIALS, 1)) + tau * (t[:, None] - np.arange(2))
        seen = Seen(normal(residual, 1.0), np.array([0.5, 0.5]), -0.5)
        right.append(float((invert(seen, rng) == t).mean()))
    return (
        _row(f"tau = {tau:g} sigma_S: advantage", theorem_5(tau, 1.0, r), right[0] - right[1]),
        _row(f"tau = {tau:g} sigma_S: advantage by Definition 6", definition_6(tau, 1.0), right[0] - 0.5),
    )


def _row(what: str, due: float, found: float) -> Row:
    return Row(what, None, found, f"{(found - due) / ERROR:+.1f} standard errors", due)
