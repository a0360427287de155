"""The ledger: what training answered, one sealed file an answer, so that nothing is trained twice.

A file is named by the digest of everything that changes the answer: recipe, data, libraries, sandbox and the call. Its
first bytes are a tag that only the operator's key makes, over the name and the answer: whatever somebody else put there
is not read, and trained again. Training code in the sandbox reaches neither the key nor the files.
"""

import hashlib
import hmac
import os
import platform
import re
import secrets
import stat
import struct
import uuid
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

from privgate import digest
from privgate.errors import PrivgateWarning, UsageError
from privgate.subject import estimators
from privgate.subject.sources import find_version, providing
from privgate.subject.subject import Subject
from privgate.training import payload
from privgate.training.fit import Answer

#: names the environment variable with the operator's key, which seals the files
VARIABLE = "PRIVGATE_LEDGER_KEY"
#: bytes, below which a key could be guessed
LEAST = 16


def own_key() -> bytes:
    """Return the user's key, made when first needed; ``UsageError`` where it cannot be, or others can read it."""
    path = config_folder() / "ledger.key"
    secret = read_key(path, "the ledger's key", f"set {VARIABLE}", LEAST)
    status = path.stat()
    if status.st_mode & 0o077 or status.st_uid != os.getuid():
        raise UsageError(
            f"the ledger's key {path} can be read by others or is another user's; set {VARIABLE}, or delete it to have "
            "one made"
        )
    return secret


def read_key(path: Path, what: str, step: str, least: int) -> bytes:
    """Return the key in a file, made when first needed; ``UsageError`` where it cannot be, or is too short."""
    try:
        if not path.exists():
            make_key(path)
        key = path.read_bytes().strip()
    except OSError as exc:
        why = "Not a directory" if isinstance(exc, FileExistsError) else exc.strerror
        raise UsageError(f"{what} {path} cannot be read or made: {why}; {step}") from exc
    if len(key) < least:
        raise UsageError(f"{what} {path} is shorter than {least} bytes; delete it to have one made")
    return key


def make_key(path: Path) -> None:
    """Write a new key whole, or leave the one that another process wrote meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(secrets.token_hex(32).encode())
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


#: raised whenever the same call could give another number because privgate changed
VERSION = 5
_NUMERIC = ("numpy", "scipy", "scikit-learn", "pandas")


def digest_subject(subject: Subject, sandbox: str) -> bytes:
    """Return the digest of everything beside the call that could change its answer, 32 bytes."""
    parts = {
        "version": VERSION,
        "owner": subject.name,  # what one model's runs remembered is nothing to another's
        "code": digest_code(subject).decode(),
        "libraries": libraries_of(subject),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "sandbox": sandbox,
    }
    return hashlib.sha256(digest.canonical_json(parts)).digest()


def digest_code(subject: Subject) -> bytes:
    """Return the digest of a subject's data and code."""
    recipe, source = subject.recipe, ""
    if recipe.recorded is None and not recipe.snapshot and not recipe.is_estimator:
        # typed into a notebook: no file holds its source, so its code is hashed; a miss is harmless, a stale hit not
        source = digest.of_bytes(payload.pickled(recipe.training), payload.pickled(recipe.predict))
    return digest.of_json([subject.training_digest, source]).encode()


def name_answer(subject: bytes, call: bytes) -> str:
    """Return the name of an answer's file: the subject's folder, and the digest of subject and call."""
    return f"{subject.hex()[:32]}/{hashlib.sha256(subject + call).hexdigest()}"


def libraries_of(subject: Subject) -> dict[str, str]:
    """Return ``distribution -> version`` of everything that a recipe needs and that is installed here."""
    recipe = subject.recipe.payload
    named = [r for r in (recipe.get("fit"), recipe["predict"]) if r]
    named += estimators.references(recipe.get("estimator")) + estimators.references(list(recipe["params"].values()))
    modules = {re.split(r"[.:]", r)[0] for r in named}
    for content in subject.recipe.snapshot.values():
        modules |= {m.decode() for m in re.findall(rb"^\s*(?:import|from)\s+(\w+)", content, re.MULTILINE)}
    return _libraries(tuple(sorted(modules)))


@cache
def _libraries(modules: tuple[str, ...]) -> dict[str, str]:
    """Return the distributions behind top-level modules, and everything that these require."""
    todo = [*providing(modules), *_NUMERIC]
    versions: dict[str, str] = {}
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name not in versions and (version := find_version(name)):
            versions[name] = version
            required = (r for r in metadata.requires(name) or () if "extra ==" not in r)
            todo += [m.group() for r in required if (m := re.match(r"[\w.-]+", r))]
    return dict(sorted(versions.items()))


@cache
def digest_package() -> bytes:
    """Return the digest of everything that this package's own numbers depend on: its source, libraries and machine."""
    package = Path(__file__).parents[1]
    sources = {str(p.relative_to(package)): digest.of_bytes(p.read_bytes()) for p in package.rglob("*.py")}
    parts = [sources, _libraries(()), platform.python_version(), platform.machine()]
    return hashlib.sha256(digest.canonical_json(parts)).digest()


def other_versions(wanted: Mapping[str, str]) -> list[str]:
    """Return where this process has another version, as ``name 1.2 (not 1.3)``."""
    here = {name: find_version(name) or "absent" for name in wanted}
    return [f"{name} {here[name]} (not {version})" for name, version in wanted.items() if here[name] != version]


_HEAD = struct.Struct("<cIIdI")


