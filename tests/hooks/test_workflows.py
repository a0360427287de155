"""Our own workflows and forms: every action is named by commit, and every command they run exists in this tree."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from privgate.cli import COMMANDS

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".github"
WORKFLOWS = sorted(HOME.glob("workflows/*.yml"))
#: programs of the runner; what else is run must be of this tree
SYSTEM = {"sudo", "test", "grep", "apt-get", "sysctl", "true"}
#: modules of Python's own installers
INSTALLERS = {"pip", "venv", "build"}


def read(path):
    return YAML(typ="safe").load(path.read_text())


def steps(path):
    return [(job, step) for job, told in read(path)["jobs"].items() for step in told["steps"]]


def commands(script):
    """Each command of a script; what stands in a here-document is another language's."""
    script = re.sub(r"<<'(\w+)'\n.*?\n\s*\1\b", "", script, flags=re.DOTALL).replace("\\\n", " ")
    for line in re.split(r"\n|&&|\|\||;", script):
        words = shlex.split(line, comments=True)
        while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] in ("sudo", "env", "-E")):
            words = words[1:]
        if words:
            yield words


def unknown(words):
    """Why a command cannot be run in a checkout; empty if it can."""
    first, rest = words[0], words[1:]
    if first in SYSTEM:
        named = [w for w in rest if w.endswith((".py", ".toml", ".sh"))]
        return next((f"no file {w}" for w in named if not (ROOT / w).exists()), "")
    if first == "bash":
        return "" if (ROOT / rest[0]).is_file() else f"no script {rest[0]}"
    if first == "make":
        return "" if re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE) else f"no target {rest}"
    if first == "python":
        rest = [w for w in rest if w not in ("-P", "-")]
        if not rest:
            return ""
        if rest[0] != "-m" or (rest[1] not in INSTALLERS and importlib.util.find_spec(rest[1]) is None):
            return f"python runs {rest}"
        folders = [w for w in rest[2:] if w.startswith("packages/")]
        return next((f"no distribution in {w}" for w in folders if not (ROOT / w / "pyproject.toml").is_file()), "")
    name = Path(first).name
    if name == "pip" and rest[0] == "install":
        return ""
    if name == "privgate":
        return "" if rest[0] in COMMANDS else f"no command privgate {rest[0]}"
    return f"no program {first}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_every_command_of_a_workflow_exists(path):
    scripts = [step["run"] for _, step in steps(path) if "run" in step]
    found = [words for script in scripts for words in commands(script)]

    assert found
    assert [f"{' '.join(w)}: {why}" for w in found if (why := unknown(w))] == []


@pytest.mark.parametrize(
    "command",
    ["bash .ci/ran", "make tset", "python -m privgate.gitlab check", "privgate demonstrate", "curl x", "grep a no.py"],
)
def test_a_command_that_does_not_exist_is_found(command):
    (words,) = commands(command)

    assert unknown(words)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_actions_are_named_by_commit_and_nothing_is_permitted_by_default(path):
    used = re.findall(r"uses: (\S+)(.*)", path.read_text().partition("\non:")[2])

    assert used
    for action, version in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", version), action
    assert read(path)["permissions"] == {}
    for job in read(path)["jobs"].values():
        assert "permissions" in job
        assert job["timeout-minutes"] <= 360


def test_only_who_publishes_may_prove_who_it_is():
    jobs = read(HOME / "workflows" / "release.yml")["jobs"]

    assert jobs["build"]["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"id-token": "write", "attestations": "write"}
    assert not [s for s in jobs["publish"]["steps"] if "run" in s]  # no code of the tree beside the right to publish
    assert "secrets." not in (HOME / "workflows" / "release.yml").read_text()
    order = [s["uses"].partition("@")[0].rpartition("/")[2] for s in jobs["publish"]["steps"]]
    assert order.index("attest-build-provenance") < order.index("gh-action-pypi-publish")


def test_every_python_that_is_declared_is_tested():
    job = read(HOME / "workflows" / "ci.yml")["jobs"]["test"]
    declared = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())

    assert set(declared) == set(job["strategy"]["matrix"]["python"]) - {"3.14"}
    assert job["continue-on-error"] == "${{ matrix.python == '3.14' }}"
    assert declared == re.findall(
        r"Python :: (3\.\d+)", (ROOT / "packages" / "privgate-verify" / "pyproject.toml").read_text()
    )


def test_the_citation_states_the_version_of_the_tree_and_names_nobody():
    from privgate.version import __version__

    cited = read(ROOT / "CITATION.cff")
    assert cited["version"] == __version__
    assert cited["authors"] == [{"name": "The privgate authors"}]
    assert cited["license"] in (ROOT / "pyproject.toml").read_text()


CHECKED = [
    *[(p, "vendor.github-workflows") for p in WORKFLOWS],
    (HOME / "dependabot.yml", "vendor.dependabot"),
    (ROOT / "CITATION.cff", "vendor.citation-file-format"),
]


@pytest.mark.parametrize(("path", "schema"), CHECKED, ids=lambda v: v.name if isinstance(v, Path) else "")
def test_files_are_valid_by_their_schemas(path, schema):
    tool = Path(sys.executable).with_name("check-jsonschema")
    if not tool.exists():
        pytest.skip("check-jsonschema is not installed")
    done = subprocess.run([tool, "--builtin-schema", schema, path], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", [*WORKFLOWS, HOME / "dependabot.yml"], ids=lambda p: p.name)
def test_zizmor_finds_nothing(path):
    tool = Path(sys.executable).with_name("zizmor")
    if not tool.exists():
        pytest.skip("zizmor is not installed")
    command = [tool, "--offline", "--persona", "pedantic", "--no-progress", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


def test_folders_that_dependabot_watches_hold_something_to_watch():
    for update in read(HOME / "dependabot.yml")["updates"]:
        wanted = "pyproject.toml" if update["package-ecosystem"] == "pip" else "*.yml"
        for folder in update["directories"]:
            place = ROOT / folder.strip("/")
            assert list(place.glob(wanted)) or (folder == "/" and WORKFLOWS), folder


def test_issue_forms_ask_for_something():
    forms = [p for p in (HOME / "ISSUE_TEMPLATE").glob("*.yml") if p.name != "config.yml"]

    assert len(forms) == 2
    for path in forms:
        form = read(path)
        assert {"name", "description", "body"} <= form.keys()
        asked = [part for part in form["body"] if part["type"] != "markdown"]
        assert len({part["id"] for part in asked}) == len(asked)
        assert any((part.get("validations") or {}).get("required") for part in asked)
