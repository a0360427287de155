"""Whole checks by command line of data in which people hold equal records: a report each, and no small count in it.

What is looked for are the counts themselves, known here and to nobody who reads: each of them, what it leaves of all
89 records or 71 people, and both as shares, which have digits that nothing else has.
"""

import html
import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, TrainingData, log_model, registry, report
from privgate.__main__ import run
from privgate.cli import options
from privgate.evidence.telling import SMALL_CELL

N, PEOPLE, OUTSIDE = 89, 71, 59
#: (equal records, nearly equal records) of a level
EQUAL = {"none": (0, 0), "few": (7, 4), "many": (14, 12)}
FACTORS = (
    tuple(EQUAL),
    ("ids", "no ids"),
    ("groups", "no groups"),
    ("candidates", "no candidates"),
    ("pdtp-1", "share-1"),
)
#: every two levels of two factors meet in one of these
PAIRWISE = (
    ("none", "ids", "groups", "candidates", "pdtp-1"),
    ("none", "no ids", "no groups", "no candidates", "share-1"),
    ("few", "ids", "no groups", "no candidates", "pdtp-1"),
    ("few", "ids", "no groups", "no candidates", "share-1"),
    ("few", "no ids", "groups", "candidates", "share-1"),
    ("few", "no ids", "no groups", "candidates", "pdtp-1"),
    ("many", "ids", "no groups", "candidates", "share-1"),
    ("many", "no ids", "groups", "no candidates", "pdtp-1"),
)
NATS = {"privgate/pdtp", "privgate/pdtp_is_infinite", "privgate/pdtp_capped"}
#: what a sentence or a key about equal records holds
ABOUT = r"equal|rounding|duplicate|overlap|left out of every attack"

#: metrics of the decision itself
DECISION = {f"privgate/{name}" for name in ("outcome", "scope", "warnings", "observed")}


def people(equal, ids, groups, candidates, *, regression=False):
    """Return data in which so many records equal one of another person; ``overlap`` candidates equal one as well."""
    exact, near = EQUAL[equal]
    rng = np.random.default_rng(12)
    X = rng.normal(size=(N + OUTSIDE, 3))
    X[20:28] *= 3 if ids == "no ids" else 1  # without some so unusual the model is another: blocked
    score = X @ [1.0, -1.0, 0.5] + rng.logistic(size=N + OUTSIDE)
    y = score if regression else np.where(score > 0, "yes", "no")
    # the first PEOPLE records are of as many people: whatever is equal there is so between people
    for first, size in ((0, exact), (30, near)):
        X[first : first + size], y[first : first + size] = X[first], y[first]
    X[30 : 30 + near, 0] += 1e-6 * np.arange(near)
    X[N : N + near], y[N : N + near] = X[40 : 40 + near], y[40 : 40 + near]
    owners = np.concatenate([np.arange(PEOPLE), np.arange(N - PEOPLE) + 50])
    return TrainingData(
        X[:N],
        y[:N],
        ids=[f"P-{i:03d}" for i in range(N)] if ids == "ids" else None,
        groups=[f"person {i:02d}" for i in owners] if groups == "groups" else None,
        candidates=(X[N:], y[N:]) if candidates == "candidates" else None,
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


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A registry, and the model of each kind of data once in it."""
    folder = tmp_path_factory.mktemp("equal")
    uri, made = registry.local_registry(folder), {}

    def model(*kind, regression):
        if (kind, regression) not in made:
            data, learner = (
                people(*kind, regression=regression),
                Ridge() if regression else GaussianNB(var_smoothing=0.1),
            )
            name = f"model-{len(made)}"
            info = log_model(
                Recipe(learner, seed=1), data, registered_model_name=name, tracking_uri=uri, store="artifacts"
            )
            made[kind, regression] = name, info.model_id
        return made[kind, regression]

    return uri, model


@pytest.fixture
def checked(store, fleet, tmp_path, monkeypatch, capfd):
    """Run a whole check by command line, with the workers of the checks before; return what leaves, and the table."""
    uri, model = store
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # as the installed command sets it
    monkeypatch.setattr(options, "Fleet", lambda **_: fleet)

    def check(*row):
        name, model_id = model(*row[:-1], regression=row[-1] == "regression-1")
        command = ["check", f"models:/{name}/1", "--policy", row[-1], "--report-dir", str(tmp_path)]
        capfd.readouterr()
        ended, printed = run(command), capfd.readouterr()
        assert ended in (0, 1, 5), printed.err
        assert "Traceback" not in printed.err
        doc = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        client = registry.client.connect(uri)
        version = client.get_model_version(name, "1")
        logged = client.get_logged_model(model_id)
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
        return outputs, pd.read_parquet(tmp_path / "records.parquet"), doc

    return check


def few(count, total):
    return 0 < count < SMALL_CELL or 0 < total - count < SMALL_CELL


def holds(checked, *row):
    """A check ends with a report, and no small count that is known here can be read anywhere."""
    outputs, table, doc = checked(*row)
    exact, near = EQUAL[row[0]]
    units = PEOPLE if "groups" in row else N
    counts = [(exact, N), (near, N), (near if "candidates" in row else 0, OUTSIDE)]
    assert doc["subject"]["n_units"] == units
    for count, total in counts:
        if few(count, total):
            assert told(outputs, count, total, ABOUT) == []
            assert f"1 to 9 of {total}" in outputs["html"]
        elif count:
            exact = f"{count} of {total}" in outputs["html"]
            # beside small counts of what an attack found, a large one is a range
            ranges = re.findall(rf"(\d+) to (\d+) of {total}", outputs["html"])
            assert exact or any(int(a) <= count <= int(b) for a, b in ranges)
            assert told(outputs, count, total, ABOUT) or not exact  # what is looked for is found where it may be told
    return outputs, table


def holds_of_influence(checked, *row):
    """The same of the people above the limit, and figures go by names of their own."""
    outputs, table = holds(checked, *row)
    units = PEOPLE if "groups" in row else N
    above = int((table["pdtp"] > 1).sum())
    if few(above, units):
        assert told(outputs, above, units, r"above|exceed") == []
    assert few(above, units) == ("no ids" in row)
    figures = {k for k in json.loads(outputs["registry.json"])["metrics"] if k not in DECISION}
    if "share-1" in row:  # a share never goes by the name of an influence, and always with its threshold
        assert figures - NATS == {"privgate/pdtp_share_above"}
        assert all(
            "asked at or beside their record, changes more than 2.72-fold" in outputs[f]
            for f in ("html", "markdown", "text")
        )
        assert not any("Influence of one person" in outputs[f] for f in ("markdown", "text", "junit", "registry.json"))
    else:
        assert figures - {"privgate/pdtp_share_above"} == NATS


@pytest.mark.quick(1)
@pytest.mark.parametrize("row", PAIRWISE, ids=", ".join)
def test_a_check_of_equal_people_tells_no_small_count(checked, row):
    holds_of_influence(checked, *row)


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", list(itertools.product(*FACTORS[:-1], ("dtp-1", "attacks-1", "regression-1"))), ids=", ".join
)
def test_a_check_by_another_policy_tells_no_small_count(checked, row):
    holds(checked, *row)
