import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privgate.evidence import Count
from privgate.evidence.telling import SMALL_CELL, cells
from privgate.report.people import Pseudonyms, summary

KEY = b"k" * 32


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_no_small_count_is_shown_and_none_follows_from_the_total(counts):
    shown = cells(np.array(counts))

    hidden = [c for c, s in zip(counts, shown, strict=True) if s is None]
    assert all(s is None or s == 0 or s >= SMALL_CELL for s in shown)
    assert all(s == c for c, s in zip(counts, shown, strict=True) if s is not None)
    # one hidden count beside shown ones would follow from the total
    assert len(hidden) != 1 or sum(counts) == hidden[0]


def records(pdtp, upper=None, names=None):
    n = len(pdtp)
    pdtp = np.asarray(pdtp, dtype=float)
    return {
        "unit": np.array(names or [f"P{i}" for i in range(n)], dtype=object),
        "pdtp": pdtp,
        "dtp_lower": pdtp,
        "dtp_upper": pdtp if upper is None else np.asarray(upper, dtype=float),
        "error": np.zeros(n),
        "noise_floor": np.zeros(n),
        "seeds": np.ones(n, dtype=int),
        "engine": np.full(n, "refit", dtype=object),
        "status": np.full(n, "exact", dtype=object),
    }


def test_the_worst_come_first_and_no_figure_is_the_worst_of_all():
    told = summary(records([0.1, float("inf"), 0.3, float("nan"), 0.2]), Pseudonyms(KEY))

    # of a mixture the first alone has figures
    assert told["worst"][0]["pdtp"] in ("inf", "nan")
    assert len(told["next_worst"]) == 4
    finite = summary(records([0.1, 0.3, 0.2]), Pseudonyms(KEY))["worst"]
    assert [w["pdtp"] for w in finite] == [0.3, 0.2, 0.1]
    assert told["figures"]["pdtp"]["quantiles"]["1.0"] == "inf"
    json.dumps(told, allow_nan=False)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 50), min_size=1, max_size=60), st.floats(0, 50))
def test_counts_above_a_limit_are_right_or_suppressed(values, limit):
    told = summary(records(values), Pseudonyms(KEY), [("pdtp", limit)])["above"][0]

    true = sum(v > limit for v in values)
    # a count is also hidden where it would single out a hidden cell of the histogram
    may_hide = Count(true, len(values)).hidden or 0 < true < len(values)
    assert told["count"] in ((None, true) if may_hide else (true,))
    assert told["count"] in (None, 0, len(values)) or not Count(told["count"], len(values)).hidden
    assert told["between"] is None or told["between"][0] <= true <= told["between"][1]


def test_a_unit_without_a_figure_lies_above_every_limit():
    told = summary(records([float("nan")] * 12), Pseudonyms(KEY), [("pdtp", 1.0)])["above"][0]

    assert told["count"] == 12


def test_ties_are_not_listed_in_the_order_of_the_rows():
    tied = summary(records([0.5] * 40), Pseudonyms(KEY))["worst"]

    names = [Pseudonyms(KEY).of(f"P{i}") for i in range(40)]
    assert [w["unit"] for w in tied] == sorted(names)[:10]


def test_histograms_count_every_unit_when_nothing_is_small():
    values = np.repeat([0.0, 1.0, float("inf")], 50)
    figure = summary(records(values), Pseudonyms(KEY))["figures"]["pdtp"]

    assert sum(figure["counts"]) + figure["unbounded"] == 150


def test_no_table_gives_no_summary():
    assert summary({}, Pseudonyms(KEY)) is None


def test_another_key_gives_other_names():
    assert Pseudonyms(KEY).of("P1") != Pseudonyms(b"q" * 32).of("P1")
    assert Pseudonyms(KEY).key_id != Pseudonyms(b"q" * 32).key_id


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("worst: jane.doe@example.org (training failed)", "jane.doe@example.org"),
        ("unit Jane Doe failed", "Jane Doe"),
        ("['P-1', 'P-2']", "P-1"),
        ("records 17 and P-1", "17"),
    ],
)
def test_names_are_replaced_wherever_a_sentence_holds_them(text, hidden):
    names = Pseudonyms(KEY, ["jane.doe@example.org", "Jane Doe", "Jane", "P-1", "P-2", "17", ""])

    told = names.text(text)

    assert hidden not in told
    assert names.of(hidden) in told


def test_numbers_that_are_no_names_stay():
    names = Pseudonyms(KEY, [str(i) for i in range(100)])

    assert names.text("between 0.5 and 1 nats; 5 of 100 seeds") == "between 0.5 and 1 nats; 5 of 100 seeds"


def test_queries_and_positions_never_reach_a_report():
    names = Pseudonyms(KEY, ["P-1"])

    told = names.scrub({"worst": {"position": 17, "query": [1, 2], "unit": "P-1", "where": "P-1", "value": 2.0}})

    assert told == {"worst": {"unit": f"record {names.of('P-1')}", "where": f"record {names.of('P-1')}", "value": 2.0}}
