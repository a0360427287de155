"""Register the model, and ask the installed command whether five people can be erased without training again.

Run it with ``python examples/deletion/run.py [FOLDER]``; it ends with exit code 0.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

from training import CLAIM, fit, people

from privgate import Recipe, log_model, registry


def main(folder: Path) -> int:
    uri = registry.local_registry(folder)
    where = {"tracking_uri": uri, "store": folder / "data"}
    log_model(Recipe(fit, dp=CLAIM), people(), registered_model_name="clinic", **where)
    command = Path(sysconfig.get_path("scripts"), "privgate")
    words = [command, "check", "models:/clinic/1", "--policy", "deletion-1", "--tracking-uri", uri, "--jobs", "1"]
    return subprocess.run([*map(str, words), "--report-dir", str(folder / "report")], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/deletion")))
