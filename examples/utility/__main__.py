"""``python -m utility``: every learner on every data set, one process each, and the table."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import kept
from utility.learners import ROWS, Learner
from utility.table import written
from utility.tables import FOLDER

#: where the table stands in a document
MARKS = "<!-- utility -->\n", "<!-- end of utility -->\n"
SLOW = "not done"


@click.command()
@click.option("--only", default="", help="Rows whose data set or learner contains this.")
@click.option("--people", default=100, show_default=True, help="People whose influence is looked at in each row.")
@click.option("--seeds", default=5, show_default=True, help="Draws of training and test sets.")
@click.option("--shadows", default=64, show_default=True, help="Shadow models of the attacks.")
@click.option("--targets", default=4, show_default=True, help="Models that are attacked; an even number.")
@click.option("--at-most", default=0, help="No training set is larger; the table says how large. As they are, if 0.")
@click.option("--limit", default=3600.0, show_default=True, help="Seconds for one row.")
@click.option("--most-minutes", default=0.0, help="Begin no row after so many minutes; no end, if 0.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/utility.jsonl"), show_default=True)
@click.option(
    "--table", type=click.Path(path_type=Path), default=None, help="Write the table there, between its marks if any."
)
@click.option("--one", type=int, default=None, hidden=True)
def main(  # noqa: PLR0917  click passes each option by its name
    only: str,
    people: int,
    seeds: int,
    shadows: int,
    targets: int,
    at_most: int,
    limit: float,
    most_minutes: float,
    out: Path,
    table: Path | None,
    one: int | None,
) -> None:
    """Measure every row that is absent or rests on what has changed; interrupted, the same command goes on."""
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
    late = time.monotonic() + 60 * most_minutes if most_minutes else math.inf
    rests, remaining = _rests(), list[str]()
    for i, learner in enumerate(wanted):
        key = learner.data, learner.name
        why = kept.stale(known.get(key), rests)
        what = f"{i + 1} of {len(wanted)}: {learner.data}, {learner.name}"
        click.echo(f"{what}: {why or 'passed over, kept from before'}", err=True)
        if not why:
            continue
        if time.monotonic() > late:
            remaining.append(f"{learner.data}, {learner.name}")
            known[key] = {**_empty(learner), "problems": {"all": why}}
            continue
        started = time.monotonic()
        row = {**_apart(learner, sys.argv[1:], limit), "asked": asked, "rests": rests}
        row["wall"] = round(time.monotonic() - started, 1)
        known[key] = row
        kept.add(out, row)
    text = written([known[r.data, r.name] for r in wanted])
    if table is not None:
        table.write_text(quoted(table, text), encoding="utf-8")
    click.echo(text)
    died = [f"{d}, {n}" for (d, n), row in known.items() if _died(row) and f"{d}, {n}" not in remaining]
    for names, how in ((remaining, "remain, and the same command goes on from here"), (died, "died")):
        if names:
            click.echo(f"{len(names)} {how}: {'; '.join(names)}", err=True)
    if remaining or died:
        click.get_current_context().exit(1)


def _died(row: Mapping[str, Any]) -> bool:
    """Whether a row could not be measured for another reason than its time."""
    return not row["problems"].get("all", SLOW).startswith(SLOW)


def _rests() -> dict[str, str]:
    """Return what every row rests on."""
    here = Path(__file__).parent
    modules = [*kept.sources(here / "measure.py"), *kept.sources(here.parent / "papers" / "datasets.py")]
    own = {"privgate": kept.product(), "its modules": kept.digest(*modules), "data": kept.digest(FOLDER)}
    return own | kept.versions("numpy", "scipy", "sklearn", "pandas", "torch", "opacus", "lightgbm")


def quoted(path: Path, text: str) -> str:
    """Return a document with the table between its marks; the table alone where it has none."""
    document = path.read_text(encoding="utf-8") if path.is_file() else ""
    before, mark, rest = document.partition(MARKS[0])
    return f"{before}{mark}\n{text}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}" if mark else text


def _known(out: Path, asked: dict[str, int]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows that were measured by the same settings; what died or took too long is tried again."""
    rows = kept.read(out)
    return {(r["data"], r["learner"]): r for r in rows if r["asked"] == asked and "all" not in r["problems"]}


def _measured(learner: Learner, at_most: int, size: dict[str, int]) -> dict[str, object]:
    from utility.measure import measured
    from utility.tables import table

    found = table(learner.data)
    return measured(learner, found.at_most(at_most) if at_most else found, **size)


def _empty(learner: Learner) -> dict[str, str]:
    return {"data": learner.data, "learner": learner.name, "guarantee": learner.guarantee}


def _apart(learner: Learner, options: list[str], limit: float) -> dict[str, object]:
    """Measure one row in a process of its own: what hangs or dies is a row of the table too."""
    command = [sys.executable, "-W", "ignore", "-m", "utility", *options, "--one", str(ROWS.index(learner))]
    empty = _empty(learner)
    try:
        ended = subprocess.run(  # noqa: S603  this very program
            command, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {**empty, "problems": {"all": f"{SLOW} in {limit:.0f} s"}}
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if lines:
        return dict(json.loads(lines[-1]))
    said = ended.stderr.strip().splitlines()
    return {**empty, "problems": {"all": said[-1] if said else f"ended with {ended.returncode}"}}


if __name__ == "__main__":
    main()
