"""Ten lines, each a ratio of what is measured to what is wanted; writes results.md. `make bench` runs it.

A line that cannot be measured says why, and the others follow. Nothing heavy is imported here (see measurements.py):
a model is registered by a process of its own.
"""

import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from measurements import Cost, measure

from kept import machine

ROOT, HERE = Path(__file__).resolve().parents[2], Path(__file__).resolve().parent
RESULTS = HERE / "results.md"
OUTCOMES = {"passed": "approved", "warned": "approved", "failed": "refused", "inconclusive": "undecided"}
OWN_SUITE = """extends: release-1
schema: privgate/policy/v1
name: own-suite
version: "1"
description: release-1, and a suite of one's own.
data:
  suite: own.json
"""
LABELS = {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "label", "min_value": 0, "max_value": 1}}
#: model and policy of a check
PDTP, WITH_SUITE, WITHOUT = SMALL = ("bayes", "pdtp-1"), ("bayes", "own-suite.yaml"), ("bayes", "no-suite.yaml")
LOGISTIC, TREE, FOREST = ("logistic", "release-1"), ("tree", "pdtp-1"), ("forest", "release-1")


def register(folder: Path, name: str) -> None:
    """Register a model in a SQLite file; of the forest, keep the data for the attack by hand."""
    import numpy as np
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.tree import DecisionTreeClassifier

    from kinds import data
    from kinds.catalogue import columns
    from privgate import Recipe, TrainingData, log_model

    def people(X, y, n, outside):
        pick = (lambda a, b: X.iloc[a:b].reset_index(drop=True)) if hasattr(X, "iloc") else (lambda a, b: X[a:b])
        candidates = (pick(n, n + outside), y[n : n + outside])
        return TrainingData(pick(0, n), y[:n], candidates=candidates, one_record_each=True)

    def blobs(n, outside, d, apart):
        rng = np.random.default_rng(3)
        y = rng.integers(0, 2, n + outside)
        return people(rng.normal(size=(len(y), d)) + apart * y[:, None], y, n, outside)

    def adult():
        table = data.adult(1100)
        return table.pool()[0], np.concatenate([table.y, table.candidates[1]])

    def coded():
        (frame, words), codes = adult(), data.adult_codes(1100)[0]
        X = np.hstack([frame[data.NUMBERS], np.vstack([codes.X, codes.candidates[0]])]).astype(float)
        y = (words == ">50K").astype(int)
        np.savez(folder / "people.npz", X=X[:2000], y=y[:2000])
        return people(X, y, 1000, 1000)

    logistic = make_pipeline(columns(), LogisticRegression(C=0.01, max_iter=1000))
    model, training = {
        "bayes": (GaussianNB(var_smoothing=0.6), lambda: blobs(200, 1000, 8, 0.4)),
        "logistic": (logistic, lambda: people(*adult(), 1000, 1200)),
        # with `--full`, 65 % of the people exceed
        "tree": (DecisionTreeClassifier(max_leaf_nodes=48), lambda: blobs(200, 200, 3, 0.1)),
        "forest": (RandomForestClassifier(100), coded),
    }[name]
    where = {"tracking_uri": f"sqlite:///{folder}/registry.db", "store": folder / "data"}
    log_model(Recipe(model, seed=7), training(), registered_model_name=name, **where)


@dataclass(frozen=True)
class Check:
    """One run of `privgate check`."""

    cost: Cost
    report: dict

    @property
    def trainings(self) -> int:
        return self.report["evidence"]["run"]["trace"]["training_calls"]

    @property
    def by_attacks(self) -> bool:
        """Whether attacks refused."""
        return any(f["rule"].startswith("attack") and f["outcome"] == "failed" for f in self.report["findings"])

    def __str__(self) -> str:
        return f"{OUTCOMES[self.report['outcome']]}, {self.trainings} trainings, {self.cost.seconds:.1f} s by the clock"


