"""What a box costs a training: the same calls in boxes and in plain worker processes, in turns, the best of each."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.box import bubblewrap
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not bubblewrap.found().version, reason=f"no boxes here: {bubblewrap.found().why}"),
]
RESULTS = Path("bench-results.jsonl")
ROUNDS = 4


class Even:
    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


def working(X, y, *, seed, seconds):
    """Take so much processor time, half in Python and half in NumPy."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        np.sort(np.sin(np.arange(2000.0)))
    return Even()


def took(fleet, subject, calls, first):
    """Return wall and worker seconds a call."""
    fits = [Fit(1, np.arange(1), left_out=np.array([0]), repeat=first + i) for i in range(calls)]
    started = time.perf_counter()
    answers = fleet.fits(subject, fits)
    assert not any(a.problem for a in answers)
    return (time.perf_counter() - started) / calls, float(np.mean([a.seconds for a in answers]))


@pytest.mark.parametrize(("seconds", "calls"), [(1.0, 6), (0.01, 300)])
def test_a_box_costs_next_to_nothing_a_training(seconds, calls):
    """Outside of the training itself, handing over a call and taking its answer is what a box can make slower."""
    X = np.random.default_rng(0).normal(size=(2000, 20))
    subject = Subject.local(Recipe(working, params={"seconds": seconds}, seed=1), TrainingData(X, np.arange(2000) % 2))
    wall: dict[str, list[float]] = {"bubblewrap": [], "none": []}
    beside: dict[str, list[float]] = {"bubblewrap": [], "none": []}
    first: dict[str, float] = {}
    fleets = {way: Fleet(jobs=1, ledger="none", isolate=way) for way in wall}
    try:
        for way, fleet in fleets.items():
            started = time.perf_counter()
            took(fleet, subject, 1, 10**6)
            first[way] = time.perf_counter() - started - seconds
        for r in range(ROUNDS):
            for way, fleet in fleets.items():
                whole, inside = took(fleet, subject, calls, r * calls)
                wall[way].append(whole)
                beside[way].append(whole - inside)
    finally:
        for fleet in fleets.values():
            fleet.close()
    best = {way: min(v) for way, v in wall.items()}
    around = {way: min(v) for way, v in beside.items()}
    row = {
        "what": f"a box a training of {seconds:g} s",
        "boxed_s": best["bubblewrap"],
        "plain_s": best["none"],
        "overhead": (around["bubblewrap"] - around["none"]) / seconds,
        "around_boxed_s": around["bubblewrap"],
        "around_plain_s": around["none"],
        "start_boxed_s": first["bubblewrap"],
        "start_plain_s": first["none"],
    }
    line = json.dumps({k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()})
    print(line)
    with RESULTS.open("a") as f:
        f.write(line + "\n")
    assert row["overhead"] < 0.05
