"""What the server of warm workers imports; importing this anywhere else does the same work for nothing."""

import gc
import importlib
import os
import sys

from privgate.training import environment

# what a process was started with stays readable in /proc, so the server begins again without what is secret
_wanted = environment.of_worker(os.environ)
if dict(os.environ) != _wanted:
    os.execve(sys.executable, sys.orig_argv, _wanted)  # noqa: S606  this very process

#: most of what a worker imports, in the order in which one does
LIBRARIES = (
    "privgate.training.worker",
    "privgate.registry.stored_model",
    "pandas",
    "scipy.stats",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.pipeline",
    "mlflow.pyfunc",
    "mlflow.sklearn",
    "skops.io",
)

for library in LIBRARIES:
    try:
        importlib.import_module(library)
    except Exception:  # noqa: BLE001, S112  a worker that needs it says so
        continue
gc.freeze()  # a collection in a worker would copy every page that it looks at
