"""Assertions are rewritten once a checkout, not once a process: each worker would do all 400 files.

pytest offers no way to do this ahead, so its own functions are called; it is held back in ``constraints.txt``.
"""

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).resolve().parent


def share(config: pytest.Config) -> None:
    """Rewrite this worker's share of the files that no earlier run left compiled."""
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    mine, workers = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(TESTS.rglob("test_*.py"))[mine::workers]:
        kept = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(kept.parent):
            stat, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, kept)
