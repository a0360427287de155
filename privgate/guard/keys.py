"""Keys: the public ones with the time and the role in which they count, and what signs by a private one."""

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from securesystemslib.exceptions import Error
from securesystemslib.signer import SIGNER_FOR_URI_SCHEME, CryptoSigner, Signer, SSlibKey

from privgate.documents import strict_json
from privgate.errors import StatementError, UsageError
from privgate.guard import statement
from privgate.guard.statement import Claims, Envelope

SCHEMA = "privgate/trust/v1"
#: written where a statement is revoked: who cannot read that must not take the store for an older one
_SCHEMA_REVOKED = "privgate/trust/v2"
#: roles that a key has by default
ROLES = ("evidence", "verdict")
#: those that a store may name: 0.1.0 was the last version that signed in the third, which counts for nothing
KNOWN = (*ROLES, "not_applicable")
KEY_VARIABLE = "PRIVGATE_SIGNING_KEY"


@dataclass(frozen=True)
class Key:
    """A public key."""

    #: raw Ed25519 key of 32 bytes in base64, or any other that securesystemslib knows in PEM
    public: str
    #: window in which it may sign and in which its signatures count, both ends included
    not_before: str
    not_after: str
    #: of ``KNOWN``
    roles: tuple[str, ...] = ROLES
    #: the registered models it may sign for, by their exact names
    models: tuple[str, ...] = ()
    #: patterns of more of them: the operator's word, and the only place where a name is matched by a pattern
    model_patterns: tuple[str, ...] = ()
    #: when it was revoked; empty if it was not. Nothing of a revoked key counts: a thief can write any date
    revoked: str = ""
    #: for people
    note: str = ""

    def __post_init__(self) -> None:
        called = f"key {self.key_id[:12]}"  # making the id says what is wrong with the bytes
        if unknown := set(self.roles) - set(KNOWN):
            raise StatementError(f"a trusted key has unknown roles {sorted(unknown)}; known are {', '.join(KNOWN)}")
        if patterns := [m for m in self.models if is_pattern(m)]:
            why = f"lists {patterns[0]!r} among its models, which are exact names"
            raise StatementError(f"{called} {why}; write patterns as model_patterns")
        if statement.when(self.not_before) > statement.when(self.not_after):
            raise StatementError(f"the window of {called} ends before it begins")

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Return the key that an entry of a trust store states; ``StatementError``: it has another id."""
        fields = {k: v for k, v in entry.items() if k != "id"}
        fields |= {k: tuple(fields[k]) for k in ("roles", "models", "model_patterns") if k in fields}
        key = cls(**fields)
        if entry.get("id", key.key_id) != key.key_id:
            raise StatementError(f"trusted key {entry['id']!r} has another id than its bytes")
        return key

    @cached_property
    def verifier(self) -> SSlibKey:
        """What verifies; its id is sha256 of the raw Ed25519 key, or of another's PEM, hex."""
        try:
            if self.public.startswith("-----BEGIN"):
                named = hashlib.sha256(self.public.encode()).hexdigest()
                return SSlibKey.from_crypto(load_pem_public_key(self.public.encode()), named)
            return _public(Ed25519PublicKey.from_public_bytes(base64.b64decode(self.public, validate=True)))
        except (ValueError, UnsupportedAlgorithm) as exc:
            raise StatementError("a trusted key is neither a raw Ed25519 key of 32 bytes in base64 nor PEM") from exc

    @property
    def key_id(self) -> str:
        """Id in the trust store and in signatures."""
        return self.verifier.keyid

    @property
    def scope(self) -> tuple[str, ...]:
        """Names and patterns of the models it may sign for, as the operator wrote them."""
        return (*self.models, *self.model_patterns)

    def refusal(self, role: str, model: str, *moments: datetime) -> str:
        """Return why the key does not count for a role and a model at these times; empty if it does."""
        begin, end = statement.when(self.not_before), statement.when(self.not_after)
        if self.revoked:
            why = f"was revoked on {self.revoked}"
        elif role not in self.roles:
            why = f"may not sign a {role}"
        elif model not in self.models and not any(fnmatchcase(model, pattern) for pattern in self.model_patterns):
            why = f"may not sign for model {model!r}"
        elif not all(begin <= moment <= end for moment in moments):
            why = f"counts from {self.not_before} to {self.not_after} only"
        else:
            return ""
        return f"key {self.key_id[:12]} {why}"


