"""Change the package outside what a yes by theorem rests on, 300 times: no change turns a refusal into a yes.

``python tests/goldens/outside.py`` draws changes of lines that ``refused.py`` runs, from modules that are not in the
list of ``tests/test_house.py``, and judges the refused subjects again under each. It takes about half an hour of two
cores; what is known lies in ``build/outside.jsonl``, so that a run goes on where one was interrupted.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import adapters

mutants, test_house = adapters.module("mutants"), adapters.module("test_house")
ROOT = adapters.TESTS.parent
SEED, NUMBER, SECONDS = 20261124, 300, 300


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
    return sorted(random.Random(SEED).sample(found, number))


def main() -> int:
    """Print what each change came to, and how many approved somebody; return 1 if any did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=NUMBER)
    number = parser.parse_args().number
    build, trees = ROOT / "build", SimpleQueue[Path]()
    for k in range(2):
        tree = build / f"outside-{k}"
        shutil.rmtree(tree, ignore_errors=True)
        for part in ("privgate", "policies", "tests"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        trees.put(tree)
    before, said = judged(tree)
    if before or "0 approved of 13" not in said:
        sys.exit(f"without a change: {said}")
    known = build / "outside.jsonl"
    ended = dict(map(json.loads, known.read_text().splitlines())) if known.exists() else {}

    def one(change: tuple[str, tuple[int, int, int, str, str]]) -> None:
        file, (line, _, column, what, source) = change
        name, tree = f"{file}:{line}:{column} {what}", trees.get()
        if name not in ended:
            path = tree / file
            original = path.read_text(encoding="utf-8")
            path.write_text(source, encoding="utf-8")
            ended[name] = judged(tree)
            path.write_text(original, encoding="utf-8")
            with known.open("a") as f:
                f.write(json.dumps([name, ended[name]]) + "\n")
        trees.put(tree)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, drawn(tree, number)))
    approving = {name: said for name, (count, said) in ended.items() if " approved of " in said and count}
    changed = sum(not said.startswith("0 approved of 13") for _, said in ended.values())
    print(f"{len(ended)} changes, {changed} of them noticed, {len(approving)} approved somebody")
    for name, said in approving.items():
        print(name, said, sep=" | ")
    return int(bool(approving))


if __name__ == "__main__":
    sys.exit(main())
