"""The guard's table: which models are released by which policy, for which task, and what older policies still do."""

import re
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate import Policy
from privgate.errors import PolicyError, StatementError
from privgate.guard.config import Earlier, Guard, Watch, intersect

HEAD = """schema: privgate/guard/v2
registry: prod-registry
trust: trust.json
protected: {aliases: [production, champion], models: ["prod.*"]}
"""
TABLE = """releases:
  - {models: "price-*", task: regression, policy: release-1}
  - {models: ["credit", "prod.credit"], task: classification, policy: release-1}
  - {models: "legacy", aliases: production, task: classification, policy: dtp-1, file: not downloadable}
  - {models: "legacy", aliases: champion, task: classification, policy: strict}
"""
FIRST = Policy.load("release-1").digest


@pytest.fixture
def load(tmp_path):
    (tmp_path / "trust.json").write_text('{"schema": "privgate/trust/v1", "keys": []}', encoding="utf-8")

    def made(table, head=HEAD):
        path = tmp_path / "guard.yaml"
        path.write_text(head + table, encoding="utf-8")
        return Guard.load(path)

    return made


def test_each_model_has_its_own_policy_task_and_file(load):
    guard = load(TABLE)
    price, credit = guard.terms("production", "price-eu"), guard.terms("production", "Credit")
    assert (price.task, credit.task) == ("regression", "classification")
    assert price.policy_digest == credit.policy_digest == FIRST
    assert guard.terms("production", "legacy").withheld
    assert guard.terms("champion", "legacy").policy == "strict"


@pytest.mark.parametrize(
    ("model", "target", "said"),
    [
        ("fraud", "production", "names no policy for 'fraud' as 'production'"),
        ("legacy", None, "demands different things of 'legacy' by target"),
        ("legacy", "staging", "names no policy for 'legacy' as 'staging'"),
    ],
)
def test_a_model_without_a_row_is_released_by_nothing(load, model, target, said):
    with pytest.raises(PolicyError, match=re.escape(said)):
        load(TABLE).terms(target, model)


def row(models, policy="release-1", task="classification", more=""):
    return f"  - {{models: {models}, task: {task}, policy: {policy}{more}}}\n"


AHEAD = "still_accepted:\n  - {models: a, policy: dtp-1@1, signed_before: 2099-01-01, until: 2099-02-01}\n"
BOTH = "the rows of 'a*' and '*b' are about one model and demand different things"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("releases: []\n", "at least 1 item"),
        ("releases:\n  - {models: a, task: classification}\n", "policy: field required"),
        (f"releases:\n{row('a', task='ranking')}", "task"),
        (f"releases:\n{row('a', more=', aliases: prodution')}", "'prodution'"),
        (f"releases:\n{row(repr('a*'))}{row(repr('*b'), 'pdtp-1')}", BOTH),
        (f"releases:\n{row('Credit')}{row('credit', task='regression')}", "demand different things"),
        (f"releases:\n{row('a')}{AHEAD}", "signed_before lies ahead"),
        (f"releases:\n{row('a', 'nothing')}", "no shipped policy has this name"),
        ("policy: dtp-1\n", "releases"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_at_start(load, table, said):
    with pytest.raises(PolicyError, match=re.escape(said)):
        load(table)


def test_rows_that_overlap_and_agree_are_no_mistake(load):
    load(f"releases:\n{row(repr('a*'))}{row(repr('*'))}")


def test_the_first_format_is_read_as_before(load):
    first = HEAD.replace("guard/v2", "guard/v1")
    guard = load("policy: {production: dtp-1, '*': pdtp-1}\n", first)
    assert guard.terms("production", "whatever").policy == "dtp-1"
    assert guard.terms("champion", "whatever").policy == "pdtp-1"
    assert guard.terms("production", "whatever").task == ""


def test_a_change_of_the_table_or_of_what_it_rests_on_counts_at_once(load, tmp_path):
    policy = tmp_path / "mine.yaml"
    text = 'schema: privgate/policy/v1\nname: mine\nversion: "1"\nextends: base.yaml\n'
    base = 'schema: privgate/policy/v1\nname: base\nversion: "1"\nrules: [{metric: dtp, max: 1}]\n'
    policy.write_text(text, encoding="utf-8")
    (tmp_path / "base.yaml").write_text(base, encoding="utf-8")
    load("releases:\n  - {models: a, task: classification, policy: mine.yaml}\n")
    watch = Watch(tmp_path / "guard.yaml")
    before = watch.guard().terms("production", "a").policy_digest
    (tmp_path / "base.yaml").write_text(base.replace("max: 1", "max: 0.5"), encoding="utf-8")
    assert watch.guard().terms("production", "a").policy_digest != before
    (tmp_path / "guard.yaml").write_text(HEAD + TABLE, encoding="utf-8")
    assert watch.guard().terms("production", "credit").policy_digest == FIRST


def terms_of(world, **changes):
    return replace(world.terms, task="classification", **changes)


def test_the_task_of_the_statement_is_compared_with_the_table(world):
    terms = terms_of(world)
    world.check(world.envelope(task="classification").text(), terms=terms)
    world.check(world.envelope().text(), terms=terms)  # signed before tasks were
    with pytest.raises(StatementError, match="judged as regression, and the guard's table says that it is classific"):
        world.check(world.envelope(task="regression").text(), terms=terms)


def test_a_file_out_of_reach_counts_only_where_the_table_says_so(world):
    text = world.envelope(withheld=True).text()
    with pytest.raises(StatementError, match="the guard's table does not say that of this model"):
        world.check(text)
    assert world.check(text, terms=terms_of(world, withheld=True)).withheld


def test_an_earlier_policy_counts_for_what_was_signed_then_until_its_last_day(world):
    day, old = world.now.date(), "sha256:" + "c" * 64
    tomorrow, yesterday = day + timedelta(days=1), day - timedelta(days=1)
    text = world.envelope(policy_digest=old)

    def terms(before, until):
        return replace(world.terms, earlier=(Earlier(("*",), "old", old, before, until),))

    with pytest.raises(StatementError, match="in force is"):
        world.check(text.text())
    world.check(text.text(), terms=terms(tomorrow, day))
    with pytest.raises(StatementError, match="in force is"):  # nothing new is signed under it
        world.check(text.text(), terms=terms(day, day))
    with pytest.raises(StatementError, match="in force is"):
        world.check(text.text(), terms=terms(tomorrow, yesterday))


# Two patterns, and whether some name fits both: against trying names.

PATTERNS = st.text(alphabet="ab*?", max_size=5)


@given(PATTERNS, PATTERNS)
def test_two_patterns_meet_where_a_name_fits_both(one, other):
    names = [""]
    for _ in range(6):
        names += [n + c for n in names[-(2**6) :] for c in "ab"]
    found = any(fnmatchcase(n, one) and fnmatchcase(n, other) for n in set(names))
    assert not found or intersect(one, other)
    if "*" not in one + other:
        assert intersect(one, other) == (len(one) == len(other) and found)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("[!]a]", "b", True),
        ("[ab]c", "bc", True),
        ("[ab]c", "dc", False),
        ("[ab]", "[cd]", False),
        ("[!a]", "[ab]", True),
        ("*", "", True),
    ],
)
def test_sets_of_characters_meet_in_a_letter_of_names(one, other, meet):
    assert intersect(one, other) is meet


