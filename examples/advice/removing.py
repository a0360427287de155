"""``python -m advice.removing``: the largest DTP while the riskiest people go (Long et al. 2017, Figure 6)."""

from pathlib import Path

import click

from advice.subjects import bayes, census
from privgate import Subject, evaluate, report
from privgate.influence.risky_removal import remove_risky
from privgate.report.sections import removals


@click.command()
@click.option("--people", default=1000, show_default=True)
@click.option("--limit", default=1.0, show_default=True, help="Nats.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=None, help="Also check a synthetic census, report here."
)
def main(people: int, limit: float, out: Path | None) -> None:
    """Print the path: it falls like a saw, because who is left tells more when somebody goes."""
    if out is not None:
        verdict = evaluate("dtp-1", Subject.local(*census(people)))
        doc = report.document(verdict, hash_key=b"of an example, not secret")
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.html").write_text(report.render(doc, "html"), encoding="utf-8")
        found = verdict.evidence.run.removals
        click.echo(removals.reading(found) if found else "no path: nothing was refused, or removing costs trainings")
        return
    recipe, data = bayes(people)
    found = remove_risky(Subject.local(recipe, data), limit=limit, budget=people // 10)
    path = found.upper
    click.echo(f"{found.meaning}; {found.stopped}")
    click.echo("| removed | largest DTP |\n| ---: | ---: |")
    for k in sorted({0, 1, 2, 5, 10, 20, 50, len(path) - 1}):
        if k < len(path):
            click.echo(f"| {k} | {path[k]:.3g} |")


if __name__ == "__main__":
    main()
