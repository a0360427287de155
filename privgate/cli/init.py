"""``privgate init``: a configuration and a CI snippet to start from."""

from pathlib import Path

import click

from privgate.cli import config, outputs, shared
from privgate.errors import ExitCode

_CONFIG = """\
# Settings of privgate. Options on the command line and PRIVGATE_<OPTION> in the environment win over this file.
# To tighten the policy, name a file of your own that `extends` it. Sign and guard by the same one.
policy: {policy}
report-dir: privgate-report
# what page one of the report says; uncomment and fill in
# purpose: what the model is for
# owner: who answers for it
# data-name: what the training data are called
# data-source: where they come from
"""
_GITHUB = """\
# A check of one model version. It runs training code, in a box: sign in another job.
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
      # Ubuntu 24.04 lets no unprivileged program make a box until it is told to
      - name: Let training code run in a box
        run: |
          command -v bwrap > /dev/null ||
            {{ sudo apt-get update -qq && sudo apt-get install -y -qq --no-install-recommends bubblewrap; }} || true
          sudo sysctl -qew kernel.apparmor_restrict_unprivileged_userns=0 || true # the check says whether it can
      # the environment that trained the model, with privgate from its repository or a wheel
      - run: pip install -r requirements.txt
      - env:
          PRIVGATE_INPUT_MODEL: ${{{{ inputs.model }}}}
          PRIVGATE_INPUT_POLICY: {policy}
          PRIVGATE_INPUT_ISOLATION: bubblewrap
          # lines NAME=VALUE for registry and data, as MLFLOW_TRACKING_TOKEN; they should only read, and attach reports
          PRIVGATE_CREDENTIALS: ${{{{ secrets.PRIVGATE_CREDENTIALS }}}}
          PRIVGATE_INPUT_TRACKING_URI: ${{{{ vars.MLFLOW_TRACKING_URI }}}}
        run: python -P -m privgate.github check
"""
_SNIPPETS = {
    "github": (".github/workflows/privacy.yml", _GITHUB),
    "none": (config.FILE, _CONFIG),
}


@click.command()
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Here if absent.")
@click.option("--policy", default="release-1", show_default=True, shell_complete=shared.complete_policy)
@click.option("--ci", type=click.Choice(list(_SNIPPETS)), default="github", show_default=True)
def init(*, folder: Path, policy: str, ci: str) -> int:
    """Write privgate.yaml and a CI snippet; what exists is left as it is."""
    from privgate.policy import Policy

    Policy.load(policy)  # an unknown one is said before anything is written
    place = outputs.folder(folder, "--folder")
    for name, text in dict([(config.FILE, _CONFIG), _SNIPPETS[ci]]).items():
        path = place / name
        if path.exists():
            click.echo(f"kept {path}: it exists")
            continue
        outputs.file(path, "init:").write_text(text.format(policy=policy), encoding="utf-8")
        click.echo(f"wrote {path}")
    click.echo(f"next: privgate policy explain {policy}, then privgate check models:/NAME/VERSION")
    click.echo('completion: eval "$(_PRIVGATE_COMPLETE=bash_source privgate)"   # or zsh_source, fish_source')
    return int(ExitCode.PASSED)
