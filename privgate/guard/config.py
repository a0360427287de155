"""One configuration file: what is protected, by which policy, and whose statements count."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privgate.documents import DocumentError, strict_yaml
from privgate.errors import PolicyError
from privgate.guard import lookalikes
from privgate.guard.aliases import fold, is_plain, looks_like
from privgate.guard.audit_log import AuditLog
from privgate.guard.trust import Terms, TrustStore

VARIABLE = "PRIVGATE_GUARD"
_Names = Annotated[list[Annotated[str, Field(min_length=1)]], Field(default_factory=list)]


class _Protected(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    aliases: _Names
    stages: _Names
    models: _Names


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    schema_: Literal["privgate/guard/v1"] = Field(alias="schema")
    registry: Annotated[str, Field(min_length=1)]
    trust: str
    policy: str | dict[str, str]
    protected: _Protected
    accept_advisory: bool = False
    check_files: bool = False
    audit_log: str | None = None


@dataclass(frozen=True)
class Guard:
    """What a guarded registry enforces.

    Parameters
    ----------
    registry : str
        Id that statements must name; choose one a registry, never reuse it.
    trust : TrustStore
        Keys that count.
    policies : mapping of folded target -> (name, digest)
        ``"*"`` is for every target that is not listed.
    aliases : frozenset of str
        Protected ones, as they are written.
    stages : frozenset of str
        Protected ones, folded: MLflow knows four, by any case.
    models : tuple of str
        Patterns of registered models that only released versions may enter.
    accept_advisory, check_files : bool
        Whether a statement counts although checker and signer were one user; whether every promotion recomputes file
        digests in the call path.
    audit_log : AuditLog, optional
        Where the guarded store records what it releases, refuses and withdraws.
    """

    registry: str
    trust: TrustStore
    policies: Mapping[str, tuple[str, str]]
    aliases: frozenset[str]
    stages: frozenset[str]
    models: tuple[str, ...]
    accept_advisory: bool = False
    check_files: bool = False
    audit_log: AuditLog | None = None
    #: what was read; a change in one of them is a change of the guard
    files: tuple[Path, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the guard that a file describes.

        Raises
        ------
        PolicyError
            The file cannot be used, or a policy that it names.
        StatementError
            The trust store cannot be used.
        """
        try:
            raw = _File.model_validate(strict_yaml.read(path))
        except ValidationError as exc:
            first = exc.errors()[0]
            place = ".".join(str(p) for p in first["loc"])
            raise PolicyError(f"{path}: {place}: {first['msg'].lower()}") from exc
        except OSError as exc:
            raise PolicyError(f"{path} cannot be read: {exc.strerror}") from exc
        except DocumentError as exc:
            raise PolicyError(exc.of(path)) from exc
        named = raw.policy if isinstance(raw.policy, dict) else {"*": raw.policy}
        found = {fold(target): policy_named(name, path.parent) for target, name in named.items()}
        made = cls(
            registry=raw.registry,
            trust=TrustStore.load(path.parent / raw.trust),
            policies={target: (name, digest) for target, (name, digest, _) in found.items()},
            aliases=frozenset(raw.protected.aliases),
            stages=frozenset(fold(s) for s in raw.protected.stages),
            models=tuple(raw.protected.models),
            accept_advisory=raw.accept_advisory,
            check_files=raw.check_files,
            audit_log=AuditLog(path.parent / raw.audit_log) if raw.audit_log else None,
            files=(path, path.parent / raw.trust, *(f for _, _, files in found.values() for f in files)),
        )
        for target in (*raw.protected.aliases, *raw.protected.stages, *(t for t in named if t != "*")):
            if not is_plain(target):
                raise PolicyError(
                    f"{path}: {target!r} cannot be protected: other aliases may look or count the same; "
                    "name aliases and stages by ASCII letters, digits, _ and -"
                )
        if not (made.aliases or made.stages or made.models):
            raise PolicyError(f"{path}: protected names no alias, stage or model; a guard must guard something")
        return made

    @cached_property
    def folded_models(self) -> tuple[str, ...]:
        """Protected patterns, folded: a database may find a model by another spelling of its name."""
        return tuple(fold(pattern) for pattern in self.models)

    def alias_meant(self, alias: str) -> str:
        """Return the protected alias that ``alias`` is, or that a reader may take it for; empty for any other.

        An alias that is not plain ASCII may look, or count in some database, like any other: it is taken for one.
        """
        if alias in self.aliases:
            return alias
        if not is_plain(alias):
            return min(self.aliases, default="")
        return next((a for a in sorted(self.aliases) if looks_like(a) == looks_like(alias)), "")

    def protects_model(self, name: str) -> bool:
        """Whether only released versions may enter this registered model."""
        return any(fnmatchcase(fold(name), pattern) for pattern in self.folded_models)

    def model_meant(self, name: str) -> str:
        """Return the protected pattern that a model's name may be taken for; empty for a protected one, or any other.

        Consumers that read a version by such a name would believe that it had to be approved.
        """
        if self.protects_model(name):
            return ""
        seen = lookalikes.looks(name)
        return next((p for p in self.models if any(lookalikes.pattern(p).fullmatch(look) for look in seen)), "")

    def terms(self, target: str | None) -> Terms:
        """Return what a statement must meet for a target; None is entering a protected model.

        Raises
        ------
        PolicyError
            No policy is configured for it.
        """
        named = self.policies.get(fold(target)) if target is not None else None
        named = named or self.policies.get("*")
        if named is None:
            raise PolicyError(f"the guard names no policy for {target!r}; add it, or '*' for all others")
        name, digest = named
        return Terms(self.registry, digest, name, self.accept_advisory)


def policy_named(name: str, folder: Path) -> tuple[str, str, tuple[Path, ...]]:
    """Return name, digest and files of a policy: who has no policy files may be given the digest itself.

    Parameters
    ----------
    name : str
        A shipped name, a file, or ``sha256:<hex>`` of the resolved policy.
    folder : Path
        Where a relative path starts.

    Raises
    ------
    PolicyError
        There is no such policy, or it cannot be used.
    """
    if re.fullmatch("sha256:[0-9a-f]{64}", name):
        return name[:19], name, ()
    try:
        from privgate.policy import Policy
    except ImportError as exc:  # privgate-verify has none
        raise PolicyError(
            f"policy {name!r} cannot be read, because this installation only verifies; name it by its digest sha256:…, "
            "which `privgate policy explain` prints"
        ) from exc
    path: Any = folder / name if _is_file(folder / name) else name
    policy = Policy.load(path)
    return policy.name, policy.digest, policy.files


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
