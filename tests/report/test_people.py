"""Whoever adds and subtracts all that quantiles and lists of people say finds no group of one to nine."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privgate.evidence.telling import SMALL_CELL, cells
from privgate.report.people import Pseudonyms, summary

KEY = b"k" * 32
TOP = 8.0
figures = st.floats(0, TOP).map(lambda v: round(v, 1)) | st.sampled_from([np.inf, np.nan])


def few(count):
    return 0 < abs(count) < SMALL_CELL


def crowd(data, least=SMALL_CELL):
    """Return figures of people in clumps: many here, a few there."""
    sizes = data.draw(st.lists(st.tuples(figures, st.integers(1, 40)), min_size=1, max_size=8))
    values = np.concatenate([np.full(n, v) for v, n in sizes])
    return np.concatenate([values, np.full(max(0, least - len(values)), 0.1)])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_no_small_count_is_shown_and_none_follows_from_the_total(counts):
    shown = cells(np.array(counts))

    hidden = [c for c, s in zip(counts, shown, strict=True) if s is None]
    assert all(s in (None, c) and not few(s or 0) for c, s in zip(counts, shown, strict=True))
    # one hidden count beside shown ones would follow from the total
    assert len(hidden) != 1 or sum(counts) == hidden[0]


def summed(values, limits=()):
    """Return what is told of people who have one figure each, PDTP and both ends of DTP alike."""
    n = len(values)
    column = dict.fromkeys(("pdtp", "dtp_lower", "dtp_upper"), np.asarray(values, dtype=float))
    rest = {"unit": [f"P{i}" for i in range(n)], "engine": ["refit"] * n, "status": ["exact"] * n}
    zeros = dict.fromkeys(("error", "noise_floor", "seeds"), np.zeros(n))
    table = {**column, **{k: np.array(v, dtype=object) for k, v in rest.items()}, **zeros}
    return summary(table, Pseudonyms(KEY), limits)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.floats(0, 9))
def test_the_list_of_the_worst_counts_nobody_above_a_limit(data, limit):
    made = summed(crowd(data), [("dtp_upper", limit)])

    for name in ("pdtp", "dtp_lower", "dtp_upper"):
        shown = [float(w[name]) for w in made["worst"]]
        assert sum(not v <= limit for v in shown) in (0, len(shown))
        assert len(shown) == 1 or sum(not np.isfinite(v) for v in shown) in (0, len(shown))
    assert len(made["worst"]) + len(made["next_worst"]) == 10
    assert made["next_worst"] == sorted(made["next_worst"])


def test_a_quantile_beyond_which_a_few_lie_is_not_told():
    # one of 150 lies beyond the 99 % quantile: with a limit between it and the largest, the count above is known
    told = summed(np.linspace(0, 2, 150), [("dtp_upper", 1.99)])["figures"]["dtp_upper"]["quantiles"]

    assert told["0.99"] == "nan"
    assert told["0.9"] == pytest.approx(1.8, abs=0.02)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.floats(0, 9))
def test_quantiles_tell_of_no_few_people_on_which_side_of_a_limit_they_are(data, limit):
    values = crowd(data, 30)
    above, (quantiles,) = int((~(values <= limit)).sum()), {str(f) for f in summed(values)["figures"].values()}
    told = {float(q): float(v) for q, v in json.loads(quantiles.replace("'", '"'))["quantiles"].items()}
    low = max((int(np.ceil(q * len(values))) for q, v in told.items() if v <= limit), default=0)
    high = min((int(np.ceil(q * len(values))) for q, v in told.items() if v > limit), default=len(values) + 1)

    assert low <= len(values) - above < high  # what a reader can work out
    assert high - low > 1 or not few(above)


def test_the_worst_come_first_and_no_figure_is_the_worst_of_all():
    told = summed([0.1, float("inf"), 0.3, float("nan"), 0.2])

    # of a mixture the first alone has figures
    assert told["worst"][0]["pdtp"] in ("inf", "nan")
    assert len(told["next_worst"]) == 4
    assert [w["pdtp"] for w in summed([0.1, 0.3, 0.2])["worst"]] == [0.3, 0.2, 0.1]
    assert told["figures"]["pdtp"]["quantiles"]["1.0"] == "inf"
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize("bounded", [0.5, 2.0])
def test_of_some_people_those_are_listed_who_surely_matter_more_than_all_others_and_the_worst(bounded):
    """Two were measured; of the third nothing is known but a bound."""
    columns = {"pdtp": [1.0, 0.2, 0.3], "dtp_lower": [1.0, 0.2, 0.0], "dtp_upper": [1.0, 0.2, np.inf]}
    columns |= {"pdtp_low": [1.0, 0.2, 0.0], "pdtp_high": [1.0, 0.2, bounded], "error": [0.0, 0.0, 1.0]}
    columns |= dict.fromkeys(("noise_floor", "seeds", "engine", "status"), [0.0] * 3)
    table = {"unit": np.array(["P0", "P1", "P2"]), **{k: np.array(v) for k, v in columns.items()}}
    told = summary(table, Pseudonyms(KEY), everybody=False)

    assert ([w["unit"] for w in told["worst"]], told["next_worst"]) == ([Pseudonyms(KEY).hash_name("P0")], [])
    assert (told["n"], told["close"], told["figures"]) == (3, None, {})


def test_ties_are_listed_by_hashes_that_hang_on_the_key_and_not_on_the_row():
    tied, other = summed([0.5] * 40)["worst"], Pseudonyms(b"q" * 32)

    assert [w["unit"] for w in tied] == sorted(Pseudonyms(KEY).hash_name(f"P{i}") for i in range(40))[:10]
    assert Pseudonyms(KEY).hash_name("P1") != other.hash_name("P1")
    assert Pseudonyms(KEY).key_id != other.key_id


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("worst: jane.doe@example.org (training failed)", "jane.doe@example.org"),
        ("unit Jane Doe failed", "Jane Doe"),
        ("['P-1', 'P-2']", "P-1"),
        ("records 17 and P-1", "17"),
        ("between 0.5 and 1 nats; 5 of 100 seeds", None),
    ],
)
def test_names_are_replaced_wherever_a_sentence_holds_them_and_numbers_stay(text, hidden):
    names = Pseudonyms(KEY, ["jane.doe@example.org", "Jane Doe", "Jane", "P-1", "P-2", "17", "5", "100", ""])
    said = names.text(text)

    assert said == text if hidden is None else (hidden not in said and names.hash_name(hidden) in said)


def test_a_row_number_in_brackets_is_a_name_where_the_measurement_says_so():
    names = Pseudonyms(KEY, [str(i) for i in range(1000)])

    told = names.text("between 6.9 and inf nats (17); unit 17 of 1000", also="17")
    assert told == f"between 6.9 and inf nats (record {names.hash_name('17')}); unit {names.hash_name('17')} of 1000"


def test_queries_and_positions_never_reach_a_report():
    names = Pseudonyms(KEY, ["P-1"])

    told = names.scrub({"worst": {"position": 17, "query": [1, 2], "unit": "P-1", "where": "P-1", "value": 2.0}})
    assert told == {
        "worst": {"unit": f"record {names.hash_name('P-1')}", "where": f"record {names.hash_name('P-1')}", "value": 2.0}
    }
