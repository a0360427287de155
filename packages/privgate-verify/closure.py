"""Takes what a verification imports out of ``privgate`` and calls it ``privgate_verify``; there is no second source.

The closure of imports is computed here, from the entries that ``pyproject.toml`` names. A module that begins to import
something heavy fails the build, with a sentence that says which.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCE, MADE = "privgate", "privgate_verify"
_IMPORT = re.compile(rf"^(\s*(?:from|import) ){SOURCE}(?=[.\s])", re.MULTILINE)
_MAIN = f'''"""``privgate-verify`` and ``python -m {MADE}``."""

import sys

from {MADE}.cli.console import run
from {MADE}.cli.verify import verify


def main() -> None:
    """Verify, and end with the exit code."""
    sys.exit(run(verify, None, "privgate-verify"))


if __name__ == "__main__":
    main()
'''


def sources(tree: Path, config: dict[str, Any]) -> dict[str, str]:
    """Return path within the package -> text of every module that the entries import, at once or later."""
    found: dict[str, str] = {"__main__.py": _MAIN, "py.typed": ""}
    todo = [f"{SOURCE}.{e}" for e in config["entries"]]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        path = _file(tree, name)
        text = path.read_text(encoding="utf-8")
        if path.name == "__init__.py" and not _only_names_of_its_own(text, name):
            text = f'"""{ast.get_docstring(ast.parse(text))}"""\n'  # what it hands out lazily is not here
        for wanted, late in _imports(ast.parse(text)):
            todo += _followed(tree, wanted, late=late, of=name, config=config)
        todo += [name.rpartition(".")[0]] * (name != SOURCE)
        found[path.relative_to(tree / SOURCE).as_posix()] = _renamed(text, tree, name)
    return found


def _only_names_of_its_own(text: str, name: str) -> bool:
    """Whether a package's own file imports nothing but its own modules, at once."""
    return all(not late and w.startswith(f"{name}.") for w, late in _imports(ast.parse(text)))


def _followed(tree: Path, wanted: str, *, late: bool, of: str, config: dict[str, Any]) -> list[str]:
    """Return the module of ours that an import needs; nothing for libraries, or for what is left out on purpose."""
    root, _, rest = wanted.partition(".")
    room, own = rest.split(".")[0], of.partition(".")[2].split(".")[0]
    if root == SOURCE:
        if room in config["absent"] and late:
            return []
        if room in config["absent"]:
            raise ValueError(f"{of} imports {wanted}, which privgate-verify leaves out; import it where it is used")
        if room in config["numeric"] and own not in config["numeric"] and not late:
            raise ValueError(f"{of} imports {wanted}, which needs numpy; import it where it is used")
        if _file(tree, wanted).is_file():
            return [wanted]
        return [wanted.rpartition(".")[0]]  # a name in a module
    there = {*config["known"], *(config["late"] if late else ()), *(["numpy"] if own in config["numeric"] else ())}
    if root not in sys.stdlib_module_names and root not in there:
        raise ValueError(f"{of} imports {wanted}, which privgate-verify does not depend on")
    return []


def _imports(code: ast.Module) -> Iterator[tuple[str, bool]]:
    """Give (module or name imported, whether only when a function runs); what is for type checkers is skipped."""
    stack: list[tuple[ast.AST, bool]] = [(code, False)]
    while stack:
        node, late = stack.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            stack += [(n, late) for n in node.orelse]
            continue
        if isinstance(node, ast.Import):
            yield from ((a.name, late) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{a.name}", late) for a in node.names)
        inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack += [(n, inside) for n in ast.iter_child_nodes(node)]


def _file(tree: Path, name: str) -> Path:
    path = tree.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _renamed(text: str, tree: Path, name: str) -> str:
    """Return a module's text with its imports renamed; nothing else of it may name a module."""
    for node in ast.walk(ast.parse(text)):
        text_of_it = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if re.fullmatch(rf"{SOURCE}(\.\w+)+", text_of_it) and _file(tree, text_of_it).is_file():
            raise ValueError(f"{name} names the module {text_of_it} in a text, which is not renamed; import it")
        if isinstance(node, ast.Import) and any(a.name.partition(".")[0] == SOURCE for a in node.names):
            raise ValueError(f"{name} imports {SOURCE} by its whole name, which is not renamed; write from … import")
    made = _IMPORT.sub(rf"\1{MADE}", text)
    for wanted, _ in _imports(ast.parse(made)):
        if wanted.partition(".")[0] == SOURCE:
            raise ValueError(f"{name} imports {wanted} in a way that is not renamed")
    return made
