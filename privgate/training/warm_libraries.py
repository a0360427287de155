"""What the server of warm workers imports before it forks; imported anywhere else, this does nothing."""

import contextlib
import gc
import importlib
import signal
import sys

from privgate.subject.libraries import skops_io
from privgate.training import task_limits

#: most of what a worker imports, in the order in which one does
LIBRARIES = (
    "privgate.training.worker",
    "privgate.families",
    "pandas",
    "scipy.stats",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.pipeline",
)
#: what opens a stored model, beside skops
STORED = ("mlflow.pyfunc", "mlflow.sklearn")


def begin(*, stored: bool = True) -> None:
    """Import them, in a process that does nothing else before it forks; ``stored``: what opens a model as well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    task_limits.scrub()  # of what was set while Python started
    gc.disable()
    for name in (*LIBRARIES, *(STORED if stored else ())):
        with contextlib.suppress(Exception):  # a worker that needs it says so
            importlib.import_module(name)
    if stored:
        with contextlib.suppress(Exception):
            skops_io()
    gc.enable()
    gc.freeze()  # a collection in a worker would copy every page that it looks at


if any("multiprocessing.forkserver import main" in word for word in sys.orig_argv):
    begin()
