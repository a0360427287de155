import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.report.text import LONGEST, markdown, moment, number, percent, plain, real

ANY = st.text(st.characters(codec=None), max_size=300)


@given(ANY)
def test_plain_text_shows_all_it_holds_on_one_line(text):
    shown = plain(text)

    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}]
    assert plain(shown) == shown
    shown.encode("utf-8")


@given(ANY)
def test_markdown_holds_nothing_that_a_reader_or_a_log_obeys(text):
    shown = markdown(text)

    assert not re.search(r"[|<>`*_\[\]~!@$\\{}^]|::|##|://", shown)
    assert not re.match(r"[-.]|\d+[.)]", shown)


def test_long_text_is_cut_and_says_how_long_it_was():
    assert plain("x" * 10_000) == "x" * LONGEST + "… [10,000 characters]"


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_different_numbers_are_never_shown_alike_beside_a_limit(x, limit):
    if x != limit and abs(x - limit) > 1e-9 * max(abs(x), abs(limit)) and abs(x) < 1e3 and abs(limit) < 1e3:
        assert number(x, against=limit) != number(limit)


@pytest.mark.parametrize("junk", ["", "x", None, True, [], {}, "nan"])
def test_what_is_no_number_reads_not_measured(junk):
    assert number(junk) == percent(junk) == "not measured"
    assert real(junk) != real(junk)


def test_times_keep_their_day_and_lose_their_zone():
    assert moment("2026-11-21") == "2026-11-21"
    assert moment("tomorrow") == "tomorrow"
    assert moment(None) == ""
