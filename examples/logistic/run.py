"""Logistic regression behind a scaler of declared ranges, judged for direct questions.

The scaler learns nothing, so that the engine of logistic regression answers for everybody. Run it with
``python examples/logistic/run.py [FOLDER]``; it ends with exit code 0.
"""

import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from privgate import Domain, Recipe, TrainingData, log_model, registry
from privgate.__main__ import run
from privgate.models import FixedScaler


def main(folder: Path) -> int:
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :4]  # radius, texture, perimeter, area
    domain = Domain(box=[(0.0, 40.0), (0.0, 50.0), (0.0, 250.0), (0.0, 3000.0)])  # declared, never read off the data
    model = make_pipeline(FixedScaler(domain), LogisticRegression(C=0.1, solver="newton-cholesky", tol=1e-8))
    data = TrainingData(X[:400], y[:400], candidates=(X[400:], y[400:]), domain=domain, one_record_each=True)
    store = registry.local_registry(folder)
    info = log_model(
        Recipe(model, seed=7), data, registered_model_name="tumour", tracking_uri=store, store=folder / "data"
    )
    uri = f"models:/tumour/{info.registered_model_version}"
    where = ["--tracking-uri", store, "--report-dir", str(folder / "report"), "--ledger", str(folder / "ledger")]
    return run(["check", uri, "--policy", "pdtp-1", "--jobs", "1", *where])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/logistic")))
