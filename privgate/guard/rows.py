"""The guard's checks before and after a write: rows, holders of protected names, statements and copies."""

import os
import tempfile
import urllib.parse
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.errors import StatementError
from privgate.guard import statement
from privgate.guard.checks import TAG, Row, check, check_original, counting, is_copy
from privgate.guard.config import WITHOUT, Watch, fold
from privgate.guard.transaction import refusing, transaction
from privgate.registry.client import download
from privgate.registry.files import all_files


class GuardedRows:
    """How a guarded store looks at its own rows; mixed in before MLflow's store."""

    privgate_watch: Watch

    def _privgate_find_holders(self, name: str, session: Any, but: Collection[str] = ()) -> dict[str, str]:
        """Return protected alias -> version, as this registry answers readers."""
        aliases = sorted(self.privgate_watch.guard().aliases.difference(but))
        held = ((a, self._get_registered_model_alias(session, name, a)) for a in aliases)  # type: ignore[attr-defined]  # mixin
        return {alias: str(row.version) for alias, row in held if row is not None}

    def _privgate_read_row(self, name: str, version: str) -> tuple[Row, Mapping[str, str]]:
        """Return a row and its tags; the store's public methods would take three times as long."""
        with self.ManagedSessionMaker() as session:  # type: ignore[attr-defined]  # mixin
            kept = self._get_sql_model_version(session, name, version)  # type: ignore[attr-defined]  # mixin
            row = Row.read(name, kept, kept.storage_location or kept.source, kept.creation_time)
            return row, {str(tag.key): str(tag.value) for tag in kept.model_version_tags}

    def _privgate_check_before(self, name: str, version: str, target: str) -> Row | None:
        """Check and return the row before the transaction, if files are checked, which takes long; else None."""
        if not self.privgate_watch.guard().check_files:
            return None
        return self._privgate_check_release(name, version, target, None, files=True)

    def _privgate_check_release(
        self, name: str, version: str, target: str | None, before: Row | None, *, files: bool = False
    ) -> Row:
        """Check that a version may be released as a target, and return its row."""
        row, tags = self._privgate_read_row(name, version)
        if before is not None and row != before:
            raise StatementError("the version was replaced while it was being released")
        self._privgate_check(row, tags.get(TAG, ""), target, files=files)
        return row

    def _privgate_list_targets(self, name: str, version: str, session: Any) -> list[str | None]:
        """Return every protected alias or stage that a version holds, and None where its model is protected."""
        guard = self.privgate_watch.guard()
        if guard.excepts(name):
            return []
        held = super().get_model_version(name, version)  # type: ignore[misc]  # mixin
        holders = self._privgate_find_holders(name, session).items()
        stage = str(held.current_stage or "")
        return [
            *(alias for alias, holder in holders if holder == str(held.version)),
            *([stage] if fold(stage) in guard.stages else []),
            *([None] if guard.protects_model(name) else []),
        ]

    def _privgate_check_newer(self, name: str, version: str, text: str, claims: statement.Claims, session: Any) -> None:
        """Check that a statement may replace the one that the version carries."""
        row, tags = self._privgate_read_row(name, version)
        targets = self._privgate_list_targets(name, row.version, session)
        present, itself = self._privgate_read_claims(row, tags.get(TAG, "")), claims.is_about(row)
        if present is not None:
            if (itself or not present.passed) and claims.signed < present.signed:
                raise StatementError("the version carries a statement that was signed later")
            if claims.passed and not present.passed and claims.signed == present.signed:
                raise StatementError("the version was refused in the second in which this was signed")
            if claims.passed and not present.passed and claims.decided <= present.decided:
                raise StatementError("no later check than the one that refused the version is signed here; check again")
        if targets and claims.signed < _signed(tags.get(TAG, "")):
            raise StatementError("the version is released on a statement that was signed later")
        if not claims.passed and itself:
            return  # whose key counts may take an approval back
        for target in targets:
            self._privgate_check(row, text, target, files=False)

    def _privgate_read_claims(self, row: Row, text: str) -> statement.Claims | None:
        """Return the claims of a trusted statement about this row, or of a refusal of its files; else None."""
        claims = counting(text, self.privgate_watch.guard().trust, statement.now())
        other = claims is not None and not claims.is_about(row) and (claims.passed or claims.storage != row.storage)
        return None if other else claims

    def _privgate_check(self, row: Row, text: str, target: str | None, *, files: bool = True) -> None:
        guard = self.privgate_watch.guard()
        if guard.excepts(row.name):
            return
        terms = guard.terms(target, row.name)
        if not text:
            raise StatementError(f"there is no statement{WITHOUT}")
        claims = check(text, guard.trust, row, terms, target=target, now=statement.now())
        if is_copy(claims, row):
            original = self._privgate_find_original(claims)
            check_original(claims, original, guard.trust, statement.now())
        if guard.check_files and files:
            _compare_files(row, claims)

    def _privgate_find_original(self, claims: statement.Claims) -> tuple[Row, str] | None:
        """Return the row of the signed version and the statement that it carries; None if that row is gone."""
        from mlflow.exceptions import MlflowException

        try:
            row, tags = self._privgate_read_row(claims.name, claims.version)
        except MlflowException as exc:
            if exc.get_http_status_code() >= 500:
                raise
            return None
        return row, tags.get(TAG, "")


