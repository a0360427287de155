"""``python -m utility``: every learner on every data set, one process each, and the table."""

import json
import subprocess
import sys
import time
from pathlib import Path

import click

from utility.learners import ROWS, Learner
from utility.table import written


@click.command()
@click.option("--only", default="", help="Rows whose data set or learner contains this.")
@click.option("--people", default=100, show_default=True, help="People whose influence is looked at in each row.")
@click.option("--seeds", default=5, show_default=True, help="Draws of training and test sets.")
@click.option("--shadows", default=64, show_default=True, help="Shadow models of the attacks.")
@click.option("--targets", default=4, show_default=True, help="Models that are attacked; an even number.")
@click.option("--at-most", default=0, help="No training set is larger; the table says how large. As they are, if 0.")
@click.option("--limit", default=3600.0, show_default=True, help="Seconds for one row.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/utility.jsonl"), show_default=True)
@click.option("--table", type=click.Path(path_type=Path), default=None, help="Write the table there.")
@click.option("--one", type=int, default=None, hidden=True)
def main(  # noqa: PLR0917  click passes each option by its name
    only: str,
    people: int,
    seeds: int,
    shadows: int,
    targets: int,
    at_most: int,
    limit: float,
    out: Path,
    table: Path | None,
    one: int | None,
) -> None:
    """Measure every row that was not measured yet; interrupted, the same command goes on."""
    size = {"people": people, "seeds": seeds, "shadows": shadows, "targets": targets}
    if targets % 2 or shadows % 2:
        raise click.UsageError("shadow models and targets come in pairs; pass even numbers")
    if one is not None:
        click.echo(json.dumps(_measured(ROWS[one], at_most, size)))
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    asked = {**size, "at_most": at_most}
    known = _known(out, asked)
    wanted = [r for r in ROWS if only in r.data or only in r.name]
    for i, learner in enumerate(wanted):
        if (learner.data, learner.name) in known:
            continue
        started = time.monotonic()
        click.echo(f"{i + 1} of {len(wanted)}: {learner.data}, {learner.name}", err=True)
        row = {**_apart(learner, sys.argv[1:], limit), "asked": asked}
        row["wall"] = round(time.monotonic() - started, 1)
        known[learner.data, learner.name] = row
        with out.open("a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")
    text = written([known[r.data, r.name] for r in wanted])
    if table is not None:
        table.write_text(text, encoding="utf-8")
    click.echo(text)


def _known(out: Path, asked: dict[str, int]) -> dict[tuple[str, str], dict[str, object]]:
    """Return the rows that were measured by the same settings; what died or took too long is tried again."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {(r["data"], r["learner"]): r for r in rows if r["asked"] == asked and "all" not in r["problems"]}


def _measured(learner: Learner, at_most: int, size: dict[str, int]) -> dict[str, object]:
    from utility.measure import measured
    from utility.tables import table

    found = table(learner.data)
    return measured(learner, found.at_most(at_most) if at_most else found, **size)


def _apart(learner: Learner, options: list[str], limit: float) -> dict[str, object]:
    """Measure one row in a process of its own: what hangs or dies is a row of the table too."""
    command = [sys.executable, "-W", "ignore", "-m", "utility", *options, "--one", str(ROWS.index(learner))]
    empty = {"data": learner.data, "learner": learner.name, "guarantee": learner.guarantee}
    try:
        ended = subprocess.run(  # noqa: S603  this very program
            command, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {**empty, "problems": {"all": f"not done in {limit:.0f} s"}}
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if lines:
        return dict(json.loads(lines[-1]))
    said = ended.stderr.strip().splitlines()
    return {**empty, "problems": {"all": said[-1] if said else f"ended with {ended.returncode}"}}


if __name__ == "__main__":
    main()
