"""Inconclusive: no theorem bounds boosted trees over all questions, so DTP-1 can be refuted for them but never shown.

The policy says so before anything is trained, and names ``pdtp-1``, which judges direct queries only. Run it with
``python examples/inconclusive/run.py [FOLDER]``; it ends with exit code 5, and no alias is set.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import boosting
from privgate import Recipe, log_model, registry
from privgate.__main__ import run
from privgate.demo import adult


def main(folder: Path) -> int:
    store = registry.local_registry(folder)
    recipe = Recipe(boosting.fit, params={"trees": 10, "depth": 1}, seed=7)
    info = log_model(recipe, adult.load(), registered_model_name="income", tracking_uri=store, store=folder / "data")
    uri = f"models:/income/{info.registered_model_version}"
    where = ["--tracking-uri", store, "--report-dir", str(folder / "report"), "--ledger", str(folder / "ledger")]
    return run(["promote", uri, "--to", "production", "--policy", "dtp-1", "--budget", "100 trainings", *where])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/inconclusive")))
