"""Change the package outside what a yes by theorem rests on, 300 times: no change turns a refusal into a yes.

``make outside`` draws changes of lines that ``refused.py`` runs, from modules that are not in the list of
``tests/test_house.py``, and judges the refused subjects again under each. It takes an hour of one core; what is known
lies in ``build/outside.jsonl``, so that a run on the same tree goes on where one was interrupted. They are tried in the
order in which they are drawn: those of a run that has not ended are a sample, too.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import adapters

mutants, test_house = adapters.module("mutants"), adapters.module("test_house")
kept = adapters.module("kept", "..", "examples")
ROOT = adapters.TESTS.parent
SEED, NUMBER, SECONDS = 20261124, 300, 300
#: what an answer rests on: another tree's answers are not this one's
RESTS = ("privgate", "policies", "tests/goldens/refused.py", "tests/goldens/adapters.py", "tests/in_process.py",
         "tests/goldens/data/certificates.jsonl", "tests/theorems/families.py")  # fmt: skip
#: where refused subjects are judged and nothing approves; of how many
NOTHING = "0 approved of 17"


def judged(tree: Path, *wrapper: str) -> tuple[int, str]:
    """Return how many refused subjects are approved in a copy of the tree, and what was printed last."""
    command = [sys.executable, *wrapper, str(tree / "tests" / "goldens" / "refused.py")]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        made = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return 0, "took too long"
    return made.returncode, (made.stdout.splitlines() or made.stderr.splitlines()[-1:] or [""])[-1]


def run_lines(tree: Path) -> dict[str, set[int]]:
    """Return file -> lines that judging the refused subjects runs."""
    import coverage

    data = tree / ".outside"
    judged(tree, "-m", "coverage", "run", "--rcfile=", f"--data-file={data}", "--source=privgate")
    found = coverage.CoverageData(str(data))
    found.read()
    return {file: set(found.lines(file) or ()) for file in found.measured_files()}


def drawn(tree: Path, number: int) -> list[tuple[str, tuple[int, int, int, str, str]]]:
    """Return (module's file, change): outside the list, on lines that run."""
    inside, reached = test_house.closure(test_house.CONFIRMING), run_lines(tree)
    found = []
    for name, file in test_house.FILES.items():
        lines = reached.get(str(tree / file.relative_to(ROOT)), set())
        if name not in inside and lines:
            found += [(str(file.relative_to(ROOT)), m) for m in mutants.possible(file) if m[0] in lines]
    return random.Random(SEED).sample(found, number)


def copies(number: int) -> SimpleQueue[Path]:
    """Return copies of the tree to change; end where one approves without a change."""
    trees = SimpleQueue[Path]()
    for k in range(number):
        tree = ROOT / "build" / f"outside-{k}"
        shutil.rmtree(tree, ignore_errors=True)
        for part in ("privgate", "policies", "tests"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        trees.put(tree)
    before, said = judged(tree)
    if before or said != NOTHING:
        sys.exit(f"without a change: {said}")
    return trees


def main() -> int:
    """Print what each change came to, and how many approved somebody; return 1 if any did or was not tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=NUMBER, help="of changes")
    parser.add_argument("--jobs", type=int, default=2, help="tried at a time")
    parser.add_argument("--most-minutes", type=float, default=0.0, help="begin none after so many; 0: no end")
    asked, began = parser.parse_args(), time.monotonic()
    tree_digest = kept.of(kept.environment(), kept.digest(*(ROOT / part for part in RESTS)))
    known, trees = ROOT / "build" / "outside.jsonl", copies(asked.jobs)
    before = {row["change"]: row for row in kept.read(known) if row["tree"] == tree_digest}

    def one(change: tuple[str, tuple[int, int, int, str, str]]) -> dict[str, Any] | None:
        file, (line, _, column, what, source) = change
        name = f"{file}:{line}:{column} {what}"
        if name in before or (asked.most_minutes and time.monotonic() - began > 60 * asked.most_minutes):
            return before.get(name)
        tree = trees.get()
        original = (tree / file).read_text(encoding="utf-8")
        (tree / file).write_text(source, encoding="utf-8")
        approved, said = judged(tree)
        (tree / file).write_text(original, encoding="utf-8")
        trees.put(tree)
        row = {"change": name, "approved": approved * (" approved of " in said), "said": said, "tree": tree_digest}
        kept.add(known, row)
        print(name, said, sep=" | ", flush=True)
        return row

    with ThreadPoolExecutor(asked.jobs) as pool:
        tried = list(pool.map(one, drawn(ROOT / "build" / "outside-0", asked.number)))
    ended = [row for row in tried if row]
    approving = [row for row in ended if row["approved"]]
    noticed = sum(row["said"] != NOTHING for row in ended)
    print(f"{len(ended)} of {asked.number} changes, {noticed} of them noticed, {len(approving)} approved somebody")
    for row in approving:
        print("APPROVED", row["change"], row["said"], sep=" | ")
    return int(bool(approving) or len(ended) < asked.number)


if __name__ == "__main__":
    sys.exit(main())
