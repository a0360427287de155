"""The GitHub Action, run by a small local runner: what it passes on, and what no input can make it do."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from ruamel.yaml import YAML

from privgate import github

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "hooks" / "github-action" / "action.yml"
WORKFLOW = ROOT / ".github" / "workflows" / "privgate-gate.yml"
POLICY = 'schema: privgate/policy/v1\nname: mine\nversion: "1"\nrules:\n  - metric: dtp\n    max: 1.0\n'


@pytest.fixture
def run(workspace, fake, action):
    (workspace / "policy.yaml").write_text(POLICY)

    def call(model, environ=None, **inputs):
        inputs = {"policy": "policy.yaml", "model": model, **{k.replace("_", "-"): v for k, v in inputs.items()}}
        return action(workspace, inputs, {**fake, **(environ or {})})

    return call


def arguments(ended):
    (line,) = [line for line in ended.log.splitlines() if line.startswith("ARGUMENTS ")]
    return json.loads(line.removeprefix("ARGUMENTS "))


# -- the whole action, in processes of its own ---------------------------------------------------------------------


def test_the_action_ends_as_the_check_does_and_says_so(run):
    ended = run("models:/credit/failed")

    assert (ended.code, ended.outputs["exit-code"], ended.outputs["verdict"]) == (1, "1", "failed")
    assert ended.outputs["report-dir"] == "privgate-report"
    assert ended.summary


@pytest.mark.parametrize(
    ("where", "isolation", "asked"),
    [("github-hosted", "auto", True), ("self-hosted", "bubblewrap", False)],
)
def test_the_action_lets_bubblewrap_make_boxes_on_githubs_own_runners(run, fake, tmp_path, where, isolation, asked):
    (tmp_path / "sudo").write_text('#!/bin/sh\necho SUDO "$@"\nfalse\n')
    (tmp_path / "sudo").chmod(0o755)
    there = {"RUNNER_ENVIRONMENT": where, "RUNNER_OS": "Linux", "PATH": f"{tmp_path}:{fake['PATH']}"}
    ended = run("models:/credit/passed", there, isolation=isolation)
    assert ended.code == 0
    assert ("SUDO sysctl -qew kernel.apparmor_restrict_unprivileged_userns=0" in ended.log) == asked


def test_action_and_workflow_have_one_default_policy():
    of_action, of_workflow = (YAML(typ="safe").load(path.read_text()) for path in (ACTION, WORKFLOW))
    assert of_workflow["on"]["workflow_call"]["inputs"]["policy"]["default"] == "release-1"
    assert of_action["inputs"]["policy"]["default"] == "release-1"


# -- how a run ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "code", "verdict"),
    [
        ("passed", 0, "passed"),
        ("warned", 0, "warned"),
        ("failed", 1, "failed"),
        ("inconclusive", 5, "inconclusive"),
        ("observed", 0, "failed"),
        ("usage", 2, "error"),
        ("bug", 3, "error"),
        ("unreadable", 4, "error"),
        ("killed", 137, "error"),
        ("lies", 3, "error"),  # a success that the report does not bear out
        ("empty", 3, "error"),
    ],
)
def test_exit_code_outputs_and_junit_are_those_of_the_check(step, workspace, word, code, verdict):
    ended = step(f"models:/credit/{word}")

    assert ended.code == code
    assert ended.outputs["verdict"] == verdict
    assert ended.outputs["exit-code"] == str(code)
    assert ended.outputs["attestation"] == ""
    suite = ET.parse(workspace / ended.outputs["report-dir"] / "junit.xml").getroot()
    if verdict == "error" and word != "lies":
        assert (suite.get("errors"), suite.get("tests")) == ("1", "1")


def test_an_earlier_report_is_never_told_again(step, workspace):
    step("models:/credit/passed")
    ended = step("models:/credit/usage")

    assert ended.outputs["verdict"] == "error"
    assert not (workspace / "privgate-report" / "report.json").exists()
    assert "no verdict" in ended.summary


def test_a_python_without_privgate_is_unusable_and_not_blocked(workspace, action, tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    ended = action(workspace, {"model": "models:/credit/1", "python": str(bare)})

    assert ended.code == 2
    assert ended.outputs["verdict"] == "error"
    assert "is not installed in this Python" in ended.log


def test_allowing_failure_is_said_aloud(step):
    ended = step("models:/credit/failed", allow_failure="true")

    assert ended.code == 0
    assert (ended.outputs["verdict"], ended.outputs["exit-code"]) == ("failed", "1")
    assert any("exit code 1 is ignored" in a for a in ended.annotations)


# -- what is passed on ------------------------------------------------------------------------------------------------


def test_inputs_become_arguments(step):
    ended = step(
        "models:/credit/passed", budget="30m", jobs="2", observe="true", attach="false", tracking_uri="sqlite:///x"
    )

    assert arguments(ended) == [
        "check", "models:/credit/passed", "--policy", "policy.yaml", "--report-dir", "privgate-report", "--quiet",
        "--tracking-uri", "sqlite:///x", "--budget", "30m", "--jobs", "2", "--observe", "--no-attach",
    ]  # fmt: skip


def test_every_argument_is_an_option_of_the_command():
    from privgate.cli import cli

    check = cli.get_command(None, "check")
    known = {o for p in check.params for o in p.opts}
    values = {f"--{name}" for name in github._VALUES}
    assert values | {"--policy", "--report-dir", "--quiet", "--observe", "--no-attach"} <= known
    promote = {o for p in cli.get_command(None, "promote").params for o in p.opts}
    assert values | {"--to", "--policy", "--report-dir", "--quiet", "--observe"} <= promote
    sign = {o for p in cli.get_command(None, "guard").commands["sign"].params for o in p.opts}
    assert {"--policy", "--registry-id", "--model", "--target", "--checked-elsewhere", "--tracking-uri"} <= sign


@pytest.mark.parametrize(
    "model",
    [
        'models:/credit/1"; touch owned; echo "',
        "models:/credit/$(touch owned)",
        "models:/${{ github.token }}/1",
    ],
)
def test_a_hostile_model_name_stays_text(run, workspace, model):
    ended = run(model)

    assert arguments(ended)[1] == model
    assert ended.outputs["verdict"] == "error"
    assert not list(workspace.rglob("owned"))


@pytest.mark.parametrize(
    "model", ["--help", "-x", "models:/a/1\n::set-output name=verdict::passed", "models:/a\x1b[2J/1", ""]
)
def test_an_option_a_line_break_or_nothing_is_refused_as_a_model(step, model):
    ended = step(model)

    assert ended.code == 2
    assert "ARGUMENTS" not in ended.log
    assert ended.outputs["verdict"] == "error"
    assert len(ended.annotations) == 1


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"observe": "yes"}, ""),  # neither true nor false
        ({"promote_to": "production", "attach": "false"}, ""),
        ({"environ": {"PRIVGATE_SIGNING_KEY": "pem"}}, "sign in another job"),  # no training code beside a key
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(step, inputs, said):
    ended = step("models:/credit/passed", **inputs)

    assert (ended.code, "ARGUMENTS" in ended.log, said in ended.log) == (2, False, True)


def test_credentials_are_lines_whose_values_no_log_shows(monkeypatch, capsys):
    monkeypatch.setattr(github.os, "environ", {"PRIVGATE_CREDENTIALS": "AWS_KEY=a=b\r\n\nsecret\n=c\nMLFLOW_X=50%\n"})
    github.take_credentials()

    assert github.os.environ == {"AWS_KEY": "a=b", "MLFLOW_X": "50%"}
    assert capsys.readouterr().out.split() == [f"::add-mask::{v}" for v in ("a=b", "secret", "c", "50%25")]


def test_the_check_itself_takes_the_credentials_before_it_runs(run):
    ended = run("models:/credit/passed", {"PRIVGATE_CREDENTIALS": "PRIVGATE_SIGNING_KEY=pem"})

    assert (ended.code, "sign in another job" in ended.log, "::add-mask::pem" in ended.annotations) == (2, True, True)


@pytest.mark.parametrize("isolation", ["bubblewrap", "auto"])
def test_a_check_that_is_refused_for_want_of_a_box_says_so_on_the_page_of_the_run(step, monkeypatch, isolation):
    monkeypatch.setattr(github, "missing", lambda: "bubblewrap is not installed")
    ended = step("models:/credit/usage", isolation=isolation)

    assert ended.code == 2
    assert ("no box here: bubblewrap is not installed" in ended.summary) == (isolation == "bubblewrap")


def test_what_the_check_prints_is_no_command_and_it_sees_no_command_files(run):
    ended = run("models:/credit/passed", environ={"ACTIONS_RUNTIME_TOKEN": "secret"})

    assert "::error::a model name that wants to be a command" in ended.log
    assert ended.annotations == []
    assert "SEES []" in ended.log


def test_a_folder_called_privgate_in_the_repository_shadows_nothing(run, workspace):
    (workspace / "privgate").mkdir()
    (workspace / "privgate" / "__init__.py").write_text("raise SystemExit(0)")

    assert run("models:/credit/failed").code == 1


# -- what is told -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "kind"), [("failed", "error"), ("warned", "warning")])
def test_one_annotation_says_the_verdict(step, word, kind):
    (annotation,) = step(f"models:/credit/{word}").annotations

    assert annotation == f"::{kind} title=privgate::the verdict is {word}; the summary of this run says why"


def test_the_summary_is_the_reports_page_cut_below_200_kib(step):
    assert step("models:/credit/failed").summary == "## failed\nx\n"

    long = step("models:/credit/failed", environ={"FAKE_LINES": "200000"}).summary
    assert 190 * 1024 < len(long.encode()) <= 200 * 1024
    assert long.endswith("the whole page is in the report.*\n")


# -- the signing step -------------------------------------------------------------------------------------------------


def sign(tmp_path, code=0, outcome="passed", **changes):
    (tmp_path / "report.json").write_text(json.dumps({"outcome": outcome, "findings": []}))
    inputs = {
        "REPORT_DIR": str(tmp_path),
        "MODEL": "models:/credit/3",
        "POLICY": "dtp-1",
        "REGISTRY_ID": "prod",
        "TARGET": "credit@production",
        **changes,
    }
    environ = {f"PRIVGATE_INPUT_{k}": v for k, v in inputs.items()}
    environ |= {"GITHUB_OUTPUT": str(tmp_path / "outputs"), "PRIVGATE_SIGNING_KEY": "pem"}
    seen = []

    def execute(arguments):
        seen.extend(arguments)
        (tmp_path / "verdict.dsse.json").write_text("{}")
        return code

    ended = github.perform("sign", environ, execute=execute)
    outputs = dict(line.split("=", 1) for line in (tmp_path / "outputs").read_text().splitlines())
    return ended, seen, outputs


def test_signing_names_the_registry_and_the_target_and_hands_out_the_statement(tmp_path):
    ended, seen, outputs = sign(tmp_path)

    assert ended == 0
    assert seen == [
        "guard", "sign", str(tmp_path), "--policy", "dtp-1", "--registry-id", "prod", "--model", "models:/credit/3",
        "--target", "credit@production",
        "--checked-elsewhere",
    ]  # fmt: skip
    assert outputs["attestation"] == str(tmp_path / "verdict.dsse.json")
    assert outputs["verdict"] == "passed"


def test_a_signed_refusal_is_a_refusal(tmp_path):
    assert sign(tmp_path, code=1, outcome="failed")[0] == 1


@pytest.mark.parametrize("name", ["MODEL", "REGISTRY_ID", "TARGET", "POLICY"])
def test_signing_needs_to_know_what_for(tmp_path, name):
    assert sign(tmp_path, **{name: ""})[0] == 2


# -- the files themselves ---------------------------------------------------------------------------------------------


def test_the_signing_key_is_only_in_the_job_that_runs_no_training_code():
    jobs = YAML(typ="safe").load(WORKFLOW.read_text())["jobs"]
    audit, decide = json.dumps(jobs["audit"]), json.dumps(jobs["decide"])
    (check,) = (step["env"] for step in jobs["audit"]["steps"] if step.get("id") == "check")
    for name in ("PRIVGATE_INPUT_JOBS", "PRIVGATE_INPUT_LEDGER", "PRIVGATE_LOADERS", "PRIVGATE_CREDENTIALS"):
        assert name in check
    (path,) = {s["with"]["path"] for s in jobs["audit"]["steps"] if "/cache/" in s.get("uses", "")}
    assert f"'{path}'" in check["PRIVGATE_INPUT_LEDGER"]
    assert "audit-credentials" not in decide
    assert "decide-credentials" not in audit

    assert "signing-key" not in audit
    assert "privgate.github check" in audit
    assert "secrets.signing-key" in decide
    assert "privgate.github check" not in decide
    assert jobs["decide"]["environment"]
    assert "records.parquet" not in WORKFLOW.read_text()
