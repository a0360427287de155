"""Whole checks by command line of data in which people hold equal records: a report each, and no small count in it.

What is looked for are the counts themselves, known here and to nobody who reads: each of them, what it leaves of all
89 records or 71 people, and both as shares, which have digits that nothing else has.
"""

import html
import json
import re

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, TrainingData, log_model, registry, report
from privgate.__main__ import run
from privgate.cli import options
from privgate.evidence.telling import SMALL_CELL

N, PEOPLE, OUTSIDE = 89, 71, 59
#: (equal records, equal candidates), whether people have names of their own
ROWS = ((7, 4, True), (14, 12, False))
#: what a sentence or a key about equal records holds
ABOUT = r"equal|rounding|duplicate|overlap|left out of every attack"


def people(exact, near, grouped):
    """Return data in which so many records equal one of another person, and so many candidates equal a record."""
    rng = np.random.default_rng(12)
    X = rng.normal(size=(N + OUTSIDE, 3))
    score = X @ [1.0, -1.0, 0.5] + rng.logistic(size=N + OUTSIDE)
    y = np.where(score > 0, "yes", "no")
    # the first PEOPLE records are of as many people: whatever is equal there is so between people
    X[:exact], y[:exact] = X[0], y[0]
    X[N : N + near], y[N : N + near] = X[40 : 40 + near], y[40 : 40 + near]
    owners = np.concatenate([np.arange(PEOPLE), np.arange(N - PEOPLE) + 50])
    return TrainingData(
        X[:N],
        y[:N],
        ids=[f"P-{i:03d}" for i in range(N)],
        groups=[f"person {i:02d}" for i in owners] if grouped else None,
        one_record_each=not grouped,
        candidates=(X[N:], y[N:]),
    )


def numbers(value):
    """Yield each number of a JSON value with the keys and names that lead to it."""
    stack = [("", value)]
    while stack:
        path, v = stack.pop()
        if isinstance(v, dict):
            named = f"{path}/{v.get('name', '')}{v.get('rule', '')}"
            stack += [(f"{named}/{k}", w) for k, w in v.items()]
        elif isinstance(v, list):
            stack += [(path, w) for w in v]
        elif isinstance(v, int | float) and not isinstance(v, bool):
            yield path, v


def told(outputs, count, total, about):
    """Return where it can be read that so many of a known total are concerned: the count, the rest, or their share."""
    found = []
    for k in (count, total - count):
        percents = {f"{100 * k / total:.{d}f}" for d in (1, 2, 3)} | {f"{100 * k / total:.{d}g}" for d in (3, 4)}
        fractions = {f"{k / total:.{d}f}" for d in (3, 4, 5)} | {f"{k / total:.{d}g}" for d in (3, 4, 5)}
        percent, fraction = ("|".join(map(re.escape, sorted(words))) for words in (percents, fractions))
        share = re.compile(rf"(?<![\d.])(?:(?:{percent})(?=\s?%)|(?:{fraction})(?!\d| nats| s\b))")  # nor seconds
        alone = re.compile(rf"(?<![\w.,-])(?<! to ){k}(?![\w-]|[.,]\d| to )")
        for name, text in outputs.items():
            found += [(name, text[max(0, m.start() - 80) : m.end() + 40]) for m in share.finditer(text)]
            windows = [text[max(0, m.start() - 60) : m.end() + 40] for m in re.finditer(about, text)]
            found += [(name, w) for w in windows if not name.endswith(".json") and alone.search(w)]
            for path, v in numbers(json.loads(text)) if name.endswith(".json") else ():
                # the ends of a range and the limits of a policy may be told
                counts = v == k and re.search(about, path) and not path.endswith(("/between", "/limit"))
                if counts or abs(v - k / total) < 1e-9:
                    found.append((name, path, v))
    return found


@pytest.fixture
def checked(fleet, tmp_path, monkeypatch, capfd):
    """Run a whole check by command line, with the workers of the checks before; return what leaves, and the report."""
    uri = registry.local_registry(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # as the installed command sets it
    monkeypatch.setattr(options, "Fleet", lambda **_: fleet)

    def check(*row):
        recipe = Recipe(GaussianNB(var_smoothing=0.1), seed=1)
        about = {"registered_model_name": "equal", "tracking_uri": uri, "store": "artifacts"}
        info = log_model(recipe, people(*row), **about)
        command = ["check", "models:/equal/1", "--policy", "pdtp-1", "--report-dir", str(tmp_path)]
        capfd.readouterr()
        ended, printed = run(command), capfd.readouterr()
        assert ended in (0, 1, 5), printed.err
        assert "Traceback" not in printed.err
        doc = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        client = registry.client.connect(uri)
        version = client.get_model_version("equal", "1")
        logged = client.get_logged_model(info.model_id)
        kept = {
            "metrics": {m.key: m.value for m in logged.metrics},
            "tags": [{k: v for k, v in held.tags.items() if k.startswith("privgate")} for held in (version, logged)],
        }
        outputs = {f: report.render(doc, f) for f in ("markdown", "junit", "text")}
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        shown = re.sub(r"<style.*?</style>|<script.*?</script>|<[^>]+>", " ", page, flags=re.DOTALL)
        outputs["html"] = html.unescape(shown)
        outputs |= {"report.json": json.dumps(doc), "registry.json": json.dumps(kept)}
        outputs |= {"stdout": printed.out, "stderr": printed.err}
        return outputs, doc

    return check


def few(count, total):
    return 0 < count < SMALL_CELL or 0 < total - count < SMALL_CELL


@pytest.mark.parametrize("row", ROWS)
def test_a_check_of_equal_people_tells_no_small_count(checked, row):
    """No small count that is known here can be read anywhere."""
    outputs, doc = checked(*row)
    exact, near, grouped = row
    assert doc["subject"]["n_units"] == (PEOPLE if grouped else N)
    for count, total in ((exact, N), (near, OUTSIDE)):
        if few(count, total):
            assert told(outputs, count, total, ABOUT) == []
            assert f"1 to 9 of {total}" in outputs["html"]
        else:  # what is looked for is found where it may be told
            assert f"{count} of {total}" in outputs["html"]
            assert told(outputs, count, total, ABOUT)
