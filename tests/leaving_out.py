"""What a closed form answers beside refits of everybody asked about, as a check puts them together."""

from dataclasses import dataclass, field

import numpy as np

from privgate.evidence import Precondition
from privgate.run import refit
from privgate.theorems.catalogue import find_closed_form
from privgate.theorems.closed_form import Retrained


@dataclass
class Answered:
    retrained: Retrained
    rechecks: list[Precondition] = field(default_factory=list)
    declined: dict[str, str] = field(default_factory=dict)


def answer(asked, *, changes=False):
    """Return a closed form's answers where refits agree with them, and refits of whom it leaves; else refits."""
    engine, declined = find_closed_form(asked.subject)
    refits = refit.leave_out(asked, changes=changes)
    made = "none" if engine is None else refit.compute(engine, asked)
    if isinstance(made, str):
        return Answered(refits, declined=declined | ({engine.name: made} if engine else {}))
    checked = refit.compare(made, refits, refit.train_on_all(asked.subject, asked.seeds[:1], asked.fleet)[0])
    if checked.outcome != "passed":
        return Answered(refits, [checked], declined | {engine.name: checked.message})
    rest = refits.select(np.isin(refits.units, made.rest))
    return Answered(Retrained.concatenate([made.answers, rest]), [checked], declined)
