"""A real headless Chromium, and the example reports opened in it from disk."""

import importlib.util
import shutil
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from privgate import report

ARGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


def chromium():
    """Return an installed Chromium; skip, saying why, without one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium found: install one, for example with apt-get install chromium")


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is part of privgate[dev]")
    path = chromium()
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=path, args=list(ARGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe_source():
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is part of privgate[dev]")
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def examples():
    name = "example_reports"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "report" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def pages(examples, tmp_path_factory):
    """Every page that privgate writes, on disk: name -> path."""
    folder = tmp_path_factory.mktemp("pages")
    docs = {k: report.document(getattr(examples, k)(), hash_key=examples.KEY) for k in examples.ALL}
    old = report.document(examples.blocked(version="2", recipe=examples.recipe(alpha=1.0)), hash_key=examples.KEY)
    docs["approved"] = report.document(examples.approved(), hash_key=examples.KEY, baseline=old)
    docs["crowded"] = examples.crowded(docs["tree_blocked"], docs["approved"]["comparison"])
    made = {k: report.render(d, "html") for k, d in docs.items()}
    made["comparison"] = report.render(docs["approved"]["comparison"], "html")
    rows = [
        {"document": d, "name": k, "version": "3", "alias": "production", "href": f"{k}.html"} for k, d in docs.items()
    ]
    made["index"] = report.index([*rows, {"document": None, "name": "never"}], now="2026-11-21T10:00:00Z")
    for name, html in made.items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}
