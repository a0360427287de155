"""The guarded store's promoting writes: each shares a transaction with a check of what readers would then get."""

import fcntl
import functools
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from privgate.errors import PrivgateError, StatementError
from privgate.guard import statement
from privgate.guard.config import Watch, fold, refuse_name
from privgate.guard.rows import BEFORE_COMMIT, GuardedRows, permission_denied, refusing, transaction
from privgate.guard.verification import read_signed
from privgate.registry.named import TAG

#: registered model name that does not exist; a guarded registry answers its alias write with "gate active"
PROBE = "privgate-probe"
#: characters of a recorded sentence, which may quote a client's text
_LONGEST = 2_000


class GuardedWrites(GuardedRows):
    """Mixin before MLflow's store: the writes that can promote, each refused without a valid statement."""

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> Any:
        """Set an alias; a protected alias needs a statement, and one that only resembles it is refused."""
        if name == PROBE:
            raise permission_denied("privgate: probe: gate active")
        version = str(version)
        with refusing(f"alias {alias!r} of {name!r} version {version}"):
            with self.privgate_watch.held() as guard:
                protected = guard.alias_meant(alias)
                if protected not in {"", alias}:
                    what = f"it may be taken for the protected alias {protected!r}"
                    raise StatementError(f"{what}; set that one, or another")
                if protected:
                    refuse_name(name)
                before = self._privgate_check_before(name, version, alias) if protected else None
            with transaction(self, name) as session, self.privgate_watch.held():
                was = self._privgate_find_holders(name, session, {alias})
                result = super().set_registered_model_alias(name, alias, version)  # type: ignore[misc]  # mixin
                for target, holder in self._privgate_find_holders(name, session).items():
                    if target == alias or was.get(target) != holder:
                        self._privgate_check_release(name, holder, target, before)
            return result

    def transition_model_version_stage(
        self,
        name: str,
        version: str,
        stage: str,
        archive_existing_versions: bool,  # noqa: FBT001  MLflow's
    ) -> Any:
        """Move a version to a stage; a protected stage needs a statement."""
        move = super().transition_model_version_stage  # type: ignore[misc]  # mixin
        if fold(stage) not in self.privgate_watch.guard().stages:
            return move(name, version, stage, archive_existing_versions)
        with refusing(f"stage {stage!r} of {name!r} version {version}"):
            refuse_name(name)
            known = stage.strip().capitalize()  # as MLflow writes its four
            before = self._privgate_check_before(name, str(version), known)
            with transaction(self, name):
                result = move(name, version, stage, archive_existing_versions)
                self._privgate_check_release(name, str(version), str(result.current_stage), before)
            return result

    def create_model_version(self, name: str, source: str, *args: Any, **kwargs: Any) -> Any:
        """Add a version; in a protected model it must be a copy that carries its original's statement."""
        create = super().create_model_version  # type: ignore[misc]  # mixin
        with refusing(f"a new version of {name!r}"):
            protected = self.privgate_watch.guard().protects_model(name)
        if not protected:
            return create(name, source, *args, **kwargs)
        with refusing(f"a new version of {name!r}"):
            refuse_name(name)
            with transaction(self, name):
                result = create(name, source, *args, **kwargs)
                self._privgate_check_release(name, str(result.version), None, None, files=True)
                return result

    def rename_registered_model(self, name: str, new_name: str) -> Any:
        """Rename a model, unless it is protected, in production or has released copies: aliases move with the name."""
        from mlflow.store.model_registry.dbmodels.models import SqlModelVersion

        with refusing(f"renaming {name!r} to {new_name!r}"), transaction(self, name) as session:
            guard = self.privgate_watch.guard()
            if guard.protects_model(name) or guard.protects_model(new_name):
                raise StatementError("protected models are not renamed; copy a signed version instead")
            held = super().get_registered_model(name)  # type: ignore[misc]  # mixin
            if in_use := [a for a in held.aliases if guard.alias_meant(a)]:
                raise StatementError(f"it holds protected alias {in_use[0]!r}, which moves, too; delete that first")
            self._privgate_refuse_removal(session, name, None)
            # a search would leave out what is tagged as a prompt
            for version in session.query(SqlModelVersion).filter_by(name=name):
                if fold(version.current_stage or "") in guard.stages:
                    raise StatementError(f"version {version.version} is in stage {version.current_stage}; move it")
            return super().rename_registered_model(name, new_name)  # type: ignore[misc]  # mixin

    def set_model_version_tag(self, name: str, version: str, tag: Any) -> Any:
        """Set a tag of a version; a statement must be signed by a trusted key."""
        write = functools.partial(super().set_model_version_tag, name, version, tag)  # type: ignore[misc]  # mixin
        if tag.key != TAG:
            return write()
        with refusing(f"the statement of {name!r} version {version}"), transaction(self, name) as session:
            claims = read_signed(tag.value, self.privgate_watch.guard().trust, statement.now())
            self._privgate_check_newer(name, str(version), tag.value, claims, session)
            self._privgate_refuse_copies(session, self._privgate_read_row(name, str(version))[0], tag, claims)
            return write()

    def delete_model_version_tag(self, name: str, version: str, key: str) -> Any:
        """Delete a tag of a version, unless a release or a refusal rests on it."""
        write = functools.partial(super().delete_model_version_tag, name, version, key)  # type: ignore[misc]  # mixin
        if key != TAG:
            return write()
        with refusing(f"deleting the statement of {name!r} version {version}"), transaction(self, name) as session:
            if self._privgate_list_targets(name, str(version), session):
                raise StatementError("the version is released on it; withdraw the version first")
            row, tags = self._privgate_read_row(name, str(version))
            held = self._privgate_read_claims(row, tags.get(TAG, ""))
            if held is not None and not held.passed:
                raise StatementError("it takes an approval back; only a later statement replaces it")
            return write()


