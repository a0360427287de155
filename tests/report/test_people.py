"""Whoever adds and subtracts all that histograms, limits and lists of people say finds no group of one to nine."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privgate.evidence import Count
from privgate.evidence.telling import SMALL_CELL, cells
from privgate.report.people import Pseudonyms, apart, histogram, summary

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


def told(made):
    """Return the number of people above each point that a reader can work out, by adding up what is shown."""
    counts, unbounded = made.counts()
    known = {made.edges[0] - 1: len(made.values)}
    for edge, count in zip(made.edges[1:], counts, strict=True):
        if count is None:
            break
        known[edge] = list(known.values())[-1] - count
    if unbounded is not None:
        known[np.inf] = unbounded
    return known | {cut: made.above(cut) for cut in made.cuts}


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_no_small_count_is_shown_and_none_follows_from_the_total(counts):
    shown = cells(np.array(counts))

    hidden = [c for c, s in zip(counts, shown, strict=True) if s is None]
    assert all(s in (None, c) and not few(s or 0) for c, s in zip(counts, shown, strict=True))
    # one hidden count beside shown ones would follow from the total
    assert len(hidden) != 1 or sum(counts) == hidden[0]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.floats(0, 9), max_size=3))
def test_no_two_things_that_are_told_differ_by_a_few(data, limits):
    made = histogram(crowd(data), list(np.linspace(0, TOP, 25)), limits)

    known = told(made)
    assert not any(few(a - b) for a, b in itertools.combinations(known.values(), 2)), known
    assert all(k == made.above(e) for e, k in known.items() if np.isfinite(e) and e >= 0)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 9))
def test_beside_a_few_without_a_figure_any_number_of_them_is_possible(data, few_of):
    finite = crowd(data, 30)
    values = np.append(finite[np.isfinite(finite)], [np.inf] * few_of)
    counts, unbounded = histogram(values, list(np.linspace(0, TOP, 25)), [1.0]).counts()

    if len(values) - few_of >= 2 * SMALL_CELL:
        assert unbounded is None
        together = len(values) - sum(c for c in counts if c is not None)
        assert together - (SMALL_CELL - 1) >= SMALL_CELL


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_two_figures_of_the_same_people_differ_by_no_few_at_an_edge(data):
    lower = crowd(data)
    upper = np.where(np.arange(len(lower)) % data.draw(st.integers(2, 30)) == 0, lower + 1.0, lower)
    edges = list(np.linspace(0, TOP + 1, 25))
    made = apart({"dtp_upper": histogram(upper, edges, [2.0]), "dtp_lower": histogram(lower, edges, [2.0])})

    a, b = (told(m) for m in made.values())
    assert not any(few(a[e] - b[e]) for e in set(a) & set(b))


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


def test_four_people_above_the_limit_follow_from_nothing_in_a_report():
    made = summed([*np.linspace(0, 0.8, 996), 1.05, 1.2, 1.6, 1.7], [("dtp_upper", 1.0)])

    (row,) = made["above"]
    assert (row["count"], row["between"]) == (None, [1, 9])
    assert [w["dtp_upper"] for w in made["worst"]] == [1.7]
    assert len(made["next_worst"]) == 9
    figure = made["figures"]["dtp_upper"]
    assert 1.0 not in figure["edges"]
    assert not any(few(c or 0) for c in figure["counts"])
    assert sum(figure["counts"]) == 1000


def test_a_quantile_beyond_which_a_few_lie_is_not_told():
    # one of 150 lies beyond the 99 % quantile: with a limit between it and the largest, the count above is known
    told = summed(np.linspace(0, 2, 150), [("dtp_upper", 1.99)])["figures"]["dtp_upper"]["quantiles"]

    assert told["0.99"] == "nan"
    assert told["0.9"] == pytest.approx(1.8, abs=0.02)


def test_the_worst_come_first_and_no_figure_is_the_worst_of_all():
    told = summed([0.1, float("inf"), 0.3, float("nan"), 0.2])

    # of a mixture the first alone has figures
    assert told["worst"][0]["pdtp"] in ("inf", "nan")
    assert len(told["next_worst"]) == 4
    assert [w["pdtp"] for w in summed([0.1, 0.3, 0.2])["worst"]] == [0.3, 0.2, 0.1]
    assert told["figures"]["pdtp"]["quantiles"]["1.0"] == "inf"
    json.dumps(told, allow_nan=False)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 50), min_size=1, max_size=60), st.floats(0, 50))
def test_counts_above_a_limit_are_right_or_suppressed(values, limit):
    told = summed(values, [("pdtp", limit)])["above"][0]

    true = sum(v > limit for v in values)
    # a count is also hidden where it would single out a hidden cell of the histogram
    assert told["count"] in ((None, true) if 0 < true < len(values) else (true,))
    assert told["count"] in (None, 0, len(values)) or not Count(told["count"], len(values)).hidden
    assert told["between"] is None or told["between"][0] <= true <= told["between"][1]


def test_people_without_a_figure_lie_above_every_limit_and_all_are_counted():
    figure = summed(np.repeat([0.0, 1.0, float("inf")], 50))["figures"]["pdtp"]

    assert summed([float("nan")] * 12, [("pdtp", 1.0)])["above"][0]["count"] == 12
    assert sum(figure["counts"]) + figure["unbounded"] == 150
    assert summary({}, Pseudonyms(KEY)) is None


@pytest.mark.parametrize("bounded", [0.5, 2.0])
def test_of_some_people_those_are_listed_who_surely_matter_more_than_all_others_and_the_worst(bounded):
    """Two were measured; of the third nothing is known but a bound."""
    columns = {"pdtp": [1.0, 0.2, 0.3], "dtp_lower": [1.0, 0.2, 0.0], "dtp_upper": [1.0, 0.2, np.inf]}
    columns |= {"pdtp_low": [1.0, 0.2, 0.0], "pdtp_high": [1.0, 0.2, bounded], "error": [0.0, 0.0, 1.0]}
    columns |= dict.fromkeys(("noise_floor", "seeds", "engine", "status"), [0.0] * 3)
    table = {"unit": np.array(["P0", "P1", "P2"]), **{k: np.array(v) for k, v in columns.items()}}
    told = summary(table, Pseudonyms(KEY), everybody=False)

    assert ([w["unit"] for w in told["worst"]], told["next_worst"]) == ([Pseudonyms(KEY).hash_name("P0")], [])
    assert (told["n"], told["close"], told["figures"], told["above"]) == (3, None, {}, [])


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
