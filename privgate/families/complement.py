"""Two classes whose first probability is released as 1 - p: near 0 it has few digits left, and then none.

scikit-learn computes the second of two probabilities and subtracts it from 1, so that a first probability q carries a
rounding of up to 1e-16 and is exactly 0 below 6e-17. A closed form knows ln q better than the released number does.
What counts is the released number: 0 is said where it is certain, a rounding that matters little is charged to the
unit's error (docs/mathematics.md, section 16), and where it matters the unit is handed on.
"""

from dataclasses import replace

import numpy as np

from privgate.families.retrained import Index, Retrained, Status

#: ln q: e^-18 is 1.5e-8, of which a rounding of 1.1e-16 takes less than 1e-8 nats
WHOLE = -18.0
#: ln q: half the distance from 1 to the next smaller number is 5.6e-17 = e^-37.4, below which 1 - p is 0
NOTHING = -38.0
#: how far 1 - p may be from q: p is off by at most two units in the last place below 1, and 1 - p itself is exact
ROUNDING = 2.0**-52
#: nats of rounding that are charged to the error; beyond, the training function is asked
CHARGED = 1e-3
WHY = "the probability of their first class, released as 1 - p, has no digits left"


def as_released(made: Retrained) -> tuple[Retrained, Index]:
    """Return an engine's answer without the units whose first probability is rounded too far, and those units.

    Parameters
    ----------
    made : Retrained
        Its log-probabilities are those of exact arithmetic. With more than two classes nothing is subtracted from 1.
    """
    if made.log_with.shape[-1] != 2 or not len(made.units):
        return made, made.units[:0]
    live = np.isin(made.status, (Status.EXACT, Status.CONVERGED))
    first = np.stack([made.log_with[..., 0], made.log_without[..., 0]])
    margin = np.nan_to_num(made.error, nan=0.0)[made.row_unit]
    rounded = (first < WHOLE + margin) & (first > NOTHING - margin)
    with np.errstate(over="ignore", divide="ignore"):
        share = np.minimum(ROUNDING * np.exp(margin - first), 1.0)
        charge = np.where(rounded, -np.log1p(-share), 0.0).max(axis=(0, 1))
    off = np.zeros(len(made.units))
    np.maximum.at(off, made.row_unit, charge)
    unsure = live & (off > CHARGED)
    made = replace(made, error=made.error + np.where(live & ~unsure, off, 0.0))
    with_, without = made.log_with.copy(), made.log_without.copy()
    for values in (with_, without):
        values[..., 0][values[..., 0] <= NOTHING] = -np.inf
    made = replace(made, log_with=with_, log_without=without)
    return (made.select(~unsure), made.units[unsure]) if unsure.any() else (made, made.units[:0])
