"""Ten ordinary models under the policy of a release, as their users run it, next to what ``--plan`` says beforehand.

Each takes ten minutes of the clock at most, of two workers on a quiet machine; one alone: ``-k MLPClassifier``.
"""

import json
import os
import re
import sys

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from kinds.catalogue import columns
from kinds.data import NUMBERS, adult, adult_codes, texts
from privgate import Recipe, TrainingData, log_model, registry
from tests.bench.results_table import note
from tests.bench.test_fixed_cost import measured

pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"),
]
PEOPLE = int(os.environ.get("PRIVGATE_BENCH_PEOPLE", "1000"))
POLICY = "release-1"
HOURS = NUMBERS.index("hours_per_week")


def coded(n):
    """Return numbers, words as codes, and labels 0 and 1."""
    numbers, words = adult(n, columns=NUMBERS), adult_codes(n)[0]
    X, out = np.hstack([numbers.X, words.X]), np.hstack([numbers.candidates[0], words.candidates[0]])
    y, asked = ((v == ">50K").astype(int) for v in (numbers.y, numbers.candidates[1]))
    return TrainingData(X, y, candidates=(out, asked), one_record_each=True)


def hours(n):
    """Return everything else about people, and the hours that they work a week."""
    found = coded(n)
    (X, y), (out, asked) = ((np.delete(t, HOURS, axis=1), t[:, HOURS]) for t in (found.X, found.candidates[0]))
    return TrainingData(X, y, candidates=(out, asked), one_record_each=True)


MODELS = {
    "columns + LogisticRegression": (lambda: make_pipeline(columns(), LogisticRegression(max_iter=1000)), adult),
    "RandomForestClassifier": (RandomForestClassifier, coded),
    "HistGradientBoostingClassifier": (HistGradientBoostingClassifier, coded),
    "LightGBM": (lambda: pytest.importorskip("lightgbm").LGBMClassifier(verbose=-1), coded),
    "XGBoost": (lambda: pytest.importorskip("xgboost").XGBClassifier(), coded),
    "MLPClassifier": (lambda: make_pipeline(columns(), MLPClassifier()), adult),
    "TfidfVectorizer + LogisticRegression": (lambda: make_pipeline(TfidfVectorizer(), LogisticRegression()), texts),
    "KNeighborsClassifier": (lambda: make_pipeline(columns(), KNeighborsClassifier()), adult),
    "GaussianNB": (GaussianNB, coded),
    "RandomForestRegressor": (RandomForestRegressor, hours),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_an_ordinary_model(name, tmp_path):
    model, data = MODELS[name]
    store = registry.local_registry(tmp_path)
    recipe = Recipe(model(), seed=7)
    log_model(recipe, data(PEOPLE), registered_model_name="own", tracking_uri=store, store=tmp_path / "data")
    command = [sys.executable, "-m", "privgate", "check", "models:/own/1", "--policy", POLICY, "--jobs", "2"]
    command += ["--tracking-uri", store, "--report-dir", str(tmp_path / "report"), "--ledger"]
    own = {k: v for k, v in os.environ.items() if k not in ("MLFLOW_TRACKING_URI", "PRIVGATE_LEDGER")}
    planned = measured([*command, str(tmp_path / "planned"), "--plan"], env=own, cwd=tmp_path, every=0.1)
    print(planned["said"], planned["processor_seconds"], flush=True)
    assert planned["code"] == 0, planned["said"]
    said = re.search(r"in all: at most (\d+) trainings.*", planned["said"])
    made = measured([*command, str(tmp_path / "made")], env=own, cwd=tmp_path, every=0.1)
    assert made["code"] in (0, 1, 5), made["said"]
    report = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    decided = [f"{f['rule']}: {f['message']}" for f in report["findings"] if f["outcome"] == report["outcome"]][:1]
    note(bench="ten models", model=name, n=PEOPLE, policy=POLICY, planned_trainings=int(said[1]), planned=said[0],
         trainings=report["evidence"]["run"]["trace"]["training_calls"], verdict=report["outcome"], decided=decided,
         processor_seconds=made["processor_seconds"], seconds=made["seconds"], plan_took=planned["seconds"],
         plan_processor_seconds=planned["processor_seconds"])  # fmt: skip
