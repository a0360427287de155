"""What axe cannot judge in drawings: the contrast of every colour of the page, light, dark and printed."""

import re
from pathlib import Path

import pytest

from privgate.report import text

STYLE = (Path(text.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
TONES = ("good", "bad", "open", "care", "watch")


def themes():
    blocks = re.findall(r":root\{(.*?)\}", STYLE, flags=re.DOTALL)
    light, dark, printed = (dict(re.findall(r"--([\w-]+):(#[0-9a-f]{3,6})", b)) for b in blocks)
    return {"light": light, "dark": {**light, **dark}, "print": {**light, **printed}}


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = (int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_has_a_contrast_of_four_and_a_half_and_drawn_marks_of_three(theme):
    c = themes()[theme]

    pairs = [(c[k], c["paper"]) for k in ("ink", "soft", "link", "chart-soft", "chart-limit", *TONES)]
    pairs += [(c[k], c[f"{t}-bg"]) for t in TONES for k in (t, "ink", "soft")] + [(c["ink"], c["band"])]
    assert [(a, b) for a, b in pairs if contrast(a, b) < 4.5] == []
    assert [k for k in ("chart-a", "focus") if contrast(c[k], c["paper"]) < 3] == []


def test_the_contrast_formula_knows_its_ends():
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
