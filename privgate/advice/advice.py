"""Advice: everything that a search tried, as a file, and as a page that a notebook shows."""

import json
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from privgate.advice import view
from privgate.advice.point import Tried
from privgate.documents import LARGE, strict_json
from privgate.errors import UsageError
from privgate.evidence import encode


class Advice(Tried):
    """What was tried, kept and shown; see ``Tried`` for its parts."""

    def _repr_html_(self) -> str:
        return view.html(self)

    def __repr__(self) -> str:
        """Return what came out, in words."""
        return f"<Advice: {view.summary(self)}>"

    def payload(self) -> dict[str, object]:
        """Return JSON values; infinities and NaN become text."""
        found: dict[str, object] = encode(self.model_dump())
        return found

    def write(self, path: Path) -> None:
        """Write ``payload`` to a file."""
        path.write_text(json.dumps(self.payload(), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the advice in a file.

        Raises
        ------
        UsageError
            There is none, or it is not what ``privgate advise`` writes.
        """
        if not path.is_file():
            raise UsageError(f"there is no advice in {path}; run `privgate advise` first, or name its --out folder")
        try:
            return cls.model_validate(strict_json.read(path, LARGE))
        except ValidationError as exc:
            first = exc.errors()[0]
            raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from exc
