"""``python -m kinds``: every kind through the gate, one process each, and the table of what became of them."""

import json
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd

from kinds.apart import apart, import_once
from kinds.catalogue import KINDS, Kind
from kinds.table import best, written

#: fewer people outside of the training data let no attack conclude: a third of them equals a member
LEAST_ATTACKED = 1500


@click.command()
@click.option("--only", multiple=True, help="The kind of this name, or those whose names contain it; repeatable.")
@click.option("--short", is_flag=True, help="The short form: few kinds, few records.")
@click.option("--limit", default=1200.0, show_default=True, help="Seconds of processor time for one kind.")
@click.option("--at-most", default=0, help="No more records than this; the table says how many. All, if 0.")
@click.option("--at-once", default=1, show_default=True, help="Kinds measured at the same time.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/kinds"), show_default=True)
@click.option("--only-table", is_flag=True, help="Measure nothing; the table of what there is.")
@click.option("--table", type=click.Path(path_type=Path), default=None, help="Write the table there.")
def main(
    only: tuple[str, ...],
    short: bool,
    limit: float,
    at_most: int,
    at_once: int,
    out: Path,
    only_table: bool,
    table: Path | None,
) -> None:
    """Measure every kind that was not measured yet, and write the table; interrupted, the same command goes on."""
    out.mkdir(parents=True, exist_ok=True)
    here = pd.__version__.partition(".")[0]
    rows = out / f"{'short' if short else 'kinds'}{at_most or ''}-pandas{here}.jsonl"
    known = {r["name"] for r in _read(rows)}
    wanted = [k for k in _named(only) if k.small or not short]
    todo = [] if only_table else [k for k in wanted if k.name not in known]
    start = time.monotonic()
    if todo:
        from privgate import registry

        import_once()
        registry.local_registry(out / "registry")
    with ThreadPoolExecutor(at_once) as threads:
        row = partial(_row, short=short, limit=limit, at_most=at_most, out=out)
        for found in (done.result() for done in as_completed([threads.submit(row, k) for k in todo])):
            with rows.open("a", encoding="utf-8") as f:
                f.write(json.dumps(found) + "\n")
            text = f"{found['name']}: {found['verdict']}, {found['cpu']:.0f} s of a processor: {found['said']}"
            click.echo(f"{time.monotonic() - start:.0f} s: {text}", err=True)
    place = {k.name: i for i, k in enumerate(wanted)}
    every = [r for path in sorted(out.glob("short*.jsonl" if short else "kinds*.jsonl")) for r in _read(path)]
    unmeasured = [{**_about(k, 0), "verdict": "not run", "said": "not measured yet", "cpu": 0} for k in wanted]
    chosen = best([*(r for r in every if r["name"] in place), *_without(unmeasured, every)])
    text = written(sorted(chosen, key=lambda r: (place[r["name"]], r.get("pandas") != here)), _where(chosen))
    if table is not None:
        table.write_text(text, encoding="utf-8")
    click.echo(text)


def _named(only: tuple[str, ...]) -> list[Kind]:
    """Return the kinds that were asked for, in the order of the list."""
    names = {k.name for k in KINDS}
    return [k for k in KINDS if not only or any(k.name == o or (o not in names and o in k.name) for o in only)]


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def _without(rows: list[Any], measured: list[Any]) -> list[Any]:
    names = {r["name"] for r in measured}
    return [r for r in rows if r["name"] not in names]


def _where(rows: list[Any]) -> str:
    """Return which machine measured, and how busy it was."""
    info = Path("/proc/cpuinfo")
    names = [t.partition(":")[2].strip() for t in info.read_text(encoding="utf-8").splitlines() if "model name" in t]
    loads = sorted(r["load"] for r in rows if "load" in r)
    load = f"; load when a kind began {loads[0]:g} to {loads[-1]:g}" if loads else ""
    return f"Machine: {len(names)} cores {names[0] if names else platform.machine()}{load}."


def _row(kind: Kind, *, short: bool, limit: float, at_most: int, out: Path) -> dict[str, Any]:
    """Measure one kind in a process of its own: what hangs or dies is a row of the table too."""
    n = _records(kind, short=short, at_most=at_most)
    from kinds.measure import by_name

    row = {**_about(kind, n), "load": round(os.getloadavg()[0], 1)}
    return row | apart(by_name, kind.name, n, out, limit=limit)


def _about(kind: Kind, n: int) -> dict[str, Any]:
    about = {"row": kind.row, "name": kind.name, "n": n, "policy": kind.policy, "expects": kind.expects}
    return {**about, "asked": kind.n, "pandas": pd.__version__.partition(".")[0]}


def _records(kind: Kind, *, short: bool, at_most: int) -> int:
    least = LEAST_ATTACKED if kind.policy.startswith("attacks") else 0
    return min(kind.small if short else kind.n, max(at_most, least) if at_most else kind.n)


if __name__ == "__main__":
    main()
