"""Models that calls of the training function gave, kept where they are small: other questions train nothing again.

A policy that asks about the whole domain asks the models of a first policy's run where nobody asked them yet. A model
is bytes here: what a worker packed, only a worker opens, as it opens the stored model. In a run that is to be signed
only models count that this very process had trained.
"""

import hashlib
import io
import pickle
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.subject.subject import Subject
from privgate.training import context
from privgate.training.context import Freshness
from privgate.training.fit import Fit
from privgate.training.ledger import Ledger
from privgate.training.task_limits import OutOfTimeError

#: bytes of one model, and of all models of one batch of calls
EACH, ALL = 2**16, 2**26
#: models of one batch, above which none is kept: asking them elsewhere is for a few people, and most stay unasked
MOST = 8192
#: calls of one batch, above which packing may take one part in so many of the training
FEW, SHARE = 1024, 10
#: of its questions, those at which the opened model is compared with the one that was packed
COMPARED = 16
#: models of a library's class that are compared in each worker
TRIED = 3

Names = list[list[bytes]]


def about(subject: Subject) -> bytes:
    """Return the digest of what a model depends on that is trained without some of the training records."""
    if subject.data.candidates is None:
        return context.of(subject)
    alone = subject.with_data(replace(subject.data, candidates=None))
    data, ends = subject.data, np.array([0, subject.data.pool_size - 1])
    own, wide = (getattr(X, "dtype", None) for X in (data.X, data.at(ends)))
    # beside other numbers a sparse matrix reaches training as another type
    return context.of(alone) if own == wide else context.key(context.of(alone), str(wide).encode())


def names(own: bytes, calls: Sequence[Fit]) -> Names:
    """Return the ledger keys of every call's models; none for models of other subsets, which are asked everywhere."""
    return [[] if call.members is not None else [context.key(own, e) for e in call.of_models] for call in calls]


def many(calls: Sequence[Fit]) -> bool:
    """Whether a batch has more models than are kept."""
    return sum(call.trainings for call in calls) > MOST


def offered(
    calls: Sequence[Fit], named: Names, ledger: Ledger, freshness: Freshness, *, signable: bool, code: bool
) -> tuple[list[Fit], int]:
    """Return the calls with the models that are kept, and how many of these are no trainings of this very process.

    ``code``: models are of anybody's classes, which can be another model once opened, and show a recipe's checks what
    the model that was trained does not do. Only who believes remembered answers anyway asks such a model.
    """
    room = min(EACH, ALL // max(1, sum(call.trainings for call in calls)))
    flat = [name for own in named for name in own]
    bodies = dict(zip(flat, ledger.read(flat), strict=True))
    known = {name: bytes(body) for name, body in bodies.items() if body is not None}
    # somebody else may have kept another model under the same name
    own_made = {name for name, body in known.items() if freshness.models.get(name) == hashlib.sha256(body).digest()}
    nobody: set[bytes] = set()
    # a run that remembered nothing yet could still be signed
    doubted = nobody if signable else known.keys() - (nobody if freshness.recalled else own_made)
    made, taken, sparing = list[Fit](), set[bytes](), len(calls) > FEW
    for call, own in zip(calls, named, strict=True):
        sure = nobody if code else own_made
        models = tuple(known[name] if name in sure or name in doubted else b"" for name in own)
        taken |= {name for name, body in zip(own, models, strict=True) if body and name not in sure}
        with_ = replace(call, keep=room, models=models) if own else call
        made.append(replace(with_, sparing=sparing) if sparing else with_)
    return made, len(taken)


class _Bounded(io.BytesIO):
    """A file that takes so many bytes: a large model is not copied to learn that it is large."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, part: Any) -> int:
        if self.tell() + memoryview(part).nbytes > self._most:
            raise OverflowError("the model is too large to be kept")
        return super().write(part)


def packed(model: Any, most: int, answer: Callable[[Any], NDArray[np.float64]] | None) -> bytes:
    """Return a model as bytes, in the worker that trained it.

    Empty if it is too large, cannot be packed, or gives another ``answer`` once it is opened: it draws, changes when it
    is asked, or leaves part of itself behind.
    """
    import cloudpickle

    try:
        before = np.zeros(0) if answer is None else answer(model)  # asked once more by then, which must leave no trace
        try:
            file = _Bounded(most)
            pickle.Pickler(file, protocol=5).dump(model)
        except (pickle.PicklingError, AttributeError, TypeError):  # of a class that no module here holds
            file = _Bounded(most)
            cloudpickle.Pickler(file, protocol=5).dump(model)
        body = file.getvalue()
        return body if answer is None or np.array_equal(before, answer(opened(body))) else b""
    except (Exception, OutOfTimeError) as exc:  # noqa: BLE001  the user's own class may raise anything; it is trained again
        traceback.print_exception(exc)
        return b""


def opened(body: bytes) -> Any:
    """Return the model, in a worker."""
    return pickle.loads(body)  # noqa: S301  a worker, where the code that made it runs anyway
