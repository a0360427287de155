"""Stop when decided: people are trained without one after another, riskiest first, until an enforced rule is broken.

Where only training answers, the recipe's own or an engine's, one proven violation blocks, and nothing that the other
people's models show can take it back. So they are not trained: what was not computed is a lower limit, which can block
and never approve, and evidence and report say so (`--full` computes it all the same).

The order may depend on anything, because no statement depends on the order. Without randomness in training a violation
is a fact. With it, every unit has one test at a level that is fixed beforehand: 95 % shared by Bonferroni among all
units that might be tested, their labels, and the two looks at few and at many seeds. The probability that any of them
blocks falsely is at most the sum of the levels, whichever are tested, in whatever order, and whenever it ends (section
15 of docs/mathematics.md asks for a level spent over looks: here it is spent before the first). A sample drawn at
random stays one: it is complete, and whoever of it was not computed counts as possibly below and possibly above.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privgate.families import design, refit
from privgate.families.chain import Refitting
from privgate.families.engine import Asked, Engine
from privgate.families.removal import vanishing
from privgate.families.retrained import Index, Retrained
from privgate.training.fit import Fit

#: models that rank the units: each is trained without its share of them, and asked about it
FOLDS = 5
#: units of the first round for each worker, and for each training that a unit takes; every round doubles
FIRST = 2
#: nats; beyond float64's range differences carry no ranking
FLOOR = -700.0


def until(broken: Callable[[Retrained], str], late: Callable[[float], bool] = lambda _: False) -> Refitting:
    """Return how to refit, riskiest first, until ``broken`` names a rule; whoever is left is handed back.

    ``late`` says whether another round of so many seconds would end too late; only a search has such an end.
    """

    def answers(engine: Engine, asked: Asked, parts: Sequence[Retrained]) -> tuple[Retrained, Index]:
        done = list(parts)
        if done and (broken(_whole(done)) or late(0.0)):  # a fast engine's people decide
            return parts[0].select(np.zeros(len(parts[0].units), dtype=bool)), asked.units
        made, over, left = list[Retrained](), list[Index](), riskiest_first(asked)
        size = max(1, -(-FIRST * asked.fleet.workers // len(asked.seeds)))
        while len(left):
            start = time.monotonic()
            now, left, size = np.sort(left[:size]), left[size:], 2 * size
            found, handed_on = engine.answers(_some(asked, now))
            made.append(found)
            over.append(handed_on)
            if len(left) and (broken(_whole([*done, *made])) or late(2 * (time.monotonic() - start))):
                break
        return _whole(made), np.sort(np.concatenate([*over, asked.units[left]]))

    return answers


def riskiest_first(asked: Asked) -> Index:
    """Return positions in ``asked.units``, first those whose answers change most where a fold of people is left out.

    A unit whose class vanishes with it needs no training and comes first. Five trainings rank everybody: at default
    boosting of 1,000 records the first refit already exceeds the limit. A ranking alone shows nothing.
    """
    subject, units, (row_unit, row_query) = asked.subject, asked.units, asked.rows
    if len(units) <= FOLDS:
        return np.arange(len(units), dtype=np.int64)
    # folds of everybody, asked about everybody in them: whoever is to be ranked, the trainings are the same
    fold = subject.generator("folds").permutation(len(subject.data.units)) % FOLDS
    rows = [design.unit_rows(subject, np.flatnonzero(fold == k))[1] for k in range(FOLDS)]
    fits = [Fit(asked.seeds[0], r, left_out=r) for r in rows]
    without = refit.full(subject, asked.seeds[:1], asked.fleet)[0]
    with_ = np.maximum(without[row_query], FLOOR)
    for r, answer in zip(rows, asked.fleet.fits(subject, fits, label="ranking people"), strict=True):
        if not answer.problem:  # a fold without its people may lack a class that training asks for
            without[r] = answer.log_p
    score = np.zeros(len(units))
    np.maximum.at(score, row_unit, np.abs(with_ - np.maximum(without[row_query], FLOOR)).max(axis=1))
    score[vanishing(subject, units)] = np.inf
    return np.argsort(-score, kind="stable").astype(np.int64)


def _some(asked: Asked, chosen: Index) -> Asked:
    """Return the same question about some units: ascending positions in ``asked.units``."""
    keep = np.zeros(len(asked.units), dtype=bool)
    keep[chosen] = True
    row_unit, row_query = asked.rows
    rows: NDArray[np.bool_] = keep[row_unit]
    place = np.cumsum(keep) - 1
    queries = place[row_unit[rows]].astype(np.int64), row_query[rows]
    return replace(asked, units=asked.units[keep], queries=queries)


def _whole(parts: Sequence[Retrained]) -> Retrained:
    return parts[0] if len(parts) == 1 else Retrained.concatenate(list(parts))
