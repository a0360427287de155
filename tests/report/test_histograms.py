"""Whoever adds and subtracts everything that a histogram, limits and lists say finds no group of one to nine people."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privgate.evidence.telling import SMALL_CELL
from privgate.report.histograms import apart, histogram
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


def told(made):
    """Return the number of people above each point that a reader can work out, by adding up what is shown."""
    counts, unbounded = made.counts()
    known = {made.edges[0] - 1: len(made.values)}
    for edge, count in zip(made.edges[1:], counts, strict=True):
        below = list(known.values())[-1]
        if count is None:
            break
        known[edge] = below - count
    if unbounded is not None:
        known[np.inf] = unbounded
    known |= {cut: made.above(cut) for cut in made.cuts}
    return known


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.floats(0, 9), max_size=3))
def test_no_two_things_that_are_told_differ_by_a_few(data, limits):
    values = crowd(data)
    made = histogram(values, list(np.linspace(0, TOP, 25)), limits)

    known = told(made)
    assert not any(few(a - b) for a, b in itertools.combinations(known.values(), 2)), known
    assert all(k == made.above(e) for e, k in known.items() if np.isfinite(e) and e >= 0)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 9))
def test_beside_a_few_without_a_figure_any_number_of_them_is_possible(data, few_of):
    finite = crowd(data, 30)
    values = np.append(finite[np.isfinite(finite)], [np.inf] * few_of)
    made = histogram(values, list(np.linspace(0, TOP, 25)), [1.0])

    counts, unbounded = made.counts()
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


def people(values, **columns):
    n = len(values)
    column = dict.fromkeys(("pdtp", "dtp_lower", "dtp_upper"), np.asarray(values, dtype=float)) | columns
    return {**column, "unit": np.array([f"P{i}" for i in range(n)], dtype=object), "error": np.zeros(n),
            "noise_floor": np.zeros(n), "seeds": np.ones(n, int), "engine": np.full(n, "refit", object),
            "status": np.full(n, "exact", object)}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.data(), st.floats(0, 9))
def test_the_list_of_the_worst_counts_nobody_above_a_limit(data, limit):
    made = summary(people(crowd(data)), Pseudonyms(KEY), [("dtp_upper", limit)])

    for name in ("pdtp", "dtp_lower", "dtp_upper"):
        shown = [float(w[name]) for w in made["worst"]]
        assert sum(not v <= limit for v in shown) in (0, len(shown))
        assert len(shown) == 1 or sum(not np.isfinite(v) for v in shown) in (0, len(shown))
    assert len(made["worst"]) + len(made["next_worst"]) == 10
    assert made["next_worst"] == sorted(made["next_worst"])


def test_four_people_above_the_limit_follow_from_nothing_in_a_report():
    values = [*np.linspace(0, 0.8, 996), 1.05, 1.2, 1.6, 1.7]
    made = summary(people(values), Pseudonyms(KEY), [("dtp_upper", 1.0)])

    (row,) = made["above"]
    assert (row["count"], row["between"]) == (None, [1, 9])
    assert [w["dtp_upper"] for w in made["worst"]] == [1.7]
    assert len(made["next_worst"]) == 9
    figure = made["figures"]["dtp_upper"]
    edges = figure["edges"]
    assert 1.0 not in edges
    assert all(c is None or c == 0 or c >= SMALL_CELL for c in figure["counts"])
    assert sum(figure["counts"]) == 1000


def test_a_quantile_beyond_which_a_few_lie_is_not_told():
    made = summary(people(np.linspace(0, 2, 150)), Pseudonyms(KEY), [("dtp_upper", 1.99)])

    # one of 150 lies beyond the 99 % quantile: with a limit between it and the largest, the count above is known
    assert made["figures"]["dtp_upper"]["quantiles"]["0.99"] == "nan"
    assert made["figures"]["dtp_upper"]["quantiles"]["0.9"] == pytest.approx(1.8, abs=0.02)
