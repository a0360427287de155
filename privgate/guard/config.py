"""One configuration file: what is protected, by which policy, and whose statements count."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privgate.errors import PolicyError
from privgate.guard.statement import fold, is_plain, looks_like
from privgate.guard.trust import Terms, TrustStore
from privgate.policy import Policy, strict_yaml

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
    """

    registry: str
    trust: TrustStore
    policies: Mapping[str, tuple[str, str]]
    aliases: frozenset[str]
    stages: frozenset[str]
    models: tuple[str, ...]
    accept_advisory: bool = False
    check_files: bool = False
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
            raw = _File.model_validate(strict_yaml.read(path).value)
        except ValidationError as exc:
            first = exc.errors()[0]
            place = ".".join(str(p) for p in first["loc"])
            raise PolicyError(f"{path}: {place}: {first['msg'].lower()}") from exc
        except OSError as exc:
            raise PolicyError(f"{path} cannot be read: {exc.strerror}") from exc
        named = raw.policy if isinstance(raw.policy, dict) else {"*": raw.policy}
        made = cls(
            registry=raw.registry,
            trust=TrustStore.load(path.parent / raw.trust),
            policies={fold(target): _policy(name, path.parent) for target, name in named.items()},
            aliases=frozenset(raw.protected.aliases),
            stages=frozenset(fold(s) for s in raw.protected.stages),
            models=tuple(raw.protected.models),
            accept_advisory=raw.accept_advisory,
            check_files=raw.check_files,
            files=(path, path.parent / raw.trust, *(f for n in named.values() if (f := path.parent / n).is_file())),
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


def _policy(name: str, folder: Path) -> tuple[str, str]:
    """Return (name, digest): a server without policy files may be given the digest itself."""
    if name.startswith("sha256:") and len(name) == 71:
        return name[:19], name
    path: Any = folder / name if (folder / name).is_file() else name
    policy = Policy.load(path)
    return policy.name, policy.digest