def _signed(text: str) -> datetime:
    """Return when a statement was signed; year 1 for an unreadable statement."""
    try:
        return statement.Claims.read(statement.Envelope.parse(text).statement).signed
    except StatementError:
        return datetime.min.replace(tzinfo=UTC)


def _compare_files(row: Row, claims: statement.Claims) -> None:
    """Raise ``StatementError`` if the stored files, all read here, differ from the signed digest."""
    location, destination = row.storage, os.environ.get("_MLFLOW_SERVER_ARTIFACT_DESTINATION")
    if location.startswith("mlflow-artifacts:") and destination:  # which clients reach through this server
        path = urllib.parse.unquote(urllib.parse.urlparse(location).path)
        location = f"{destination.removeprefix('privgate:').rstrip('/')}/{path.lstrip('/')}"
    with tempfile.TemporaryDirectory() as place:
        folder = download(location, Path(place), tracking_uri=None)
        if digest.of_manifest(all_files(folder, rows=claims.rows)) != claims.files:
            raise StatementError("the stored files are not those that were checked and signed")


# Copies: an approval and a refusal hold for every row that serves the same files.
#
# A released copy rests on the version that was signed. A refusal of one row is written to all rows with these files.
# The signed version cannot be deleted while a released copy rests on it: the refusal would vanish with its row.

#: MLflow keeps the rows of deleted versions
DELETED = "Deleted_Internal"


class Copies(GuardedRows):
    """Checks of rows that serve the same files."""

    def delete_model_version(self, name: str, version: str) -> Any:
        """Delete a version, unless a released copy rests on its statement."""
        with refusing(f"deleting {name!r} version {version}"), transaction(self, name) as session:
            self._privgate_refuse_removal(session, name, str(version))
            return super().delete_model_version(name, version)  # type: ignore[misc]  # mixin

    def delete_registered_model(self, name: str) -> Any:
        """Delete a model, unless released copies in other models rest on its statements."""
        with refusing(f"deleting {name!r}"), transaction(self, name) as session:
            self._privgate_refuse_removal(session, name, None)
            return super().delete_registered_model(name)  # type: ignore[misc]  # mixin

    def _privgate_refuse_removal(self, session: Any, name: str, version: str | None) -> None:
        """Refuse to remove a version, or a model if ``version`` is None, that a released copy rests on."""
        for copy, tags in self._privgate_list_copies(session, name, version):
            claims = counting(tags.get(TAG, ""), self.privgate_watch.guard().trust, statement.now())
            if claims is None or (claims.name, int(claims.version)) != (name, int(version or claims.version)):
                continue
            if self._privgate_list_targets(copy.name, copy.version, session):
                raise StatementError(
                    f"models:/{copy.name}/{copy.version} is released on the statement of models:/{name}/"
                    f"{claims.version}, whose refusal would be lost; withdraw or sign that first"
                )

    def _privgate_refuse_copies(self, session: Any, row: Row, tag: Any, claims: statement.Claims) -> None:
        """Write a refusal of ``row`` to every row that serves the same files and carries no later statement."""
        if claims.passed or not claims.is_about(row):
            return
        for copy, tags in self._privgate_list_copies(session, row.name, row.version):
            held = counting(tags.get(TAG, ""), self.privgate_watch.guard().trust, statement.now())
            if held is None or held.signed <= claims.signed:
                super().set_model_version_tag(copy.name, copy.version, tag)  # type: ignore[misc]  # mixin

    def _privgate_list_copies(self, session: Any, name: str, version: str | None) -> Iterator[tuple[Row, Any]]:
        """Yield the other rows, with tags, that serve the files of a version, or of any version of a model if None."""
        from mlflow.store.model_registry.dbmodels.models import SqlModelVersion
        from sqlalchemy import func

        storage = func.coalesce(SqlModelVersion.storage_location, SqlModelVersion.source)
        present, own = SqlModelVersion.current_stage != DELETED, [SqlModelVersion.name == name]
        own += [] if version is None else [SqlModelVersion.version == int(version)]
        mine = set(session.query(SqlModelVersion).filter(present, *own))
        places = {str(kept.storage_location or kept.source) for kept in mine}
        others = set(session.query(SqlModelVersion).filter(present, storage.in_(places))) - mine if places else ()
        for kept in others:
            yield self._privgate_read_row(kept.name, str(kept.version))
