"""The writes that release and withdraw, recorded: mixed in before the guard's own, which decide."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from privgate.errors import PrivgateError, StatementError
from privgate.guard import aliases
from privgate.guard.audit_log import AuditLog
from privgate.guard.config import Guard
from privgate.guard.refusing import permission_denied
from privgate.guard.watch import Watch
from privgate.guard.writes import PROBE


class RecordedWrites:
    """What the audit log says of a guarded store; does nothing where the configuration names no log.

    A protected target is recorded before it is moved, too: what cannot be recorded is refused.
    """

    privgate_watch: Watch

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> Any:
        """Set an alias, recorded."""
        with self._privgate_recorded("released", name, version=version, alias=alias):
            return super().set_registered_model_alias(name, alias, version)  # type: ignore[misc]  # mixin

    def delete_registered_model_alias(self, name: str, alias: str) -> Any:
        """Delete an alias, recorded."""
        with self._privgate_recorded("withdrawn", name, alias=alias):
            return super().delete_registered_model_alias(name, alias)  # type: ignore[misc]  # mixin

    def transition_model_version_stage(self, name: str, version: str, stage: str, *args: Any, **kwargs: Any) -> Any:
        """Move to a stage, recorded."""
        with self._privgate_recorded("released", name, version=version, stage=stage):
            return super().transition_model_version_stage(name, version, stage, *args, **kwargs)  # type: ignore[misc]  # mixin

    def create_model_version(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Add a version, recorded where it enters a protected model."""
        with self._privgate_recorded("released", name):
            return super().create_model_version(name, *args, **kwargs)  # type: ignore[misc]  # mixin

    def delete_model_version(self, name: str, version: str) -> Any:
        """Delete a version, recorded where it leaves a protected model."""
        with self._privgate_recorded("withdrawn", name, version=version):
            return super().delete_model_version(name, version)  # type: ignore[misc]  # mixin

    def rename_registered_model(self, name: str, new_name: str) -> Any:
        """Rename; a refusal is recorded."""
        with self._privgate_recorded("renamed", name):
            return super().rename_registered_model(name, new_name)  # type: ignore[misc]  # mixin

    @contextmanager
    def _privgate_recorded(
        self, doing: str, name: str, *, version: str = "", alias: str = "", stage: str = ""
    ) -> Iterator[None]:
        try:
            guard = self.privgate_watch.guard()
        except PrivgateError:  # nothing can be released then, and withdrawing must not need a configuration
            guard = None
        log = guard.audit_log if guard is not None else None
        if guard is None or log is None or name == PROBE:
            yield
            return
        said = {"doing": doing, "model": name, "version": str(version), "target": alias or stage, "by": _asker()}
        protected = _is_protected(guard, name, alias, stage)
        if protected:
            _write(log, "asked", said, otherwise="refused")
        try:
            yield
        except Exception as exc:
            why = str(getattr(exc, "message", None) or exc)
            if protected or why.startswith("privgate:"):
                _write(log, "refused", {**said, "why": why}, otherwise="refused")
            raise
        if protected:
            _write(log, doing, said, otherwise="was done, but not recorded")


def _is_protected(guard: Guard, name: str, alias: str, stage: str) -> bool:
    """Whether a write is about something protected; what merely looks like it is recorded, too."""
    targets = {aliases.fold(t) for t in (*guard.aliases, *guard.stages)}
    return guard.protects_model(name) or aliases.fold(alias or stage) in targets


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
