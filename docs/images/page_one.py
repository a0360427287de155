"""Picture page one: ``python docs/images/page_one.py REPORT.html PICTURE.png``, wide and light, for the README.

``python docs/images/page_one.py --all FOLDER``: stored reports of every ending, wide, on a phone, printed and dark.
Needs Chromium, and playwright and Pillow of ``privgate[dev]``. 64 colours are enough for text and two drawings.
"""

import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
#: name of a picture -> the stored run that it shows
ENDINGS = {"approved": "certified", "refused": "attacked", "undecided": "undecided", "dp-trained": "private",
           "regressor": "regressor"}  # fmt: skip
WIDE: dict[str, Any] = {"viewport": {"width": 1100, "height": 900}, "color_scheme": "light"}
VIEWS: dict[str, dict[str, Any]] = {
    "wide": WIDE,
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "print": {"viewport": {"width": 703, "height": 1032}, "color_scheme": "light"},
    "dark": {**WIDE, "color_scheme": "dark"},
}


def picture(browser: Any, report: Path, place: Path, view: str = "wide") -> None:
    """Write the picture of page one, without what stands below it."""
    page = browser.new_page(**VIEWS[view])
    if view == "print":
        page.emulate_media(media="print")
    page.goto(report.resolve().as_uri())
    box = page.locator("#page-one").bounding_box()
    width = VIEWS[view]["viewport"]["width"]
    page.screenshot(
        path=str(place), full_page=True, clip={"x": 0, "y": 0, "width": width, "height": box["height"] + 16}
    )
    page.close()
    with Image.open(place) as drawn:
        small = drawn.convert("RGB").quantize(64)
    small.save(place, optimize=True)


def picture_all(browser: Any, folder: Path) -> None:
    """Picture a stored report of every ending in every view."""
    from privgate import report

    sys.path.insert(0, str(ROOT / "tests/report"))
    runs = importlib.import_module("real_runs")
    with tempfile.TemporaryDirectory() as scratch:
        for name, kind in ENDINGS.items():
            page = Path(scratch, f"{name}.html")
            page.write_text(report.render(runs.document(kind), "html"), encoding="utf-8")
            for view in VIEWS:
                picture(browser, page, folder / f"{name}-{view}.png", view)


if __name__ == "__main__":
    with sync_playwright() as p:
        started = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        if sys.argv[1] == "--all":
            picture_all(started, Path(sys.argv[2]))
        else:
            picture(started, Path(sys.argv[1]), Path(sys.argv[2]))
        started.close()
