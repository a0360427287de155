"""Freezes what the product says: ``python tests/goldens/freeze.py names certificates engines referee kinds=FILE``.

Run on the tree before a rewrite, never on the one after it. Rows that are there already are kept.
"""

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]
import adapters  # noqa: E402  it lies beside this file

DATA = Path(__file__).parent / "data"
#: seeds that are tried for an approved and a refused case
SEEDS = range(40)
NAMES = (
    "privgate.linear_scores:softmax_scores",
    "privgate.guard.store:guarded_store",
    "privgate.evaluation.evaluator:PrivacyEvaluator",
    "privgate.github:main",
)


def numbers(values: Any) -> list[float | str]:
    """Return numbers as JSON, infinite ones as text; twelve digits."""
    return [float(f"{v:.12g}") if np.isfinite(v) else str(v) for v in np.asarray(values, dtype=np.float64).tolist()]


def names() -> Iterator[dict[str, Any]]:
    """Yield every public name and every command with its options."""
    import privgate
    from privgate import models

    yield {"row": "privgate", "names": sorted(privgate.HOMES)}
    yield {"row": "privgate.models", "names": sorted(models.__all__)}
    yield {"row": "elsewhere", "names": list(NAMES)}


def certificates() -> Iterator[dict[str, Any]]:
    """Yield an approved and a refused case of each certificate; the limit is 1 nat, or what divides the cases."""
    from privgate.theorems import catalogue

    for name in catalogue.THEOREMS:
        found = {}
        for seed in SEEDS:
            said = adapters.bounds(name, adapters.instance(name, seed))
            if said is None:
                continue
            low, high = said
            if "approved" not in found and high.max() <= 1:
                found["approved"] = seed, low, high, 1.0
            if "refused" not in found and low.max() > 1:
                found["refused"] = seed, low, high, 1.0
            last = seed, low, high
        if "approved" not in found and np.isfinite(last[2]).all():
            found["approved"] = (*last, float(last[2].max()))
        if "refused" not in found and last[1].max() > 0:
            found["refused"] = (*last, float(last[1].max()) / 2)
        for kind, (seed, low, high, limit) in found.items():
            yield {"row": f"{name} {kind}", "seed": seed, "limit": limit, "low": numbers(low), "high": numbers(high)}


def engines() -> Iterator[dict[str, Any]]:
    """Yield everybody's PDTP by each engine's own cases."""
    for name, subject in adapters.engine_cases():
        said = adapters.engine(name.rpartition("-")[0], subject)
        if said is not None:
            yield {"row": name, "low": numbers(said[0]), "high": numbers(said[1])}


def referee() -> Iterator[dict[str, Any]]:
    """Yield verdict and sentences of each subject of the referee's catalogue."""
    from privgate.training.fleet import Fleet

    fifty = adapters.module("fifty.subjects", "referee")
    catalogue = adapters.module("fifty.catalogue", "referee")
    known = {row["row"] for row in read("referee")}
    for one in fifty.ALL.values():
        if one.name in known or any(importlib.util.find_spec(m) is None for m in one.needs):
            continue
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, Fleet(jobs=1, ledger="none") as fleet:
            try:
                got = catalogue.put(one, Path(folder), fleet)
            except Exception as exc:  # noqa: BLE001  a served subject needs a database that only the tests make
                print(one.name, type(exc).__name__, str(exc)[:100], file=sys.stderr)
                continue
        seconds = round(time.perf_counter() - started, 1)
        yield {
            "row": one.name,
            "outcome": got.outcome,
            "said": got.why,
            "truth": numbers([got.truth])[0],
            "seconds": seconds,
        }


def read(part: str) -> list[dict[str, Any]]:
    """Return the rows of a part that are frozen."""
    path = DATA / f"{part}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    """Freeze the parts that are named; ``kinds=FILE`` keeps the rows that ``python -m kinds --at-most 400`` wrote."""
    DATA.mkdir(exist_ok=True)
    for asked in sys.argv[1:]:
        part, _, file = asked.partition("=")
        known = {row["row"] for row in read(part)}
        kept = ("name", "policy", "verdict", "engine", "n", "low", "high", "said", "cpu")
        lines = Path(file).read_text(encoding="utf-8").splitlines() if file else []
        rows = ({"row": (r := json.loads(line))["name"], **{k: r[k] for k in kept if k in r}} for line in lines)
        with (DATA / f"{part}.jsonl").open("a", encoding="utf-8") as out:
            for row in rows if file else globals()[part]():
                if row["row"] not in known:
                    out.write(json.dumps(row) + "\n")
                    out.flush()


if __name__ == "__main__":
    main()
