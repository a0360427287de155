"""The writes that can promote: each is one transaction with its check, of what a reader would now be given."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from privgate.errors import PrivgateError, StatementError
from privgate.guard import statement
from privgate.guard.audit_log import AuditLog, RefusalLimit
from privgate.guard.checks import Row
from privgate.guard.config import Watch, fold, refuse_name
from privgate.guard.rows import TAG, TRIES, Copies
from privgate.guard.transaction import BEFORE_COMMIT, permission_denied, refusing, transaction
from privgate.registry.client import list_pages

#: setting an alias of this name is how anybody asks whether a registry is guarded
PROBE = "privgate-probe"
#: tag by which MLflow's readers take a model or version for a prompt, and find it by no other search
HIDING = "mlflow.prompt.is_prompt"

_LONGEST = 1_900  # characters of a refusal that are recorded


class GuardedWrites(Copies):
    """The writes that can promote; mixed in before MLflow's store."""

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> Any:
        """Set an alias; a protected one needs a statement, and none may look like it."""
        if name == PROBE:
            raise permission_denied("privgate: probe: gate active")
        for more in reversed(range(TRIES)):
            try:
                with refusing(f"alias {alias!r} of {name!r} version {version}"):
                    return self._privgate_set_alias(name, alias, str(version))
            except Exception as exc:
                from sqlalchemy.exc import IntegrityError

                # somebody else just inserted the alias; the same call then updates it
                if not (more and isinstance(exc.__cause__, IntegrityError)):
                    raise
        return None  # pragma: no cover  the last try returns or raises

    def _privgate_set_alias(self, name: str, alias: str, version: str) -> Any:
        with self.privgate_watch.held() as guard:
            meant = guard.alias_meant(alias)
            if meant not in {"", alias}:
                raise StatementError(f"it may be taken for the protected alias {meant!r}; set that one, or another")
            if meant:
                refuse_name(name)
            before = self._privgate_before(name, version, alias) if meant else None
        with transaction(self, name) as session, self.privgate_watch.held():
            was = self._privgate_holders(name, session, {alias}) if session is not None else {}
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
        if fold(stage) not in self.privgate_watch.guard().stages:
            return move(name, version, stage, archive_existing_versions)
        with refusing(f"stage {stage!r} of {name!r} version {version}"):
            refuse_name(name)
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
        with refusing(f"a new version of {name!r}"):
            refuse_name(name)
            tags = {t.key: str(t.value) for t in kwargs.get("tags") or (args[1] if len(args) > 1 else None) or []}
            row = Row(name, "", source, self._privgate_storage(source), workspace=self._privgate_workspace())
            self._privgate_check(row, tags.get(TAG, ""), None)  # before the transaction, because files take long
            with transaction(self, name) as session:
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
            self._privgate_rests_on(session, name, None)
            quoted = name.replace("'", "''")
            for version in list_pages(super().search_model_versions, f"name='{quoted}'"):  # type: ignore[misc]  # mixin
                if fold(version.current_stage or "") in guard.stages:
                    raise StatementError(
                        f"version {version.version} is in stage {version.current_stage}; move it first"
                    )
            done = super().rename_registered_model(name, new_name)  # type: ignore[misc]  # mixin
            # where nothing locks the model, an alias may have come in between: it is not this name's
            for alias in self._privgate_holders(new_name, session):
                super().delete_registered_model_alias(new_name, alias)  # type: ignore[misc]  # mixin
                raise StatementError(f"it was given the protected alias {alias!r} meanwhile, which was withdrawn")
        return done

    def set_registered_model_tag(self, name: str, tag: Any) -> Any:
        """Set a tag of a model; not the one that hides what is released from MLflow's readers."""
        write = functools.partial(super().set_registered_model_tag, name, tag)  # type: ignore[misc]  # mixin
        return self._privgate_hide(name, f"of {name!r}", write) if tag.key == HIDING else write()

    def set_model_version_tag(self, name: str, version: str, tag: Any) -> Any:
        """Set a tag; one that claims to be a statement must be signed by a key that counts."""
        write = functools.partial(super().set_model_version_tag, name, version, tag)  # type: ignore[misc]  # mixin
        if tag.key == HIDING:  # one version hides all others
            return self._privgate_hide(name, f"of {name!r} version {version}", write)
        if tag.key != TAG:
            return write()
        with refusing(f"the statement of {name!r} version {version}"), transaction(self, name) as session:
            envelope = statement.Envelope.parse(tag.value)
            claims = statement.Claims.read(envelope.statement)
            moments, role = (claims.signed, statement.now()), claims.role("verdict")
            self.privgate_watch.guard().trust.verify(envelope, role, model=claims.name, moments=moments)
            self._privgate_may_replace(name, str(version), tag.value, claims, session)
            self._privgate_refuse_copies(session, self._privgate_row(name, str(version))[0], tag, claims)
            return write()

    def _privgate_hide(self, name: str, what: str, write: Callable[[], Any]) -> Any:
        with refusing(f"tag {HIDING} {what}"), transaction(self, name) as session:
            guard = self.privgate_watch.guard()
            if not guard.excepts(name) and (guard.protects_model(name) or self._privgate_holders(name, session)):
                raise StatementError("readers would find no released version of it any more; withdraw that first")
            return write()

    def delete_model_version_tag(self, name: str, version: str, key: str) -> Any:
        """Delete a tag; not the statement of a version that is released."""
        write = functools.partial(super().delete_model_version_tag, name, version, key)  # type: ignore[misc]  # mixin
        if key != TAG:
            return write()
        with refusing(f"deleting the statement of {name!r} version {version}"), transaction(self, name) as session:
            if self._privgate_released_as(name, str(version), session):
                raise StatementError("the version is released on it; withdraw the version first")
            row, tags = self._privgate_row(name, str(version))
            held = self._privgate_counting(row, tags.get(TAG, ""))
            if held is not None and not held.passed:
                raise StatementError("it takes an approval back; only a later statement replaces it")
            return write()


