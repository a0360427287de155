"""The table of ways around the gate, written by the run itself to build/ways-around.md: way, door, outcome."""

from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

TABLE = Path(__file__).resolve().parents[2] / "build" / "ways-around.md"


def ways(registry, name, version):
    """Give (way, method of the client and arguments, REST path and body)."""
    client = registry.client
    source = client.get_model_version(name, version).source
    model_id = source.rpartition("/")[2]
    alias = "registered-models/alias"
    for spelling in ("production", "PRODUCTION", "ｐｒｏｄｕｃｔｉｏｎ", "prodúction"):
        body = {"name": name, "alias": spelling, "version": version}
        yield f"alias {spelling}", (client.set_registered_model_alias, name, spelling, version), (alias, body)
    body = {"name": name, "version": version, "stage": "Production", "archive_existing_versions": False}
    stage = (client.transition_model_version_stage, name, version, "Production")
    yield "stage Production", stage, ("model-versions/transition-stage", body)
    body = {"name": f"prod.{name}", "source": source, "model_id": model_id}
    yield "new version of prod.*", (registry.create, f"prod.{name}", source), ("model-versions/create", body)
    copied = f"models:/{name}/{version}"
    body = {"name": f"prod.{name}", "source": copied}
    yield "copy into prod.*", (client.copy_model_version, copied, f"prod.{name}"), ("model-versions/create", body)
    body = {"name": name, "new_name": f"prod.{name}-2"}
    yield (
        "rename onto prod.*",
        (client.rename_registered_model, name, f"prod.{name}-2"),
        ("registered-models/rename", body),
    )
    body = {"name": name, "version": version, "key": "privgate.statement", "value": "passed"}
    forged = (client.set_model_version_tag, name, version, "privgate.statement", "passed")
    yield "forged statement tag", forged, ("model-versions/set-tag", body)


def by_client(call):
    try:
        call[0](*call[1:])
    except MlflowException as exc:
        return "refused" if "privgate" in str(exc) and "PERMISSION_DENIED" in str(exc) else f"error: {exc}"
    return "LET THROUGH"


def by_rest(registry, api, path, body):
    status, answer = registry.post(f"/{api}/2.0/mlflow/{path}", body)
    if status == 403 and "privgate" in answer["message"]:
        return "refused (403)"
    return "LET THROUGH" if status == 200 else f"{status} {answer}"


def test_every_way_is_refused_by_every_door(registry, name):
    version = registry.log(name)
    registry.client.create_registered_model(f"prod.{name}")
    rows = []
    for way, call, (path, body) in ways(registry, name, version):
        rows.append((way, by_client(call), *(by_rest(registry, api, path, body) for api in ("api", "ajax-api"))))
    TABLE.parent.mkdir(exist_ok=True)
    lines = ["| way around | client | REST | UI path |", "| --- | --- | --- | --- |"]
    TABLE.write_text("\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n", encoding="utf-8")

    assert len(rows) == 9
    assert {outcome for row in rows for outcome in row[1:]} == {"refused", "refused (403)"}, rows
    assert dict(registry.client.get_registered_model(name).aliases) == {}
    assert registry.client.search_model_versions(f"name='prod.{name}'") == []
