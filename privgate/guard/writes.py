"""The writes that can promote: each is one transaction with its check, of what a reader would now be given."""

import functools
import os
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privgate.errors import StatementError
from privgate.guard import statement
from privgate.guard.refusing import PASSING, permission_denied, refusing
from privgate.guard.transaction import transaction
from privgate.guard.trust import Row, check
from privgate.guard.watch import Watch

TAG = "privgate.statement"
#: setting an alias of this name is how anybody asks whether a registry is guarded
PROBE = "privgate-probe"

# sources that MLflow gives to prompts; such a version holds no model files, and a source never changes
_PROMPT_SOURCES = frozenset({"dummy-source", "prompt-template"})
# by this tag, of a model and of its versions, MLflow's readers of prompts know them; it may change at any time
_PROMPT_TAG = "mlflow.prompt.is_prompt"

_TRIES = 3


def _set_meanwhile(exc: BaseException) -> bool:
    """Whether MLflow could not insert an alias because somebody else just did; the same call then updates it."""
    from sqlalchemy.exc import IntegrityError

    return isinstance(exc.__cause__, IntegrityError)


class GuardedWrites:
    """The writes that can promote; mixed in before MLflow's store."""

    privgate_watch: Watch

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> Any:
        """Set an alias; a protected one needs a statement, and none may look like it."""
        if name == PROBE:
            raise permission_denied("privgate: probe: gate active")
        for left in reversed(range(_TRIES)):
            try:
                with refusing(f"alias {alias!r} of {name!r} version {version}"):
                    return self._privgate_set_alias(name, alias, str(version))
            except Exception as exc:
                if not (left and _set_meanwhile(exc)):
                    raise
        return None  # pragma: no cover  the last try returns or raises

    def _privgate_set_alias(self, name: str, alias: str, version: str) -> Any:
        meant = self.privgate_watch.guard().alias_meant(alias)
        if meant not in {"", alias}:
            raise StatementError(
                f"it may be taken for the protected alias {meant!r}; set that one, or one of ASCII letters, digits, "
                "_ and - that looks like no protected one"
            )
        before = self._privgate_before(name, version, alias) if meant else None
        with transaction(self, name) as session:
            was = self._privgate_holders(name, session) if session is not None else {}
            done = super().set_registered_model_alias(name, alias, version)  # type: ignore[misc]  # mixin
            if session is not None:
                for target, holder in self._privgate_holders(name, session).items():
                    if target == alias or was.get(target) != holder:
                        self._privgate_released(name, holder, target, before)
        if before is not None and session is None:
            self._privgate_unchanged(before, functools.partial(super().delete_registered_model_alias, name, alias))  # type: ignore[misc]  # mixin
        return done

    def transition_model_version_stage(
        self,
        name: str,
        version: str,
        stage: str,
        archive_existing_versions: bool,  # noqa: FBT001  MLflow's
    ) -> Any:
        """Move to a stage; a protected one needs a statement."""
        move = super().transition_model_version_stage  # type: ignore[misc]  # mixin
        if statement.fold(stage) not in self.privgate_watch.guard().stages:
            return move(name, version, stage, archive_existing_versions)
        with refusing(f"stage {stage!r} of {name!r} version {version}"):
            known = stage.strip().capitalize()  # as MLflow writes its four
            before = self._privgate_before(name, str(version), known)
            with transaction(self, name) as session:
                done = move(name, version, stage, archive_existing_versions)
                if session is not None:
                    self._privgate_released(name, str(version), str(done.current_stage), before)
            if before is not None and session is None:
                self._privgate_unchanged(before, functools.partial(move, name, version, "None", False))  # noqa: FBT003  MLflow's
        return done

    def create_model_version(self, name: str, source: str, *args: Any, **kwargs: Any) -> Any:
        """Add a version; entering a protected model needs the statement of the version that is copied."""
        create = super().create_model_version  # type: ignore[misc]  # mixin
        with refusing(f"a new version of {name!r}"):
            protected = self.privgate_watch.guard().protects_model(name)
        if not protected:
            return create(name, source, *args, **kwargs)
        with refusing(f"a new version of {name!r}"), transaction(self, name) as session:
            tags = {t.key: str(t.value) for t in kwargs.get("tags") or (args[1] if len(args) > 1 else None) or []}
            if not is_prompt(source, source, tags):
                self._privgate_check(Row(name, "", source, self._privgate_storage(source)), tags.get(TAG, ""), None)
            done = create(name, source, *args, **kwargs)
            if session is not None:
                self._privgate_released(name, str(done.version), None, None)
            return done

    def rename_registered_model(self, name: str, new_name: str) -> Any:
        """Rename; never onto a protected name, and never what is in production: aliases move with the name."""
        with refusing(f"renaming {name!r} to {new_name!r}"), transaction(self, name) as session:
            guard = self.privgate_watch.guard()
            if guard.protects_model(name) or guard.protects_model(new_name):
                raise StatementError("protected models are not renamed; copy a signed version instead")
            held = super().get_registered_model(name)  # type: ignore[misc]  # mixin
            if in_use := [a for a in held.aliases if guard.alias_meant(a)]:
                raise StatementError(
                    f"it holds protected alias {in_use[0]!r}, which would move with it; delete that first"
                )
            for version in self._privgate_versions(name):
                if statement.fold(version.current_stage or "") in guard.stages:
                    raise StatementError(
                        f"version {version.version} is in stage {version.current_stage}; move it first"
                    )
            done = super().rename_registered_model(name, new_name)  # type: ignore[misc]  # mixin
            # where nothing locks the model, an alias may have come in between: it is not this name's
            for alias in self._privgate_holders(new_name, session):
                super().delete_registered_model_alias(new_name, alias)  # type: ignore[misc]  # mixin
                raise StatementError(f"it was given the protected alias {alias!r} meanwhile, which was withdrawn")
        return done

    def set_model_version_tag(self, name: str, version: str, tag: Any) -> Any:
        """Set a tag; one that claims to be a statement must be signed by a key that counts."""
        write = super().set_model_version_tag  # type: ignore[misc]  # mixin
        if tag.key == _PROMPT_TAG and str(tag.value) != "true":
            return self._privgate_while_no_prompt(name, functools.partial(write, name, version, tag))
        if tag.key != TAG:
            return write(name, version, tag)
        with refusing(f"the statement of {name!r} version {version}"), transaction(self, name) as session:
            envelope = statement.Envelope.parse(tag.value)
            claims = statement.Claims.read(envelope.statement)
            moments = (claims.signed, statement.now())
            self.privgate_watch.guard().trust.verify(envelope, "verdict", model=claims.name, moments=moments)
            self._privgate_may_replace(name, str(version), tag.value, claims, session)
            return write(name, version, tag)

    def delete_model_version_tag(self, name: str, version: str, key: str) -> Any:
        """Delete a tag; not the statement of a version that is released."""
        write = super().delete_model_version_tag  # type: ignore[misc]  # mixin
        if key == _PROMPT_TAG:
            return self._privgate_while_no_prompt(name, functools.partial(write, name, version, key))
        if key != TAG:
            return write(name, version, key)
        with refusing(f"deleting the statement of {name!r} version {version}"), transaction(self, name) as session:
            if self._privgate_released_as(name, str(version), session):
                raise StatementError("the version is released on it; withdraw the version first")
            return write(name, version, key)

    def set_registered_model_tag(self, name: str, tag: Any) -> Any:
        """Set a tag of a model; what is released as a prompt stays one."""
        write = functools.partial(super().set_registered_model_tag, name, tag)  # type: ignore[misc]  # mixin
        if tag.key == _PROMPT_TAG and str(tag.value) != "true":
            return self._privgate_while_no_prompt(name, write)
        return write()

    def delete_registered_model_tag(self, name: str, key: str) -> Any:
        """Delete a tag of a model; what is released as a prompt stays one."""
        write = functools.partial(super().delete_registered_model_tag, name, key)  # type: ignore[misc]  # mixin
        return self._privgate_while_no_prompt(name, write) if key == _PROMPT_TAG else write()

    # -- what the checks need ------------------------------------------------------------------------------------

    def _privgate_holders(self, name: str, session: Any) -> dict[str, str]:
        """Return protected alias -> version, as a reader who asks for each is answered by this registry."""
        from mlflow.exceptions import MlflowException

        found = {}
        for alias in sorted(self.privgate_watch.guard().aliases):
            if session is not None:
                held = self._get_registered_model_alias(session, name, alias)  # type: ignore[attr-defined]  # mixin
                if held is not None:
                    found[alias] = str(held.version)
                continue
            try:
                found[alias] = str(super().get_model_version_by_alias(name, alias).version)  # type: ignore[misc]  # mixin
            except MlflowException as exc:
                if exc.get_http_status_code() >= 500:
                    raise
        return found

    def _privgate_row(self, name: str, version: str) -> tuple[Row, Mapping[str, str]]:
        """Return a row and its tags.

        An SQL store is asked for just these: its public methods read aliases and all else too, three times as long.
        """
        sessions, find = (getattr(self, n, None) for n in ("ManagedSessionMaker", "_get_sql_model_version"))
        if sessions is None or find is None:
            held = super().get_model_version(name, version)  # type: ignore[misc]  # mixin
            storage = str(super().get_model_version_download_uri(name, version))  # type: ignore[misc]  # mixin
            created, run_id = int(held.creation_timestamp), str(held.run_id or "")
            return Row(name, str(held.version), str(held.source), storage, created, run_id), dict(held.tags)
        with sessions() as session:
            kept = find(session, name, version)
            storage, run_id = str(kept.storage_location or kept.source), str(kept.run_id or "")
            row = Row(name, str(kept.version), str(kept.source), storage, int(kept.creation_time), run_id)
            return row, {str(tag.key): str(tag.value) for tag in kept.model_version_tags}

    def _privgate_before(self, name: str, version: str, target: str) -> Row | None:
        """Check before the write where that takes long, or no transaction could take it back; return the row."""
        sessions = getattr(self, "ManagedSessionMaker", None)
        if sessions is not None and not self.privgate_watch.guard().check_files:
            return None
        return self._privgate_released(name, version, target, None, files=True)

    def _privgate_released(
        self, name: str, version: str, target: str | None, before: Row | None, *, files: bool = False
    ) -> Row:
        """Check that a version may be released as a target, and return its row."""
        row, tags = self._privgate_row(name, version)
        if before is not None and row != before:
            raise StatementError("the version was replaced while it was being released")
        prompt = is_prompt(row.source, row.storage, tags)
        if not (prompt and is_prompt(row.source, row.storage, self._privgate_model_tags(name))):
            self._privgate_check(row, tags.get(TAG, ""), target, files=files or target is None)
        return row

    def _privgate_released_as(self, name: str, version: str, session: Any) -> list[str | None]:
        """Return every protected alias or stage that a version holds, and None where its model is protected."""
        guard = self.privgate_watch.guard()
        held = super().get_model_version(name, version)  # type: ignore[misc]  # mixin
        holders = self._privgate_holders(name, session).items()
        found: list[str | None] = [alias for alias, holder in holders if holder == str(held.version)]
        if statement.fold(held.current_stage or "") in guard.stages:
            found.append(str(held.current_stage))
        return [*found, None] if guard.protects_model(name) else found

    def _privgate_may_replace(self, name: str, version: str, text: str, claims: statement.Claims, session: Any) -> None:
        """Check that a statement may take the place of the one that a released version rests on."""
        row, tags = self._privgate_row(name, version)
        targets = self._privgate_released_as(name, row.version, session)
        if targets and claims.signed < _signed(tags.get(TAG, "")):
            raise StatementError("the version is released on a statement that was signed later")
        if not claims.passed and (claims.name, claims.version, claims.created) == (name, row.version, row.created):
            return  # whose key counts may take an approval back
        for target in targets:
            self._privgate_check(row, text, target, files=False)

    def _privgate_model_tags(self, name: str) -> Mapping[str, str]:
        # its public tags leave out the one that is looked for
        return dict(super().get_registered_model(name)._tags)  # type: ignore[misc]  # noqa: SLF001  mixin

    def _privgate_while_no_prompt(self, name: str, write: Callable[[], Any]) -> Any:
        """Let something stop being a prompt only while nothing is released because it is one."""
        with refusing(f"making {name!r} no prompt"), transaction(self, name) as session:
            for alias, version in self._privgate_holders(name, session).items():
                row, tags = self._privgate_row(name, version)
                if is_prompt(row.source, row.storage, tags):
                    raise StatementError(f"version {version} is released as {alias!r} as a prompt; withdraw it first")
            if self.privgate_watch.guard().protects_model(name):
                raise StatementError("its versions entered a protected model as prompts")
            return write()

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

    def _privgate_check(self, row: Row, text: str, target: str | None, *, files: bool = True) -> None:
        guard = self.privgate_watch.guard()
        claims = check(text, guard.trust, row, guard.terms(target), target=target, now=statement.now())
        if guard.check_files and files:
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


