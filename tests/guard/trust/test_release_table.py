"""The guard's file: which models are released by which policy, for which task, and what older policies still do."""

import contextlib
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from privgate import Policy
from privgate.errors import PolicyError, PrivgateError, StatementError
from privgate.guard.config import Earlier, Guard, NamedPolicy, Watch
from privgate.guard.verification import UNBOXED

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
BYTES = "sha256:" + "a" * 64


@pytest.fixture
def load(world, tmp_path):
    world.trust.save(tmp_path / "trust.json")

    def read(table):
        path = tmp_path / "guard.yaml"
        path.write_text(HEAD + table, encoding="utf-8")
        return Guard.load(path)

    return read


def test_each_model_has_its_own_policy_task_and_file(load):
    guard = load(TABLE)
    price, credit = guard.terms("production", "price-eu"), guard.terms("production", "Credit")
    assert (price.task, credit.task) == ("regression", "classification")
    assert price.policy_digest == credit.policy_digest == FIRST
    assert guard.terms("production", "legacy").withheld
    assert guard.terms("champion", "legacy").policy == "strict"


def row(models, policy="release-1", task="classification", more=""):
    return f"  - {{models: {models}, task: {task}, policy: {policy}{more}}}\n"


ODD = "".join(row(repr(name)) for name in ("Kredit Prüfung", "\uff0a", "a/b"))
NAMES = "protected names are of ASCII letters"


@pytest.mark.parametrize(
    ("table", "model", "target", "why"),
    [
        (TABLE, "fraud", "production", "names no policy for 'fraud' as 'production'"),
        (TABLE, "legacy", None, "demand different things of 'legacy'"),
        (f"releases:\n{row(repr('a*'))}{row(repr('*b'), 'pdtp-1')}", "ab", "production", "demand different things"),
        (f"releases:\n{row('Credit')}{row('credit', task='regression')}", "credit", None, "demand different things"),
        (TABLE, "legacy", "staging", "names no policy for 'legacy' as 'staging'"),
        # a name that only looks like another
        (f"releases:\n{row('credit', 'strict')}{row(repr('[!c]*'), 'dtp-1')}", "\u0441redit", "production", NAMES),
        # a configuration that names what cannot be released starts, and releases nothing by it
        (f"releases:\n{ODD}", "Kredit Prüfung", "production", "rename it"),
        (f"releases:\n{ODD}", "anything", "production", "names no policy"),
        (f"releases:\n{ODD}", "a/b", "production", "rename it"),
    ],
    ids=ascii,
)
def test_a_model_without_a_row_is_released_by_nothing(load, table, model, target, why):
    guard = load(table)
    with pytest.raises((PolicyError, StatementError), match=re.escape(why)):
        guard.terms(target, model)


AHEAD = "still_accepted:\n  - {models: a, policy: dtp-1@1, signed_before: 2099-01-01, until: 2099-02-01}\n"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("releases: []\n", "at least 1 item"),
        ("releases:\n  - {models: a, task: classification}\n", "policy: field required"),
        (f"releases:\n{row('a', task='ranking')}", "task"),
        (f"releases:\n{row('a', more=', aliases: prodution')}", "'prodution'"),
        (f"releases:\n{row('a')}{AHEAD}", "signed_before lies ahead"),
        (f"releases:\n{row('a', 'nothing')}", "no shipped policy has this name"),
        ("policy: dtp-1\n", "releases"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_at_start(load, table, why):
    with pytest.raises(PolicyError, match=re.escape(why)):
        load(table)


def test_rows_that_overlap_and_agree_are_no_mistake(load):
    load(f"releases:\n{row(repr('a*'))}{row(repr('*'))}")


def test_the_guards_file_says_in_one_word_that_it_takes_what_ran_without_a_box(world, load):
    table = f"releases:\n{row('credit', BYTES)}"
    text = world.envelope(isolation="none").text()
    for line in ("", "accept_unboxed: false\n", "accept_advisory: true\n"):
        with pytest.raises(StatementError) as caught:
            world.check(text, terms=load(table + line).terms("production", "credit"))
        assert str(caught.value) == UNBOXED
    assert world.check(text, terms=load(f"{table}accept_unboxed: true\n").terms("production", "credit"))
    for vague in ("accept_unboxed: yes please\n", "accept_unboxed: 1\n", "accept_unboxed:\n", "accept-unboxed: true\n"):
        with pytest.raises(PolicyError):
            load(table + vague)


def test_configuration_as_kubernetes_mounts_it_counts_at_once(world, tmp_path):
    """Links into a folder that is exchanged as one; nothing older is used meanwhile."""
    for name in ("guard.yaml", "trust.json"):
        (tmp_path / name).symlink_to(f"..data/{name}")

    def exchange(number, store, text):
        data = tmp_path / f"..2026_{number}"
        data.mkdir()
        (data / "guard.yaml").write_text(text)
        store.save(data / "trust.json")
        (tmp_path / "..next").symlink_to(data.name)
        (tmp_path / "..next").replace(tmp_path / "..data")

    watch, text = Watch(tmp_path / "guard.yaml"), f"{HEAD}releases:\n{row('credit', BYTES)}"
    revoked = world.trust.revoke(world.signer.public_key.keyid, at=world.now)
    for number, (registry, store) in enumerate((("first", world.trust), ("second", revoked), ("", revoked))):
        exchange(number, store, text.replace("prod-registry", registry) if registry else "schema: [")
        for _ in range(2):
            if registry:
                assert watch.guard().registry == registry
                assert bool(watch.guard().trust.keys[0].revoked) == (store is revoked)
            else:
                with pytest.raises(PrivgateError, match="not YAML"):
                    watch.guard()
    exchange(9, world.trust, text)
    assert watch.guard().registry == "prod-registry"


@pytest.mark.parametrize(
    ("before", "until", "counts"),
    [(0, 0, True), (-1, 0, False), (0, -1, False), (1, 0, False), (None, 0, False)],
    ids=str,
)
def test_an_earlier_policy_counts_for_what_was_signed_then_until_its_last_day(world, before, until, counts):
    old = NamedPolicy("old", "sha256:" + "c" * 64)
    tomorrow = world.now + timedelta(days=1)
    first, last = (tomorrow.date() + timedelta(days=days or 0) for days in (before, until))
    earlier = Earlier.model_construct(models=["*"], policy=old, signed_before=first, until=last)
    terms = replace(world.terms, earlier=() if before is None else (earlier,))
    with contextlib.nullcontext() if counts else pytest.raises(StatementError, match="in force is"):
        world.check(world.envelope(policy_digest=old.digest).text(), terms=terms, now=tomorrow)


def test_what_still_counts_counts_for_the_models_that_it_names(load, world):
    """A weak policy of one model must not release another, nor a copy of it into a stronger row."""
    accepted = "still_accepted:\n  - {models: weak, policy: share-1@1, signed_before: 2026-11-01, until: 2099-01-01}\n"
    guard = load(f"releases:\n{row('strong', 'strict')}{row('weak', 'dtp-1')}{accepted}")
    (entry,) = guard.terms("production", "Weak").earlier
    assert entry.policy.name == "share-1"
    assert guard.terms("production", "strong").earlier == ()
    # an end that has passed stops that policy and nothing else
    over = accepted.replace("2026-11-01", "2020-01-01").replace("2099-01-01", "2020-02-01")
    (entry,) = load(f"releases:\n{row('weak')}{over}").terms("production", "weak").earlier
    assert not entry.counts(entry.policy.digest, world.now.replace(year=2019), world.now)
