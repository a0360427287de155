"""One decision on every surface: outcome, scope, warnings, and whether it is enforced are the same four facts."""

import itertools
import re
from html import unescape

import pytest

from privgate import report
from privgate.evidence.verdict import SCOPES, Decision, Outcome
from privgate.policy.judging import find_scope
from privgate.registry import attachments

OUTCOMES = (Outcome.PASSED, Outcome.INCONCLUSIVE, Outcome.FAILED)
REQUEST = {"": "pdtp(over=domain)", "beside": "pdtp(over=beside)", "direct": "pdtp(over=direct)"}


def judged(runs, outcome, scope, warnings, observed):
    """Return a verdict whose one rule ended so, with so many conditions that warn."""
    made = runs.golden("direct")
    *conditions, rule = made["findings"]
    warned = [{**c, "outcome": "warned" if k < warnings else "passed"} for k, c in enumerate(conditions)]
    made["findings"] = [*warned, {**rule, "outcome": str(outcome), "request": REQUEST[scope]}]
    made["observed"] = observed
    verdict = runs.verdict(made)
    verdict.detail["scope"] = find_scope(verdict.findings)
    return verdict


def shown(verdict, runs, folder):
    """Yield (surface, the decision that it shows)."""
    doc = runs.document(verdict)
    html = report.render(doc, "html")
    yield "document", doc["decision"]
    yield "page", re.search(r"<h1[^>]*>(.*?)</h1>", html, flags=re.DOTALL)[1]
    yield "page's title", re.search(r"<title>(.*?):", html)[1]
    yield "terminal", report.render(doc, "text").partition(": churn")[0]
    yield "Markdown", re.search(r"## \S+ (.*): churn", report.render(doc, "markdown"))[1]
    yield "JUnit", re.search(r'name="decision" value="([^"]*)"', report.render(doc, "junit"))[1]
    yield "tag", attachments._tags(verdict, "pdtp-1", "runs:/r", folder)["privgate"].rpartition(", pdtp-1")[0]
    yield "notebook", re.search(r"Verdict (.*?): churn", verdict._repr_html_())[1]


@pytest.mark.quick
@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("warnings", [0, 1, 2])
@pytest.mark.parametrize(("outcome", "scope"), list(itertools.product(OUTCOMES, SCOPES)))
def test_every_surface_says_the_same_four_facts(runs, tmp_path, outcome, scope, warnings, observed):
    verdict = judged(runs, outcome, scope, warnings, observed)
    ended = Outcome.WARNED if warnings and outcome is Outcome.PASSED else outcome
    due = Decision(ended, scope if ended.releases else "", warnings if ended.releases else 0, observed)

    assert verdict.decision == due
    told = {k: " ".join(unescape(re.sub(r"<[^>]+>", "", v)).split()).casefold()
            for k, v in shown(verdict, runs, tmp_path)}  # fmt: skip
    assert told == dict.fromkeys(told, due.text)
    metrics = attachments.collect_metrics(verdict)
    facts = [metrics[f"privgate/{name}"] for name in ("outcome", "scope", "warnings", "observed")]
    assert facts == [ended.rank, SCOPES.index(due.scope), due.warnings, observed]


def test_no_two_decisions_read_alike():
    ended = [(Outcome.PASSED, 0), (Outcome.WARNED, 1), (Outcome.WARNED, 2)]
    facts = [(o, scope, count) for (o, count), scope in itertools.product(ended, SCOPES)]
    facts += [(Outcome.INCONCLUSIVE, "", 0), (Outcome.FAILED, "", 0)]
    said = [Decision(*made, observed).text for made in facts for observed in (False, True)]

    assert len(set(said)) == len(said)


def test_a_rule_that_was_not_asked_is_never_told_as_what_blocked(runs, tmp_path):
    verdict = judged(runs, Outcome.FAILED, "", 0, False)
    spared = runs.golden("direct")["findings"][-1] | {"rule": "other", "title": "Not asked", "outcome": "not needed"}
    verdict = runs.verdict({**runs.golden("direct"), "findings": [spared, *[f.payload() for f in verdict.findings]]})

    assert attachments._tags(verdict, "pdtp-1", "runs:/r", tmp_path)["privgate.findings"].startswith("Influence")
