"""Names that eyes take for those of protected models, and names that nobody does."""

import dataclasses

import pytest

from privgate.guard.checks import TrustStore
from privgate.guard.guard_config import Guard


def guard(*models):
    return Guard("r", TrustStore(()), {}, frozenset({"production"}), frozenset(), tuple(models))


@pytest.mark.parametrize(
    "name",
    [
        "pr\u043ed.credit",  # one Cyrillic letter
        "\u0440\u0433\u043e\u0501.credit",  # a whole Cyrillic word
        "prod\u2024credit",  # a dot that is none, which folds to one
        "pr0d.credit",
        "prod.cred\u0456t",
        "\uff50rod.credit",
        "prod\u200b.credit",
        "p\u027dod.credit",
        "pr\u00f8d.credit",
        "pro\u0257.credit",
        "\u13e2\u13a1\u13be\u13a0.credit",  # Cherokee
        "\ua4d1\ua4e3\ua4f3\ua4d3.credit",  # Lisu
        "\u03c1rod.credit",
        "p\u1d26od.credit",
        "pro\ucc28.credit",  # an unknown letter amid Latin ones
        "procl.credit",
        "Pr0D.Credit",
    ],
)
def test_a_name_that_looks_protected_is_taken_for_it(name):
    found = guard("prod.*")
    assert found.model_meant(name) or found.protects_model(name)


@pytest.mark.parametrize(
    "name",
    [
        "credit",
        "product",
        "preprod.credit",
        "dev.prod.credit",
        "\u30af\u30ec\u30b8\u30c3\u30c8",
        "модель.credit",
        "größe.x",
        "p",
    ],
)
def test_other_names_are_other_names(name):
    found = guard("prod.*", "risk-[12]", "exact")
    assert not found.model_meant(name)
    assert not found.protects_model(name)


def test_a_capital_i_is_an_l_and_patterns_match_what_they_say():
    assert guard("prod.model").model_meant("prod.modeI")
    assert guard("risk-[12]").model_meant("r\u0456sk-1")
    assert guard("*.prod").model_meant("x.pr0d")
    assert not guard("*").model_meant("anything")
    assert not dataclasses.replace(guard("prod.*"), models=()).model_meant("pr0d.x")


@pytest.mark.parametrize(
    ("protected", "name"),
    [("credit", "cred1t"), ("cred1t", "credit"), ("final", "f1na1"), ("f1na1", "final"), ("limits", "1im1ts")],
)
def test_a_one_is_an_i_and_an_l(protected, name):
    assert guard(protected).model_meant(name) == protected


@pytest.mark.parametrize(("protected", "name"), [("mail", "mall"), ("credit", "credlt-2"), ("model1", "model2")])
def test_an_i_is_no_l(protected, name):
    assert not guard(protected).model_meant(name)


def test_many_ones_cost_no_time():
    assert guard("l" * 200).model_meant("1" * 200) == "l" * 200
    assert guard("i" * 200).model_meant("1" * 200) == "i" * 200
