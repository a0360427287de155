"""The floors of the house, the names of its files, and what a yes rests on."""

import ast
import functools
import re
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "privgate"
#: what a yes by theorem cannot do without: what makes it again of the data, because a yes that this does not confirm is
#: none, whatever the gate says (tests/check/test_confirm.py). Trees are
#: confirmed in part, lists of questions not at all: both rest on refits
CONFIRMING = ("privgate.check.confirm",)


def module_of(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(file): file for file in sorted(PACKAGE.rglob("*.py"))}
GRAPH = grimp.build_graph("privgate")


@functools.cache
def parse_file(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def named_in(file):
    """Modules of ours whose names stand in texts: ``privgate.linear_scores:softmax_scores``."""
    found = set()
    for node in ast.walk(parse_file(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in re.findall(r"privgate(?:\.\w+)+", node.value):
                found |= {name} & FILES.keys()
    return found


def closure(roots):
    """Modules that the roots import, in functions too and by texts, their packages included."""
    todo, seen = list(roots), set()
    while todo:
        name = todo.pop()
        if name in seen or name not in FILES:
            continue
        seen.add(name)
        if name == "privgate":
            continue  # it names what users import, each when it is asked for
        todo += [name.rpartition(".")[0], *GRAPH.find_modules_directly_imported_by(name), *named_in(FILES[name])]
    return seen


def test_what_confirms_a_yes_by_theorem_measures_nothing():
    rooms = {name.split(".")[1] for name in closure(CONFIRMING) - {"privgate"}}
    assert {"kernel", "theorems"} <= rooms
    assert rooms & {"influence", "membership", "policy", "training", "run", "registry", "report", "evidence"} == set()


def test_there_are_no_circles():
    """Whatever a module imports, in functions too, does not lead back to it; doors that are named by texts aside."""
    done, path = set(), []

    def walk(name):
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        path.append(name)
        for other in sorted(GRAPH.find_modules_directly_imported_by(name)):
            if other in FILES and (circle := walk(other)):
                return circle
        done.add(path.pop())
        return []

    found = {name: circle for name in FILES if (circle := walk(name))}
    assert not found


#: files of one name in two rooms: a rule, a command or a section is called like its metric or its part of the report
SHARED = 5


def test_a_file_has_a_name_of_its_own():
    names = [f.name for f in FILES.values() if f.name != "__init__.py"]
    twice = {name for name in names if names.count(name) > 1}

    assert len(twice) <= SHARED, twice
    assert "part.py" not in twice


#: words that say nothing of the thing; `of` alone may be a parameter, as in "5 of 9"
NO_NAMES = frozenset({"found", "made", "asked", "told", "left", "once", "beside", "coins", "unit", "of"})


def test_names_say_the_thing():
    """A function is called by verb and noun, a variable by the noun of its type; what a file holds keeps its name."""
    functions, parameters, variables = [], [], []
    for module, file in FILES.items():
        for node in ast.walk(parse_file(file)):
            if isinstance(node, ast.FunctionDef):
                functions += [f"{module}.{node.name}"] * (node.name.strip("_") in NO_NAMES)
                own = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                parameters += [f"{module}.{node.name}({a.arg})" for a in own if a.arg in NO_NAMES - {"of"}]
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NO_NAMES - {"of"}:
                variables.append(f"{module}:{node.lineno} {node.id}")
    assert functions == []
    assert parameters == []
    assert len(variables) <= 100, variables


def test_the_kernel_rests_on_numpy_and_nothing_else():
    kernel = {name for name in FILES if name.startswith("privgate.kernel")}

    assert closure(kernel) - {"privgate"} == kernel
    for name in kernel:
        for node in ast.walk(parse_file(FILES[name])):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert {m.partition(".")[0] for m in modules} <= STANDARD | {"numpy", "privgate"}, name


STANDARD = {"bisect", "collections", "dataclasses", "functools", "hashlib", "itertools", "json", "math", "typing"}


@pytest.mark.parametrize("name", ["privgate.kernel.judge", "privgate.check.gate"])
def test_what_is_counted_is_what_an_interpreter_would_load(name):
    """A text that names a module, an import in a function: both are there."""
    found = closure([name])

    assert "privgate" in found
    if name == "privgate.check.gate":
        assert {"privgate.kernel.judge", "privgate.training.worker", "privgate.run.refit"} <= found


def numbers_of(file):
    """Yield (line, whether it says its unit or reason) of each number, or row of numbers, that a module names."""
    source = file.read_text(encoding="utf-8").splitlines()
    for node in parse_file(file).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        parts = list(ast.walk(value)) if value is not None else []
        if any(isinstance(part, ast.Call | ast.Lambda | ast.Dict | ast.BinOp) for part in parts):
            continue
        if any(isinstance(part, ast.Constant) and type(part.value) in {int, float} for part in parts):
            yield source[node.lineno - 1], "#" in source[node.lineno - 1] or "#" in source[node.lineno - 2]


def test_every_number_that_a_module_names_says_its_unit_or_reason():
    found = {f"{file.relative_to(PACKAGE)}: {line}": said for file in FILES.values() for line, said in numbers_of(file)}

    assert len(found) > 250
    assert len([place for place, said in found.items() if not said]) <= BARE


#: numbers that say nothing yet
BARE = 11


def test_what_a_small_count_is_stands_once():
    found = [f for f in FILES.values() if re.search(r"^_?SMALL_CELL\b.*=", f.read_text(encoding="utf-8"), re.MULTILINE)]

    assert [f.name for f in found] == ["telling.py"]


def test_whoever_judges_loads_no_models_and_trains_nothing():
    """Rules are pure: of attacks a policy knows the names alone."""
    judges = {name for name in FILES if name.startswith("privgate.policy")}
    loaded = closure(judges) - {"privgate"}
    rooms = {name.split(".")[1] for name in loaded}

    assert not rooms & {"theorems", "models", "subject", "training", "influence", "kernel", "artifact", "check"}
    assert {name for name in loaded if "membership" in name and "policy" not in name} == {"privgate.membership"}


ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def test_the_architecture_fits_a_screen():
    assert len(ARCHITECTURE.splitlines()) <= 55
    assert max(map(len, ARCHITECTURE.splitlines())) <= 170


def test_the_architecture_draws_the_floors_that_are_enforced():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    enforced = next(c["layers"] for c in contracts if c["name"] == "Floors")
    drawn = [line.partition("  ")[0] for line in ARCHITECTURE.split("```")[1].strip().splitlines()]

    assert " > ".join(drawn).split(" > ") == enforced


def test_the_architecture_names_only_what_exists():
    """Files and folders by their paths, classes and functions by a definition in the package."""
    source = "\n".join(file.read_text(encoding="utf-8") for file in FILES.values())
    project = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "Makefile"))
    named = set(re.findall(r"`([\w./-]*\w)`", ARCHITECTURE.replace("```", "")))

    def exists(name):
        if any((folder / name).exists() for folder in (ROOT, PACKAGE)) or name in project:
            return True
        return bool(re.search(rf"\b(class|def) {name.rpartition('.')[2]}\b", source)) or f'"{name}"' in source

    missing = {name for name in named if not exists(name)}

    assert len(named) > 40
    assert not missing
