"""Laws of our workflows, as whoever opens a pull request from a fork reads them; each is broken once to see it fail."""

import re
from pathlib import Path
from textwrap import dedent

import pytest
from ruamel.yaml import YAML

from privgate.cli.config import _SNIPPETS

ROOT = Path(__file__).parents[2]
#: what ``privgate init`` writes
INIT = _SNIPPETS["github"][".github/workflows/privacy.yml"].format(policy="release-1")
GATE = ROOT / ".github" / "workflows" / "privgate-gate.yml"
#: events that give secrets, or the right to write, to a run that a stranger began
STRANGERS = {"pull_request_target", "workflow_run", "issue_comment", "issues", "discussion", "fork", "watch"}
#: what says that a job runs code that a model's author wrote
TRAINS = re.compile(r"privgate\.github check|privgate (check|promote|advise|serve)|\.ci/run|make ")
#: the only secrets beside training code: they read, and attach reports, and a box shows them to nobody
AUDITS = r"secrets\.(audit-tracking-token|audit-credentials|PRIVGATE_CREDENTIALS)\b"
#: the only folder that a cache may hold: what lies there is sealed, and what others put there is not read
SEALED = "privgate-ledger"


def load(text):
    return YAML(typ="safe").load(text)


def workflows():
    """Every workflow of the repository, of its documentation, and that ``privgate init`` writes: (name, text)."""
    for path in sorted((ROOT / ".github" / "workflows").iterdir()):
        yield path.name, path.read_text()
    yield "init", INIT
    for path in (p for top in ("docs", "hooks", "packages") for p in sorted((ROOT / top).rglob("*.md"))):
        for number, block in enumerate(
            re.findall(r"^ *```ya?ml\n(.*?)^ *```", path.read_text(), re.DOTALL | re.MULTILINE)
        ):
            if "jobs:" in block or "uses:" in block:
                yield f"{path.relative_to(ROOT)}:{number}", dedent(block)


def unprivileged(job):
    """Whether a job holds nothing that a stranger could take: no right to write, no place of its own, no secret."""
    granted = job.get("permissions") or {}
    return not (
        "environment" in job
        or granted == "write-all"
        or any(right == "write" for right in (granted.values() if isinstance(granted, dict) else ()))
        or re.search(r"secrets\.", re.sub(AUDITS, "", str(job)))
    )


def problems(text):
    """What a stranger could use in a workflow; empty where nothing is found."""
    told = load(text)
    if isinstance(told, list):  # steps of a page
        told = {"on": "push", "permissions": {}, "jobs": {"page": {"steps": told}}}
    told = {"on": "push", "permissions": {}, **told}  # a page shows the jobs alone
    events = {told["on"]} if isinstance(told["on"], str) else set(told["on"])
    yield from (f"begun by {event}" for event in events & STRANGERS)
    if told["permissions"] not in ({}, {"contents": "read"}):
        yield "everything may be written by default"
    for name, job in told["jobs"].items():
        if "uses" not in job:
            yield from (f"{name}: {problem}" for problem in of_job(job, events, told["jobs"]))
        elif unpinned(job["uses"]):
            yield f"{name}: {job['uses']}"


def unpinned(action):
    commit = r"[\w.-]+/[\w./-]+@([0-9a-f]{40}|COMMIT|<commit>)"  # a page cannot know which
    return not (action.startswith("./") or re.fullmatch(commit, action))


def of_job(job, events, jobs):
    scripts = "\n".join(str(step.get("run", "")) + str(step.get("with", {}).get("script", "")) for step in job["steps"])
    if "${{" in scripts:
        yield "a value is part of a script"
    if re.search(r"GITHUB_(ENV|PATH)", scripts):
        yield "a step changes the steps after it"
    if re.search(r"python3? (?!-P)(-m privgate|-c|-( |$))", scripts):
        yield "Python finds modules in the checkout"
    for step in job["steps"]:
        yield from of_step(step)
    if not unprivileged(job):
        yield from of_privileged(job, scripts, events, jobs)


def of_step(step):
    used, given = step.get("uses", ""), step.get("with") or {}
    if used and unpinned(used):
        yield used
    if "/checkout@" in used and given.get("persist-credentials") is not False:
        yield "the checkout leaves a token"
    if "/checkout@" in used and {"ref", "repository"} & given.keys():
        yield "another tree is checked out"
    if "cache" in given or ("/cache" in used and given.get("path") != SEALED):
        yield "a cache is shared"


