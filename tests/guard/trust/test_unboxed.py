"""What ran without a box approves nothing for a protected alias, unless the operator's configuration says so."""

import dataclasses

import pytest

from privgate.errors import PolicyError, StatementError
from privgate.guard.checks import UNBOXED, boxed, counting
from privgate.guard.config import Guard
from privgate.guard.keys import TrustStore, fresh_key
from privgate.guard.statement import NOT_APPLICABLE

GUARD = """\
schema: privgate/guard/v1
registry: prod-registry
trust: trust.json
policy: "sha256:{}"
protected: {{aliases: [production]}}
"""
TABLE = """\
schema: privgate/guard/v2
registry: prod-registry
trust: trust.json
releases:
  - {{models: "*", task: classification, policy: "sha256:{}"}}
protected: {{aliases: [production]}}
"""


@pytest.mark.attack("32 a statement about a check without a box", "registry, verify, serve, doctor", "refused")
@pytest.mark.parametrize(
    "said", ["none", "", "None", "bubblewrapped 9", "none bubblewrap 1", "BUBBLEWRAP 1", "with network"]
)
def test_a_statement_without_a_box_counts_only_where_the_operator_says_so(world, said):
    text = world.envelope(isolation=said).text()
    with pytest.raises(StatementError, match=r"without a box.*accept_unboxed: true"):
        world.check(text)
    assert not boxed(said)
    assert world.check(text, terms=dataclasses.replace(world.terms, accept_unboxed=True)).isolation == said


@pytest.mark.parametrize("said", ["bubblewrap 0.8.0", "bubblewrap 0.11.0 with network"])
def test_a_statement_of_a_box_counts(world, said):
    assert world.check(world.envelope(isolation=said).text())


def test_what_was_never_trained_here_needs_no_box_and_a_refusal_counts_without(world):
    terms = dataclasses.replace(world.terms, task=NOT_APPLICABLE)
    key = fresh_key(world.signer.public_key, days=90, roles=("not_applicable",), models=("*",))
    stated = world.envelope(task=NOT_APPLICABLE, isolation="none").text()
    assert world.check(stated, terms=terms, store=TrustStore((key,)))
    refusal = world.envelope(isolation="none", passed=False, outcome="failed").text()
    assert counting(refusal, world.trust, world.now) is not None


@pytest.mark.attack("32 a guard's file that is vague about boxes", "server start", "refused")
@pytest.mark.parametrize("text", [GUARD, TABLE], ids=["v1", "v2"])
def test_the_guards_file_says_it_in_one_word(world, tmp_path, text):
    world.trust.save(tmp_path / "trust.json")
    path, text = tmp_path / "guard.yaml", text.format("a" * 64)

    def terms(line):
        path.write_text(text + line)
        return Guard.load(path).terms("production", "credit")

    unboxed = world.envelope(isolation="none").text()
    for line in ("", "accept_unboxed: false\n", "accept_advisory: true\n"):
        with pytest.raises(StatementError) as told:
            world.check(unboxed, terms=terms(line))
        assert str(told.value) == UNBOXED
    assert world.check(unboxed, terms=terms("accept_unboxed: true\n"))
    for vague in ("accept_unboxed: yes please\n", "accept_unboxed: 1\n", "accept_unboxed:\n", "accept-unboxed: true\n"):
        with pytest.raises(PolicyError):
            terms(vague)
