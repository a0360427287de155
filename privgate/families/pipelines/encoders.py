"""Encoders without each unit: categories stay what they are unless the unit holds one alone."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.pipelines.carried import Carried, Flags, Index, NotCarried, Who, unchanged
from privgate.models.columns import is_missing, split


def codes(column: NDArray[Any], n: int, held: Flags | None = None) -> tuple[Index, Index]:
    """Return the code of each training value, -1 where not held, and how often each occurs; None is not NaN."""
    known: dict[Any, int] = {}
    made = np.full(n, -1)
    for i, v in enumerate(column[:n].tolist()):
        if held is not None and not held[i]:
            continue
        key = (type(v).__name__, "missing") if is_missing(v) else v
        made[i] = known.setdefault(key, len(known))
    return made, np.bincount(made[made >= 0], minlength=max(1, len(known)))


def categories(step: Any, before: Carried, who: Who) -> Carried:
    """Carry encoders: categories stay unless the unit holds one alone, or takes it below ``min_frequency``."""
    if before.moved or getattr(step, "max_categories", None) is not None:
        raise NotCarried("an encoder behind a step that learns, or with max_categories, is not carried along")
    _, columns = split(before.raw)
    otherwise = before.otherwise.copy()
    unit, record = who.flat
    left = who.n - np.array([len(m) for m in who.members])
    for column in columns:
        code, counts = codes(column, who.n)
        # only what a unit holds: units times categories would not fit the memory where everybody has their own
        held, lost = np.unique(unit * len(counts) + code[record], return_counts=True)
        whose, kind = held // len(counts), held % len(counts)
        otherwise[whose[counts[kind] <= lost]] = True
        least = getattr(step, "min_frequency", None)
        if least is not None:
            whole = isinstance(least, int | np.integer)
            now = counts < (least if whole else least * who.n)
            then = counts[kind] - lost < (least if whole else least * left[whose])
            otherwise[whose[now[kind] != then]] = True
            for fewer in [] if whole else np.unique(left):  # the threshold moves for all the others as well
                odd = now != (counts < least * fewer)
                others = odd.sum() - np.bincount(whose, odd[kind], minlength=len(left))
                otherwise |= (left == fewer) & (others > 0)
    return unchanged(step.transform(before.raw), replace(before, otherwise=otherwise))
