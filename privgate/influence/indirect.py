"""Which units are asked indirect questions: those whose DTP is not decided by a certificate, riskiest first."""

import numpy as np
from numpy.typing import NDArray

from privgate.evidence import IndirectQueries
from privgate.influence import queries
from privgate.run.run import Run

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: units searched in one check; a search trains each of them a few times more
UNITS = 10
#: paired seeds of a search: what is found is a lower limit, which more hardly sharpen
SEEDS = 20


def raised(run: Run, units: Index, pdtp: Float, lower: Float, upper: Float) -> tuple[Float, IndirectQueries]:
    """Return ``lower`` raised where a search found a question that tells more, and what the search was.

    Parameters
    ----------
    run : Run
    units : int64 array of shape (U,)
        Positions in ``subject.data.units``.
    pdtp, lower, upper : float64 arrays of shape (U,)
        Nats; a unit is open if no certificate bounds it, or the policy's limit lies between its bounds.

    Notes
    -----
    The search ranks open units by PDTP and takes ``UNITS`` of them. What it does not find proves nothing, so it never
    lowers a bound; ``upper`` alone approves.
    """
    limit = max(run.thresholds, default=1.0)
    open_ = (lower <= limit) & (upper > limit) & np.isfinite(lower)
    chosen = np.flatnonzero(open_)
    chosen = np.sort(chosen[np.argsort(-pdtp[chosen], kind="stable")[:UNITS]])
    if len(chosen) == 0:
        return lower, IndirectQueries(open_units=int(open_.sum()), searched=0)
    found = queries.search(
        run.subject, units[chosen], run.fleet, run.generator("indirect queries"), seeds=run.seeds[:SEEDS]
    )
    better = found.lower > lower[chosen]
    out = lower.copy()
    out[chosen] = np.maximum(lower[chosen], found.lower)
    best = int(np.argmax(found.lower))
    told = IndirectQueries(
        open_units=int(open_.sum()),
        searched=len(chosen),
        raised=int(better.sum()),
        queries=int(found.asked),
        best=str(found.kinds[best]),
    )
    return out, told
