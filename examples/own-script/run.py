"""A script that trains and logs its model itself; the lines below the rule are all that privgate adds.

Run it with ``python examples/own-script/run.py [FOLDER]``; it ends with exit code 0.
"""

import sys
from pathlib import Path

import mlflow
from sklearn.datasets import load_wine
from sklearn.naive_bayes import GaussianNB

import privgate
from privgate import registry
from privgate.__main__ import run


def fit(X, y, *, seed, smoothing):
    del seed  # nothing is drawn
    return GaussianNB(var_smoothing=smoothing).fit(X, y)


def main(folder: Path) -> int:
    mlflow.set_tracking_uri(registry.local_registry(folder))
    X, y = load_wine(return_X_y=True)
    model = fit(X, y, seed=7, smoothing=0.1)
    with mlflow.start_run():
        info = mlflow.sklearn.log_model(
            model, name="model", registered_model_name="wine", pyfunc_predict_fn="predict_proba"
        )
    # ---------------------------------------------------------------------------------------------------------------
    recipe = privgate.Recipe(fit, params={"smoothing": 0.1}, seed=7)
    privgate.log_recipe(info, recipe, privgate.TrainingData(X, y, one_record_each=True), store=folder / "data")

    uri = f"models:/wine/{info.registered_model_version}"
    where = ["--report-dir", str(folder / "report"), "--ledger", str(folder / "ledger")]
    return run(["check", uri, "--policy", "pdtp-1", "--jobs", "1", *where])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/own-script")))
