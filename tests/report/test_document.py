import dataclasses
import itertools
import json

import numpy as np
import pytest

from privgate import report
from privgate.evidence import Evidence
from privgate.evidence.verdict import Finding, Outcome, Verdict
from privgate.report import assertions, page_one
from privgate.report.schema import read


def judged(metric, outcome, **kw):
    fields = {
        "limit": 1.0,
        "unit": "nats",
        "low": 0.5,
        "high": 0.5,
        "value": 0.5,
        "request": f"{metric}(aggregate=max)",
    }
    return Finding(metric, metric, Outcome(outcome), "message", metric=metric, **{**fields, **kw})


def told(runs, *findings, **kw):
    base = runs.verdict("certified")
    verdict = Verdict(base.policy, tuple(findings), base.evidence, **kw)
    return report.document(verdict, hash_key=runs.KEY)


#: what an approval covers where no rule on everybody at all questions is met
OWN = "approved for questions about a person's own record only"
SHARE = {"unit": "fraction", "request": "dtp(aggregate=share_above, threshold=1.0)"}


@pytest.mark.parametrize(
    ("findings", "decision", "level"),
    [
        ([("dtp", "passed")], "approved", "DTP-1"),
        ([("pdtp", "passed")], OWN, ""),
        ([("pdtp", "passed"), ("dtp", "passed")], "approved", "DTP-1"),
        (
            [("pdtp", "passed"), ("dtp", "warned")],
            f"{OWN}, with 1 warning",
            "",
        ),
        ([("dtp", "passed"), ("attack_accuracy", "failed")], "refused", ""),
        ([("dtp", "inconclusive")], "undecided", ""),
        ([("attack_accuracy", "passed")], "approved", ""),
        ([], "undecided", ""),
        # a rule that leaves people out reaches no level
        ([("dtp", "passed", SHARE), ("pdtp", "passed")], OWN, ""),
        ([("dtp", "passed", {"request": "dtp(aggregate=quantile, q=0.99)"}), ("pdtp", "passed")],
         OWN, ""),
        ([("dtp", "passed", {"waiver": "pilot"}), ("pdtp", "passed")], OWN, ""),
        ([("dtp", "warned", {"waiver": "pilot until May"})], "approved, with 1 warning", ""),
    ],
)  # fmt: skip
def test_the_decision_says_what_was_approved_and_no_more(runs, findings, decision, level):
    doc = told(runs, *(judged(metric, outcome, **dict(*more)) for metric, outcome, *more in findings))

    assert (doc["decision"], doc["level"]) == (decision, level)
    if doc["decision"] == "approved, with 1 warning":
        assert "pilot until May" in report.render(doc, "markdown")


BOX = [[17.0, 90.0], [0.0, 99999.0]]


@pytest.mark.parametrize(
    ("domain", "told", "said"),
    [
        ({"box": BOX, "inferred": False}, {"box": BOX}, "2 features with a range each"),
        ({"box": BOX, "inferred": True}, {"box": None}, "inferred ranges of 2 features"),
    ],
)
def test_declared_ranges_stay_and_inferred_ones_stay_out(runs, domain, told, said):
    kept = runs.golden("certified")
    kept["evidence"]["subject"]["domain"] = domain
    doc = report.document(runs.verdict(kept), hash_key=runs.KEY)

    assert told.items() <= doc["subject"]["domain"].items()
    assert ("99999" in json.dumps(doc)) is (told["box"] is not None)
    assert said in report.render(doc, "html")


def test_the_evidence_can_be_read_back(runs):
    doc = runs.document("private")

    metrics = ["dp_epsilon", "dp_epsilon_lower_bound", "dp_attack_accuracy_bound", "attack_accuracy"]
    assert [m.request.metric for m in Evidence.from_payload(doc["evidence"]).measurements.values()] == metrics
    assert read(doc).findings[-1].metric == "attack_accuracy"


