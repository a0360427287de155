"""Models whose design bounds a person on every data set: shards, smoothed votes and shares.

Claim.  Whatever the records are, no question changes any label's log-probability by more than ``high`` when a person
leaves who holds ``held`` of what the design counts: shards or votes.

Certificate.  None: the design is a setting. That the model *is* of this design, that members read nothing but their
own records, and how many shards a person is in, is checked where the model is read.

Why it is enough (docs/mathematics.md, section 12).

- ``log_pool``: M members' scores, each clipped to a range R, are averaged and pass a softmax over C declared labels.
  ``held`` members change every difference of two scores by at most D = 2 R held / M, and no difference leaves [-R, R]:
  Theorem 12.1, ``ln[(1 + (C-1) e^R) / (1 + (C-1) e^(R-D))]``, attained.
- ``shares``: ``(sum of parts + alpha) / (number of parts + C alpha)``, each part a distribution or a vote, of which
  ``held`` change: ``ln(1 + held / alpha)``, Theorem 12.2. Counts of records in a cell are such votes, and so are the
  k neighbours of a question, of which ``held`` is at most k.

Axioms.  Shares and a logistic function err by a few units in the last place, which ``_SPARE`` holds many times over;
``off`` is what else a library's rounding moves an answer by.
"""

import numpy as np

from privgate.kernel.assertion import Case, Float, Limits, every

#: nats; rounding of a released probability, and of these formulas
_SPARE = 9e-10
#: largest range of clipped scores, and least smoothing, at which rounding stays below ``_SPARE``
_RANGE, _ALPHA = 500.0, 1e-6


def bound(case: Case) -> Limits:
    """Return the limit of each person from how much of the design they hold."""
    held = case.array("held", 1, "i").astype(np.float64)
    every(
        (bool((held >= 0).all()), "somebody holds less than nothing"),
        (case.setting("design", str) in DESIGNS, f"the design is none of {', '.join(DESIGNS)}; 'ball' went with 0.1.0"),
    )
    off = case.setting("off", float, 0.0)
    every((off >= 0, "rounding is less than nothing"))
    return Limits(np.zeros(len(held)), DESIGNS[case.setting("design", str)](case, held) * (1 + 1e-12) + _SPARE + off)


def _log_pool(case: Case, held: Float) -> Float:
    clip: float = case.setting("clip", float)
    members, labels = case.setting("members", int), case.setting("labels", int)
    every((0 < clip <= _RANGE and members >= 1 and labels >= 2, "no such shards"))
    moved = 2 * clip * np.minimum(held / members, 1.0)
    # ln (1 + (C-1) e^R) - ln (1 + (C-1) e^(R-D)), without a difference of two large numbers
    tail = np.exp(-clip) / (labels - 1)
    return np.asarray(np.log1p(tail) - np.log1p(tail * np.exp(moved)) + moved)


def _shares(case: Case, held: Float) -> Float:
    alpha: float = case.setting("alpha", float)
    most: int = case.setting("most", int, 2**40)
    every((alpha >= _ALPHA and most >= 1, "too little smoothing"))
    return np.asarray(np.log1p(np.minimum(held, most) / alpha))


DESIGNS = {"log_pool": _log_pool, "shares": _shares}
