"""A run is a value: a step returns what it found, and nothing of it is assigned from outside or inside."""

import ast
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, Subject, TrainingData
from privgate.evidence import Precondition
from privgate.run.run import Noted, Run

PACKAGE = Path(__file__).resolve().parents[2] / "privgate"
FIELDS = {field.name for field in fields(Run)}


def assigned(source):
    """Attributes that are named like fields of a run and are assigned, deleted or changed in place."""
    for node in ast.walk(ast.parse(source)):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [getattr(node, "target", None)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changes = node.func.attr in {"append", "extend", "update", "pop", "clear", "add", "insert", "setdefault"}
            targets = [node.func.value] if changes else []
        for target in targets:
            for part in getattr(target, "elts", [target]):
                if isinstance(part, ast.Attribute) and part.attr in FIELDS | {"preconditions"}:
                    owner = part.value.id if isinstance(part.value, ast.Name) else getattr(part.value, "attr", "")
                    if owner in {"run", "bench", "other", "made_run"}:
                        yield f"{owner}.{part.attr}, line {part.lineno}"


@pytest.mark.parametrize(
    "source",
    ["run.seeds = ()", "run.seeds, x = 1, 2", "run.preconditions.append(1)", "del run.nonce", "self.run.share += 1",
     "for run.share in (): pass"],
)  # fmt: skip
def test_the_law_sees_an_assignment(source):
    assert list(assigned(source))


def test_no_module_assigns_a_field_of_a_run():
    found = {file: list(assigned(file.read_text(encoding="utf-8"))) for file in PACKAGE.rglob("*.py")}
    assert not {file.name: where for file, where in found.items() if where}


@pytest.fixture
def run():
    return Run(Subject.local(Recipe(GaussianNB()), TrainingData(np.eye(4), [0, 1, 0, 1], one_record_each=True)), None)


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_nobody_can(run, name):
    with pytest.raises(FrozenInstanceError):
        setattr(run, name, None)


def test_what_is_made_once_is_shared_by_a_run_that_knows_more_and_tells_what_it_found(run):
    said, calls = Precondition("x", "warned", "a sentence"), []

    def found(known):
        calls.append(known)
        return Noted((said,))

    more = replace(run, seeds=(1, 2))
    assert run.preconditions == ()
    assert more.compute(found) is run.compute(found)
    assert (run.preconditions, more.preconditions, len(calls)) == ((said,), (said,), 1)
