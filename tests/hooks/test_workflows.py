"""Our own workflows and forms: every action is named by commit, and every command they run exists in this tree."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from privgate.cli import COMMANDS

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".github"
WORKFLOWS = sorted(HOME.glob("workflows/*.yml"))


def read(path):
    return YAML(typ="safe").load(path.read_text())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_every_target_module_script_and_command_of_a_workflow_exists(path):
    scripts = "\n".join(step.get("run", "") for job in read(path)["jobs"].values() for step in job["steps"])
    makefile = (ROOT / "Makefile").read_text()
    lists = {
        "target": re.findall(r"\bmake ([\w-]+)", scripts),
        "module": re.findall(r"\bpython (?:-P )?-m ([\w.]+)", scripts),
        "script": re.findall(r"\bbash ([\w./-]+)", scripts),
        "command": re.findall(r"(?:^|/)privgate ([a-z]+)", scripts, re.MULTILINE),
    }
    exists = {
        "target": lambda name: re.search(rf"^{name}:", makefile, re.MULTILINE),
        "module": lambda name: name == "build" or importlib.util.find_spec(name),  # which the step before installs
        "script": lambda name: (ROOT / name).is_file(),
        "command": COMMANDS.__contains__,
    }
    assert any(lists.values())
    assert [(kind, name) for kind, names in lists.items() for name in names if not exists[kind](name)] == []


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


ACTION, DEPENDABOT = ROOT / "hooks" / "github-action" / "action.yml", HOME / "dependabot.yml"
ZIZMOR = ("zizmor", "--offline", "--persona", "pedantic", "--no-progress")
SCHEMA = ("check-jsonschema", "--builtin-schema")
TIDY = (
    "{extends: default, rules: {line-length: {max: 120}, document-start: disable, truthy: {check-keys: false}, "
    "comments: {min-spaces-from-content: 1}}}"
)
TOOLS = [
    (*ZIZMOR, *WORKFLOWS, DEPENDABOT, ACTION),
    (*SCHEMA, "vendor.github-workflows", *WORKFLOWS),
    (*SCHEMA, "vendor.dependabot", DEPENDABOT),
    (*SCHEMA, "vendor.github-actions", ACTION),
    (*SCHEMA, "vendor.citation-file-format", ROOT / "CITATION.cff"),
    ("yamllint", "-s", "-d", TIDY, HOME / "workflows" / "privgate-gate.yml", ACTION),
]


@pytest.mark.parametrize("command", TOOLS, ids=lambda c: f"{c[0]} {c[-1].name}")
def test_tools_that_read_such_files_find_nothing(command):
    tool = Path(sys.executable).with_name(command[0])
    if not tool.exists():
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([tool, *command[1:]], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
