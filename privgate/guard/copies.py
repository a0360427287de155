"""Copies: a statement is about every row that serves the same files, and so is its refusal.

A copy that somebody else released rests on the version that was signed. A refusal of one of them is written to all, and
the version that was signed stays while something released rests on it: else a refusal would end with its row.
"""

from collections.abc import Iterator
from typing import Any

from privgate.errors import StatementError
from privgate.guard import statement, times
from privgate.guard.checks import counting
from privgate.guard.refusing import refusing
from privgate.guard.rows import TAG, GuardedRows
from privgate.guard.transaction import transaction
from privgate.guard.trust import Row

#: MLflow keeps the rows of deleted versions
_DELETED = "Deleted_Internal"


class Copies(GuardedRows):
    """What the guard does about rows that serve the same files; a registry of another server is asked by its own."""

    def delete_model_version(self, name: str, version: str) -> Any:
        """Delete a version; not one on whose statement a copy is released."""
        with refusing(f"deleting {name!r} version {version}"), transaction(self, name) as session:
            self._privgate_rests_on(session, name, str(version))
            return super().delete_model_version(name, version)  # type: ignore[misc]  # mixin

    def delete_registered_model(self, name: str) -> Any:
        """Delete a model; not one on whose statements copies elsewhere are released."""
        with refusing(f"deleting {name!r}"), transaction(self, name) as session:
            self._privgate_rests_on(session, name, None)
            return super().delete_registered_model(name)  # type: ignore[misc]  # mixin

    def _privgate_rests_on(self, session: Any, name: str, version: str | None) -> None:
        """Refuse to take away what a released copy rests on; all versions of a model if none is named."""
        for copy, tags in self._privgate_same_files(session, name, version):
            claims = counting(tags.get(TAG, ""), self.privgate_watch.guard().trust, times.now())
            if claims is None or claims.name != name or claims.version != (version or claims.version):
                continue
            if self._privgate_released_as(copy.name, copy.version, session):
                raise StatementError(
                    f"models:/{copy.name}/{copy.version} is released on the statement of models:/{name}/"
                    f"{claims.version}, whose refusal would be lost; withdraw or sign that first"
                )

    def _privgate_refuse_copies(self, session: Any, row: Row, tag: Any, claims: statement.Claims) -> None:
        """Write a refusal of ``row`` to every row that serves the same files and carries nothing younger."""
        if claims.passed or (claims.name, claims.version, claims.created) != (row.name, row.version, row.created):
            return
        for copy, tags in self._privgate_same_files(session, row.name, row.version):
            held = counting(tags.get(TAG, ""), self.privgate_watch.guard().trust, times.now())
            if held is None or held.signed <= claims.signed:
                super().set_model_version_tag(copy.name, copy.version, tag)  # type: ignore[misc]  # mixin

    def _privgate_same_files(self, session: Any, name: str, version: str | None) -> Iterator[tuple[Row, Any]]:
        """Give the other rows that serve the files of a version, or rows elsewhere those of any version of a model."""
        if session is None:
            return
        from mlflow.store.model_registry.dbmodels.models import SqlModelVersion
        from sqlalchemy import and_, func, not_

        storage = func.coalesce(SqlModelVersion.storage_location, SqlModelVersion.source)
        present = self._get_query(session, SqlModelVersion).filter(SqlModelVersion.current_stage != _DELETED)  # type: ignore[attr-defined]  # mixin
        own = SqlModelVersion.name == name
        if version is not None:
            own = and_(own, SqlModelVersion.version == int(version))
        places = {str(kept.storage_location or kept.source) for kept in present.filter(own)}
        others = present.filter(storage.in_(places), not_(own)).all() if places else []
        for kept in others:
            yield self._privgate_row(kept.name, str(kept.version))
