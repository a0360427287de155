"""What was found about sensitive features leaves without a small count, and without one that follows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.evidence import Count, Measurement
from privgate.kernel.sample import difference
from privgate.lab.attributes.attribute_advantage import _limits, _ranges, _told
from privgate.lab.attributes.attribute_rule import AttributeAdvantage


def told(right, members, wrong, others, asked=None):
    return _told({"name": "inversion", "title": "Inversion"}, (right, members, wrong, others), asked, 0.05)


@given(st.integers(30, 400), st.integers(30, 400), st.data())
def test_what_leaves_is_the_same_whichever_of_the_hidden_counts_is_true(members, others, data):
    right, wrong = data.draw(st.integers(0, members)), data.draw(st.integers(0, others))
    made = told(right, members, wrong, others)
    (low, high), (least, most) = Count(right, members).ends, Count(wrong, others).ends

    assert (made.inside is None, made.outside is None) == (low < high, least < most)
    for one, other in ((low, least), (high, most), (low, most), (high, least)):
        assert told(one, members, other, others) == made
        counts = (one, members, other, others)
        _, lower, upper = difference(counts, low_alpha=0.05, high_alpha=0.05)
        assert made.advantage.low <= lower <= upper <= made.advantage.high


@given(st.integers(30, 400), st.integers(1, 9), st.data())
def test_how_many_have_no_known_value_is_not_told(members, missing, data):
    other = data.draw(st.integers(1, 9))
    made = [told((members - m) // 2, members - m, 50, 100, (members, 100)) for m in (missing, other)]

    assert made[0].members == made[1].members == members - 9, made
    assert all(t.inside is None and t.advantage.value is None for t in made)


@pytest.mark.parametrize("limit", [0.05, 0.3, 0.9])
def test_what_a_rule_says_of_hidden_counts_stays_on_its_side_of_the_limit(limit):
    rule = AttributeAdvantage(max=limit)
    said = []
    for right in (54, 57):  # of 60: all but a few
        counts = (right, 60, 20, 60)
        ranges, alike = _ranges(counts, (60, 60))
        value, low, high = difference(counts, low_alpha=0.05, high_alpha=0.05)
        made = Measurement(rule.request(), value, low, high, "fraction", told_as=_limits(ranges, 0.05, 0.05))
        told_ = made.against(limit).told
        assert not alike
        assert told_.low <= low <= high <= told_.high
        assert (told_.low > limit, told_.high <= limit) == (low > limit, high <= limit)
        said.append((told_.low, told_.high, rule.judge(made).message))
    assert said[0] == said[1]  # both lie on one side of each limit
