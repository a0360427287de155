"""What the server of warm workers imports before it forks; imported anywhere else, this does nothing."""

import contextlib
import gc
import importlib
import os
import sys

from privgate.subject.opening_skops import skops_io
from privgate.training import environment

#: most of what a worker imports, in the order in which one does
LIBRARIES = (
    "privgate.training.worker",
    "privgate.families",
    "pandas",
    "scipy.stats",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.pipeline",
    "mlflow.pyfunc",
    "mlflow.sklearn",
)


def _begin() -> None:
    """Import, in an environment without secrets: what a process was started with stays readable in ``/proc``."""
    wanted = environment.of_worker(os.environ)
    if dict(os.environ) != wanted:
        os.execve(sys.executable, sys.orig_argv, wanted)  # noqa: S606  this very process, again
    for name in LIBRARIES:
        with contextlib.suppress(Exception):  # a worker that needs it says so
            importlib.import_module(name)
    with contextlib.suppress(Exception):
        skops_io()
    gc.freeze()  # a collection in a worker would copy every page that it looks at


if any("multiprocessing.forkserver import main" in word for word in sys.orig_argv):
    _begin()