def of_privileged(job, scripts, events, jobs):
    if "/cache" in str(job["steps"]):
        yield "a cache lies beside a key"
    if "pull_request" in events or TRAINS.search(scripts):
        yield "strangers' code runs beside a secret or a right"
    if "${{" in str(job["runs-on"]) or "self-hosted" in str(job["runs-on"]):
        yield "a host that others used"
    for needed in [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs") or ():
        others = "\n".join(str(step.get("run", "")) for step in jobs[needed]["steps"])
        trained = TRAINS.search(others) is not None
        if trained and "!startsWith(github.event_name, 'pull_request')" not in job.get("if", ""):
            yield "what a pull request asks for is signed"
        for step in job["steps"]:
            given = step.get("with") or {}
            if trained and "/download-artifact@" in step.get("uses", ""):
                if not str(given.get("artifact-ids", "")).startswith(f"${{{{ needs.{needed}.outputs."):
                    yield "another job can replace what is handed over"
                if f"{given.get('artifact-ids', '')[4:-3]} != ''" not in job.get("if", ""):
                    yield "without an upload, what other jobs of the run made is taken"
                if given.get("path", "").strip("./") in {"", "~"}:
                    yield "what is handed over lies among our own files"
        values = re.findall(rf"needs\.{needed}\.outputs\.[\w-]+", str([s.get("env") for s in job["steps"]]))
        yield from (f"{value} reaches a command" for value in values)


@pytest.mark.parametrize(("name", "text"), workflows(), ids=[name for name, _ in workflows()])
def test_a_stranger_finds_nothing(name, text):
    assert list(problems(text)) == []


#: (what is changed in the gate's workflow, into what): each would let a stranger in
BROKEN = {
    "trigger": ("  workflow_call:\n", "  pull_request_target:\n  workflow_call:\n"),
    "default rights": ("permissions: {}\n", "permissions: write-all\n"),
    "right": ("      contents: read\n    outputs:\n", "      id-token: write\n    outputs:\n"),
    "secret": ("secrets.audit-tracking-token", "secrets.signing-key"),
    "environment": ("    timeout-minutes: 360\n", "    timeout-minutes: 360\n    environment: privgate\n"),
    "pull request": ("!startsWith(github.event_name, 'pull_request')\n      && ", ""),
    "script": ("run: python -P -m privgate.github check", "run: echo ${{ inputs.model }}"),
    "pin": ("download-artifact@d3f86a106a0bac45b974a628896c90dbdf5c8093", "download-artifact@v4"),
    "token": ("          persist-credentials: false\n", "          fetch-depth: 1\n"),
    "head": ("persist-credentials: false\n", "persist-credentials: false\n          ref: ${{ github.head_ref }}\n"),
    "cache": ("python-version: ${{ inputs.python-version }}\n", "python-version: '3.11'\n          cache: pip\n"),
    "cached": ("          path: privgate-ledger\n          key: ", "          path: .venv\n          key: "),
    "cache beside a key": (
        "      - name: Install privgate alone\n",
        f"      - uses: actions/cache/restore@{'0' * 40}\n        with: {{path: {SEALED}}}\n      - name: Install\n",
    ),
    "artifact": ("artifact-ids: ${{ needs.audit.outputs.artifact }}", "name: privgate-report"),
    "no artifact": ("      && needs.audit.outputs.artifact != ''\n", ""),
    "folder": ("          merge-multiple: true\n          path: privgate-report\n", "          path: .\n"),
    "host": ("    runs-on: ubuntu-24.04\n", "    runs-on: ${{ inputs.runner }}\n"),
    "command": ("INPUT_TARGET: ${{ inputs.target }}", "INPUT_TARGET: ${{ needs.audit.outputs.verdict }}"),
    "module": ("run: python -P -m privgate.github sign", "run: python -m privgate.github sign"),
    "path": ("run: python -P -m privgate.github check", "run: echo bin >> $GITHUB_PATH"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_each_law_is_one(what):
    text, (old, new) = GATE.read_text(), BROKEN[what]
    assert old in text
    assert list(problems(text.replace(old, new)))


def test_the_audit_demands_a_box_and_the_decision_believes_no_report_of_one():
    told = load(GATE.read_text())
    given = {
        mode: step["env"]
        for job in told["jobs"].values()
        for step in job["steps"]
        for mode in ("check", "sign")
        if f"privgate.github {mode}" in step.get("run", "")
    }
    assert told["on"]["workflow_call"]["inputs"]["isolation"]["default"] == "bubblewrap"
    assert {env["PRIVGATE_INPUT_ISOLATION"] for env in given.values()} == {"${{ inputs.isolation }}"}
    from privgate.github import check_step, sign_step

    names = ("MODEL", "POLICY", "REPORT_DIR", "REGISTRY_ID", "TARGET")
    for word, lenient in (("bubblewrap", False), ("none", True), ("auto", True)):
        asked = {f"PRIVGATE_INPUT_{n}": "x" for n in names} | {"PRIVGATE_INPUT_ISOLATION": word}
        arguments = check_step(asked).arguments
        assert arguments[arguments.index("--isolation") + 1] == word  # privgate.yaml of the checkout does not decide
        assert ("--accept-unboxed" in sign_step(asked).arguments) == lenient


def test_the_action_decides_about_the_box_too():
    action = load((ROOT / "hooks" / "github-action" / "action.yml").read_text())
    box, step = action["runs"]["steps"]
    assert action["inputs"]["isolation"]["default"] == "auto"
    assert step["env"]["PRIVGATE_INPUT_ISOLATION"] == "${{ inputs.isolation }}"
    gate = load(GATE.read_text())["jobs"]["audit"]["steps"]
    ours = load(INIT)["jobs"]["check"]["steps"]
    (told,), (mine,) = ([s for s in steps if s.get("name") == box["name"]] for steps in (gate, ours))
    assert box["run"] == told["run"] == mine["run"]
    assert box["if"] == told["if"]
    assert not [s for s in (*gate, *ours, step) if "sudo" in s.get("run", "") and s.get("name") != box["name"]]
