"""``privgate demo``: three models on real data, three decisions."""

from pathlib import Path

import click


@click.command()
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path(".demo"), show_default=True)
def demo(*, folder: Path) -> int:
    """Register three models trained on a sample of UCI Adult in a registry below FOLDER, and judge each by dtp-1."""
    from privgate.demo import run

    run.demonstrate(folder)
    return 0
