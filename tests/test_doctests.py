"""Every example in a docstring is run: here, because pytest would import every module of the package to find them."""

import ast
import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def examples(path):
    """Return the docstrings of a file that hold examples, each behind the name of what it describes.

    >>> [name for name, _ in examples(Path(__file__))]
    ['examples']
    """
    text = path.read_text(encoding="utf-8")
    if ">>> " not in text:
        return []
    tree = ast.parse(text)
    nodes = (n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef))
    found = [(getattr(n, "name", path.stem), ast.get_docstring(n) or "") for n in nodes]
    return [(name, said) for name, said in found if ">>> " in said]


FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for folder in ("privgate", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if examples(path)
}


@pytest.mark.parametrize("module", FILES)
def test_examples_print_what_they_show(module):
    names = vars(importlib.import_module(module))
    for name, said in examples(FILES[module]):
        test = doctest.DocTestParser().get_doctest(said, dict(names), f"{module}.{name}", str(FILES[module]), 0)
        assert doctest.DocTestRunner().run(test).failed == 0
