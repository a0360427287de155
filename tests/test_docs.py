"""The documentation is a test: what the README names exists."""

import functools
import re
import shlex
import tomllib
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from markdown_it import MarkdownIt

from privgate.cli import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
#: pages whose commands must be such as the command line takes
SHOWN = ("README.md", "docs/**/*.md", "hooks/**/*.md", "examples/**/*.md", ".github/*.md")
#: a group named as such, or several of its commands at once: no line that anybody types
GROUPS = re.compile(r"^privgate (?:policy|keys|dp|report)$|^privgate$|^privgate --|^privgate [A-Z]")
PAGES = {str(p.relative_to(ROOT)): p.read_text() for p in sorted((ROOT / "docs").rglob("*.md"))}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_imports_and_has_help(name):
    from click.testing import CliRunner

    shown = CliRunner().invoke(cli, [name, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Usage:" in shown.output


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_every_link_of_the_readme_leads_somewhere(path):
    assert (Path(__file__).resolve().parents[1] / path).exists()


def test_the_exit_codes_of_the_readme_are_those_of_the_code():
    from privgate.errors import ExitCode

    assert {int(c) for c in re.findall(r"^\| (\d+) \|", README, flags=re.MULTILINE)} == {int(c) for c in ExitCode}


def test_every_shipped_policy_is_named():
    from privgate.policy.problems import shipped

    assert all(f"`{name}`" in README for name in shipped())


def test_every_file_that_the_guide_for_contributors_names_exists():
    root = Path(__file__).resolve().parents[1]
    named = re.findall(r"`([a-z_/]+\.py)`", (root / ".github/CONTRIBUTING.md").read_text())

    assert len(named) > 12
    missing = [name for name in named if not (root / name).exists() and not (root / "privgate" / name).exists()]
    assert not missing, missing


def test_every_section_of_the_mathematics_that_the_code_cites_exists():
    root = Path(__file__).resolve().parents[1]
    page = (root / "docs/mathematics.md").read_text()
    known = set(re.findall(r"^#{2,3} (\d+(?:\.\d+)?)", page, flags=re.MULTILINE))
    number = r"\d+(?:\.\d+)?"
    cited = {}
    for path in sorted((root / "privgate").rglob("*.py")):
        text = " ".join(path.read_text(encoding="utf-8").split())
        after = re.findall(
            rf"docs/mathematics\.md, sections? ({number})((?:(?:,| and|-|;)? (?:section )?{number})*)", text
        )
        before = re.findall(rf"[Ss]ections? ({number})((?:,? (?:and )?{number})*) of docs/mathematics\.md", text)
        for one, more in [*after, *before]:
            for section in [one, *re.findall(number, more)]:
                cited.setdefault(section, []).append(path.name)

    assert len(cited) > 15
    assert not {section: names for section, names in cited.items() if section not in known}


def test_the_reference_shows_every_public_name():
    import privgate
    import privgate.models

    shown = set(re.findall(r"^::: \S+\.(\w+)$", PAGES["docs/reference.md"], flags=re.MULTILINE))
    assert set(privgate.HOMES) <= shown


@functools.cache
def _shown() -> list[tuple[str, str, bool]]:
    """Every command that a page shows, with its page: whole lines of blocks, and what stands within a sentence."""
    found = []
    for path in (ROOT / name for pattern in SHOWN for name in sorted(ROOT.glob(pattern))):
        page, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        for token in MarkdownIt("commonmark").enable("table").parse(text):
            if token.type == "fence" and token.info != "python":
                lines = token.content.replace("\\\n", " ").splitlines()
                found += [(page, re.sub(r"^\s*(?:\$ |- )?(?:[A-Z_]+=\S+ )*", "", line), True) for line in lines]
            inline = [c.content for c in token.children or () if c.type == "code_inline"]
            found += [(page, text, False) for text in inline if " " in text]
    return found


def _commands(program: str) -> list[tuple[str, str, bool]]:
    """Return the lines of a program without their comments, and without what a shell does with its output."""
    lines = {(page, re.split(r" (?:#|&&|[|>]|--? ?…) ?", line)[0].strip(), whole) for page, line, whole in _shown()}
    return sorted(line for line in lines if line[1].split()[:1] == [program])


def _parsed(line: str, page: str) -> tuple["click.Command", list[str]]:
    """Return the command that a line calls, and its words."""
    words = shlex.split(line.replace("…", "x"))[1:]
    command, context = cli, click.Context(cli)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
        assert command is not None, (page, line)
    return command, words


@pytest.mark.parametrize(("page", "line", "whole"), [c for c in _commands("privgate") if not GROUPS.search(c[1])])
def test_every_command_that_is_shown_is_one_that_the_command_line_takes(page, line, whole):
    command, words = _parsed(line, page)
    context = click.Context(command)
    try:
        given, over, _ = command.make_parser(context).parse_args(list(words))
    except click.BadOptionUsage:
        assert not whole, (page, line)  # a sentence names an option without its value
        given, over, _ = command.make_parser(context).parse_args([*words, "x"])

    assert over == [], (page, line)
    for parameter in command.params:
        value = given.get(parameter.name)
        if whole and parameter.required:  # within a sentence the rest may be left out
            assert value not in (None, ()), (page, line, parameter.name)
        if whole and value is not None and isinstance(parameter.type, click.Choice | click.types.IntParamType):
            parameter.type_cast_value(context, value)


def test_every_target_of_make_every_extra_and_every_module_that_is_shown_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    made = [line.split()[1] for _, line, _ in _commands("make")]
    asked = {e for _, line, _ in _commands("pip") for e in re.findall(r"'privgate\[(\w+)\]'", line)}
    modules = {line.split()[2] for _, line, _ in _commands("python") if line.startswith("python -m ")}

    assert len(made) > 8
    assert asked
    assert len(modules) > 2
    assert set(made) <= targets, set(made) - targets
    assert asked <= set(extras), asked - set(extras)
    assert [m for m in modules if find_spec(m) is None] == []


def test_no_page_installs_a_name_that_nobody_published():
    assert [c for c in _commands("pip") if re.search(r" (-U )?privgate(-verify)?( |$)", c[1])] == []


def test_every_flag_of_mlflow_that_is_shown_exists():
    from mlflow.cli import cli as mlflow_cli

    lines = [re.sub(r"[<>…]", "", line) for _, line, _ in _commands("mlflow") if "mlflow …" not in line]
    shown = [shlex.split(line) for line in lines]
    assert len(shown) > 2
    for _, name, *words in shown:
        command = mlflow_cli.commands[name]
        command = command.commands.get(words[0], command) if isinstance(command, click.Group) and words else command
        flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= flags, (name, words)
