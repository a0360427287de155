"""``python -m advice.removing``: the largest DTP while the riskiest people go (Long et al. 2017, Figure 6)."""

import click
import numpy as np

from advice.subjects import bayes
from privgate import Subject
from privgate.influence.remove_risky import remove_risky


@click.command()
@click.option("--people", default=1000, show_default=True)
@click.option("--limit", default=1.0, show_default=True, help="Nats.")
def main(people: int, limit: float) -> None:
    """Print the path: it falls like a saw, because who is left tells more when somebody goes."""
    recipe, data = bayes(people)
    found = remove_risky(Subject.local(recipe, data), limit=limit, budget=people // 10)
    path = found.upper
    rises = int((np.diff(path) > 0).sum())
    click.echo(f"{found.meaning}; {found.stopped}; {rises} of {len(path) - 1} removals raised the largest value")
    click.echo("| removed | largest DTP |\n| ---: | ---: |")
    for k in sorted({0, 1, 2, 5, 10, 20, 50, len(path) - 1}):
        if k < len(path):
            click.echo(f"| {k} | {path[k]:.3g} |")


if __name__ == "__main__":
    main()
