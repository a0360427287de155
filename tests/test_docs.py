"""The documentation is a test: what the README names exists."""

import re
from pathlib import Path

import pytest

from privgate.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = {str(p.relative_to(ROOT)): p.read_text() for p in sorted((ROOT / "docs").rglob("*.md"))}


def test_every_command_of_the_readme_exists():
    named = set(re.findall(r"(?:`|\$ )privgate ([a-z][a-z-]*)", README))

    assert len(named) > 8
    assert named <= set(COMMANDS), named - set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_imports_and_has_help(name):
    from click.testing import CliRunner

    from privgate.cli import cli

    shown = CliRunner().invoke(cli, [name, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Usage:" in shown.output


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_every_link_of_the_readme_leads_somewhere(path):
    assert (Path(__file__).resolve().parents[1] / path).exists()


def test_the_readme_is_short_and_shows_one_small_picture():
    pictures = re.findall(r"!\[.+?\]\(([^)]+)\)", README)

    assert len(README.split()) < 800
    assert pictures == ["docs/images/page-one.png"]
    assert (ROOT / pictures[0]).stat().st_size < 150_000


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

    assert len(cited) > 20
    assert not {section: names for section, names in cited.items() if section not in known}


def test_the_reference_shows_every_public_name():
    import privgate
    import privgate.models

    shown = set(re.findall(r"^::: \S+\.(\w+)$", PAGES["docs/reference.md"], flags=re.MULTILINE))
    assert set(privgate.__all__) <= shown


def _commands() -> list[tuple[str, str]]:
    """Every line of a console block that calls privgate, with the page that shows it."""
    found = []
    for page, text in {"README.md": README, **PAGES}.items():
        for block in re.findall(r"```(?:console|sh|bash|yaml)\n(.*?)```", text, flags=re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page, m[1]) for line in lines if (m := re.match(r"\s*(?:\$ |- )?privgate (.*)", line))]
    return found


@pytest.mark.parametrize(("page", "line"), _commands())
def test_every_command_that_is_shown_has_the_options_that_it_is_shown_with(page, line):
    import shlex

    import click

    from privgate.cli import cli

    words = shlex.split(line.partition(" #")[0].replace("…", "x"))
    command, context = cli, click.Context(cli)
    while isinstance(command, click.Group):
        # `privgate report FILE` is short for `privgate report render FILE`
        name = words.pop(0) if command is cli or words[0] in command.list_commands(context) else "render"
        command = command.get_command(context, name)
        assert command is not None, (page, line)
    known = {option for parameter in command.params for option in parameter.opts}
    asked = {w.partition("=")[0] for w in words[: words.index("--") if "--" in words else None] if w.startswith("--")}
    assert asked <= known, (page, sorted(asked - known))
