"""Hatch's hook of privgate-verify: see ``closure``, which makes the package out of privgate's modules."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from closure import MADE, SOURCE, sources


class Hook(BuildHookInterface):
    """Hatch's hook: writes the package into a folder and names its files to the builder."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the package to the wheel."""
        del version
        tree = Path(self.root).resolve().parents[1]
        if not (tree / SOURCE / "version.py").is_file():
            raise ValueError("privgate-verify is built in its tree: pip install ./packages/privgate-verify")
        self.folder = tempfile.TemporaryDirectory()
        for name, text in sources(tree, self.config).items():
            path = Path(self.folder.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            build_data["force_include"][str(path)] = f"{MADE}/{name}"
        build_data["force_include"][str(tree / "LICENSE")] = f"{MADE}/LICENSE"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        del version, build_data, artifact_path
        self.folder.cleanup()
