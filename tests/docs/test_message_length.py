"""What privgate says in help and errors is said in sentences of 25 words at most."""

import ast
import re
from pathlib import Path

import click
import pytest

import privgate
from privgate import errors
from privgate.cli import COMMANDS, cli

MOST = 25
PACKAGE = Path(privgate.__file__).parent
RAISED = {n for n, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.PrivgateError)}
RAISED |= {"Problem", "PolicyFileError", "wrong", "note", "BadParameter"}


def words(sentence):
    """Count words; a name that is filled in is one, and a mark alone is none."""
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def long(text):
    """Return the sentences of more than 25 words; a semicolon ends one as a full stop does."""
    return [s for s in re.split(r"(?<=[.;?])\s+|\n\s*\n", text) if words(s) > MOST]


def texts(node):
    """Yield every text in an expression as it reads; what is filled in reads as one word."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(p.value if isinstance(p, ast.Constant) else "X" for p in node.values)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from texts(part.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def said_by(call, made):
    """Yield the texts of a call's arguments; of one that is a name, what its function assigns to it."""
    for argument in (*call.args, *(k.value for k in call.keywords)):
        yield from texts(argument)
        if isinstance(argument, ast.Name):
            for value in made.get(argument.id, ()):
                yield from texts(value)


def messages():
    """Yield (place, text) of every message of an error, a policy's mistake or a note in the package."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for scope in (tree, *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))):
            made = {}
            for node in ast.walk(scope) if scope is not tree else ():
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    made.setdefault(node.targets[0].id, []).append(node.value)
            for node in ast.walk(scope):
                name = isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in RAISED:
                    place = f"{file.relative_to(PACKAGE)}:{node.lineno}"
                    yield from ((place, text) for text in said_by(node, made))


def commands(found, name):
    yield name, found
    for inner, command in getattr(found, "commands", {}).items():
        yield from commands(command, f"{name} {inner}")


def helps():
    """Yield (command and option, text) of every help text."""
    context = click.Context(cli)
    yield "privgate", cli.help
    for top, (_, line) in COMMANDS.items():
        yield top, line
        for name, command in commands(cli.get_command(context, top), top):
            yield name, command.help or ""
            yield from ((f"{name} {p.name}", p.help or "") for p in command.params if isinstance(p, click.Option))


def test_what_is_counted_is_found():
    assert len(list(messages())) > 400
    assert len(list(helps())) > 150
    assert long(" ".join(["word"] * 26))
    assert not long(" ".join(["word"] * 25) + ". " + " ".join(["word"] * 25))
    assert not long("; ".join([" ".join(["word"] * 20)] * 2))


@pytest.mark.parametrize("said", [messages, helps])
def test_every_sentence_has_25_words_at_most(said):
    found = sorted({f"{place}: {sentence}" for place, text in said() for sentence in long(text)})

    assert not found, "\n".join(found)
