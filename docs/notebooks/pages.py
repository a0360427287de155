"""Notebooks as pages of the documentation: a hook of mkdocs that writes cells and stored outputs as Markdown.

Nothing is executed here. ``tests/docs/test_notebooks.py`` executes them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File


def on_files(files: Any, config: Any) -> Any:
    """Add a page beside each notebook."""
    for path in sorted(Path(config["docs_dir"], "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path)))
    return files


def page(path: Path) -> str:
    """Return a notebook as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, _, rest = _text(cells[0]["source"]).partition("\n")
    parts = [title, f"[Download this notebook]({path.name})", rest.strip()]
    for cell in cells[1:]:
        source = _text(cell["source"])
        parts += (
            [source] if cell["cell_type"] == "markdown" else [f"```python\n{source}\n```", *_shown(cell["outputs"])]
        )
    return "\n\n".join(p for p in parts if p) + "\n"


def _shown(outputs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield each output as the page shows it: a drawing or table as it is, else its text."""
    printed = "".join(_text(o["text"]) for o in outputs if o["output_type"] == "stream")
    if printed.strip():
        yield f"```text\n{printed.rstrip()}\n```"
    for data in (o["data"] for o in outputs if "data" in o):
        shown = _text(data.get("image/svg+xml") or data.get("text/html") or "")
        # a blank line would end the block of HTML
        yield re.sub(r"\n\s*\n", "\n", shown) if shown else f"```text\n{_text(data['text/plain'])}\n```"


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
