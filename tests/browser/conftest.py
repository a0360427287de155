"""A real headless Chromium, and the reports of real runs opened in it from disk."""

import shutil
from importlib.resources import files

import pytest

from privgate import report
from tests.report import real_runs

#: runs whose reports are opened
SHOWN = ("refuted", "direct", "attacked", "undecided", "early", "stopped", "private")
ARGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is part of privgate[dev]")
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    if not found:
        pytest.skip("no Chromium found: install one, for example with apt-get install chromium")
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=found[0], args=list(ARGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe_source():
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is part of privgate[dev]")
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def crowded(doc, comparison):
    """Return the document with page one as full as it can get: eight long rules, waivers, steps and changes."""
    long = "for every person in the data: without this person, the probability of some answer changes a great deal " * 4
    findings = [
        {**f, "rule": f"{f['rule']}_{i}", "title": f"{f['title']}, over all people and every group", "meaning": long}
        for i in range(3)
        for f in doc["findings"]
        if not f["rule"].startswith("precondition:")
    ]
    return {
        **doc,
        "subject": {**doc["subject"], "name": "income-" + "x" * 80, "uri": "models:/" + "y" * 200},
        "context": {
            **dict.fromkeys(("data_name", "data_source", "purpose", "owner", "run_by", "run_on"), long),
        },
        "findings": findings,
        "comparison": {**comparison, "summary": long},
        "waivers": [{**w, "reason": long, "approver": "c.rossi" * 10} for w in doc["waivers"] * 3],
        "next_steps": [{k: long if isinstance(v, str) else v for k, v in s.items()} for s in doc["next_steps"] * 3],
    }


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Every page that privgate writes, on disk: name -> path."""
    folder = tmp_path_factory.mktemp("pages")
    docs = {k: real_runs.document(k) for k in SHOWN} | {"compared": real_runs.compared()}
    docs["crowded"] = crowded(docs["attacked"], docs["compared"]["comparison"])
    made = {k: report.render(d, "html") for k, d in docs.items()}
    for name, html in made.items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}