#: write -> what it did, and its arguments behind the model's name that are recorded
_RECORDED: dict[str, tuple[str, ...]] = {
    "set_registered_model_alias": ("released", "alias", "version"),
    "delete_registered_model_alias": ("withdrawn", "alias"),
    "transition_model_version_stage": ("released", "version", "stage"),
    "create_model_version": ("released",),
    "delete_model_version": ("withdrawn", "version"),
    "rename_registered_model": ("renamed",),
}


class RecordedWrites:
    """What the audit log says of a guarded store, before a protected target is moved, too; nothing without a log."""

    privgate_watch: Watch
    privgate_refusals = RefusalLimit()

    @contextmanager
    def _privgate_recorded(self, doing: str, name: str, version: str, target: str) -> Iterator[None]:
        guard = log = None
        with suppress(PrivgateError):  # nothing can be released then, and withdrawing must not need a configuration
            guard = self.privgate_watch.guard()
            log = guard.audit_log
        if guard is None or log is None or name == PROBE:
            yield
            return
        said = {"doing": doing, "model": name, "version": version, "target": target, "by": _asker()}
        # what merely looks like something protected is recorded, too
        targets = {fold(t) for t in (*guard.aliases, *guard.stages)}
        protected = guard.protects_model(name) or fold(target) in targets
        asks = functools.partial(_write, log, "asked", said, otherwise="refused")
        if protected and doing == "withdrawn":  # which is refused by nothing that a transaction looks at
            asks()
        last = BEFORE_COMMIT.set(asks if protected and doing != "withdrawn" else BEFORE_COMMIT.get())
        try:
            yield
        except Exception as exc:
            why = str(getattr(exc, "message", None) or exc)
            if (protected or why.startswith("privgate:")) and (note := self.privgate_refusals.note()) is not None:
                _write(log, "refused", {**said, "why": why[:_LONGEST] + note}, otherwise="refused")
            raise
        finally:
            BEFORE_COMMIT.reset(last)
        if protected:
            _write(log, doing, said, otherwise="was done, but not recorded")


def _record_write(method: str, doing: str, *order: str) -> Callable[..., Any]:
    def write(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(order, args, strict=False)), **kwargs}
        version, target = str(given.get("version", "")), given.get("alias") or given.get("stage") or ""
        with self._privgate_recorded(doing, name, version, target):
            return getattr(super(RecordedWrites, self), method)(name, *args, **kwargs)

    return write


for _method, _how in _RECORDED.items():
    setattr(RecordedWrites, _method, _record_write(_method, *_how))


def _write(log: AuditLog, event: str, said: dict[str, str], *, otherwise: str) -> None:
    try:
        log.record(event, **said)
    except StatementError as exc:
        raise permission_denied(f"privgate: {said['doing']} {said['model']!r}: {otherwise}: {exc}") from exc


def _asker() -> str:
    """Return who asks, as far as MLflow's server knows: the user that it authenticated, and the address."""
    try:
        from flask import has_request_context, request
    except ImportError:
        return ""
    if not has_request_context():
        return ""
    user = request.authorization.username if request.authorization else None
    return "@".join(str(part) for part in (user or "", request.remote_addr or "") if part)
