"""``python -m kinds``: every kind through the gate, one process each, and the table of what became of them."""

import json
import subprocess
import sys
import time
from pathlib import Path

import click

from kinds.catalogue import KINDS, Kind
from kinds.table import written


@click.command()
@click.option("--only", default="", help="Kinds whose name contains this.")
@click.option("--short", is_flag=True, help="The short form: few kinds, few records.")
@click.option("--limit", default=600.0, show_default=True, help="Seconds for one kind.")
@click.option("--at-most", default=0, help="No more records than this; the table says how many. All, if 0.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/kinds"), show_default=True)
@click.option("--table", type=click.Path(path_type=Path), default=None, help="Write the table there.")
@click.option("--one", default=None, hidden=True)
def main(only: str, short: bool, limit: float, at_most: int, out: Path, table: Path | None, one: str | None) -> None:
    """Measure every kind that was not measured yet, and write the table; interrupted, the same command goes on."""
    out.mkdir(parents=True, exist_ok=True)
    if one is not None:
        return _one(one, short=short, at_most=at_most, out=out)
    rows = out / ("short.jsonl" if short else f"kinds{at_most or ''}.jsonl")
    known = {r["name"]: r for r in _read(rows)}
    wanted = [k for k in KINDS if only in k.name and (k.small or not short)]
    start = time.monotonic()
    for i, kind in enumerate(wanted):
        if kind.name in known:
            continue
        click.echo(f"{i + 1} of {len(wanted)}, {time.monotonic() - start:.0f} s: {kind.name}", err=True)
        known[kind.name] = found = _apart(kind, short=short, limit=limit, at_most=at_most, out=out)
        with rows.open("a", encoding="utf-8") as f:
            f.write(json.dumps(found) + "\n")
        click.echo(f"    {found['verdict']}, {found['seconds']:.0f} s: {found['said']}", err=True)
    text = written([known[k.name] for k in wanted])
    if table is not None:
        table.write_text(text, encoding="utf-8")
    click.echo(text)
    return None


def _read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def _apart(kind: Kind, *, short: bool, limit: float, at_most: int, out: Path) -> dict[str, object]:
    """Measure one kind in a process of its own: what hangs or dies is a row of the table too."""
    command = [sys.executable, "-m", "kinds", "--one", kind.name, "--out", str(out), "--at-most", str(at_most)]
    command += ["--short"] if short else []
    start = time.monotonic()
    row: dict[str, object] = {
        "row": kind.row,
        "name": kind.name,
        "n": _records(kind, short=short, at_most=at_most),
        "policy": kind.policy,
        "expects": kind.expects,
    }
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
        if lines:
            return dict(json.loads(lines[-1]))
        row |= {"verdict": "died", "said": ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else ""}
    except subprocess.TimeoutExpired:
        row |= {"verdict": "too slow", "said": f"not decided in {limit:.0f} s"}
    return {**row, "seconds": round(time.monotonic() - start, 1), "cpu": None}


def _records(kind: Kind, *, short: bool, at_most: int) -> int:
    return min(kind.small if short else kind.n, at_most or kind.n)


def _one(name: str, *, short: bool, at_most: int, out: Path) -> None:
    from kinds.measure import measured

    kind = next(k for k in KINDS if k.name == name)
    ledger = out / "ledger" / str(KINDS.index(kind))
    n = _records(kind, short=short, at_most=at_most)
    click.echo(json.dumps(measured(kind, n=n, ledger=ledger, refereed=True)))


if __name__ == "__main__":
    main()
