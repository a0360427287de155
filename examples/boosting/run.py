"""Gradient boosting: only retraining answers, so the riskiest people are trained without first, until a rule is broken.

Run it with ``python examples/boosting/run.py [FOLDER]``; it ends with exit code 1.
"""

import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier

from privgate import Recipe, TrainingData, log_model, registry
from privgate.__main__ import run


def main(folder: Path) -> int:
    X, y = load_breast_cancer(return_X_y=True)
    recipe = Recipe(GradientBoostingClassifier(n_estimators=20), seed=7)
    data = TrainingData(X[:200], y[:200], candidates=(X[200:400], y[200:400]), one_record_each=True)
    store = registry.local_registry(folder)
    info = log_model(recipe, data, registered_model_name="tumour", tracking_uri=store, store=folder / "data")
    uri = f"models:/tumour/{info.registered_model_version}"
    where = ["--tracking-uri", store, "--report-dir", str(folder / "report"), "--ledger", str(folder / "ledger")]
    return run(["check", uri, "--policy", "pdtp-1", "--jobs", "1", *where])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/boosting")))
