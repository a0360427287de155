"""Approved: naive Bayes, strong smoothing, declared domain, judged by DTP-1.

Run it with ``python examples/approved/run.py [FOLDER]``; it ends with exit code 0.
"""

import sys
from pathlib import Path

from sklearn.naive_bayes import CategoricalNB

from privgate import Recipe, log_model, registry
from privgate.__main__ import run
from privgate.demo import adult


def main(folder: Path) -> int:
    store = registry.local_registry(folder)
    recipe = Recipe(CategoricalNB(alpha=5.0, min_categories=list(adult.SIZES)), seed=7)
    info = log_model(recipe, adult.load(), registered_model_name="income", tracking_uri=store, store=folder / "data")
    uri = f"models:/income/{info.registered_model_version}"
    where = ["--tracking-uri", store, "--report-dir", str(folder / "report"), "--ledger", str(folder / "ledger")]
    return run(["promote", uri, "--to", "production", "--policy", "dtp-1", *where])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/approved")))