def is_prompt(source: str, storage: str, *tags: Mapping[str, str]) -> bool:
    """Whether a version is a prompt: nothing lies at its source, and it and its model say so to MLflow's readers."""
    return {source, storage} <= _PROMPT_SOURCES and all(dict(held).get(_PROMPT_TAG) == "true" for held in tags)


def _signed(text: str) -> datetime:
    """Return when a statement was signed; long ago where it is none that counts today."""
    try:
        return statement.Claims.read(statement.Envelope.parse(text).statement).signed
    except StatementError:
        return datetime.min.replace(tzinfo=UTC)


def _compare_files(row: Row, claims: statement.Claims) -> None:
    """Recompute the digest of the stored files; only where the operator asks for it, since it reads all of them."""
    from privgate import digest
    from privgate.registry import layout
    from privgate.registry.client import download

    with tempfile.TemporaryDirectory() as place:
        folder = download(_seen_from_server(row.storage), Path(place), tracking_uri=None)
        if digest.of_manifest(layout.all_files(folder)) != claims.files:
            raise StatementError("the stored files are not those that were checked and signed")


def _seen_from_server(location: str) -> str:
    """Return where a location that clients reach through this server really is."""
    destination = os.environ.get("_MLFLOW_SERVER_ARTIFACT_DESTINATION")
    if not location.startswith("mlflow-artifacts:") or not destination:
        return location
    return f"{destination.rstrip('/')}/{urllib.parse.urlparse(location).path.lstrip('/')}"
