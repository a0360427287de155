import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.evidence.figures import number, percent, percent_at_most, real
from privgate.report.text import LONGEST, item, markdown, moment, plain, whole

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
    assert not re.match(r"[-+] |\d{1,3}[.)] ", item(text))


@given(st.text("ab.;,( )5", max_size=120), st.integers(5, 60))
def test_a_sentence_is_cut_after_a_clause_or_says_that_it_is_cut(text, limit):
    shown = whole(text, limit)

    assert len(shown) <= max(limit, 2 * limit + 1)
    if shown == text or shown.endswith("…"):
        return
    head = shown.removesuffix(".")
    assert text.startswith(head)
    assert text[len(head)] in ".;"
    assert head.count("(") == head.count(")")


CUT = "an attack is right in at most 57.3 % of cases, from even odds (one half; nothing known)."


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (whole(f"{CUT} More follows here", 95), CUT),  # no number and no bracket is cut in two
        (plain("x" * 10_000), "x" * LONGEST + "… [10,000 characters]"),
        ([markdown("57.3 % of cases"), item("57.3 % of cases")], ["57.3 % of cases"] * 2),  # no list begins here
        (item("1. one"), "1&#46; one"),
        ([moment(v) for v in ("2026-11-21", "tomorrow", None)], ["2026-11-21", "tomorrow", ""]),
        ([percent_at_most(v) for v in (0.0104, 0.05, 0.0)], ["1.1 %", "5 %", "0 %"]),
    ],
)
def test_what_is_shown_of_texts_times_and_shares(made, shown):
    assert made == shown


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_different_numbers_are_never_shown_alike_beside_a_limit(x, limit):
    if x != limit and abs(x - limit) > 1e-9 * max(abs(x), abs(limit)) and abs(x) < 1e3 and abs(limit) < 1e3:
        assert number(x, against=limit) != number(limit)


@pytest.mark.parametrize("junk", ["", "x", None, True, [], {}, "nan"])
def test_what_is_no_number_reads_not_measured(junk):
    assert number(junk) == percent(junk) == "not measured"
    assert real(junk) != real(junk)


@given(st.floats(0, 1), st.integers(1, 6))
def test_what_at_most_a_share_is_is_never_less_than_it(share, digits):
    shown = float(percent_at_most(share, digits).removesuffix(" %"))

    assert 100 * share * (1 - 1e-15) <= shown <= 100 * share * (1 + 10.0 ** (1 - digits)) + 1e-300
