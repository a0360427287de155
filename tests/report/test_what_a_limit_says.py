"""The sentences about limits: no number without its prior, no exception that is not there, no attack stopped by DTP."""

import math

import pytest

from privgate.evidence import BehindClaim, Measurement
from privgate.policy.rules import ALL
from privgate.report import guarantees, words
from privgate.report.report_schema import read


@pytest.mark.parametrize(("failure", "exception"), [(0.0, False), (0.001, True)])
def test_the_headline_of_deletion_names_prior_and_exception(runs, failure, exception):
    doc = runs.document("declared")
    for row in doc["evidence"]["claims"]["deletion"]:
        row |= {"prior": 0.001, "failure": failure}
    section = guarantees.deletion(read(doc))
    (said,) = (b.reading for b in section.blocks if hasattr(b, "reading"))

    assert "At the stated prior of 0.1 %" in said
    assert ("except with probability 0.001" in said) is exception


@pytest.mark.parametrize(("prior", "shown"), [(0.1, "10 %"), (None, "any")])
def test_a_stated_prior_stands_in_the_table_of_bounds(runs, prior, shown):
    doc = runs.document("private")
    for row in doc["evidence"]["claims"]["bounds"]:
        row |= {"prior": prior}
    tables = [b for b in guarantees.dp(read(doc)).blocks if "Share of members assumed" in getattr(b, "columns", ())]

    assert {row[3] for table in tables for row in table.rows} == {shown}


@pytest.mark.parametrize(("delta", "exception"), [(0.0, False), (1e-7, True)])
def test_epsilon_is_for_one_person_and_names_the_exception_it_has(delta, exception):
    rule = ALL["dp_epsilon"](max=8.0)
    found = rule.meaning(Measurement(rule.request(), 1.0, 1.0, 1.0, behind=BehindClaim(delta=delta)))

    assert "one person's data" in found
    assert ("except with probability about 1e-07" in found) is exception
    assert "1e-05" not in found


def test_no_sentence_of_a_rule_about_people_speaks_of_one_record():
    for metric, keys in (("dp_epsilon", {"max": 1.0}), ("deletion_capacity", {"min": 1, "rho": 0.9, "prior": 0.01})):
        rule = ALL[metric](**keys)
        for high in (1.0, math.inf):
            assert "record" not in rule.meaning(Measurement(rule.request(), 1.0, 1.0, high))


def test_page_one_says_that_influence_stops_no_attack_unless_an_enforced_rule_limits_attacks(runs):
    def said(*metrics, mode="enforce", temperature=1.0):
        doc = runs.document("certified")
        doc["findings"] = [doc["findings"][-1] | {"metric": m, "mode": mode, "outcome": "passed"} for m in metrics]
        doc["subject"]["release"]["temperature"] = temperature
        return words.no_attack_limited(read(doc))

    assert "stops no attack" in said("dtp")
    assert "temperature 20" in said("dtp", temperature=20.0)
    assert said("dtp", "attack_accuracy") == ""
    assert said("dtp", "attack_accuracy", mode="warn")
    assert said("attack_tpr") == ""
    assert "stops no attack by itself" in ALL["dtp"](max=1.0).meaning(
        Measurement(ALL["dtp"](max=1.0).request(), 0.5, 0.5, 0.5)
    )
