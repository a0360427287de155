"""The look at a stored file: processor seconds of reading and searching it, next to what is promised.

Promised are 2 seconds up to 100 MB, and 2 a GB beyond; that time was over is never what is said of these models.
"""

import io
import itertools
import pickle
import time

import joblib
import numpy as np
import pytest
import torch
import xgboost
from sklearn.ensemble import RandomForestClassifier

from privgate.file import look, readers, record_search
from tests.bench.results_table import note

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1200)]
RNG = np.random.default_rng(0)
RECORDS = {"20,000 x 20": RNG.normal(size=(20_000, 20)), "1,000 x 300": RNG.normal(size=(1_000, 300))}
FIRST = "20,000 x 20"
NETWORK = {f"l{k}": torch.randn(s) / 50 for k, s in enumerate(itertools.pairwise([20, *[2048] * 6, 2000]))}


def fitted(model):
    side = RECORDS[FIRST].sum(axis=1)
    return model.fit(RECORDS[FIRST], side + RNG.normal(size=len(side)) * side.std() > 0)


def saved(write):
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


CASES = {
    "forest of 18 MB, joblib": (lambda: saved(lambda f: joblib.dump(fitted(trees(100, 1150)), f)), [FIRST]),
    "forest of 100 MB": (lambda: pickle.dumps(fitted(trees(500, 1250))), [FIRST]),
    "weights of 100 MB": (lambda: pickle.dumps({"w": RNG.normal(size=(2500, 5000))}), RECORDS),
    "network of 100 MB, torch": (lambda: saved(lambda f: torch.save(NETWORK, f)), [FIRST]),
    "XGBoost": (lambda: pickle.dumps(fitted(xgboost.XGBClassifier(n_estimators=1500, n_jobs=1))), [FIRST]),
}


def trees(count, leaves):
    return RandomForestClassifier(count, max_leaf_nodes=leaves, random_state=0)


@pytest.mark.parametrize("case", CASES)
def test_a_file_is_looked_at_in_the_time_that_is_promised(case):
    make, names = CASES[case]
    content = make()
    promised = record_search.SECONDS * (1 + max(0.0, len(content) / 1e9 - 0.1))
    for name in names:
        started = time.process_time()
        contents = readers.read_files([("model", content)])
        read = time.process_time() - started
        sight = look.find_records(contents, RECORDS[name])
        took, size = time.process_time() - started, len(content) / 1e6
        note(bench="look", case=case, records=name, megabytes=size, read_seconds=read, seconds=took,
             seconds_per_MB=took / size, wanted=promised, reached=bool(took <= promised))  # fmt: skip
        assert not sight.least
        assert not [u for u in sight.unknown if "time was over" in u]
        assert took <= 1.5 * promised
