"""A week of releases: one guarded server, one table, one policy for models of two tasks.

Run it with ``python examples/week/run.py [FOLDER] [NAME ...]``; it ends with exit code 0 if each model came out as it
had to. A model that is approved is signed and released by the server; what is refused is tried all the same. Rows are
kept in ``FOLDER/week.jsonl``, so that an interrupted run goes on.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mlflow
from models import WEEK, Model

from privgate import log_model
from privgate.__main__ import run as privgate

GUARD = """
schema: privgate/guard/v2
registry: week
trust: trust.json
check_files: true
releases:
  - {models: "credit-*", task: classification, policy: release-1}
  - {models: "price-*", task: regression, policy: release-1}
protected:
  aliases: [production]
accept_advisory: true
accept_unboxed: true
"""


def guarded() -> Any:
    """Return the example of a guarded server, which starts one."""
    from importlib.util import module_from_spec, spec_from_file_location

    found = spec_from_file_location("guarded", Path(__file__).resolve().parents[1] / "guarded-server" / "run.py")
    assert found is not None
    assert found.loader is not None
    made = module_from_spec(found)
    found.loader.exec_module(made)
    return made


def released(name: str, version: str) -> bool:
    """Try what anybody would try: set the alias."""
    try:
        mlflow.MlflowClient().set_registered_model_alias(name, "production", version)
    except mlflow.exceptions.MlflowException:
        return False
    return True


def judged(name: str, model: Model, folder: Path, address: str) -> dict[str, Any]:
    """Log, check, sign and release one model; return its row."""
    began, place = time.time(), folder / "reports" / name
    recipe, data = model.make()
    info = log_model(recipe, data, registered_model_name=name, store=folder / "data")
    version = str(info.registered_model_version)
    assert not released(name, version)  # nobody checked it
    uri, where = f"models:/{name}/{version}", ["--tracking-uri", address]
    ledger = ["--ledger", str(folder / "ledger"), "--report-dir", str(place), "--quiet"]
    code = privgate(["check", uri, "--policy", "release-1", *ledger, *where])
    config = ["--config", str(folder / "guard.yaml"), "--key", str(folder / "signing-key.pem")]
    privgate(["guard", "sign", str(place), "--policy", "release-1", *config, *where])
    told = json.loads((place / "report.json").read_text(encoding="utf-8"))
    worst = max((f for f in told["findings"] if f["outcome"] == told["outcome"]), key=lambda f: len(f["metric"]))
    return {
        "model": name,
        "verdict": told["outcome"],
        "code": code,
        "released": released(name, version),
        "minutes": round((time.time() - began) / 60, 1),
        "trainings": told["evidence"]["run"]["trace"]["training_calls"],
        "decided": f"{worst['rule']}: {worst['message']}"[:200],
    }


def main(folder: Path, only: list[str]) -> int:
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "week.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    if not (folder / "signing-key.pem").is_file():
        privgate(["guard", "keys", "init", str(folder / "signing-key.pem"), "--trust", str(folder / "trust.json")])
    (folder / "guard.yaml").write_text(GUARD, encoding="utf-8")
    server, address = guarded().started(folder)
    try:
        mlflow.set_tracking_uri(address)
        for name in [n for n in only or WEEK if n not in {r["model"] for r in rows}]:
            rows.append(judged(name, WEEK[name], folder, address))
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    finally:
        server.terminate()
        server.wait()
    print("| model | verdict | released | minutes | trainings | decided by |\n| --- | --- | --- | ---: | ---: | --- |")
    for r in rows:
        print(
            f"| {' | '.join(str(r[k]) for k in ('model', 'verdict', 'released', 'trainings', 'minutes', 'decided'))} |"
        )
    wrong = [r["model"] for r in rows if (WEEK[r["model"]].due == "refused") and r["released"]]
    wrong += [r["model"] for r in rows if r["released"] != (r["verdict"] in ("passed", "warned"))]
    print(f"came out otherwise: {', '.join(wrong)}" if wrong else "each came out as it had to (exit code 0)")
    return len(wrong) and 1


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(Path(given[0] if given else "out/week"), given[1:]))
