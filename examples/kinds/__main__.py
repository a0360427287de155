"""``python -m kinds``: every kind through the gate, one process each, and the table of what became of them."""

import math
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd

import kept
from kinds.apart import apart, import_once
from kinds.catalogue import KINDS, Kind
from kinds.rests import missing, rests_on, stale
from kinds.table import best, written

#: fewer people outside of the training data let no attack conclude: a third of them equals a member
LEAST_ATTACKED = 1500
#: measured again by the next run, and an error of this one
WRONG = ("died", "traceback")


@click.command()
@click.option("--only", multiple=True, help="The kind of this name, or those whose names contain it; repeatable.")
@click.option("--short", is_flag=True, help="The short form: few kinds, few records.")
@click.option("--limit", default=1200.0, show_default=True, help="Seconds of processor time for one kind.")
@click.option("--fewer", default=400, show_default=True, help="Records where all of them take longer; none, if 0.")
@click.option("--at-most", default=0, help="No more records than this; the table says how many. All, if 0.")
@click.option("--at-once", default=1, show_default=True, help="Kinds measured at the same time.")
@click.option("--most-minutes", default=0.0, help="Begin no kind after so many minutes; no end, if 0.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/kinds"), show_default=True)
@click.option("--only-table", is_flag=True, help="Measure nothing; the table of what there is.")
@click.option("--table", type=click.Path(path_type=Path), default=None, help="Write the table there.")
def main(
    only: tuple[str, ...],
    short: bool,
    limit: float,
    fewer: int,
    at_most: int,
    at_once: int,
    most_minutes: float,
    out: Path,
    only_table: bool,
    table: Path | None,
) -> None:
    """Measure every kind whose row is absent or rests on what has changed; interrupted, the same command goes on.

    A row rests on the package, on how kinds are measured, on the kind's own lines, on the data and on its libraries.
    """
    out.mkdir(parents=True, exist_ok=True)
    here = pd.__version__.partition(".")[0]
    rows = out / f"{'short' if short else 'kinds'}{at_most or ''}-pandas{here}.jsonl"
    known = {r["name"]: r for r in kept.read(rows) if r["verdict"] not in WRONG}
    wanted = [k for k in _named(only) if k.small or not short]
    skipped = {k.name: f"skipped: {lacks} not installed" for k in wanted if (lacks := missing(k))}
    why = {k.name: stale(known.get(k.name), k, here) for k in wanted if k.name not in skipped}
    todo = [] if only_table else [k for k in wanted if why.get(k.name)]
    for name, reason in [*skipped.items(), *((k.name, why[k.name]) for k in todo)]:
        click.echo(f"{name}: {reason}", err=True)
    click.echo(f"{len(todo)} of {len(wanted)} to measure; {len(why) - len(todo)} passed over", err=True)
    start = time.monotonic()
    if todo:
        from privgate import registry

        import_once()
        registry.local_registry(out / "registry")
    threads = ThreadPoolExecutor(at_once)
    try:
        late = start + 60 * most_minutes if most_minutes else math.inf
        row = partial(_row, late=late, short=short, limit=limit, numbers=(at_most, fewer), out=out)
        for found in (done.result() for done in as_completed([threads.submit(row, k) for k in todo])):
            if found is None:
                continue
            kept.add(rows, found)
            known[found["name"]] = found
            if found["verdict"] not in ("died", "too slow"):  # a later row is to cost what it costs, not what is left
                shutil.rmtree(out / "ledger" / found["name"], ignore_errors=True)
            text = f"{found['name']}: {found['verdict']}, {found['cpu']:.0f} s of a processor: {found['said']}"
            click.echo(f"{time.monotonic() - start:.0f} s: {text}", err=True)
    finally:
        threads.shutdown(cancel_futures=True)
    kinds = {k.name: (i, k) for i, k in enumerate(wanted)}
    every = [r for path in sorted(out.glob("short*.jsonl" if short else "kinds*.jsonl")) for r in kept.read(path)]
    every = [r for r in every if r["name"] in kinds and not stale(r, kinds[r["name"]][1], here)]
    said = {k.name: skipped.get(k.name) or why[k.name] for k in wanted}
    unmeasured = [{**_about(k, 0), "verdict": "not run", "said": said[k.name], "cpu": 0} for k in wanted]
    chosen = best([*every, *_without(unmeasured, every)])
    text = written(sorted(chosen, key=lambda r: (kinds[r["name"]][0], r.get("pandas") != here)), _where(chosen))
    if table is not None:
        table.write_text(text, encoding="utf-8")
    click.echo(text)
    remaining = [k.name for k in todo if stale(known.get(k.name), k, here)]
    problems = [r["name"] for r in chosen if r["verdict"] in WRONG or r.get("contradicted")]
    for names, how in ((remaining, "remain, and the same command goes on from here"), (problems, "went wrong")):
        if names:
            click.echo(f"{len(names)} {how}: {', '.join(names)}", err=True)
    if remaining or problems:
        click.get_current_context().exit(1)


def _named(only: tuple[str, ...]) -> list[Kind]:
    """Return the kinds that were asked for, in the order of the list."""
    names = {k.name for k in KINDS}
    return [k for k in KINDS if not only or any(k.name == o or (o not in names and o in k.name) for o in only)]


def _without(rows: list[Any], measured: list[Any]) -> list[Any]:
    names = {r["name"] for r in measured}
    return [r for r in rows if r["name"] not in names]


def _where(rows: list[Any]) -> str:
    """Return which machine measured, and how busy it was."""
    loads = sorted(r["load"] for r in rows if "load" in r)
    load = f"; load when a kind began {loads[0]:g} to {loads[-1]:g}" if loads else ""
    return f"Machine: {kept.machine()}{load}."


def _row(
    kind: Kind, *, late: float, short: bool, limit: float, numbers: tuple[int, int], out: Path
) -> dict[str, Any] | None:
    """Measure one kind in a process of its own: what hangs or dies is a row too; None once it is late.

    What is too slow with the first number of records is measured with the second.
    """
    if time.monotonic() > late:
        return None
    from kinds.measure import by_name

    row: dict[str, Any] = {}
    first, fewer = (_records(kind, short=short, at_most=n) for n in numbers)
    for n in (first, fewer) if fewer < first else (first,):
        row = {**_about(kind, n), "load": round(os.getloadavg()[0], 1), "rests": rests_on(kind)}
        row |= apart(by_name, kind.name, n, out, limit=limit)
        if row["verdict"] != "too slow":
            break
    return row


def _about(kind: Kind, n: int) -> dict[str, Any]:
    about = {"row": kind.row, "name": kind.name, "n": n, "policy": kind.policy, "expects": kind.expects}
    return {**about, "asked": kind.n, "pandas": pd.__version__.partition(".")[0]}


def _records(kind: Kind, *, short: bool, at_most: int) -> int:
    least = LEAST_ATTACKED if kind.policy.startswith("attacks") else 0
    return min(kind.small if short else kind.n, max(at_most, least) if at_most else kind.n)


if __name__ == "__main__":
    main()
