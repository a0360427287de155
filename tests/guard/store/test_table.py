"""The table of ways around the gate, written by the run itself to build/ways-around.md: way, door, outcome."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

TABLE = Path(__file__).resolve().parents[3] / "build" / "ways-around.md"


def test_every_way_is_refused_by_every_door(registry, name, tried):
    rows = tried(registry, name, registry.log(name))
    TABLE.parent.mkdir(exist_ok=True)
    lines = ["| way around | client | REST | UI path |", "| --- | --- | --- | --- |"]
    TABLE.write_text("\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n", encoding="utf-8")

    assert len(rows) == 8
    assert {outcome for row in rows for outcome in row[1:]} == {"refused", "refused (403)"}, rows
    assert dict(registry.client.get_registered_model(name).aliases) == {}
    assert registry.client.search_model_versions(f"name='prod.{name}'") == []