@dataclass
class Bench:
    """Checks in a folder; each is run when a line first needs it."""

    folder: Path
    checks: dict[tuple, list[Check]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unset = ("MLFLOW_TRACKING_URI", "PRIVGATE_LEDGER", "PYTHONPATH")
        self.environment = {k: v for k, v in os.environ.items() if k not in unset} | {"OMP_NUM_THREADS": "1"}
        shipped = (ROOT / "policies" / "release-1.yaml").read_text(encoding="utf-8")
        (self.folder / "no-suite.yaml").write_text(shipped.replace("  suite: release.json\n", ""), encoding="utf-8")
        (self.folder / "own-suite.yaml").write_text(OWN_SUITE, encoding="utf-8")
        suite = {"name": "own", "expectations": [LABELS]}
        (self.folder / "own.json").write_text(json.dumps(suite), encoding="utf-8")

    def run(self, *command: str | Path, codes: tuple[int, ...] = (0,), **options) -> Cost:
        """Measure a command; raise with its last line where it ends otherwise than expected."""
        cost = measure([*map(str, command)], **{"env": self.environment, "cwd": self.folder} | options)
        if cost.code not in codes:
            raise RuntimeError(f"exit code {cost.code}: {(cost.text.splitlines() or [''])[-1]}")
        return cost

    def privgate(self, place: str, model: str, policy: str, *more: str) -> Cost:
        """Run a check as its user does, with a ledger that holds nothing."""
        command = [Path(sys.executable).with_name("privgate"), "check", f"models:/{model}/1", "--policy", policy]
        command += ["--tracking-uri", f"sqlite:///{self.folder}/registry.db", "--jobs", "1", *more]
        return self.run(*command, "--report-dir", place, "--ledger", f"{place}-ledger", codes=(0, 1, 5))

    def check(self, model: str, policy: str, runs: int = 1) -> list[Check]:
        """Return runs of a check, as many as were asked for at the first time."""
        if (model, policy) not in self.checks:
            if model not in {of[0] for of in self.checks}:
                self.run(sys.executable, __file__, self.folder, model, cwd=ROOT, env=None)
            self.checks[model, policy] = []
            for i in range(runs):
                place = f"{model}-{policy}-{i}"
                cost = self.privgate(place, model, policy)
                report = json.loads((self.folder / place / "report.json").read_text(encoding="utf-8"))
                self.checks[model, policy].append(Check(cost, report))
        return self.checks[model, policy]

    def foresee(self, model: str, policy: str) -> int:
        """Return how many trainings `--plan` foresees where the check ends as it does."""
        text = " ".join(self.privgate(f"{model}-{policy}-plan", model, policy, "--plan").text.split())
        where = "refuse at their first look:" if self.check(model, policy)[0].by_attacks else "in all:"
        return int(re.search(rf"{where} (?:at most )?([\d,]+) training", text)[1].replace(",", ""))


Measured = tuple[float, str]


def processor_seconds(bench: Bench, of: tuple[str, str]) -> Measured:
    best = min(bench.check(*of, runs=3), key=lambda c: c.cost.processor_seconds)
    return best.cost.processor_seconds, str(best)


def peak_memory(bench: Bench) -> Measured:
    peaks = {of[1]: max(c.cost.peak for c in bench.check(*of, runs=3)) for of in SMALL}
    return max(peaks.values()), ", ".join(f"{k} {v:.0f}" for k, v in peaks.items())


def first_line(bench: Bench) -> Measured:
    first = {of[1]: min(c.cost.seconds_to_line(*of) for c in bench.check(*of, runs=3)) for of in SMALL}
    return max(first.values()), ", ".join(f"{k} {v:.2f}" for k, v in first.items())


def trainings(bench: Bench, of: tuple[str, str], outcome: str) -> Measured:
    check = bench.check(*of)[0]
    if OUTCOMES[check.report["outcome"]] != outcome or (of is FOREST and not check.by_attacks):
        raise RuntimeError(f"the check ended {check}")
    return check.trainings, str(check)


def foreseen(bench: Bench) -> Measured:
    pairs = {of: (bench.foresee(*of), bench.check(*of)[0].trainings) for of in (PDTP, WITHOUT, LOGISTIC, FOREST)}
    note = "; ".join(f"{model}, {policy}: {plan} / {count}" for (model, policy), (plan, count) in pairs.items())
    return max(max(plan / count, count / plan) for plan, count in pairs.values()), note


def by_hand(bench: Bench) -> Measured:
    attacks = bench.check(*FOREST)[0].report["evidence"]["membership"]["attacks"]
    auc = {a["name"]: a["figures"]["auc"] for a in attacks if "auc" in (a.get("figures") or {})}
    strongest = max(auc, key=auc.get)
    ours, hand = [], []
    for i in range(3):  # in turns, so that a busy moment hits both of them
        ours.append(bench.privgate(f"forest-{i}", *FOREST))
        hand.append(bench.run(sys.executable, HERE / "peers.py", "people.npz"))
    said = f"ours: AUC {auc['lira_online']:.2f} by LiRA and {auc[strongest]:.2f} by {strongest}"
    least, seconds = (min(c.seconds for c in runs) for runs in (ours, hand))
    said += f", {least:.1f} s; by hand: AUC {json.loads(hand[0].text.splitlines()[-1])['auc']:.2f}, {seconds:.1f} s"
    return least / seconds, said


#: what is measured, what is wanted, and how
LINES: tuple[tuple[str, float, Callable[[Bench], Measured]], ...] = (
    ("`pdtp-1`, naive Bayes, 200 people: processor seconds", 3.0, lambda b: processor_seconds(b, PDTP)),
    ("`release-1` with a suite, the same: processor seconds", 5.0, lambda b: processor_seconds(b, WITH_SUITE)),
    ("`release-1` without a suite, the same: processor seconds", 3.6, lambda b: processor_seconds(b, WITHOUT)),
    ("largest memory of these, MB", 300, peak_memory),
    ("seconds to the line that names version and policy", 0.5, first_line),
    ("trainings until columns and logistic regression are approved", 400, lambda b: trainings(b, LOGISTIC, "approved")),
    ("trainings until a small tree is refused by influence", 25, lambda b: trainings(b, TREE, "refused")),
    ("trainings until a forest is refused by attacks", 10, lambda b: trainings(b, FOREST, "refused")),
    ("`--plan`: trainings foreseen / trained, the worst either way", 1.3, foreseen),
    ("the forest: seconds of the whole decision / of LiRA by hand", 1.0, by_hand),
)
HEAD = """# Ten lines

`make bench` writes this table. Processor seconds and memory are those of all processes of `privgate check --jobs 1`,
sandboxes and a registry in a file included. Seconds are the least of three runs. `tests/bench/run.py` has the models;
the people are of UCI Adult but for naive Bayes and the tree.

{machine}, load {load:.1f} at the beginning, {minutes:.0f} minutes in all.

| | what | measured | wanted | ratio | reached | note |
| --- | --- | ---: | ---: | ---: | --- | --- |
{rows}
"""


def main() -> int:
    """Measure every line, print it, and write the table; 1 where a line could not be measured."""
    rows, broken, load, began = [], 0, os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for i, (what, wanted, measure_line) in enumerate(LINES, 1):
            try:
                value, note = measure_line(bench)
            except Exception as exc:  # noqa: BLE001  the other lines follow
                value, note, broken = math.nan, f"not measured: {type(exc).__name__}: {exc}", 1
            ratio = value / wanted
            cells = (i, what, f"{value:.4g}", f"{wanted:g}", f"{ratio:.2f}", "yes" if ratio <= 1 else "no", note)
            rows.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
            print(rows[-1], flush=True)
    minutes = (time.monotonic() - began) / 60
    text = HEAD.format(machine=machine(), load=load, minutes=minutes, rows="\n".join(rows))
    RESULTS.write_text(text, encoding="utf-8")
    return broken


if __name__ == "__main__":
    sys.exit(register(Path(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 1 else main())
