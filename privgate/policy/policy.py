"""The policy as it is judged: resolved, frozen, named by digest."""

from collections.abc import Mapping
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import PrivateAttr

from privgate import digest
from privgate.evidence import Evidence
from privgate.policy import judge, locate, read
from privgate.policy.document import Document, plain
from privgate.verdict import Finding


class Policy(Document):
    """A policy file, together with everything it extends.

    ``Policy.load`` is the door; a policy is never built from anything but a file.
    """

    _path: Path = PrivateAttr(default=Path())
    _lines: Mapping[str, int] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(cls, name_or_path: str | Path) -> Self:
        """Return a shipped policy by name, or a policy file.

        Parameters
        ----------
        name_or_path : str or Path
            ``"dtp-1"``, or a path; what contains a separator or ends in .yaml or .yml is a path.

        Raises
        ------
        PolicyError
            The file cannot be used; the message names line, key and what was expected. Nothing was trained.
        """
        path = locate.find(name_or_path)
        resolved = read.resolve(path, str(name_or_path))
        made = cls.model_validate_json(resolved.json)
        made._path = path  # noqa: SLF001  its own class
        made._lines = resolved.rule_lines  # noqa: SLF001
        return made

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def lines(self) -> Mapping[str, int]:
        """Line of each rule in its file, by the rule's id."""
        return self._lines

    @cached_property
    def resolved(self) -> dict[str, Any]:
        """JSON values of the policy with everything it extends and every default written out."""
        return plain(self)

    @cached_property
    def digest(self) -> str:
        """Digest of the resolved policy: the same whoever stores it, wherever."""
        return digest.of_json(self.resolved)

    def judge(self, evidence: Evidence, *, today: date | None = None) -> tuple[Finding, ...]:
        """Return the findings: preconditions first, then one a rule, in the policy's order.

        Parameters
        ----------
        evidence : Evidence
            All that was found out.
        today : date, optional
            For waivers; the present day (UTC) if absent.
        """
        return judge.findings(self, evidence, today=today)
