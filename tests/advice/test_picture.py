"""The picture of an advice: every candidate is in it, within the frame, and its labels can be read."""

import math
import re
from xml.etree import ElementTree as ET

import pytest
from privgate.advice.advice_page import _HEIGHT, _WIDTH, picture
from privgate.advice.change import Change
from privgate.advice.point import Point, Tried

from privgate.advice import advice_page


def tried(*numbers, advised=None):
    points = tuple(
        Point(
            number=k,
            change=Change(says=f"change {k} <&>"),
            outcome="passed" if risk <= 1 else "failed",
            of_limit=risk,
            useful=useful,
            floor=0.0,
            confirmed="passed" if k == advised else "",
        )
        for k, (risk, useful) in enumerate(numbers)
    )
    about = {"uri": "", "policy": "p", "policy_digest": "", "recipe": "", "data": "", "measure": "accuracy"}
    return Tried(**about, points=points)


def read(svg):
    root = ET.fromstring(svg)
    tag = "{http://www.w3.org/2000/svg}"
    dots = [(float(c.get("cx")), float(c.get("cy")), float(c.get("r"))) for c in root.iter(f"{tag}circle")]
    words = [(t.text, float(t.get("x")), float(t.get("y"))) for t in root.iter(f"{tag}text")]
    return dots, words


@pytest.mark.parametrize("risk", [0.0, 1e-9, 0.5, 1.0, 19.0, 1e12, math.inf])
def test_whatever_the_risk_a_candidate_stands_within_the_frame_and_on_its_side_of_the_limit(risk):
    dots, words = read(picture(tried((1.5, 0.9), (risk, 0.8))))
    assert all(0 < x < _WIDTH and 0 < y < _HEIGHT for x, y, _ in dots)
    [limit] = [x for text, x, _ in words if text == "the limit"]
    assert (dots[1][0] <= limit + 0.05) == (risk <= 1)


def test_points_in_one_place_share_a_label_and_others_have_their_own():
    _, words = read(picture(tried((1.5, 0.9), (1.5, 0.9), (1.51, 0.9), (0.1, 0.85))))
    labels = [text for text, *_ in words if re.fullmatch(r"[\d, ]+", text)]
    assert sorted(labels) == ["0, 1, 2", "3"]


def test_what_is_useless_does_not_squeeze_the_others():
    dots, words = read(picture(tried((1.5, 0.98), (0.9, 0.97), (0.5, 0.96), (0.01, 0.5))))
    heights = [y for _, y, _ in dots]
    assert heights[2] - heights[0] > 50
    assert heights[3] == max(heights)
    assert any("lower is drawn at the bottom edge" in text for text, *_ in words)


def test_the_advised_one_stands_out_and_nothing_foreign_is_markup():
    svg = picture(tried((1.5, 0.98), (0.9, 0.97), (0.5, 0.96), advised=2))
    dots, _ = read(svg)
    assert [r for *_, r in dots] == [5, 5, 7]
    assert "change 2 &lt;&amp;&gt;" in svg


@pytest.mark.parametrize("numbers", [(), ((math.nan, 0.9),), ((0.5, math.nan),)])
def test_without_both_numbers_there_is_no_picture(numbers):
    assert picture(tried((1.0, math.nan), *numbers)) == ""


def test_one_point_alone_can_be_drawn():
    dots, _ = read(picture(tried((0.5, 0.0))))
    assert len(dots) == 1


@pytest.mark.parametrize("risk", [0.0, 1e-9, 0.5, 0.999, 1.0, 1.001, 19.0, 1e12, math.inf])
def test_in_a_terminal_a_candidate_stands_on_its_side_of_the_bar_and_the_front_names_costs(risk):
    lines = list(advice_page.drawn(tried((5.0, 0.9), (risk, 0.5))))
    rows = lines[1 : 1 + advice_page._LINES]
    bar = rows[1].index("|")
    assert all(len(row) <= advice_page._LETTERS + 9 for row in rows)
    assert rows[0].rindex("x") > bar
    assert (rows[-1].index("o") <= bar) if risk <= 1 else (rows[-1].rindex("x") > bar)
    told = "\n".join(lines[lines.index("beaten in both by none:") :])
    assert ("change 1 <&>" in told) == (risk < 5)
    assert "accuracy 0.9000, as it stands" in told


def test_a_terminal_shows_what_is_advised_above_the_others_and_nothing_without_numbers():
    rows = list(advice_page.drawn(tried((1.5, 0.9), (0.5, 0.8), (0.5, 0.8), advised=1)))
    assert sum(row.count("@") for row in rows[1 : 1 + advice_page._LINES]) == 1
    assert list(advice_page.drawn(tried((math.nan, 0.9)))) == []