def test_the_example_of_the_repository_is_a_table(tmp_path):
    text = (Path(__file__).parents[3] / "hooks/mlflow-server/guard.yaml").read_text(encoding="utf-8")
    (tmp_path / "trust.json").write_text('{"schema": "privgate/trust/v1", "keys": []}', encoding="utf-8")
    (tmp_path / "guard.yaml").write_text(text, encoding="utf-8")
    guard = Guard.load(tmp_path / "guard.yaml")
    assert [r.task for r in guard.rows] == ["regression", "classification"]


def test_what_still_counts_counts_for_the_models_that_it_names(load):
    """A weak policy of one model must not release another, nor a copy of it into a stronger row."""
    accepted = "still_accepted:\n  - {models: weak, policy: share-1@1, signed_before: 2026-11-01, until: 2099-01-01}\n"
    guard = load(f"releases:\n{row('strong', 'strict')}{row('weak', 'dtp-1')}{accepted}")
    assert [e.policy for e in guard.terms("production", "Weak").earlier] == ["share-1@1"]
    assert guard.terms("production", "strong").earlier == ()


def test_an_end_that_has_passed_stops_that_policy_and_nothing_else(load, world):
    over = "still_accepted:\n  - {models: a, policy: share-1@1, signed_before: 2020-01-01, until: 2020-02-01}\n"
    (entry,) = load(f"releases:\n{row('a')}{over}").terms("production", "a").earlier
    assert not entry.counts(entry.digest, world.now.replace(year=2019), world.now)


def test_a_name_that_only_looks_like_another_is_released_by_no_row(load):
    guard = load(f"releases:\n{row('credit', 'strict')}{row(repr('[!c]*'), 'dtp-1')}")
    with pytest.raises(StatementError, match="protected names are of ASCII letters"):
        guard.terms("production", "\u0441redit")


def test_a_configuration_that_names_what_cannot_be_released_starts_and_releases_nothing_by_it(load):
    odd = ["Kredit Prüfung", "\uff0a", "a/b"]
    guard = load("releases:\n" + "".join(row(repr(name)) for name in odd))
    assert guard.odd_names() == sorted(odd)
    for name, said in (("Kredit Prüfung", "rename it"), ("anything", "names no policy"), ("a/b", "rename it")):
        with pytest.raises((PolicyError, StatementError), match=said):
            guard.terms("production", name)


def test_a_statement_without_a_task_is_about_a_classifier(world):
    with pytest.raises(StatementError, match="judged as classification"):
        world.check(terms=replace(world.terms, task="regression"))
    terms = replace(world.terms, task="regression", policy="regression-1")
    world.check(world.envelope(policy="regression-1").text(), terms=terms)
