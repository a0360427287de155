"""Who may sign what, and whether a statement counts here and now; ``cryptography`` is imported where it is used."""

from privgate.guard.checks import Row, Terms, check
from privgate.guard.signer import CommandSigner, KeySigner, Signer, new_key, signer_from
from privgate.guard.truststore import ROLES, Key, TrustStore

__all__ = [
    "ROLES",
    "CommandSigner",
    "Key",
    "KeySigner",
    "Row",
    "Signer",
    "Terms",
    "TrustStore",
    "check",
    "new_key",
    "signer_from",
]
