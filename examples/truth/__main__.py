"""``python -m truth``: every subject through the gate, one process each, and the table of what came of it."""

import math
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import click

import kept
from kinds.apart import apart, import_once
from truth.catalogue import NIGHTLY, TRUTH, Known
from truth.measure import by_name, rests_on
from truth.table import NOT_RUN, came_out, counts, written

#: measured again by the next run, and an error of this one
WRONG = ("died", "traceback")
#: what the gate imports where it uses it, and would in each of two hundred processes
PRELOADED = tuple(f"privgate.{room}" for room in ("check.gate", "check.questions", "membership.attacks", "file.look"))


@click.command()
@click.option("--only", multiple=True, help="Subjects whose names contain it; repeatable.")
@click.option("--nightly", is_flag=True, help="The twenty of every night.")
@click.option("--limit", default=300.0, show_default=True, help="Seconds of processor time for one subject.")
@click.option("--at-once", default=2, show_default=True, help="Subjects judged at the same time.")
@click.option("--most-minutes", default=0.0, help="Begin no subject after so many minutes; no end, if 0.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/truth"), show_default=True)
@click.option("--referee", is_flag=True, help="Do not judge: confirm by hand what is known of them.")
@click.option("--only-table", is_flag=True, help="Measure nothing; the table of what there is.")
@click.option("--table", type=click.Path(path_type=Path), default=None, help="Write the table of all there.")
def main(
    only: tuple[str, ...],
    nightly: bool,
    limit: float,
    at_once: int,
    most_minutes: float,
    out: Path,
    referee: bool,
    only_table: bool,
    table: Path | None,
) -> None:
    """Judge every subject whose row is absent or rests on what has changed; interrupted, the same command goes on.

    Those that leak come first, and of each family one. It ends with an error if one of them is released, and where
    something is not done.
    """
    out.mkdir(parents=True, exist_ok=True)
    file = out / ("referee.jsonl" if referee else "truth.jsonl")
    names = set(NIGHTLY) if nightly else {k.name for k in TRUTH}
    wanted = [k for k in TRUTH if k.name in names and (not only or any(o in k.name for o in only))]
    place = {k.name: sum(o.family == k.family for o in TRUTH[:i]) for i, k in enumerate(TRUTH)}
    wanted.sort(key=lambda k: (not k.leaks, place[k.name]))
    known = {r["name"]: r for r in kept.read(file) if r["verdict"] not in WRONG}
    why = {k.name: kept.stale(known.get(k.name), _rests(k, referee=referee)) for k in wanted}
    todo = [] if only_table else [k for k in wanted if why[k.name]]
    click.echo(f"{len(todo)} of {len(wanted)} to judge; {len(wanted) - len(todo)} passed over", err=True)
    late = time.monotonic() + 60 * most_minutes if most_minutes else math.inf
    if todo:
        from privgate import registry

        import_once("truth.referee", "great_expectations", "sklearn.neural_network", *PRELOADED)
        registry.local_registry(out / "registry")
    threads = ThreadPoolExecutor(at_once)
    try:
        jobs = [threads.submit(_row, k, late=late, limit=limit, out=out, referee=referee) for k in todo]
        for found in (done.result() for done in as_completed(jobs)):
            if found is None:
                continue
            kept.add(file, found)
            known[found["name"]], why[found["name"]] = found, ""
            click.echo(f"{found['name']}: {came_out(found)}, {found['cpu']:.0f} s: {found['said']}", err=True)
    finally:
        threads.shutdown(cancel_futures=True)
    shown = [k for k in TRUTH if k.name in why]
    rows = [known[k.name] if not why[k.name] else {**_about(k), "verdict": NOT_RUN, "said": why[k.name]} for k in shown]
    if not referee:
        text = written(rows, f"Machine: {kept.machine()}; policy release-1.")
        if table is not None and not (only or nightly):  # a part of the subjects makes no table of all
            table.write_text(text, encoding="utf-8")
        click.echo(text if only_table else counts(rows))
    bad = ["not confirmed"] if referee else ["**false approval**"]
    for said in (NOT_RUN, "too slow", *WRONG, *bad):
        if some := [r["name"] for r in rows if came_out(r) == said]:
            click.echo(f"{len(some)} {said.strip('*')}: {'; '.join(some)}", err=True)
    if any(came_out(r) in (NOT_RUN, *WRONG, *bad) for r in rows):
        click.get_current_context().exit(1)


def _rests(known: Known, *, referee: bool) -> dict[str, str]:
    """Return what a row rests on; what the referee says does not rest on the gate."""
    rests = rests_on(known)
    by_hand = {"the subject": rests["the subject"], "the referee": kept.digest(Path(__file__).with_name("referee.py"))}
    return by_hand if referee else rests


def _about(known: Known) -> dict[str, Any]:
    return {"name": known.name, "leaks": known.leaks, "why": known.why}


def _row(known: Known, *, late: float, limit: float, out: Path, referee: bool) -> dict[str, Any] | None:
    """Judge one subject in a process of its own: what hangs or dies is a row too; None once it is late."""
    if time.monotonic() > late:
        return None
    from truth.referee import by_hand

    done = apart(by_hand, known.name, limit=limit) if referee else apart(by_name, known.name, out, limit=limit)
    return {**done, **_about(known), "rests": _rests(known, referee=referee)}


if __name__ == "__main__":
    main()
