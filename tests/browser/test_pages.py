"""Every page, in a real browser: what it fetches, says to a screen reader, prints and how it fits."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from privgate import report
from tests.report import real_runs

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.browser]

REPORTS = ("compared", "refuted", "direct", "attacked", "undecided", "early", "stopped", "private", "crowded")
SCREENS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone in the dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
FOCUSABLE = (
    """[...document.querySelectorAll('a[href], summary, [tabindex="0"]')].filter(e => e.checkVisibility()).length"""
)
FOCUSED = """(() => {
  const e = document.activeElement
  const label = e.getAttribute('href') || e.getAttribute('aria-label') || e.textContent.slice(0, 40)
  return [e.tagName, label, getComputedStyle(e).outlineStyle, e.getBoundingClientRect().top + scrollY]
})()"""
AXE = """axe.run(document, {resultTypes: ['violations']}).then(found => ({
  told: found.violations.map(v => [v.id, v.impact, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))]),
  passed: found.passes.length,
}))"""
# A4 less margins of 12 mm, in CSS pixels of 1/96 inch
SHEET = (int((210 - 24) / 25.4 * 96), int((297 - 24) / 25.4 * 96))


@pytest.fixture
def opened(browser, pages):
    """Open a page from disk; whatever it asks for or says on the console is collected."""
    contexts = []

    def open_(name, **kw):
        context = browser.new_context(**kw)
        contexts.append(context)
        page = context.new_page()
        page.heard = []
        page.asked = []
        page.on("console", lambda m: page.heard.append(m.text))
        page.on("pageerror", lambda e: page.heard.append(str(e)))
        page.on("request", lambda r: page.asked.append(r.url))
        page.goto(pages[name].as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()


#: sizes of all letters of page one but those of drawings, pixels
SIZES = """() => [...document.querySelectorAll("#page-one *:not(svg *)")]
  .filter(e => [...e.childNodes].some(c => c.nodeType === 3 && c.textContent.trim()))
  .map(e => parseFloat(getComputedStyle(e).fontSize))"""


@pytest.mark.quick(3)
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", REPORTS)
def test_axe_finds_no_violation_the_console_is_silent_and_nothing_is_fetched(opened, pages, axe_source, name, screen):
    page = opened(name, **SCREENS[screen])
    page.wait_for_timeout(100)
    assert (page.heard, page.asked) == ([], [pages[name].as_uri()])

    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.evaluate(axe_source)
    found = page.evaluate(AXE)  # what is asked for alone: all that axe knows of a page is megabytes
    assert found["told"] == [], json.dumps(found["told"], indent=1)
    assert found["passed"] > 20


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", REPORTS)
def test_the_outcome_is_the_first_thing_seen(opened, name):
    for screen in SCREENS.values():
        page = opened(name, **screen)
        box = page.locator("h1").bounding_box()
        assert box["y"] + box["height"] < 320
        assert re.match("Approved|Refused|Undecided|Observed", page.locator("h1").inner_text())


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", REPORTS)
def test_page_one_fits_one_sheet_of_paper_at_ten_points(opened, name):
    page = opened(name, viewport={"width": SHEET[0], "height": SHEET[1]})
    page.emulate_media(media="print")

    sizes = page.evaluate(SIZES)
    assert min(sizes) >= 10 * 96 / 72 - 0.01, sizes
    assert page.locator("#page-one").bounding_box()["height"] <= SHEET[1] * (2 if name == "crowded" else 1)

    page.add_style_tag(content="#evidence, footer {display: none} #page-one {break-after: auto !important}")
    alone = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", alone)) <= (2 if name == "crowded" else 1)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", REPORTS)
def test_nothing_sticks_out_sideways_at_400_percent_and_on_a_phone(opened, name):
    page = opened(name)
    for folded in (True, False):
        page.evaluate(f"document.querySelectorAll('details').forEach(d => d.open = {json.dumps(not folded)})")
        for width in (320, 390, 768):  # 1280 pixels at 400 % are 320
            page.set_viewport_size({"width": width, "height": 256})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (folded, width)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["attacked", "private"])
def test_everything_can_be_reached_by_keyboard_in_reading_order(opened, name):
    page = opened(name, viewport={"width": 1280, "height": 900})
    wanted = page.evaluate(FOCUSABLE)

    seen = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUSED))

    assert seen[0][1] == "#evidence"
    assert len({(t, label, top) for t, label, _, top in seen}) == wanted
    assert all(outline != "none" for _, _, outline, _ in seen)


def test_a_folded_table_opens_by_keyboard_and_the_skip_link_leads_past_page_one(opened):
    page = opened("attacked", viewport={"width": 1280, "height": 900})
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('#evidence').getBoundingClientRect().top") < 50

    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details").first.get_attribute("open") is not None


def test_light_dark_and_print_differ_where_they_should(opened):
    colour = "getComputedStyle(document.body).backgroundColor"
    page = opened("attacked", color_scheme="dark")
    dark = page.evaluate(colour)
    page.emulate_media(media="print", color_scheme="dark")
    printed = page.evaluate(colour)
    page.emulate_media(media="screen", color_scheme="light")

    assert page.evaluate(colour) == printed == "rgb(255, 255, 255)"
    assert dark == "rgb(20, 23, 27)"


def test_hostile_names_run_nothing_in_the_browser(browser, tmp_path):
    hostile = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>\u202e</title>"
    doc = real_runs.document("attacked")
    doc["subject"]["name"] = hostile
    for attack in doc["evidence"]["membership"]["attacks"]:
        attack["title"] = hostile
    path = tmp_path / "hostile.html"
    path.write_text(report.render(doc, "html"), encoding="utf-8")
    page, dialogs = browser.new_page(), []
    page.on("dialog", lambda d: dialogs.append(d.message))

    page.goto(path.as_uri())
    page.wait_for_timeout(200)

    assert dialogs == []
    assert page.title().startswith("Refused: <img")
    assert page.locator("img, script").count() == 0
    page.close()


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["approved", "refused"])
def test_the_pictures_that_are_kept_show_the_page_as_it_is(browser, tmp_path, name):
    """``python docs/images/page_one.py --all docs/images/pages`` makes them again."""
    spec = importlib.util.spec_from_file_location("page_one", ROOT / "docs/images/page_one.py")
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    (tmp_path / "page.html").write_text(
        report.render(real_runs.document(drawing.ENDINGS[name]), "html"), encoding="utf-8"
    )
    drawing.picture(browser, tmp_path / "page.html", tmp_path / "made.png")

    kept, made = (Image.open(p) for p in (ROOT / f"docs/images/pages/{name}-wide.png", tmp_path / "made.png"))
    assert abs(kept.height - made.height) <= 0.03 * kept.height
    kept, made = (np.asarray(picture.convert("L").resize((110, 100)), dtype=float) for picture in (kept, made))
    assert np.abs(kept - made).mean() < 4  # of 255: letters of another machine's font
    assert np.abs(kept - kept[::-1]).mean() > 8
