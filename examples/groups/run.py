"""People with several records: ``groups`` names whom each record belongs to, and a person is left out with all of them.

Three visits a patient. Run it with ``python examples/groups/run.py [FOLDER]``; it ends with exit code 0.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.naive_bayes import CategoricalNB

from privgate import Domain, Recipe, TrainingData, log_model, registry
from privgate.__main__ import run

SIZES = (4, 3, 5)
PATIENTS, VISITS = 60, 3


def main(folder: Path) -> int:
    rng = np.random.default_rng(3)
    y = np.repeat(np.where(rng.random(PATIENTS) < 0.5, "ill", "well"), VISITS)
    X = np.column_stack([(rng.integers(0, k, len(y)) + (y == "ill")) % k for k in SIZES])
    patient = np.repeat([f"patient {i}" for i in range(PATIENTS)], VISITS)
    data = TrainingData(X, y, groups=patient, domain=Domain(categories=SIZES))
    recipe = Recipe(CategoricalNB(alpha=20.0, min_categories=list(SIZES)), seed=7)
    store = registry.local_registry(folder)
    info = log_model(recipe, data, registered_model_name="ward", tracking_uri=store, store=folder / "data")
    uri = f"models:/ward/{info.registered_model_version}"
    where = ["--tracking-uri", store, "--report-dir", str(folder / "report"), "--ledger", str(folder / "ledger")]
    return run(["check", uri, "--policy", "dtp-1", "--jobs", "1", *where])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/groups")))
