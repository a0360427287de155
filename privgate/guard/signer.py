"""Holding a private key, or knowing a command that does."""

import base64
import hashlib
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from privgate.errors import StatementError, UsageError
from privgate.guard import statement

KEY_VARIABLE = "PRIVGATE_SIGNING_KEY"


class Signer(Protocol):
    """Something that signs bytes."""

    @property
    def key_id(self) -> str:
        """Sha256 of the raw public key, hex."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the Ed25519 signature of ``message``, 64 bytes."""
        ...


def key_id(public: bytes) -> str:
    """Return the id of a raw public key of 32 bytes."""
    return hashlib.sha256(public).hexdigest()


@dataclass(frozen=True)
class KeySigner:
    """A private key in this process."""

    #: never printed
    private: Any = field(repr=False)

    @property
    def public(self) -> bytes:
        """The raw public key, 32 bytes."""
        return bytes(self.private.public_key().public_bytes_raw())

    @property
    def key_id(self) -> str:
        """Sha256 of the raw public key, hex."""
        return key_id(self.public)

    def sign(self, message: bytes) -> bytes:
        """Return the Ed25519 signature of ``message``, 64 bytes."""
        return bytes(self.private.sign(message))

    @classmethod
    def from_pem(cls, text: bytes) -> "KeySigner":
        """Return the signer of an unencrypted PKCS#8 key.

        ``StatementError``: it is no Ed25519 private key; nothing of the text is repeated.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            private = load_pem_private_key(text, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise StatementError("the signing key is no unencrypted Ed25519 private key in PEM; run privgate keys init")
        return cls(private)

    def pem(self) -> bytes:
        """Return the private key as unencrypted PKCS#8."""
        from cryptography.hazmat.primitives import serialization

        return bytes(
            self.private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )


def new_key() -> KeySigner:
    """Return a new random key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return KeySigner(Ed25519PrivateKey.generate())


@dataclass(frozen=True)
class CommandSigner:
    """A command that signs: it reads the message on stdin and writes the signature in base64."""

    #: split as a shell would, run without one
    command: str
    #: of the key that the command uses
    key_id: str

    def sign(self, message: bytes) -> bytes:
        """Return what the command answers.

        ``StatementError``: the command failed, hung for a minute, or answered something that is no signature.
        """
        try:
            done = subprocess.run(  # noqa: S603  the operator's own command, without a shell
                shlex.split(self.command), input=message, capture_output=True, timeout=60, check=True
            )
            signature = base64.b64decode(done.stdout.strip(), validate=True)
        except (OSError, subprocess.SubprocessError, ValueError) as exc:
            raise StatementError(f"the signer command did not sign ({type(exc).__name__}); run it by hand") from exc
        if len(signature) != 64:
            raise StatementError(f"the signer command answered {len(signature)} bytes, an Ed25519 signature has 64")
        return signature


def signer_from(
    *,
    key_file: Path | None = None,
    command: str | None = None,
    command_key_id: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Signer:
    """Return the signer that a file, a command or the environment names, in this order.

    ``UsageError``: none does, or the key file can be read by others.
    """
    if key_file is not None:
        return KeySigner.from_pem(private_bytes(key_file))
    if command is not None:
        if not command_key_id:
            raise UsageError("a signer command needs the id of its key; give --key-id, as privgate keys show prints it")
        return CommandSigner(command, command_key_id)
    held = (os.environ if environment is None else environment).get(KEY_VARIABLE)
    if not held:
        raise UsageError(f"no signing key: give --key FILE or --signer-command, or set {KEY_VARIABLE}")
    return KeySigner.from_pem(held.encode())


def private_bytes(path: Path) -> bytes:
    """Return what a file holds that only its owner may read; raise ``UsageError`` where others may."""
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except OSError as exc:
        raise UsageError(f"signing key {path} cannot be read: {exc.strerror}") from exc
    if mode & 0o077:
        raise UsageError(f"signing key {path} can be read by others; run chmod 600 on it")
    return content


def seal(body: Mapping[str, Any], signer: Signer) -> statement.Envelope:
    """Return a statement in a signed envelope."""
    raw = statement.payload(body)
    unsigned = statement.Envelope(raw, ())
    return statement.Envelope(raw, ((signer.key_id, signer.sign(unsigned.signed)),))
