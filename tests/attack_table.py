"""The table of attacks that a test run writes: way, path, result; to ``build/released-is-approved.md``."""

import fcntl
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "build" / "released-is-approved.md"
HEAD = ["| way | path | result |", "| --- | --- | --- |"]


def begin():
    """Forget what an earlier run wrote."""
    TABLE.unlink(missing_ok=True)


def note(way, path, result):
    """Add one row; processes of one run may do so at once."""
    TABLE.parent.mkdir(exist_ok=True)
    with TABLE.open("a+", encoding="utf-8") as table:
        fcntl.flock(table, fcntl.LOCK_EX)
        table.seek(0)
        rows = {*table.read().splitlines()[2:], f"| {way} | {path} | {result} |"}
        table.truncate(0)
        table.write("\n".join([*HEAD, *sorted(rows, key=_order)]) + "\n")


def _order(row):
    number = row.split()[1]
    return (int(number) if number.isdigit() else 99, row)
