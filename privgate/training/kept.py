"""Models that calls of the training function gave, kept where they are small: other questions train nothing again.

A policy that asks about the whole domain asks the models of a first policy's run where nobody asked them yet. A model
is bytes here: what a worker packed, only a worker opens, as it opens the stored model. In a run that is to be signed
only models count that this very process had trained.
"""

import pickle
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from privgate.subject.subject import Subject
from privgate.training import context
from privgate.training.fit import Block, Call, Fit
from privgate.training.freshness import Freshness
from privgate.training.ledger import Ledger
from privgate.training.limits import OutOfTimeError

#: bytes of one model, and of all models of one batch of calls
EACH, ALL = 2**16, 2**26
#: models of one batch, above which none is kept: asking them elsewhere is for a few people, and most stay unasked
MOST = 8192
#: calls of one batch, above which packing may take one part in so many of the training
FEW, SHARE = 128, 40

Names = list[list[bytes]]


def about(subject: Subject) -> bytes:
    """Return the digest of what a model depends on that is trained without some of the training records."""
    if subject.data.candidates is None:
        return context.of(subject)
    return context.of(subject.with_data(replace(subject.data, candidates=None)))


def names(own: bytes, calls: Sequence[Call]) -> Names:
    """Return the ledger keys of every call's models; none for models of other subsets, which are asked everywhere."""
    return [
        [] if any(f.members is not None for f in fits_of(call)) else [context.key(own, e) for e in call.of_models]
        for call in calls
    ]


def fits_of(call: Call) -> tuple[Fit, ...]:
    """Return what each model of a call would be as a call of its own."""
    return call.fits if isinstance(call, Block) else (call,)


def many(calls: Sequence[Call]) -> bool:
    """Whether a batch has more models than are kept."""
    return sum(call.trainings for call in calls) > MOST


def offered(
    calls: Sequence[Call], named: Names, ledger: Ledger, freshness: Freshness, *, signable: bool
) -> tuple[list[Call], int]:
    """Return the calls with the models that are kept, and how many of these this process did not train."""
    room = min(EACH, ALL // max(1, sum(call.trainings for call in calls)))
    flat = [name for own in named for name in own]
    usable = [name for name in flat if not signable or name in freshness.fresh]
    bodies = dict(zip(usable, ledger.read(usable), strict=True))
    found = {name: bytes(body) for name, body in bodies.items() if body is not None}
    made, sparing = list[Call](), len(calls) > FEW
    for call, own in zip(calls, named, strict=True):
        models = tuple(found.get(name, b"") for name in own)
        with_ = replace(call, keep=room, models=models) if own else call
        made.append(replace(with_, sparing=sparing) if isinstance(with_, Fit) and sparing else with_)
    return made, sum(name not in freshness.fresh for name in found)


def packed(model: Any, most: int) -> bytes:
    """Return a model as bytes, in the worker that trained it; empty if it is too large, or cannot be packed."""
    import cloudpickle

    try:
        try:
            body = pickle.dumps(model, protocol=5)
        except (pickle.PicklingError, AttributeError, TypeError):  # of a class that no module here holds
            body = cloudpickle.dumps(model, protocol=5)
    except (Exception, OutOfTimeError) as exc:  # noqa: BLE001  the user's own class may raise anything; it is trained again
        traceback.print_exception(exc)
        return b""
    return body if len(body) <= most else b""


def opened(body: bytes) -> Any:
    """Return the model, in a worker; None where it cannot be opened there."""
    try:
        return pickle.loads(body)  # noqa: S301  a worker, where the code that made it runs anyway
    except Exception as exc:  # noqa: BLE001  the user's own class may raise anything; it is trained again
        traceback.print_exception(exc)
        return None
