"""Names that eyes take for those of protected models, and names that nobody does."""

import dataclasses
import time

import pytest
from babel import Locale
from confusable_homoglyphs.confusables import confusables_data as table

from privgate.guard.guard_config import Guard
from privgate.guard.truststore import TrustStore


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


# Unicode's whole table


def taken(protected, name):
    found = guard(protected)
    return bool(found.model_meant(name) or found.protects_model(name))


@pytest.mark.parametrize("letter", "abcdefghijklmnopqrstuvwxyz0123456789")
def test_every_confusable_of_a_letter_is_taken_for_it(letter):
    near = {like["c"] for shown in (letter, letter.upper()) for like in table.get(shown, ())}
    near |= {like["c"] for text in near if text.isascii() for like in table.get(text, ())}
    near -= {"l"} if letter == "i" else set()  # mail is no mall
    assert near
    passed = [
        (ascii(like), form)
        for like in sorted(near)
        for form in ("x{}.credit", "{}lever", "ra{}e")
        if not taken(form.format(letter), form.format(like)) or not taken(form.format(letter) + "*", form.format(like))
    ]
    assert passed == []


#: what eyes take for ``prod.credit``
KNOWN = """
prоd.credit рrod.credit prod.сredit prod.crеdit prod.credіt proԁ.credit рrоd.сrеdіt ргоԁ.сгеԁіт
ρrod.credit prοd.credit prod.credιt prod.cʀedit pɾod.credit prøđ.credit proɗ.credit prod.ƈredit
prod․credit prodꓸcredit prod.cred1t prod.cred|t pr0d.credit procl.credit prod.creclit p𝗋od.credit
ｐrod.credit ⓟrod.credit prod.credi𝐭 prod.ⅽredit pro\u200bd.credit prod.cre\u0335dit Prod.CREDIT PROD.СREDIT
pŗod.credit ᏢᎡod.credit ꓑꓣꓳꓓ.credit 𝓹𝓻𝓸𝓭.credit prod.creԁit prod.credℹt prod.ϲredit prod.ᴄredit
prod.credꙇt prod.credıt prod.cꭇedit pꮁod.credit prᴏd.credit prσd.credit prօd.credit prod܁credit
pro𝑑.credit
"""


@pytest.mark.parametrize("name", KNOWN.split())
def test_known_look_alikes_are_taken_for_the_protected_one(name):
    assert taken("prod.credit", name)
    assert taken("prod.*", name)


@pytest.mark.parametrize(
    ("protected", "name"),
    [
        *[(p, n) for a, b in (("modem", "modern"), ("dog", "clog"), ("web", "vveb")) for p, n in ((a, b), (b, a))],
        ("c*", "\u0441lever"),
        ("d*", "clever"),
        ("cl*", "dog"),
        ("*rn", "form"),
        ("risk-?", "risk-rn"),
        ("[d]og", "clog"),
        ("r[a-i]sk", "r1sk"),
        ("risk-[12]", "risk-l"),
        ("risk[!0]x", "r\u0456sk1x"),
        ("[c]log", "dog"),
        ("æon", "aeon"),
        ("aeon", "æon"),
        ("кредит", "kpeдиt"),
    ],
)
def test_two_letters_and_patterns_are_seen_both_ways(protected, name):
    assert taken(protected, name)


@pytest.mark.parametrize(("protected", "name"), [("c*", "dog"), ("*l", "mad"), ("c?", "d"), ("?l", "d"), ("r*", "m")])
def test_half_a_letter_is_no_letter(protected, name):
    assert not taken(protected, name)


PATTERNS = [
    "credit*",
    "income",
    "risk-?",
    "prod_*",
    "*-churn",
    "fraud[0-9]",
    "scoring.v?",
    "loan*",
    "claims-[ab]*",
    "*.prod",
]
PATTERNS += ["default_*", "pricing"]


def test_ordinary_names_in_ten_languages_are_not_refused():
    """Names of languages and countries, as those who speak them write them."""
    names = {}
    for language in ("en", "de", "fr", "pl", "ru", "el", "zh", "ja", "ar", "hi"):
        locale = Locale.parse(language)
        words = [*locale.territories.values(), *locale.languages.values()]
        names |= dict.fromkeys(word.replace(" ", "_") for word in words[:400])
    assert len(names) >= 1000
    found = guard(*PATTERNS)
    refused = {name: meant for name in names if (meant := found.model_meant(name))}
    assert refused == {}


@pytest.mark.parametrize("name", ["m1" * 128, "I" * 256, "1" * 256, "\u0430d" * 128, "\ucc28a" * 128, "d" * 256])
@pytest.mark.parametrize("protected", ["*1*1*m*m*1*z", "m1" * 128, "?" * 255, "*" + "d" * 200 + "z"])
def test_the_time_for_a_name_grows_with_its_length_and_no_faster(name, protected):
    found = guard(protected)

    def seconds(asked):
        took = []
        for _ in range(20):
            began = time.process_time()
            found.model_meant(asked)
            took.append(time.process_time() - began)
        return min(took)

    found.model_meant(name)  # reads the table
    assert seconds(name) < 8 * seconds(name[:64])  # a name four times as long; what compares all pairs takes 16 times
