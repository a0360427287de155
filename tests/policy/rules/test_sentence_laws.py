"""What findings say, over rules, aggregates, outcomes and counts: no more than is known, and nothing of a few."""

import math
import re
from dataclasses import replace

import pytest

from privgate import report
from privgate.advice.search import _why_not
from privgate.evaluation.notebook import overview
from privgate.evidence import BehindClaim, BehindInfluence, BehindMembership, Evidence, Measurement
from privgate.evidence.verdict import Outcome, Verdict
from privgate.policy.rules import ALL
from privgate.registry.attachments import collect_metrics
from privgate.report.assertions import of_rules
from privgate.report.document import FORMATS
from tests.policy.rules.rule_pages import example

N = 150
PEOPLE = ("dtp", "pdtp", "sensitivity")
SHARES = [ALL[name](aggregate="share_above", threshold=1.0, max=0.2) for name in PEOPLE]
FILES = [ALL["file_records"](max=30)]
#: every rule by its example (two have no number), those about people by each aggregate
RULES = [example(name) for name in sorted(ALL) if name != "file_records"]
RULES += [ALL[name](max=1.0, aggregate="quantile", q=0.9) for name in PEOPLE] + SHARES + FILES
RULES += [ALL["sensitivity"](max=1.0, over="domain")]
OUTCOMES = (Outcome.PASSED, Outcome.INCONCLUSIVE, Outcome.FAILED)
BEHIND = {"dtp": BehindInfluence, "pdtp": BehindInfluence, "sensitivity": BehindInfluence}


def interval(rule, outcome):
    """Return an interval that gives the outcome; of people, so many that none is hidden."""
    share = rule in SHARES or rule in FILES
    step = (20 / N if rule.limit < 1 else 20) if share else 0.117 * (rule.limit or 1)
    low, high = {"passed": (-0.9, -0.6), "inconclusive": (-0.9, 1.0), "failed": (1.0, 2.0)}[outcome]
    if rule.direction == "min":
        low, high = -high, -low
    return max(0.0, rule.limit + low * step), max(0.0, rule.limit + high * step)


def told(rule, low, high, *others):
    """Return everything that is told of one measurement: finding, assertion, and the evidence as it leaves."""
    asked, metric = rule.request(), rule.metric
    share = "share_above" in asked.key or asked.option("of") == "share"
    unit = "fraction" if share else rule.about.unit or "records"
    behind = BEHIND.get(metric, BehindClaim if metric.startswith(("dp", "del")) else BehindMembership)()
    kind = "exact" if low == high else "confidence"
    taken = Measurement(asked, low, low, high, unit=unit, kind=kind, confidence=None if low == high else 0.95,
                        n=N, population=N, behind=behind)  # fmt: skip
    rules = (rule, *others)
    findings = tuple(r.judge(taken.against(*(o.limit for o in rules))) for r in rules)
    evidence = Evidence({"n_units": N, "n_records": N}, (), {taken.request: taken})
    made = Verdict({}, findings, evidence)
    asserted = of_rules(map(made.said, findings), evidence.measurements.values())
    return findings[0], asserted, made.shown_values(), made


def written(x):
    """Return a number in all the ways in which sentences write numbers."""
    ways = {f"{v:{how}}" for v in (x, 100 * x) for how in (".3g", ".4g", ".1f", ".0f")}
    return ways | {f"{round(x * N)}", f"{math.exp(min(x, 700)):.3g}-fold"}


