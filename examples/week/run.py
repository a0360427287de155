"""A week of releases: sixteen models of ordinary sizes, one guarded server, one table with truth by hand.

``release-1`` judges all but the private model, which is ``dp-trained``'s. Six more are what to change first.

Run it with ``python examples/week/run.py [FOLDER] [NAME ...]``. It needs the whole of UCI Adult
(``PRIVGATE_DATA``), and ends with exit code 0 if no model was approved that leaks by hand. A row is kept in
``FOLDER/week.jsonl`` once it is measured, so that an interrupted run goes on.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mlflow
from by_hand import measure_model
from models import CHANGED, FOLDER, WEEK, Model

from privgate import log_model, log_recipe

GUARD = """
schema: privgate/guard/v2
registry: week
trust: trust.json
check_files: true
releases:
  - {models: "price-*", task: regression, policy: release-1}
  - {models: "private", task: classification, policy: dp-trained}
  - {models: "floored-*", task: classification, policy: release-1, file: not downloadable}
  - {models: "exact-*", task: classification, policy: release-1}
protected:
  aliases: [production]
accept_advisory: true
accept_unboxed: true
"""


def start_server(folder: Path) -> tuple[Any, str]:
    """Start the guarded server of the example next door."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("guarded", Path(__file__).resolve().parents[1] / "guarded-server" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    server, address = module.started(folder)
    return server, str(address)


def set_alias(name: str, version: str) -> bool:
    """Try what anybody would try."""
    try:
        mlflow.MlflowClient().set_registered_model_alias(name, "production", version)
    except mlflow.exceptions.MlflowException:
        return False
    return True


def log_version(name: str, model: Model, folder: Path) -> str:
    """Log and register a model as its team would, and return its version."""
    recipe, data, store = model.recipe(), model.data(), folder / "data"
    if model.logged == "privgate":
        info = log_model(recipe, data, registered_model_name=name, store=store, release=model.release())
        return str(info.registered_model_version)
    from importlib import import_module

    fitted = model.estimator().set_params(random_state=recipe.seed).fit(data.X, data.y)
    info = import_module(f"mlflow.{model.logged}").log_model(fitted, name="model", registered_model_name=name)
    uri = log_recipe(info, recipe, data, store=store, release=model.release(), serve="probabilities")
    return uri.rpartition("/")[2]


def check_version(name: str, model: Model, folder: Path, address: str) -> dict[str, Any]:
    """Log, check, sign and release one model; return its row."""
    version, place = log_version(name, model, folder), folder / "reports" / name
    assert not set_alias(name, version)  # nobody checked it
    command = [
        str(Path(sys.executable).with_name("privgate")),
        "check",
        f"models:/{name}/{version}",
        "--tracking-uri",
        address,
    ]
    options = ["--policy", model.policy, "--ledger", str(folder / "ledger"), "--report-dir", str(place), "--quiet"]
    began = time.time()
    code = subprocess.run([*command, *options, *["--file-not-downloadable"] * model.floor], check=False).returncode
    minutes = (time.time() - began) / 60
    sign = ["guard", "sign", str(place), "--policy", model.policy, "--config", str(folder / "guard.yaml")]
    subprocess.run(
        [command[0], *sign, "--key", str(folder / "signing-key.pem"), "--tracking-uri", address], check=False
    )
    report = json.loads((place / "report.json").read_text(encoding="utf-8"))
    decisive = sorted(
        (f for f in report["findings"] if f["outcome"] == report["outcome"]), key=lambda f: not f["metric"]
    )
    return {
        "model": name,
        "verdict": report["outcome"],
        "code": code,
        "released": set_alias(name, version),
        "minutes": round(minutes, 1),
        "trainings": report["evidence"]["run"]["trace"]["training_calls"],
        "decided": f"{decisive[0]['rule']}: {decisive[0]['message']}"[:200] if decisive else "",
    }


def write_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown; members are in per cent."""
    head = "| model | verdict | min | trainings | harmless by hand | above | attack | members | quality | decided by |"
    lines = [head, "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | --- |"]
    for r in rows:
        above = f"{r['above']} of {r['refits']}" + (f" ({r['by_seed']} by seed)" if r["by_seed"] else "")
        hand = f"{r['harmless']} | {above} | {r['accuracy']:.3f} | {100 * r['members']:.1f} | {r['quality']:.3f}"
        lines.append(f"| {r['model']} | {r['verdict']} | {r['minutes']} | {r['trainings']} | {hand} | {r['decided']} |")
    return "\n".join(lines)


def main(folder: Path, only: list[str]) -> int:
    """Measure the models, print the table, and return 1 if one was approved that leaks, or released unapproved."""
    if not (FOLDER / "adult.csv.gz").is_file():
        print(f"{FOLDER / 'adult.csv.gz'} is not there: nothing was measured")
        return 0
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "week.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    if not (folder / "signing-key.pem").is_file():
        keys = ["guard", "keys", str(folder / "signing-key.pem"), "--trust", str(folder / "trust.json")]
        subprocess.run([str(Path(sys.executable).with_name("privgate")), *keys], check=True)
    (folder / "guard.yaml").write_text(GUARD, encoding="utf-8")
    server, address = start_server(folder)
    try:
        mlflow.set_tracking_uri(address)
        models = WEEK | CHANGED
        for name in [n for n in only or models if n not in {r["model"] for r in rows}]:
            rows.append(check_version(name, models[name], folder, address) | measure_model(models[name]))
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    finally:
        server.terminate()
        server.wait()
    print(write_table(rows))
    approved = [r for r in rows if r["verdict"] in ("passed", "warned")]
    wrong = [r["model"] for r in approved if r["harmless"] == "no"] + [
        r["model"] for r in rows if r["released"] and r not in approved
    ]
    print(
        f"approved or released wrongly: {', '.join(wrong)}"
        if wrong
        else "no model that leaks was approved (exit code 0)"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(Path(given[0] if given else "out/week"), given[1:]))
