"""``python -m papers``: the papers' experiments, published and obtained side by side; ``make reproduce`` runs all."""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import kept
from papers import EXPERIMENTS, Table
from privgate.__main__ import main

if TYPE_CHECKING:
    from privgate.training.fleet import Fleet


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
@click.option("--keep", type=click.Path(path_type=Path), default=None, help="Keep results there, and go on from them.")
@click.option("--pictures", type=click.Path(path_type=Path), default=None, help="Write figures there, as SVG.")
@click.option("--most-minutes", default=0.0, help="Begin no experiment after so many minutes; no end, if 0.")
def experiment(  # noqa: PLR0917  click passes each option by its name
    name: str | None,
    data: Path,
    as_json: bool,  # noqa: FBT001  click passes it by its name
    jobs: int | None,
    keep: Path | None,
    pictures: Path | None,
    most_minutes: float,
) -> None:
    """Run an experiment of the papers and print published figures next to those obtained.

    Without NAME, list the experiments with minutes of one core; "all" runs one after the other, also behind one that
    fails. What was trained is remembered. With --keep, an experiment that has ended is not run again while what it
    rests on is the same.
    """
    if name is None:
        for key, (_, minutes, text) in EXPERIMENTS.items():
            click.echo(f"{key:20s} {minutes:3d} min  {text}")
        return
    from privgate.training.fleet import Fleet

    before = {row["name"]: row for row in kept.read(keep)} if keep else {}
    late = time.monotonic() + 60 * most_minutes if most_minutes else math.inf
    failed, remaining = list[str](), list[str]()
    with Fleet(jobs=jobs, isolate="none") as fleet:
        for one in EXPERIMENTS if name == "all" else (name,):
            rests = _rests(one, data) if keep else {}
            why = kept.stale(before.get(one), rests)
            if why and time.monotonic() > late:
                remaining.append(one)
                continue
            _say(f"{one}: {why or 'passed over, kept from before on the same code, data and libraries'}")
            try:
                tables = _run(one, data, fleet) if why else map(Table.of, before[one]["tables"])
                # one JSON document a line: an experiment that is interrupted has told what it had
                shown = []
                for table in tables:
                    click.echo(json.dumps(table.payload()) if as_json else table.text())
                    shown.append(table.payload())
                    if pictures and table.picture:
                        table.picture.write(pictures, table.title)
            except Exception as exc:  # others run behind one that fails
                if name != "all":
                    raise
                _say(f"{one}: {type(exc).__name__}: {exc}")
                failed.append(one)
                continue
            if keep and why:
                kept.add(keep, {"name": one, "rests": rests, "tables": shown})
    for names, how in ((remaining, "remain, and the same command goes on from here"), (failed, "failed")):
        if names:
            _say(f"{len(names)} {how}: {', '.join(names)}")
    if remaining or failed:
        click.get_current_context().exit(1)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _run(name: str, data: Path, fleet: "Fleet") -> Iterator[Table]:
    from papers import run

    return run(name, data, fleet, _say)


def _rests(name: str, data: Path) -> dict[str, str]:
    """Return what the result of an experiment rests on."""
    module = Path(__file__).with_name(EXPERIMENTS[name][0].partition(":")[0] + ".py")
    libraries = kept.versions("numpy", "scipy", "sklearn", "pandas", "torch")
    own = {"privgate": kept.product(), "its modules": kept.digest(*kept.sources(module)), "data": kept.digest(data)}
    return own | libraries


if __name__ == "__main__":
    main(command=experiment)
