"""Register the model, and ask the installed command whether five people can be erased without training again."""

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from training import CLAIM, fit, people

from privgate import Recipe, log_model, registry

with tempfile.TemporaryDirectory() as folder:
    uri = registry.local_registry(Path(folder))
    where = {"tracking_uri": uri, "store": Path(folder, "data")}
    log_model(Recipe(fit, dp=CLAIM), people(), registered_model_name="clinic", **where)
    command = Path(sysconfig.get_path("scripts"), "privgate")
    asked = [command, "check", "models:/clinic/1", "--policy", "deletion-1", "--tracking-uri", uri, "--jobs", "1"]
    done = subprocess.run([*map(str, asked), "--report-dir", str(Path(folder, "report"))], check=False)
sys.exit(done.returncode)
