"""Content digests: ``sha256:<hex>`` over canonical bytes."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privgate.documents import DocumentError, strict_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: folders within one another, and files and folders: of a model
_DEEPEST, _MOST = 64, 200_000


def of_bytes(*parts: bytes | memoryview) -> str:
    """Return the digest of byte strings; lengths are hashed too, so that no two splits collide."""
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "big"))
        h.update(part)
    return f"sha256:{h.hexdigest()}"


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys and no spaces, as UTF-8; ``ValueError``: the value holds NaN or infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def of_json(value: Any) -> str:
    """Return the digest of a JSON value in canonical form."""
    return of_bytes(canonical_json(value))


def of_array(array: "NDArray[Any]") -> str:
    """Return the digest of an array: dtype, shape and C-ordered bytes; of objects, JSON of their strings."""
    import numpy as np  # a verifier has none

    a = np.asarray(array)
    if a.dtype == object:
        return of_json([str(v) for v in a.ravel()])
    header = f"{a.dtype.str}{a.shape}".encode()
    flat = np.ascontiguousarray(a).reshape(-1)
    return of_bytes(header, flat.view(np.uint8).data if flat.nbytes else b"")  # a copy of large data is as large


def generator(digest: str, *, start: int = 0, digits: int = 16) -> "np.random.Generator":
    """Return randomness that is fixed before anything is looked at: drawn from some hexadecimal digits of a digest."""
    import numpy as np

    return np.random.default_rng(int(digest.removeprefix("sha256:")[start : start + digits], 16))


def of_files(root: Path) -> dict[str, str]:
    """Return ``relative path -> sha256``, as other tools print it, for all files below ``root``, sorted by path.

    ``DocumentError``: a link, whose target is not what is being named, a pipe, a device, a name that is not UTF-8, or
    what this user may not read.
    """
    named: dict[str, str] = {}
    for path in below(root):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            raise DocumentError(f"{name!r} is a link; model folders must hold plain files")
        if path.is_dir():
            continue
        if not path.is_file():
            raise DocumentError(f"{name!r} is no regular file; model folders must hold plain files")
        if any("\ud800" <= c <= "\udfff" for c in name):
            raise DocumentError(f"{name!r} is no UTF-8 name; model folders must hold plain files")
        try:
            with strict_json.opened(path) as f:
                named[name] = "sha256:" + hashlib.file_digest(f, "sha256").hexdigest()
        except OSError as exc:
            raise DocumentError(f"{name!r} cannot be read: {exc.strerror}") from exc
    return named


def below(root: Path) -> list[Path]:
    """Return all that lies below a folder, sorted, following no link; ``DocumentError``: too deep, or too much."""
    paths: list[Path] = []
    todo = [(root, 1)]
    while todo:
        folder, depth = todo.pop()
        for entry in os.scandir(folder) if folder.is_dir() else ():
            paths.append(Path(entry.path))
            if entry.is_dir(follow_symlinks=False):
                todo.append((paths[-1], depth + 1))
        if depth > _DEEPEST or len(paths) > _MOST:
            raise DocumentError(f"holds folders more than {_DEEPEST} deep, or more than {_MOST} files")
    return sorted(paths)


def of_manifest(files: Mapping[str, str]) -> str:
    """Return the digest of a ``path -> digest`` table; names and contents both count."""
    return of_json(dict(sorted(files.items())))