def test_the_report_says_whether_the_number_of_records_is_public(runs):
    doc = runs.document("private")
    public = dict(page_one.facts(read(doc)))
    doc["subject"]["recipe"]["dp"]["adjacency"] = "add_remove"
    secret = dict(page_one.facts(read(doc)))["Number of records"]

    assert "taken as public" in public["Number of records"]
    assert secret == "secret by the claim of differential privacy, but not looked at"
    assert "Number of records" not in dict(page_one.facts(read(runs.document("certified"))))


def test_curves_are_cut_to_what_a_chart_shows_and_keep_their_ends(runs):
    doc = runs.document("attacked")

    for attack in doc["evidence"]["membership"]["attacks"]:
        points = (attack["figures"] or {"roc": [[0, 0], [1, 1]]})["roc"]
        assert len(points) <= 125
        assert points[-1][:2] == [1.0, 1.0]
        assert all(a[0] < b[0] for a, b in itertools.pairwise(points))


def measured(finding):
    (asserted,) = assertions.of_rules([finding], ())
    return asserted.value


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(1.00004, 1.00004, "1.00004"), (1.7060000001, 1.7060000002, "5.51-fold (1.71 nats)")],
)
def test_a_figure_is_not_rounded_to_its_limit_and_a_narrow_interval_is_one_figure(low, high, said):
    assert said in measured(judged("dtp", "failed", low=low, high=high, value=low))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_was_not_measured_never_looks_measured(runs, value):
    f = judged("dtp", "inconclusive", low=value, high=value, value=value)

    doc = told(runs, f)
    assert not any(c.isdigit() for c in measured(read(doc).findings[0]))
    for format_ in ("html", "markdown", "junit"):
        report.render(doc, format_)


def test_fifty_thousand_units_stay_below_a_megabyte(runs, tmp_path):
    n = 50_000
    base = runs.verdict("attacked")
    records = {k: np.resize(v, n) for k, v in base.evidence.records.items()}
    records["unit"] = np.array([f"P-{i}" for i in range(n)], dtype=object)
    records["pdtp"] = records["dtp_lower"] = np.random.default_rng(0).exponential(0.1, n)
    evidence = dataclasses.replace(base.evidence, records=records)
    paths = report.write(dataclasses.replace(base, evidence=evidence), tmp_path, hash_key=runs.KEY)

    sizes = {p.name: p.stat().st_size for p in paths}
    assert sizes["report.html"] < 1_000_000
    assert sizes["report.json"] < 1_000_000
    assert sizes["summary.md"] < 200 * 1024


def test_rows_of_the_data_stay_out_of_preconditions(runs):
    detail = {"count": 3, "candidates": [19, 24, 30], "moved_by": {"a half": 0.3, "rows": [1, 2]}, "signs": ["repeats"]}
    kept = runs.golden("certified")
    kept["evidence"]["preconditions"][0] |= {"name": "overlap", "detail": detail}
    doc = report.document(runs.verdict(kept), hash_key=runs.KEY)

    told = doc["evidence"]["preconditions"][0]["detail"]
    assert told == {"count": None, "moved_by": {"a half": 0.3}, "signs": ["repeats"]}


def test_methods_say_who_answered_what_was_handed_on_and_how_loud_the_seeds_are(runs):
    doc = runs.document("undecided")
    doc["evidence"]["influence"] |= {
        "engines": [
            {"engine": "k_nearest", "asked": 86, "answered": 52, "handed_on": 34,
             "why": {"the distances of their neighbours tie": 34}, "without_limit": {}},
            {"engine": "refit", "asked": 34, "answered": 34, "handed_on": 0, "why": {},
             "without_limit": {"training without them failed": None}},
        ],
    }  # fmt: skip
    doc["evidence"]["run"]["seeds"] |= {"dependent": True, "median": 0.3, "floor": 1.2, "paired": 0}
    page = report.render(doc, "html")

    for said in (
        "34 (39.5 %)",
        "the distances of their neighbours tie (34)",
        "training without them failed (suppressed)",
        "people by 1.35-fold or more, about the worst by 3.32",
    ):
        assert said in page
