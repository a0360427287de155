"""Picture page one of a real report for the README: ``python docs/images/page_one.py REPORT.html PICTURE.png``.

Needs Chromium, and playwright and Pillow of ``privgate[dev]``. 256 colours are enough for text and one bar.
"""

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

#: as wide as GitHub shows a picture of a README at full size
WIDTH = 900


def main(report: Path, picture: Path) -> None:
    """Write the picture of page one, without what stands below it."""
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        box = page.locator(".side").first.bounding_box()  # who has to defend it turns the sheet
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": box["y"] + box["height"] + 8}
        page.screenshot(path=str(picture), full_page=True, clip=clip)
        browser.close()
    with Image.open(picture) as drawn:
        small = drawn.convert("RGB").quantize(64)
    small.save(picture, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
