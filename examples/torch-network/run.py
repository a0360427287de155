"""A network in torch with a training loop of one's own: any function ``fit(X, y, *, seed, …)`` is a recipe.

Run it with ``python examples/torch-network/run.py [FOLDER]``; it ends with exit code 5, inconclusive:
thirty people are few, and another seed changes the answers more than any one of them, so that 75 seeds do not decide.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

sys.path.insert(0, str(Path(__file__).parent))

import network

from privgate import Recipe, TrainingData, log_model, registry
from privgate.__main__ import run


def main(folder: Path) -> int:
    X, y = load_iris(return_X_y=True)
    rows = np.random.default_rng(7).permutation(len(y))
    X, y = X[rows].astype(np.float32), y[rows]
    recipe = Recipe(network.fit, params={"hidden": 4, "epochs": 40}, seed=7)
    data = TrainingData(X[:30], y[:30], candidates=(X[30:], y[30:]), one_record_each=True)
    store = registry.local_registry(folder)
    info = log_model(recipe, data, registered_model_name="iris", tracking_uri=store, store=folder / "data")
    uri = f"models:/iris/{info.registered_model_version}"
    where = ["--tracking-uri", store, "--report-dir", str(folder / "report"), "--ledger", str(folder / "ledger")]
    return run(["check", uri, "--policy", "pdtp-1", "--jobs", "1", *where])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/torch-network")))
