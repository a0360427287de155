"""``privgate init``: a policy, a configuration and a CI snippet to start from."""

from pathlib import Path

import click

from privgate.cli import config, outputs, shared
from privgate.errors import ExitCode

_POLICY = """\
# What a model must keep to be released. `privgate policy explain {file}` says it in plain words.
schema: privgate/policy/v1
name: {name}
version: "1"
# a policy that extends another may only tighten it: add rules, or set lower limits
extends: {base}
description: >-
  The release policy of this project.
"""
_CONFIG = """\
# Settings of privgate. Options on the command line and PRIVGATE_<OPTION> in the environment win over this file.
policy: {policy}
report-dir: privgate-report
# what page one of the report says; uncomment and fill in
# purpose: what the model is for
# owner: who answers for it
# data-name: what the training data are called
# data-source: where they come from
"""
_GITHUB = """\
# A check of one model version. It runs training code: keep secrets out of it, and sign in another job.
name: privacy
on:
  workflow_dispatch:
    inputs:
      model:
        description: models:/name/version
        required: true
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with:
          persist-credentials: false
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0
        with:
          python-version: "3.11"
      # the environment that trained the model, and privgate
      - run: pip install -r requirements.txt privgate
      - env:
          PRIVGATE_INPUT_MODEL: ${{{{ inputs.model }}}}
          PRIVGATE_INPUT_POLICY: {policy}
          PRIVGATE_INPUT_TRACKING_URI: ${{{{ vars.MLFLOW_TRACKING_URI }}}}
        run: python -P -m privgate.github check
"""
_GITLAB = """\
# A check of one model version: include this file, and start the job with MODEL=models:/name/version.
privacy:
  image: python:3.11
  rules:
    - if: $MODEL
  script:
    # the environment that trained the model, and privgate
    - pip install -r requirements.txt privgate
    - privgate check "$MODEL" --policy {policy} --report-dir privgate-report --quiet
  artifacts:
    when: always
    paths: [privgate-report/report.html, privgate-report/report.json, privgate-report/summary.md]
    reports:
      junit: privgate-report/junit.xml
"""
_SNIPPETS = {"github": (".github/workflows/privacy.yml", _GITHUB), "gitlab": (".gitlab/privacy.yml", _GITLAB)}


@click.command()
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Where; here if absent."
)
@click.option(
    "--policy",
    "base",
    default="release-1",
    show_default=True,
    shell_complete=shared.complete_policy,
    help="Policy to extend.",
)
@click.option("--ci", type=click.Choice([*_SNIPPETS, "none"]), default="github", show_default=True)
def init(*, folder: Path, base: str, ci: str) -> int:
    """Write privgate.yaml, privacy-policy.yaml and a CI snippet; what exists is left as it is."""
    from privgate.policy import Policy

    Policy.load(base)  # an unknown one is said before anything is written
    place = outputs.folder(folder, "--folder")
    policy = "privacy-policy.yaml"
    files = {
        policy: _POLICY.format(name="release", base=base, file=policy),
        config.FILE: _CONFIG.format(policy=policy),
    }
    if ci in _SNIPPETS:
        name, text = _SNIPPETS[ci]
        files[name] = text.format(policy=policy)
    for name, text in files.items():
        path = place / name
        if path.exists():
            click.echo(f"kept {path}: it exists")
            continue
        outputs.file(path, "init:").write_text(text, encoding="utf-8")
        click.echo(f"wrote {path}")
    click.echo("next: privgate policy explain privacy-policy.yaml, then privgate check models:/NAME/VERSION")
    click.echo('completion: eval "$(_PRIVGATE_COMPLETE=bash_source privgate)"   # or zsh_source, fish_source')
    return int(ExitCode.PASSED)
