"""The writes that can promote: each asks for a valid statement first, and looks again after the write."""

import functools
import os
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privgate.errors import StatementError
from privgate.guard import statement
from privgate.guard.refusing import PASSING, permission_denied, refusing
from privgate.guard.trust import Row, check
from privgate.guard.watch import Watch

TAG = "privgate.statement"
#: setting an alias of this name is how anybody asks whether a registry is guarded
PROBE = "privgate-probe"

# sources that MLflow gives to prompts; such a version holds no model files, and a source never changes
_PROMPT_SOURCES = frozenset({"dummy-source", "prompt-template"})

_TRIES = 3


def _set_meanwhile(exc: BaseException) -> bool:
    """Whether MLflow could not insert an alias because somebody else just did; the same call then updates it."""
    from sqlalchemy.exc import IntegrityError

    return isinstance(exc.__cause__, IntegrityError)


class GuardedWrites:
    """The writes that can promote; mixed in before MLflow's store."""

    privgate_watch: Watch

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> Any:
        """Set an alias; a protected one needs a statement."""
        if name == PROBE:
            raise permission_denied("privgate: probe: gate active")
        doing = f"alias {alias!r} of {name!r} version {version}"
        with refusing(doing):
            asked = statement.fold(alias) in self.privgate_watch.guard().aliases
            before = self._privgate_released(name, str(version), alias) if asked else None
        for left in reversed(range(_TRIES)):
            try:
                done = super().set_registered_model_alias(name, alias, version)  # type: ignore[misc]  # mixin
                break
            except Exception as exc:
                if not (left and _set_meanwhile(exc)):
                    raise
        if before is not None:
            with refusing(doing):
                withdraw = functools.partial(super().delete_registered_model_alias, name, alias)  # type: ignore[misc]  # mixin
                self._privgate_unchanged(before, withdraw)
        return done

    def transition_model_version_stage(
        self,
        name: str,
        version: str,
        stage: str,
        archive_existing_versions: bool,  # noqa: FBT001  MLflow's
    ) -> Any:
        """Move to a stage; a protected one needs a statement."""
        doing, move = f"stage {stage!r} of {name!r} version {version}", super().transition_model_version_stage  # type: ignore[misc]  # mixin
        with refusing(doing):
            asked = statement.fold(stage) in self.privgate_watch.guard().stages
            before = self._privgate_released(name, str(version), stage) if asked else None
        done = move(name, version, stage, archive_existing_versions)
        if before is not None:
            with refusing(doing):
                self._privgate_unchanged(before, functools.partial(move, name, version, "None", False))  # noqa: FBT003  MLflow's
        return done

    def create_model_version(self, name: str, source: str, *args: Any, **kwargs: Any) -> Any:
        """Add a version; entering a protected model needs the statement of the version that is copied."""
        with refusing(f"a new version of {name!r}"):
            if self.privgate_watch.guard().protects_model(name) and source not in _PROMPT_SOURCES:
                tags = kwargs.get("tags") or (args[1] if len(args) > 1 else None) or []
                text = next((t.value for t in tags if t.key == TAG), "")
                self._privgate_check(Row(name, "", source, self._privgate_storage(source)), text, None)
        return super().create_model_version(name, source, *args, **kwargs)  # type: ignore[misc]  # mixin

    def rename_registered_model(self, name: str, new_name: str) -> Any:
        """Rename; never onto a protected name, and never what is in production: aliases move with the name."""
        with refusing(f"renaming {name!r} to {new_name!r}"):
            guard = self.privgate_watch.guard()
            if guard.protects_model(name) or guard.protects_model(new_name):
                raise StatementError("protected models are not renamed; copy a signed version instead")
            held = super().get_registered_model(name)  # type: ignore[misc]  # mixin
            if in_use := [a for a in held.aliases if statement.fold(a) in guard.aliases]:
                raise StatementError(
                    f"it holds protected alias {in_use[0]!r}, which would move with it; delete that first"
                )
            for version in self._privgate_versions(name):
                if statement.fold(version.current_stage or "") in guard.stages:
                    raise StatementError(
                        f"version {version.version} is in stage {version.current_stage}; move it first"
                    )
        return super().rename_registered_model(name, new_name)  # type: ignore[misc]  # mixin

    def set_model_version_tag(self, name: str, version: str, tag: Any) -> Any:
        """Set a tag; one that claims to be a statement must be signed by a key that counts."""
        if tag.key == TAG:
            with refusing(f"the statement of {name!r} version {version}"):
                envelope = statement.Envelope.parse(tag.value)
                claims = statement.Claims.read(envelope.statement)
                moments = (claims.signed, statement.now())
                self.privgate_watch.guard().trust.verify(envelope, "verdict", model=claims.name, moments=moments)
        return super().set_model_version_tag(name, version, tag)  # type: ignore[misc]  # mixin

    def delete_model_version_tag(self, name: str, version: str, key: str) -> Any:
        """Delete a tag; not the statement of a version that is released."""
        if key == TAG:
            with refusing(f"deleting the statement of {name!r} version {version}"):
                guard = self.privgate_watch.guard()
                held = super().get_model_version(name, version)  # type: ignore[misc]  # mixin
                released = [a for a in held.aliases if statement.fold(a) in guard.aliases]
                if released or statement.fold(held.current_stage or "") in guard.stages or guard.protects_model(name):
                    raise StatementError("the version is released on it; withdraw the version first")
        return super().delete_model_version_tag(name, version, key)  # type: ignore[misc]  # mixin

    # -- what the checks need ------------------------------------------------------------------------------------

    def _privgate_row(self, name: str, version: str) -> tuple[Row, str]:
        """Return a row and the statement that it carries.

        An SQL store is asked for just these: its public methods read aliases and all else too, three times as long.
        """
        sessions, find = (getattr(self, n, None) for n in ("ManagedSessionMaker", "_get_sql_model_version"))
        if sessions is None or find is None:
            held = super().get_model_version(name, version)  # type: ignore[misc]  # mixin
            storage = str(super().get_model_version_download_uri(name, version))  # type: ignore[misc]  # mixin
            row = Row(name, str(held.version), str(held.source), storage, int(held.creation_timestamp))
            return row, str(held.tags.get(TAG, ""))
        with sessions() as session:
            kept = find(session, name, version)
            storage = str(kept.storage_location or kept.source)
            row = Row(name, str(kept.version), str(kept.source), storage, int(kept.creation_time))
            return row, next((str(tag.value) for tag in kept.model_version_tags if tag.key == TAG), "")

    def _privgate_released(self, name: str, version: str, target: str) -> Row:
        """Check that a version may be released as a target, and return its row."""
        row, text = self._privgate_row(name, version)
        if row.source not in _PROMPT_SOURCES:
            self._privgate_check(row, text, target)
        return row

    def _privgate_unchanged(self, before: Row, withdraw: Callable[[], object]) -> None:
        """Look again after the write, and withdraw it unless the row is certainly the one that was checked."""
        now: Row | None = None
        for _ in range(_TRIES):
            try:
                now = self._privgate_row(before.name, before.version)[0]
            except Exception as exc:  # noqa: BLE001  whatever it is, an unverified row must not stay released
                if getattr(exc, "error_code", "") == PASSING:
                    time.sleep(0.2)
                    continue
            break
        if now != before:
            withdraw()
            raise StatementError("the version was replaced, or could not be read again, while it was being released")

    def _privgate_check(self, row: Row, text: str, target: str | None) -> None:
        guard = self.privgate_watch.guard()
        claims = check(text, guard.trust, row, guard.terms(target), target=target, now=statement.now())
        if guard.check_files:
            _compare_files(row, claims)

    def _privgate_storage(self, source: str) -> str:
        """Return where the files of a new version would lie, as the store itself finds out."""
        from mlflow import MlflowClient
        from mlflow.store.artifact.utils.models import _parse_model_uri

        if not source.startswith("models:"):
            return source
        parsed = _parse_model_uri(source)
        if parsed.model_id is not None:
            return str(MlflowClient().get_logged_model(parsed.model_id).artifact_location)
        return str(super().get_model_version_download_uri(parsed.name, parsed.version))  # type: ignore[misc]  # mixin

    def _privgate_versions(self, name: str) -> list[Any]:
        quoted = name.replace("'", "''")
        found: list[Any] = []
        token = None
        while True:
            page = super().search_model_versions(f"name='{quoted}'", max_results=1000, page_token=token)  # type: ignore[misc]  # mixin
            found += page
            token = page.token
            if not token:
                return found


def _compare_files(row: Row, claims: statement.Claims) -> None:
    """Recompute the digest of the stored files; only where the operator asks for it, since it reads all of them."""
    from mlflow.artifacts import download_artifacts

    from privgate import digest
    from privgate.registry import layout

    with tempfile.TemporaryDirectory() as place:
        folder = Path(download_artifacts(artifact_uri=_seen_from_server(row.storage), dst_path=place))
        if digest.of_manifest(layout.all_files(folder)) != claims.files:
            raise StatementError("the stored files are not those that were checked and signed")


def _seen_from_server(location: str) -> str:
    """Return where a location that clients reach through this server really is."""
    destination = os.environ.get("_MLFLOW_SERVER_ARTIFACT_DESTINATION")
    if not location.startswith("mlflow-artifacts:") or not destination:
        return location
    return f"{destination.rstrip('/')}/{urllib.parse.urlparse(location).path.lstrip('/')}"
