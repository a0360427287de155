"""Reading a registry in an SQLite file without MLflow, whose import takes longer than a small check."""

import os
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: revision of MLflow's tables whose columns below mean what they are read for
_REVISION = "dc11669786a5"
_VERSION = "model_versions where workspace='default' and name=? and version=? and current_stage<>'Deleted_Internal'"


def find_client(tracking_uri: str | None, connect: Callable[[str], Any]) -> "SqliteClient | None":
    """Return a client of a store in a file with known tables, or None; ``connect`` makes MLflow's own."""
    wanted = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
    match = re.fullmatch(r"sqlite:///([^?#%:]+)", wanted)
    elsewhere = os.environ.get("MLFLOW_REGISTRY_URI") not in {None, "", wanted}
    if match is None or elsewhere or "mlflow" in sys.modules or any("MLFLOW_WORKSPACE" in name for name in os.environ):
        return None
    client = SqliteClient(wanted, Path(match[1]), connect)
    return client if client.select("version_num", "alembic_version") == [(_REVISION,)] else None


class SqliteClient:
    """What loading and verifying ask a registry, by the methods and with the names of MLflow's client."""

    def __init__(self, tracking_uri: str, place: Path, connect: Callable[[str], Any]) -> None:
        self.tracking_uri = tracking_uri
        self._place, self._connect = f"{place.resolve().as_uri()}?mode=ro", connect

    @cached_property
    def _mlflow(self) -> Any:
        return self._connect(self.tracking_uri)

    def select(self, columns: str, rest: str, *values: str) -> list[Any]:
        """Return the rows that a query finds; none where nothing can be read."""
        try:
            with closing(sqlite3.connect(self._place, uri=True)) as store:
                return store.execute(f"select {columns} from {rest}", values).fetchall()  # noqa: S608  columns of ours
        except sqlite3.Error:
            return []

    def get_model_version(self, name: str, version: str) -> Any:
        """Return a version's row."""
        rows = self.select("name, version, source, run_id, creation_time", _VERSION, name, version)
        if not rows:
            return self._mlflow.get_model_version(name, version)
        where = "model_version_tags where workspace='default' and name=? and version=?"
        tags = dict(self.select("key, value", where, name, version))
        named = dict(zip(("name", "version", "source", "run_id", "creation_timestamp"), rows[0], strict=True))
        return SimpleNamespace(**named, tags=tags)

    def get_model_version_by_alias(self, name: str, alias: str) -> Any:
        """Return the row that an alias names."""
        where = "registered_model_aliases where workspace='default' and name=? and alias=?"
        rows = [] if alias.lower() == "latest" else self.select("version", where, name, alias)
        if not rows:
            return self._mlflow.get_model_version_by_alias(name, alias)
        return self.get_model_version(name, str(rows[0][0]))

    def get_model_version_download_uri(self, name: str, version: str) -> str:
        """Return where a version's files lie."""
        rows = self.select("coalesce(nullif(storage_location, ''), source)", _VERSION, name, version)
        return str(rows[0][0] if rows else self._mlflow.get_model_version_download_uri(name, version))

    def get_logged_model(self, model_id: str) -> Any:
        """Return a logged model."""
        where = "logged_models where model_id=? and lifecycle_stage='active'"
        rows = self.select("artifact_location, source_run_id", where, model_id)
        if not rows:
            return self._mlflow.get_logged_model(model_id)
        tags = dict(self.select("tag_key, tag_value", "logged_model_tags where model_id=?", model_id))
        return SimpleNamespace(artifact_location=rows[0][0], source_run_id=rows[0][1], tags=tags)

    def get_run(self, run_id: str) -> Any:
        """Return a run, which says where it keeps its artifacts."""
        rows = self.select("artifact_uri", "runs where run_uuid=? and lifecycle_stage='active'", run_id)
        return SimpleNamespace(info=SimpleNamespace(artifact_uri=rows[0][0])) if rows else self._mlflow.get_run(run_id)
