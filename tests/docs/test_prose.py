"""The check of the documentation's sentences finds what it looks for."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

PATH = Path(__file__).with_name("prose.py")


@pytest.fixture(scope="module")
def prose():
    spec = spec_from_file_location("prose", PATH)
    module = module_from_spec(spec)
    sys.modules["prose"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["prose"]


LONG = "one " * 26 + "end."


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (LONG, "27 words"),
        (f"- a\n- {LONG}\n", "27 words"),
        ("word " * 15 + "end.", "16.0 words a sentence on average"),
        ("The gate blocked it.", "refused"),
        ("A rule passed.", "approved"),
    ],
)
def test_a_fault_is_found(prose, page, said):
    assert any(said in line for line in prose.faults("page", list(prose.sentences(page))))


@pytest.mark.parametrize(
    "page",
    [
        f"```text\n{LONG}\n```",
        f"| a |\n| --- |\n| {LONG} |",
        f"> {LONG}",
        f"# {LONG}",
        f"`{LONG}` is code.",
        "`blocked`",
    ],
)
def test_code_tables_quotations_and_headings_are_left_out(prose, page):
    assert prose.faults("page", list(prose.sentences(page))) == []


def test_a_sentence_ends_where_a_reader_ends_it(prose):
    page = "Long et al. (2017) say so. So does e.g. 0.5 of it (see there). “And here?” Yes; `x.y` is code."

    assert [s.words for s in prose.sentences(page)] == [6, 8, 2, 4]


def test_every_page_and_the_sentence_table_are_read(prose):
    read = prose.pages()

    assert len(read) > 30
    assert {"README.md", "docs/mathematics.md", "docs/reference.md", "privgate/report/sentences.yaml"} <= read.keys()