def says(text, x):
    return any(re.search(rf"(?<![\d.]){re.escape(way)}(?![\d]|\.\d)", text) for way in written(x))


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.request().key)
def test_a_finding_says_threshold_and_deciding_number_and_nothing_that_is_not_known(rule, outcome):
    low, high = interval(rule, outcome)
    finding, (asserted,), leaving, _ = told(rule, low, high)
    texts = [finding.message, finding.meaning, finding.advice, asserted.title, asserted.value]

    # an audit has no upper end, and never leaves doubt
    doubt = Outcome.WARNED if rule.bound == "lower" and outcome is Outcome.INCONCLUSIVE else outcome
    assert finding.outcome is doubt or rule.metric == "dp_epsilon_lower_bound"
    assert says(finding.message, rule.limit)
    assert says(asserted.threshold, rule.limit)
    (measured,) = leaving["evidence"]["measurements"]
    end = "low" if (outcome is Outcome.FAILED) == (rule.direction == "max") else "high"
    assert says(finding.message, measured[end])
    assert asserted.value == of_rules([finding], ())[0].value  # nothing was hidden: what is told is what was measured
    if outcome is Outcome.FAILED and rule.direction == "max":
        assert not says(finding.meaning, measured["high"])
    assert not any(text.rstrip(".").endswith("…") for text in texts)
    assert rule.metric != "sensitivity" or not any(re.search(r"\blabels?\b", text) for text in texts)


@pytest.mark.parametrize("rule", SHARES + FILES, ids=lambda r: r.request().key)
@pytest.mark.parametrize("limit", [2, 5, 8, 20, 130, 145])
@pytest.mark.parametrize("counts", [range(1, 10), range(N - 9, N)])
def test_nothing_that_is_told_depends_on_which_of_the_hidden_counts_is_true(rule, limit, counts):
    """Unless it lies on another side of a rule's limit, which the outcome tells anyway."""
    per = 1 if rule.metric == "file_records" else N
    one, other = rule.with_limit(limit / per), rule.with_limit((limit + 1) / per)
    said = {}
    for count in counts:
        finding, asserted, leaving, _ = told(one, count / per, count / per, other)
        side = tuple(f["outcome"] for f in leaving["findings"])
        said.setdefault(side, set()).add(
            (finding.message, finding.meaning, finding.advice, repr([a.value for a in asserted]), repr(leaving))
        )
        for f in leaving["findings"]:
            assert (f["low"] > f["limit"], f["high"] <= f["limit"]) == (
                f["outcome"] == "failed",
                f["outcome"] == "passed",
            )
    assert [len(texts) for texts in said.values()] == [1] * len(said)


@pytest.mark.quick(8)
@pytest.mark.parametrize("rule", SHARES + FILES, ids=lambda r: r.request().key)
@pytest.mark.parametrize("limit", [5, 20, 145])
@pytest.mark.parametrize("counts", [(1, 4, 6, 9), (N - 9, N - 4, N - 6, N - 1)])
def test_nothing_that_renders_depends_on_which_of_the_hidden_counts_is_true(rule, limit, counts):
    """Page, summary, terminal, JUnit, card, bill, notebook, and what a dashboard shows: from the point too."""
    per = 1 if rule.metric == "file_records" else N
    said = {}
    for count in counts:
        for low, high in ((count, count), (0, max(20, count)), (count, N)):
            *_, made = told(rule.with_limit(limit / per), low / per, high / per)
            (taken,) = made.evidence.measurements.values()
            point = {taken.request: replace(taken, value=count / per)}
            findings = tuple(rule.with_limit(limit / per).judge(m) for m in point.values())
            policy = {"name": "p", "version": "1", "digest": "sha256:0", "path": "", "source": {}}
            made = Verdict(policy, findings, replace(made.evidence, measurements=point))
            document = report.document(made, hash_key=b"k" * 32)
            shown = [report.render(document, format_) for format_ in FORMATS]
            side = (made.outcome, low == high, low == 0)
            said.setdefault(side, set()).add((*shown, overview(made), repr(collect_metrics(made)), findings[0].message))
    assert [len(texts) for texts in said.values()] == [1] * len(said)


@pytest.mark.parametrize("rule", SHARES + FILES, ids=lambda r: r.request().key)
@pytest.mark.parametrize("counts", [range(1, 10), range(N - 9, N)])
def test_no_hidden_count_follows_from_advice(rule, counts):
    """What a search prints of a change that does not pass."""
    per = 1 if rule.metric == "file_records" else N
    for side in (0, N):
        risks = {_why_not(told(rule.with_limit(side / per), count / per, count / per)[-1]) for count in counts}
        assert len(risks) == 1