@dataclass(frozen=True)
class Revoked:
    """A statement that counts no longer, although its key does; or all that were signed about a version until now."""

    #: ``sha256:<hex>`` of its payload; may be empty where a version is named
    statement: str
    #: when it was revoked
    at: str
    #: why, for people
    note: str = ""
    #: ``models:/name/version``: nothing counts that was signed about it, or what is copied from it, up to ``at``. Who
    #: keeps an older approval could else put that in the place of a revoked one
    subject: str = ""

    def __post_init__(self) -> None:
        named = bool(re.fullmatch("models:/[^/]+/[0-9]+", self.subject)) or not (self.subject or not self.statement)
        if not named or not re.fullmatch("(sha256:[0-9a-f]{64})?", self.statement):
            raise StatementError("a revoked statement is not named by sha256:<hex> of its payload")
        statement.when(self.at)

    def covers(self, envelope: Envelope, role: str) -> bool:
        """Whether a verdict is about this version, and was signed or rests on a check that ended before."""
        if not self.subject or role != "verdict":
            return False
        claims = Claims.read(envelope.statement)
        about = f"models:/{claims.name}/{claims.version}" == self.subject
        return about and min(claims.signed, claims.decided) <= statement.when(self.at)


@dataclass(frozen=True)
class TrustStore:
    """All keys that count, and the statements that do no longer, one file."""

    keys: tuple[Key, ...]
    revoked: tuple[Revoked, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the trust store in a file; ``StatementError``: it cannot be read, or means something unknown."""
        with strict_json.reading(f"trust store {path} cannot be used", StatementError):
            raw = strict_json.read(path)
            if raw["schema"] not in {SCHEMA, _SCHEMA_REVOKED}:
                raise StatementError(f"trust store {path} has schema {raw['schema']!r:.60}, expected {SCHEMA}")
            if unknown := sorted(raw.keys() - {"schema", "keys", "revoked"}):
                raise StatementError(f"trust store {path} has an unknown entry {unknown[0]!r:.60}")
            keys = tuple(Key.read(entry) for entry in raw["keys"])
            revoked = tuple(Revoked(**entry) for entry in raw.get("revoked", ()))
        if len({k.key_id for k in keys}) != len(keys):
            raise StatementError(f"trust store {path} lists a key twice")
        return cls(keys, revoked)

    def save(self, path: Path) -> None:
        """Write the store; a reader sees the old file or the new one, never half of it."""
        keys = [{"id": k.key_id, **asdict(k)} for k in self.keys]
        revoked = [{k: v for k, v in asdict(r).items() if v or k != "subject"} for r in self.revoked]
        content = {"schema": _SCHEMA_REVOKED, "keys": keys, "revoked": revoked}
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        text = json.dumps(content if revoked else {"schema": SCHEMA, "keys": keys}, indent=1)
        draft.write_text(f"{text}\n", encoding="utf-8")
        draft.replace(path)

    def key(self, wanted: str) -> Key:
        """Return the key whose id begins with ``wanted``; ``StatementError``: none does, or several do."""
        keys = [k for k in self.keys if k.key_id.startswith(wanted)]
        if len(keys) != 1 or not wanted:
            raise StatementError(f"{len(keys)} trusted keys have an id beginning with {wanted!r}; give more of it")
        return keys[0]

    def add(self, key: Key) -> Self:
        """Return the store with one more key."""
        return replace(self, keys=(*self.keys, key))

    def revoke(self, wanted: str, *, at: datetime) -> Self:
        """Return the store with a key of which nothing counts any more."""
        old = self.key(wanted)
        new = replace(old, revoked=old.revoked or statement.stamp(at))
        return replace(self, keys=tuple(new if k is old else k for k in self.keys))

    def revoke_version(self, subject: str, *, at: datetime, note: str = "") -> Self:
        """Return the store in which nothing counts that was signed about ``models:/name/version`` up to a time."""
        return replace(self, revoked=(*self.revoked, Revoked("", statement.stamp(at), note, subject)))

    def verify(self, envelope: Envelope, role: str, *, model: str, moments: Iterable[datetime]) -> Key:
        """Return the key that signed and counts for a role and a model at these times; ``StatementError``: why none."""
        payload = statement.payload_digest(envelope.payload)
        for taken in self.revoked:
            if taken.statement == payload or taken.covers(envelope, role):
                because = f": {taken.note}" if taken.note else ""
                raise StatementError(f"the {role} statement was revoked on {taken.at}{because}")
        times, why = tuple(moments), "it is signed by no trusted key"
        for named, signature in envelope.signatures.items():
            for key in (k for k in self.keys if k.key_id == named):
                try:
                    key.verifier.verify_signature(signature, envelope.pae())
                except Error:
                    why = f"its signature by key {named[:12]} is not valid"
                    continue
                if not (why := key.refusal(role, model, *times)):
                    return key
        raise StatementError(f"the {role} statement does not count: {why}")


def is_pattern(model: str) -> bool:
    """Whether an operator's words name models by a pattern: no model that can be released has such a name."""
    return any(character in model for character in "*?[]!")


def _public(key: Ed25519PublicKey) -> SSlibKey:
    return SSlibKey.from_crypto(key, hashlib.sha256(key.public_bytes_raw()).hexdigest())


def fresh_key(public: SSlibKey, *, days: int, models: tuple[str, ...], roles: tuple[str, ...] = ROLES) -> Key:
    """Return an Ed25519 key for these names and patterns; its window begins an hour ago, for clocks that differ."""
    begin = statement.now()
    return Key(
        public=base64.b64encode(bytes.fromhex(public.keyval["public"])).decode(),
        not_before=statement.stamp(begin - timedelta(hours=1)),
        not_after=statement.stamp(begin + timedelta(days=days)),
        roles=roles,
        models=tuple(m for m in models if not is_pattern(m)),
        model_patterns=tuple(m for m in models if is_pattern(m)),
    )


def new_key(private: Ed25519PrivateKey | None = None) -> CryptoSigner:
    """Return what signs by a private key, a new random one if absent."""
    private = private or Ed25519PrivateKey.generate()
    return CryptoSigner(private, _public(private.public_key()))


def signer_from_pem(text: bytes) -> CryptoSigner:
    """Return the signer of an unencrypted PKCS#8 key; a ``StatementError`` repeats nothing of the text."""
    try:
        private = load_pem_private_key(text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise StatementError("the signing key is no unencrypted Ed25519 key in PEM; run privgate guard keys FILE")
    return new_key(private)


def signer_from(*, key_file: Path | None = None, key_id: str | None = None, trust: TrustStore | None = None) -> Signer:
    """Return the signer of a file or the environment; ``UsageError``: there is none, or others read it.

    A URI of securesystemslib's in the place of a file (``awskms:…``) takes the key ``key_id`` of the trust store.
    """
    if key_file is not None and str(key_file).partition(":")[0] in SIGNER_FOR_URI_SCHEME:
        if trust is None or not key_id:
            raise UsageError("a key in a service needs its id and the trust store that lists it: --key-id and --config")
        try:
            return Signer.from_priv_key_uri(str(key_file), trust.key(key_id).verifier)
        except Exception as exc:
            raise UsageError(f"signing key {str(key_file)!r} cannot be used: {exc}") from exc
    if key_file is not None:
        return signer_from_pem(private_bytes(key_file, "signing key"))
    if not (held := os.environ.get(KEY_VARIABLE)):
        raise UsageError(f"no signing key: give --key FILE, or set {KEY_VARIABLE}")
    return signer_from_pem(held.encode())


def private_bytes(path: Path, what: str) -> bytes:
    """Return what a file holds that only its owner may read; raise ``UsageError`` where others may."""
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
    except OSError as exc:
        raise UsageError(f"{what} {path} cannot be read: {exc.strerror}") from exc
    if mode & 0o077:
        raise UsageError(f"{what} {path} can be read by others; run chmod 600 on it")
    return content


def seal(body: Mapping[str, Any], signer: Signer) -> Envelope:
    """Return a statement in a signed envelope."""
    envelope = Envelope(statement.payload(body), statement.PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return envelope
