"""What a signer was asked for, by whoever it trusts: a report about anything else is not signed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privgate.errors import DigestMismatchError, StatementError
from privgate.evidence import Evidence

#: without these, no number is about the registered model and its data
CONTROLS = ("reproduces", "depends_on_data")
_FINE = {"passed", "warned"}


@dataclass(frozen=True)
class SigningRequest:
    """What is to be signed.

    Parameters
    ----------
    uri : str
        ``models:/name/version``; empty to take the report's word.
    nonce : str
        What the check was started with; empty if nobody says.
    """

    uri: str = ""
    nonce: str = ""

    def refuse_others(self, evidence: Evidence, *, releases: bool) -> None:
        """Raise unless a report is the one that was asked for, and its controls ran.

        Parameters
        ----------
        evidence : Evidence
            The report's.
        releases : bool
            Whether it approves.

        Raises
        ------
        StatementError
            It is about something else, or from another check, or approves without controls.
        """
        about = f"models:/{evidence.subject.get('name')}/{evidence.subject.get('version')}"
        if self.uri and about != self.uri:
            raise StatementError(f"the report is about {about}, to be signed is {self.uri}; nothing is signed")
        if self.nonce and evidence.run.nonce != self.nonce:
            raise StatementError(
                "the report is not from the check that was asked for: its nonce is another; check again"
            )
        ran = {p.name for p in evidence.preconditions if p.outcome in _FINE}
        if releases and (missing := [name for name in CONTROLS if name not in ran]):
            raise StatementError(f"the report approves without the control {missing[0]!r}; check again")


def compare(stated: Mapping[str, Any], recomputed: Mapping[str, str], uri: str) -> None:
    """Raise where a report states another digest than the registry's own files have.

    Raises
    ------
    DigestMismatchError
        It does; the sentence says which.
    """
    for name, value in recomputed.items():
        if stated.get(name) != value:
            raise DigestMismatchError(
                f"the report is about another {name} than {uri} has: the registry's has {value[:19]}…; check again"
            )