def encode(answer: Answer) -> bytes:
    """Return an answer as bytes: head, sentence about a problem, numbers."""
    text = answer.problem.encode()
    rows, columns = answer.log_p.shape
    head = _HEAD.pack(b"A", rows, columns, answer.seconds, len(text))
    return b"".join((head, text, np.ascontiguousarray(answer.log_p, dtype="<f8").data))


def decode(body: bytes) -> Answer:
    """Return the answer that ``encode`` wrote, with the seconds that it once took; ``ValueError`` if it is none."""
    kind, rows, columns, seconds, size = _HEAD.unpack(body[: _HEAD.size])
    end = _HEAD.size + size + 8 * rows * columns
    if kind != b"A" or len(body) != end:
        raise ValueError("these bytes are no answer")
    log_p = np.frombuffer(body, "<f8", rows * columns, _HEAD.size + size).reshape(rows, columns)
    return Answer(log_p, seconds, body[_HEAD.size : _HEAD.size + size].decode())


_TAG = 16  # bytes


def cache_folder() -> Path:
    """Return privgate's folder among the user's caches."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "privgate"


def config_folder() -> Path:
    """Return privgate's folder among the user's settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "privgate"


class Ledger:
    """Bytes by name, each a file of its own, which any number of processes may add to.

    ``where`` is a folder; ``"none"`` to remember nothing beyond this process; None for ``PRIVGATE_LEDGER``, and then
    the user's cache folder. ``secret`` seals the files; if absent ``PRIVGATE_LEDGER_KEY``, and where nobody else can
    write this user's own. ``UsageError``: no folder, no key where others can write, or a key that is too short.
    """

    def __init__(self, where: str | Path | None = None, *, secret: bytes | None = None) -> None:
        text = str(where if where is not None else os.environ.get("PRIVGATE_LEDGER") or cache_folder() / "ledger")
        if "://" in text:
            raise UsageError(f"the ledger {text} is no folder of this machine; say --ledger FOLDER")
        #: None where nothing is remembered beyond this process
        self.folder = None if text == "none" else Path(text).expanduser()
        self._held: dict[str, bytes] = {}
        key = secret if secret is not None else os.environ.get(VARIABLE, "").encode() or None
        if key is not None and len(key) < LEAST:
            raise UsageError(
                f"the ledger's key has {len(key)} bytes; use {LEAST} or more, such as openssl rand -hex 32"
            )
        #: whether an operator gave the key; this user's own is none that the author of the code cannot read
        self.given = key is not None
        if self.folder is not None and _open_folder(self.folder) and key is None:
            raise UsageError(f"others can write to the ledger {self.folder}, so it needs a key; set {VARIABLE}")
        self._sealing = hashlib.sha256(b"privgate ledger/2\0" + (key or own_key())).digest()

    @property
    def lasting(self) -> bool:
        """Whether another run can read what this one remembers."""
        return self.folder is not None

    def drawn(self, *parts: bytes) -> bytes:
        """Return 32 bytes that are always the same for these parts, and that nobody without the key can foretell."""
        return hmac.digest(self._sealing, b"drawn" + b"".join(hashlib.sha256(p).digest() for p in parts), "sha256")

    def count_tries(self, model: str, code: bytes) -> int:
        """Return for how many data and codes people were drawn of a model so far; these are among them."""
        folder = f"tries-{hashlib.sha256(model.encode()).hexdigest()[:32]}"
        self.write(f"{folder}/{hashlib.sha256(code).hexdigest()}", b"")
        if self.folder is None:
            return sum(name.startswith(folder) for name in self._held)
        return sum(not file.name.startswith(".") for file in (self.folder / folder).iterdir())

    def read(self, name: str) -> bytes | None:
        """Return what was written under a name; None where nothing was, or where its seal does not fit."""
        if self.folder is None:
            return self._held.get(name)
        content = _read_regular(self.folder / name)
        sealed = content is not None and hmac.compare_digest(self._seal(name, content[_TAG:]), content[:_TAG])
        return content[_TAG:] if content is not None and sealed else None

    def write(self, name: str, body: bytes) -> None:
        """Write beside the target and rename: a killed process leaves the file whole, or none."""
        if self.folder is None:
            self._held[name] = body
            return
        path = self.folder / name
        draft = path.with_name(f".{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(exist_ok=True, mode=0o700)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
                f.write(self._seal(name, body) + body)
            draft.replace(path)
        except OSError as exc:
            draft.unlink(missing_ok=True)
            text = f"the ledger {self.folder} cannot be written: {exc.strerror}; say --ledger FOLDER"
            raise UsageError(text) from exc

    def _seal(self, name: str, body: bytes) -> bytes:
        """Return the tag of a file: keyed BLAKE2b over its name and its body (RFC 7693)."""
        seal = hashlib.blake2b(name.encode(), key=self._sealing, digest_size=_TAG)
        seal.update(body)
        return seal.digest()


def _open_folder(folder: Path) -> bool:
    """Make the folder if it is missing; return whether others can write to it, as a team's may be."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status, old = folder.stat(), next(folder.glob("*.seg"), None)
    except OSError as exc:
        raise UsageError(f"the ledger {folder} cannot be opened: {exc.strerror}; say --ledger FOLDER") from exc
    if old is not None:
        message = f"the ledger {folder} was written by privgate 0.1, whose answers are not read; delete its *.seg files"
        warnings.warn(message, PrivgateWarning, stacklevel=2)
    return status.st_uid != os.getuid() or bool(status.st_mode & 0o022)


def _read_regular(path: Path) -> bytes | None:
    """Return a file's bytes; None where there is none, or something that would never end or leads elsewhere."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as f:
            return f.read() if stat.S_ISREG(os.fstat(f.fileno()).st_mode) else None
    except OSError:
        return None
