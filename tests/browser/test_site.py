"""The documentation as a site: it builds without a warning, and axe finds nothing on its pages, light and dark."""

import functools
import http.server
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: one of each kind: tables, code in several languages, a notebook, the reference, a page of one's own role
SHOWN = ("", "own-models/", "reference/", "guarded-server/", "officer/")
AXE = """axe.run(document, {resultTypes: ['violations']}).then(found => ({
  told: found.violations.map(v => [v.id, v.nodes.length, v.nodes.slice(0, 2).map(n => n.html.slice(0, 200))]),
  passed: found.passes.length,
}))"""
pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    return place, subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Quiet, directory=str(site[0]))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_the_documentation_builds_without_a_warning(site):
    assert site[1].returncode == 0, site[1].stderr[-2000:]
    assert "WARNING -" not in site[1].stderr


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_on_a_page_of_each_kind(browser, axe_source, address, scheme):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    for name in SHOWN:
        page.goto(address + name)
        page.wait_for_timeout(100)  # the theme makes buttons of code when it has loaded
        page.evaluate(axe_source)
        found = page.evaluate(AXE)

        assert found["told"] == [], (name, json.dumps(found["told"], indent=1))
        assert found["passed"] > 20
    context.close()
