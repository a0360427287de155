"""What the product said before the house was rebuilt is still true: names, bounds, engines, verdicts."""

import importlib
import json
from itertools import zip_longest
from pathlib import Path

import adapters
import documents
import numpy as np
import pytest

DATA = Path(__file__).parent / "data"
#: relative, and nats: what two ways of adding the same numbers may differ by
SAME = 1e-6


def rows(part):
    return [json.loads(line) for line in (DATA / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()]


def by_name(part):
    return pytest.mark.parametrize("row", rows(part), ids=[row["row"] for row in rows(part)])


def still_true(low, high, old_low, old_high):
    """Return whether intervals of the same numbers may both be right: they meet, and an exact old one lies inside.

    A new way of bounding may be wider or narrower. Two intervals of one number have it in common. Where both ends of
    the old one are the number itself, the new one holds it.
    """
    slack = SAME * (1 + np.abs(np.nan_to_num(old_low, posinf=0.0)))
    with np.errstate(invalid="ignore"):
        return (low <= old_high + slack) & (high >= old_low - slack)


@by_name("names")
def test_a_name_outlives_every_move(row):
    for name in row["names"]:
        module, _, attribute = name.partition(":") if ":" in name else (row["row"], ":", name)
        assert getattr(importlib.import_module(module), attribute) is not None


@pytest.mark.quick(3)
@by_name("certificates")
def test_a_bound_over_all_questions_still_holds_the_change(row):
    name, kind = row["row"].split()
    said = adapters.bounds(name, adapters.instance(name, row["seed"]))

    assert said is not None, "a theorem is silent where one spoke"
    low, high = said
    old_low, old_high = (np.array([float(v) for v in row[side]]) for side in ("low", "high"))
    assert still_true(low, high, old_low, old_high).all()
    if row["row"] in UNDECIDED:
        return
    if kind == "approved":
        assert (high <= row["limit"] * (1 + 1e-9)).all()
    else:
        assert (low > row["limit"]).any() == (old_low > row["limit"]).any()


#: the bound of a theorem that was looser than who speaks now: where it stopped was no verdict
UNDECIDED = frozenset(("strong_convexity refused",))


@pytest.mark.quick(2)
@by_name("engines")
def test_what_an_engine_says_of_people_is_what_it_said(row):
    name = row["row"].rpartition("-")[0]
    subject = dict(adapters.engine_cases())[row["row"]]
    said = adapters.engine(name, subject)

    assert said is not None, "an engine declines what it answered"
    low, high = said
    old_low, old_high = (np.array([float(v) for v in row[side]]) for side in ("low", "high"))
    assert still_true(low, high, old_low, old_high).all()
    assert (np.isfinite(high) == np.isfinite(old_high)).all()
    assert (high <= 1).all() == (old_high <= 1).all()


@pytest.mark.quick(4)
@pytest.mark.parametrize("row", documents.ROWS)
def test_what_leaves_of_a_run_is_what_left(row):
    """``python tests/goldens/documents.py ROW`` keeps what is new, after it was read."""
    kept = (documents.FOLDER / f"{row}.txt").read_text(encoding="utf-8").splitlines()

    assert [pair for pair in zip_longest(documents.text(row).splitlines(), kept) if pair[0] != pair[1]][:5] == []
