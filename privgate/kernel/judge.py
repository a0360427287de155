"""The catalogue of families, and the one function that makes a limit."""

from collections.abc import Callable

import numpy as np

from privgate.kernel import construction, counts, gaussian, linear, logistic, sample, squares
from privgate.kernel.assertion import Case, Limits, Refused

#: family -> (case) -> limits; each is a module of this room, whose docstring is its theorem
FAMILIES: dict[str, Callable[[Case], Limits]] = {
    "construction": construction.bound,
    "sample": sample.bound,
    "logistic": logistic.bound,
    "squares": squares.bound,
    "categorical": counts.categorical,
    "partitions": counts.partitions,
    "gaussian": gaussian.bound,
    "linear": linear.bound,
}


def limits(case: Case) -> Limits:
    """Return how far each person's absence can move an answer; ``Refused``: the case is of no known family or kind."""
    if case.family not in FAMILIES:
        raise Refused(f"no theorem is about {case.family!r}; there are {', '.join(FAMILIES)}")
    if case.scope not in ("own", "any"):
        raise Refused(f"asked about {case.scope!r}; the questions are 'own' and 'any'")
    with np.errstate(all="ignore"):  # what is not a number limits nothing: Limits.of
        ends = FAMILIES[case.family](case)
    return Limits.from_ends(ends.low, ends.high)
