"""Where policies lie: shipped ones by name, all others by path."""

from pathlib import Path

from privgate.policy.problems import PolicyFileError, Problem, nearest

_PACKAGE = Path(__file__).resolve().parents[1]


def folder() -> Path:
    """Return the folder of the shipped policies: inside the wheel, or beside the package in a checkout."""
    inside = _PACKAGE / "policies"
    return inside if inside.is_dir() else _PACKAGE.parent / "policies"


def shipped() -> dict[str, Path]:
    """Return ``name -> file`` of every shipped policy."""
    return {p.stem: p for p in sorted(folder().glob("*.yaml"), key=lambda p: p.stem)}


def find(name_or_path: str | Path, beside: Path | None = None) -> Path:
    """Return the file that is meant.

    Parameters
    ----------
    name_or_path : str or Path
        A shipped name or a path.
    beside : Path, optional
        Folder that a relative path starts from; the working directory if absent.
    """
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or "/" in text or "\\" in text or text.endswith((".yaml", ".yml"))
    if not is_path:
        known = shipped()
        if text in known:
            return known[text]
        raise PolicyFileError(
            Problem(
                text,
                0,
                "",
                "no shipped policy has this name",
                f"one of {', '.join(known)}, or a path",
                nearest(text, known),
            )
        )
    path = Path(text) if beside is None else beside / text
    if not path.is_file():
        raise PolicyFileError(Problem(text, 0, "", "no such file", f"a policy file, or one of {', '.join(shipped())}"))
    return path
