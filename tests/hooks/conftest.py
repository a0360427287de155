"""A small runner of composite actions, and a privgate that trains nothing."""

import inspect
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import privgate
from privgate import github

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "hooks" / "github-action" / "action.yml"


@dataclass
class Ended:
    """How a run of an action ended."""

    code: int
    outputs: dict
    summary: str
    log: str

    @property
    def annotations(self):
        """Workflow commands that the runner would obey: those outside stop-commands."""
        obeyed, token = [], None
        for line in self.log.splitlines():
            if token is None and line.startswith("::stop-commands::"):
                token = line.removeprefix("::stop-commands::")
            elif token is not None and line == f"::{token}::":
                token = None
            elif token is None and line.startswith("::"):
                obeyed.append(line)
        return obeyed


def fill(text, known):
    """Replace ``${{ … }}``; refuse expressions that this runner does not know."""

    def one(match):
        name = match[1].strip()
        if name not in known:
            raise NotImplementedError(f"expression {name!r}")
        return known[name]

    return re.sub(r"\$\{\{(.*?)\}\}", one, str(text))


def run_action(workspace, inputs, environ=None, action=ACTION):
    """Run the steps of a composite action as GitHub would: env files, required inputs, outputs even after a failure."""
    spec = YAML(typ="safe").load(action.read_text(encoding="utf-8"))
    assert spec["runs"]["using"] == "composite"
    unknown = set(inputs) - set(spec["inputs"])
    assert not unknown, f"unknown inputs {unknown}"
    missing = [n for n, i in spec["inputs"].items() if i.get("required") and n not in inputs]
    assert not missing, f"missing inputs {missing}"
    known = {f"inputs.{n}": str(inputs.get(n, i.get("default", ""))) for n, i in spec["inputs"].items()}
    known["github.action_path"] = str(action.parent)
    known |= {f"runner.{n}": (environ or {}).get(f"RUNNER_{n.upper()}", "") for n in ("environment", "os")}
    code, log, summary = 0, "", ""
    for number, step in enumerate(spec["runs"]["steps"]):
        if code or not holds(step.get("if", ""), known):
            continue
        assert set(step) <= {"name", "id", "if", "shell", "run", "env", "working-directory"}, "an unknown step"
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an expression inside a script is an injection"
        files = {n: workspace / f".runner-{n}-{number}" for n in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV")}
        for file in files.values():
            file.write_text("")
        env = {**os.environ, **(environ or {}), **{n: str(f) for n, f in files.items()}}
        env |= {"GITHUB_WORKSPACE": str(workspace), **{k: fill(v, known) for k, v in step.get("env", {}).items()}}
        script = workspace / f".runner-step-{number}.sh"
        script.write_text(step["run"], encoding="utf-8")
        folder = workspace / fill(step.get("working-directory", "."), known)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=280,
        )
        code, log = done.returncode, log + done.stdout
        summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
        for line in files["GITHUB_OUTPUT"].read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            known[f"steps.{step['id']}.outputs.{name}"] = value
    outputs = {n: fill(o["value"], {**dict.fromkeys(expressions(o), ""), **known}) for n, o in spec["outputs"].items()}
    return Ended(code, outputs, summary, log)


def holds(condition, known):
    """Whether a step's condition holds: names of the context, compared with words, and all of it."""
    parts = [re.fullmatch(r"([\w.-]+) (==|!=) '(.*)'", part).groups() for part in condition.split(" && ") if part]
    return all((known[name] == word) == (sign == "==") for name, sign, word in parts)


def expressions(output):
    return [m.strip() for m in re.findall(r"\$\{\{(.*?)\}\}", output["value"])]


@pytest.fixture
def action():
    """Return the runner of composite actions."""
    return run_action


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


@pytest.fixture
def fake(tmp_path):
    """Return the environment in which ``python -m privgate`` writes the report that its model's name asks for."""
    package = tmp_path / "fake" / "privgate"
    package.mkdir(parents=True)
    real = Path(privgate.__file__).parent
    # the fake command line comes first; everything else, privgate.github too, is the real package
    package.joinpath("__init__.py").write_text(f"__path__ = [{str(package)!r}, {str(real)!r}]\n")
    package.joinpath("__main__.py").write_text(FAKE)
    return {"PYTHONPATH": str(package.parent), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def fake_check(arguments, environ):
    """Write the report that the model's name asks for, and return the exit code that belongs to it."""
    model = arguments[1]
    folder = Path(arguments[arguments.index("--report-dir") + 1])
    word = model.rsplit("/", 1)[-1]
    print("ARGUMENTS", json.dumps(arguments))
    print("::error::a model name that wants to be a command")
    print("SEES", sorted(k for k in environ if k in ("GITHUB_ENV", "GITHUB_OUTPUT", "ACTIONS_RUNTIME_TOKEN")))
    codes = {"passed": 0, "warned": 0, "failed": 1, "inconclusive": 5, "observed": 0, "lies": 0, "empty": 0}
    if word not in codes:
        return {"usage": 2, "bug": 3, "killed": 137}.get(word, 4)
    folder.mkdir(parents=True, exist_ok=True)
    if word != "empty":
        outcome = {"observed": "failed", "lies": "failed"}.get(word, word)
        one = {"rule": "dtp", "title": "Influence", "outcome": outcome, "line": 7, "message": "1.4 nats: 100% of\nit"}
        two = {"rule": "pdtp", "title": "Direct", "outcome": "passed", "line": 9, "message": "fine"}
        report = {"outcome": outcome, "observed": word == "observed", "findings": [one, two]}
        (folder / "report.json").write_text(json.dumps(report))
        (folder / "summary.md").write_text("## " + outcome + "\n" + "x\n" * int(environ.get("FAKE_LINES", "1")))
        (folder / "junit.xml").write_text("<testsuite/>")
    return codes[word]


FAKE = f"""import json, os, sys
from pathlib import Path

{inspect.getsource(fake_check)}
sys.exit(fake_check(sys.argv[1:], os.environ))
"""


@pytest.fixture
def step(workspace, monkeypatch, capsys):
    """Return the same step without its processes: inputs as the action would set them."""
    monkeypatch.chdir(workspace)
    (workspace / "policy.yaml").touch()

    def call(model, environ=None, **inputs):
        inputs = {"model": model, "policy": "policy.yaml", **inputs}
        given = {f"PRIVGATE_INPUT_{k.upper()}": v for k, v in inputs.items()}
        files = {n: workspace / f".{n}" for n in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        environ = {
            **(environ or {}),
            **given,
            "GITHUB_WORKSPACE": str(workspace),
            **{k: str(v) for k, v in files.items()},
        }

        def execute(arguments):
            print("::stop-commands::t0k3n")
            code = fake_check(arguments, environ)
            print("::t0k3n::")
            return code

        code = github.perform("check", environ, execute=execute)
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return Ended(code, outputs, files["GITHUB_STEP_SUMMARY"].read_text(), capsys.readouterr().out)

    return call
