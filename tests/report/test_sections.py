"""What the sections of the evidence say: the strongest attack, priors, exceptions."""

import pytest

from privgate import report
from privgate.evidence import BehindClaim, Measurement
from privgate.policy.rules import ALL
from privgate.report import page_one, sections
from privgate.report.schema import read


def ranked(doc):
    return sections.rank_attacks(read(doc).evidence.membership.attacks)


#: run, rows of its evidence that are changed, what is put into each, what the page then says, and what it does not
PLANTED = [
    ("attacked", lambda e: e["membership"]["attacks"], {"figures": None, "problem": "needs 2,500 records a side"},
     "needs 2,500 records a side", "What each attack achieved"),
    ("private", lambda e: e["claims"]["bounds"], {"prior": 0.123}, "<bdi>12.3 %</bdi>", "<bdi>any</bdi>"),
    ("private", lambda e: e["claims"]["bounds"], {"prior": None}, "<bdi>any</bdi>", None),
    ("private", lambda e: e["claims"]["bounds"], {"bound": 0.6}, "<bdi>60 %</bdi>", None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "rows", "change", "said", "never"), PLANTED)
def test_the_page_says_what_stands_in_the_evidence(runs, kind, rows, change, said, never):
    doc = runs.document(kind)
    for row in rows(doc["evidence"]):
        row.update(change)
    page = report.render(doc, "html")

    assert said in page
    assert never is None or never not in page


@pytest.mark.parametrize("name", ["overlap", "same_population"])
def test_page_one_says_that_candidates_are_unfit_however_many_rules_there_are(runs, name):
    doc, said = runs.document("attacked"), "candidates are not what they should be; no attack is judged by them"
    (held,) = (f for f in doc["findings"] if f["rule"] == f"precondition:{name}")
    doc["findings"] += [{**doc["findings"][-1], "rule": f"r{i}"} for i in range(12)]

    shown = {}
    for outcome in ("warned", "passed"):
        held |= {"outcome": outcome, "message": said}
        shown[outcome] = page_one.limits(read(doc))

    assert any(said in line.lower() for line in shown["warned"])
    assert not any("candidates are not" in line.lower() for line in shown["passed"])


@pytest.mark.parametrize(("delta", "exception"), [(0.0, False), (1e-7, True)])
def test_epsilon_is_for_one_person_and_names_the_exception_it_has(delta, exception):
    rule = ALL["dp_epsilon"](max=8.0)
    found = rule.meaning(Measurement(rule.request(), 1.0, 1.0, 1.0, behind=BehindClaim(delta=delta)))

    assert "one person's data" in found
    assert ("except with probability about 1e-07" in found) is exception
    assert "1e-05" not in found


def test_page_one_says_that_influence_stops_no_attack_unless_an_enforced_rule_limits_attacks(runs):
    def said(*metrics, mode="enforce", temperature=1.0):
        doc = runs.document("certified")
        doc["findings"] = [doc["findings"][-1] | {"metric": m, "mode": mode, "outcome": "passed"} for m in metrics]
        doc["subject"]["release"]["temperature"] = temperature
        return page_one.no_attack_limited(read(doc))

    assert "stops no attack" in said("dtp")
    assert "temperature 20" in said("dtp", temperature=20.0)
    assert said("dtp", "attack_accuracy") == ""
    assert said("dtp", "attack_accuracy", mode="warn")
    assert said("attack_tpr") == ""
    assert "stops no attack by itself" in ALL["dtp"](max=1.0).meaning(
        Measurement(ALL["dtp"](max=1.0).request(), 0.5, 0.5, 0.5)
    )