#: store method -> event in the audit log, then the names of its arguments after the model's name
_RECORDED: dict[str, tuple[str, ...]] = {
    "set_registered_model_alias": ("released", "alias", "version"),
    "delete_registered_model_alias": ("withdrawn", "alias"),
    "transition_model_version_stage": ("released", "version", "stage"),
    "create_model_version": ("released",),
    "delete_model_version": ("withdrawn", "version"),
    "rename_registered_model": ("renamed",),
}


class RecordedWrites:
    """Mixin that writes promoting calls to the audit log, if there is one: before the write and after it."""

    privgate_watch: Watch

    @contextmanager
    def _privgate_record(self, doing: str, name: str, version: str, target: str) -> Iterator[None]:
        guard = log = None
        with suppress(PrivgateError):  # without a configuration the store releases nothing and may withdraw
            guard = self.privgate_watch.guard()
            log = guard.audit_log
        if guard is None or log is None or name == PROBE:
            yield
            return
        entry = {"doing": doing, "model": name, "version": version, "target": target, "by": _name_client()}
        # fold: a name that only resembles a protected one is recorded, too
        targets = {fold(t) for t in (*guard.aliases, *guard.stages)}
        protected = guard.protects_model(name) or fold(target) in targets
        record_request = functools.partial(_write, log, "asked", entry, otherwise="refused")
        if protected and doing == "withdrawn":  # no transaction checks a withdrawal
            record_request()
        token = BEFORE_COMMIT.set(record_request if protected and doing != "withdrawn" else BEFORE_COMMIT.get())
        try:
            yield
        except Exception as exc:
            why = str(getattr(exc, "message", None) or exc)
            if protected or why.startswith("privgate:"):
                _write(log, "refused", {**entry, "why": why}, otherwise="refused")
            raise
        finally:
            BEFORE_COMMIT.reset(token)
        if protected:
            _write(log, doing, entry, otherwise="was done, but not recorded")


def _record_write(method: str, doing: str, *order: str) -> Callable[..., Any]:
    def write(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(order, args, strict=False)), **kwargs}
        version, target = str(given.get("version", "")), given.get("alias") or given.get("stage") or ""
        with self._privgate_record(doing, name, version, target):
            return getattr(super(RecordedWrites, self), method)(name, *args, **kwargs)

    return write


for _method, _how in _RECORDED.items():
    setattr(RecordedWrites, _method, _record_write(_method, *_how))


def record_event(log: Path, event: str, **said: str) -> None:
    """Append a line of JSON to a log, on disk at return; ``StatementError``: what it is about must not happen."""
    try:
        # made for its owner and group only; moving it away begins a new one
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        with os.fdopen(handle, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # given back when it is closed
            when, shown = statement.stamp(statement.now()), {k: v[:_LONGEST] for k, v in said.items() if v}
            content = {"at": when, "event": event, **shown, "host": socket.gethostname()}
            file.write(json.dumps(content, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        raise StatementError(f"audit log {log} cannot be written: {exc.strerror}") from exc


def _write(log: Path, event: str, entry: dict[str, str], *, otherwise: str) -> None:
    try:
        record_event(log, event, **entry)
    except StatementError as exc:
        raise permission_denied(f"privgate: {entry['doing']} {entry['model']!r}: {otherwise}: {exc}") from exc


def _name_client() -> str:
    """Return "user@address" of the request, as MLflow's server authenticated the user; "" outside a request."""
    try:
        from flask import has_request_context, request
    except ImportError:
        return ""
    if not has_request_context():
        return ""
    user = request.authorization.username if request.authorization else None
    return "@".join(str(part) for part in (user or "", request.remote_addr or "") if part)
