"""``python -m papers``: the papers' experiments, published and obtained side by side; ``make reproduce`` runs all."""

import json
from pathlib import Path

import click

from papers import EXPERIMENTS
from privgate.__main__ import main


@click.command("papers")
@click.argument("name", type=click.Choice([*EXPERIMENTS, "all"]), required=False)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("../shared/data"),
    show_default=True,
    help="Folder with the papers' data sets.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a table instead of Markdown.")
@click.option("--jobs", type=click.IntRange(min=1), default=None, help="Worker processes; one a core if absent.")
def experiment(name: str | None, data: Path, as_json: bool, jobs: int | None) -> None:  # noqa: FBT001  # click's options
    """Run an experiment of the papers and print published figures next to those obtained.

    Without NAME, list the experiments with minutes of one core; "all" runs one after the other. What was trained is
    remembered.
    """
    if name is None:
        for key, (_, minutes, text) in EXPERIMENTS.items():
            click.echo(f"{key:20s} {minutes:3d} min  {text}")
        return
    from papers import run
    from privgate.training.fleet import Fleet

    with Fleet(jobs=jobs) as fleet:
        for one in EXPERIMENTS if name == "all" else (name,):
            for table in run(one, data, fleet, lambda line: click.echo(line, err=True)):
                # one JSON document a line: an experiment that is interrupted has told what it had
                click.echo(json.dumps(table.payload()) if as_json else table.text())


if __name__ == "__main__":
    main(command=experiment)
