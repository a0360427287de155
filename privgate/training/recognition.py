"""In a worker: whether a training function does no more than fit one estimator of a library to exactly its data.

The function is run under observation, on all records and on random halves. It is recognised where each time exactly one
estimator is fitted, that one is returned, its parameters are the same each time, and a fresh copy of it, fitted to
exactly the records and labels that the function was given, answers the same to the last bit but rounding.
"""

import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

import numpy as np

from privgate.subject import estimators
from privgate.subject.containers import take
from privgate.training import worker
from privgate.training.fit import Fit, Rows
from privgate.training.payload import Opened, Payload
from privgate.training.task_limits import Clock, TaskLimits

#: trainings that one recognition takes: the function's and the copy's, on all records and on two halves
TRAININGS = 6
#: difference of probabilities that the order of sums may leave
_ROUNDING = 1e-12
_FITS = ("fit", "fit_transform", "fit_predict", "partial_fit")
_HOMES = ("sklearn.", "privgate.models")


def recognised(payload: Payload, limits: TaskLimits, seed: int) -> dict[str, Any]:
    """Return ``{"estimator": JSON}`` of what the function fits, or ``{"why": sentence}``.

    Parameters
    ----------
    payload : Payload
    limits : TaskLimits
        Each training gets its time.
    seed : int
        Draws the halves.
    """
    with worker._ONE_AT_A_TIME, worker._guest(), worker._one_process(), Clock(limits.seconds) as clock:  # noqa: SLF001  one room
        try:
            with clock.call(max(limits.seconds, worker.LOADING_SECONDS)):
                opened, rows = worker._open(payload)  # noqa: SLF001  ditto
            return _recognised(opened, rows, clock, np.random.default_rng(seed))
        except BaseException as exc:  # noqa: BLE001  the user's code may raise anything; it becomes a sentence
            return {"why": worker.sentence("the training function, watched,", exc, Path(payload.folder))}


def _recognised(opened: Opened, rows: Rows, clock: Clock, rng: np.random.Generator) -> dict[str, Any]:
    from sklearn.base import clone

    everybody = np.arange(opened.n, dtype=np.int64)
    halves = [np.sort(rng.permutation(everybody)[: opened.n // 2]) for _ in range(2)]
    found: Any = None
    for members in (everybody, *halves):
        X, y = rows.of(Fit(opened.recipe.seed, everybody, members=members))
        with clock.call(), _watched() as fitted:
            model = opened.recipe.train(X, y, seed=opened.recipe.seed)
        if len(fitted) != 1 or fitted[0] is not model:
            return {
                "why": f"it fits {len(fitted)} estimators of scikit-learn and returns something else than one alone"
            }
        form = estimators.encode(model)
        if found is not None and form != found:
            return {"why": "the parameters of what it fits depend on the data"}
        found = form
        X, y = rows.of(Fit(opened.recipe.seed, everybody, members=members))
        with clock.call():
            twin = clone(model).fit(X, y)
        asked = take(opened.X, everybody)
        apart = np.abs(twin.predict_proba(asked) - model.predict_proba(asked))
        if not (apart <= _ROUNDING).all():
            return {"why": f"what it returns is not what {type(model).__name__} makes of these records and labels"}
    return {"estimator": found}


@contextmanager
def _watched() -> Iterator[list[Any]]:
    """Note every estimator of a library that is fitted, but not those that it fits itself."""
    fitted: list[Any] = []
    outermost: list[FrameType | None] = [None]

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and outermost[0] is None and frame.f_code.co_name in _FITS:
            if str(frame.f_globals.get("__name__", "")).startswith(_HOMES):
                outermost[0] = frame
                fitted.append(frame.f_locals.get("self"))
        elif event == "return" and frame is outermost[0]:
            outermost[0] = None

    before = sys.getprofile()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield fitted
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


# Whose code a frame runs: the recipe's own, an installed library's, ours, or Python's.

Whose = Literal["own", "library", "ours", "python"]

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
#: what a notebook or an interactive session calls its code, and cloudpickle 3.1.3 on whatever it carries by value
_TYPED = ("<ipython", "<stdin>", "<cell", "<dynamic-code>")


@cache
def places() -> tuple[str, ...]:
    """Return where Python and its distributions are installed."""
    paths = sysconfig.get_paths()
    roots = {paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= {sys.prefix, sys.base_prefix}
    return tuple(sorted({str(Path(r).resolve()) + "/" for r in roots} | {r + "/" for r in roots}, key=len))


def whose(code: CodeType) -> Whose:
    """Return whose a piece of code is; what a library makes up as text counts as Python's, its caller decides."""
    return of_file(code.co_filename)


@cache
def of_file(name: str) -> Whose:
    """Return whose the code in a file is."""
    if name.startswith("<"):
        return "own" if name.startswith(_TYPED) else "python"
    if name.startswith(_PACKAGE):
        return "ours"
    if "/site-packages/" in name or "/dist-packages/" in name:
        return "library"
    return "python" if name.startswith(places()) else "own"


def asker(frame: FrameType | None) -> Whose:
    """Return who asks for what Python is doing in ``frame``: the innermost code that is not Python's.

    What ours does for the recipe's own code is the recipe's.
    """
    found: Whose = "python"
    while frame is not None:
        kind = whose(frame.f_code)
        if kind == "own" or (kind == "library" and found == "python"):
            return kind
        found = kind if kind == "ours" else found
        frame = frame.f_back
    return found


def importing(frame: FrameType | None) -> bool:
    """Whether Python's own import is at work before any other code."""
    while frame is not None and whose(frame.f_code) == "python":
        if frame.f_code.co_filename.startswith(("<frozen importlib", "<frozen zipimport")):
            return True
        frame = frame.f_back
    return False
