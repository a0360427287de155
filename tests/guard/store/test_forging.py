"""What untrusted recipes reach while ``privgate guard serve`` runs with a signer: nothing but their own numbers."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, digest
from privgate.cli.check import WAITING
from privgate.guard import signing, statement
from privgate.registry.files import model_files
from privgate.serve import TAG
from privgate.training.sandbox import bubblewrap
from tests.guard.store.served_process import serving, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.timeout(2400),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),
    pytest.mark.skipif(
        not bubblewrap.find_bubblewrap().version, reason=f"no boxes here: {bubblewrap.find_bubblewrap().why}"
    ),
]

#: trains, and looks for the signer once in each process; what it reaches goes to its log
TRAINING = '''
import glob, json, os, subprocess, sys, urllib.error, urllib.request
from sklearn.naive_bayes import CategoricalNB

tried = []


def attempt(function):
    try:
        return bool(function())
    except Exception:
        return False


def lines(name):
    for path in glob.glob("/proc/[0-9]*/" + name):
        try:
            yield open(path, "rb").read()
        except OSError:
            continue


def plants(about):
    """Write a report that approves the victim to where the reconciler keeps what it is about to have signed."""
    folder = os.path.join(about["work"], about["victim"] + "-1-dtp-1")
    os.makedirs(folder, exist_ok=True)
    for name, text in (("report.json", "{{}}"), ("waiting-for-signature", "0" * 64)):
        with open(os.path.join(folder, name), "w") as out:
            out.write(text)
    return True


def asks(about):
    """Ask the registry for the alias; an answer of any kind means that it was reached."""
    body = json.dumps(dict(name=about["victim"], alias="production", version="1")).encode()
    where = about["address"] + "/api/2.0/mlflow/registered-models/alias"
    request = urllib.request.Request(where, body, {{"Content-Type": "application/json"}})
    try:
        urllib.request.urlopen(request, timeout=10)
    except urllib.error.HTTPError:
        return True
    return True


def signs(about):
    """Do what the operator's command does, for the victim."""
    command = [sys.executable, "-m", "privgate", "sign", about["work"], "--model=models:/" + about["victim"] + "/1"]
    command += ["--policy", "dtp-1", "--config", about["config"], "--key", about["key"], "--checked-elsewhere"]
    return subprocess.run(command, capture_output=True, timeout=250).returncode == 0


def fit(X, y, *, seed):
    about = {about!r}
    if not tried:
        tried.append(True)
        reached = {{
            "key": attempt(lambda: open(about["key"]).read()),
            "configuration": attempt(lambda: open(about["config"]).read()),
            "a report": any(open(path).read() != "{{}}" for path in glob.glob(about["work"] + "/*/report.json")),
            "the sign command": any(b"--sign-command" in line for line in lines("cmdline")),
            "the signer's environment": any(about["mark"].lower().encode() in line for line in lines("environ")),
            "a planted report": attempt(lambda: plants(about)),
            "the registry": attempt(lambda: asks(about)),
            "a signature": attempt(lambda: signs(about)),
        }}
        print("FOUND " + json.dumps(reached), flush=True)
    return CategoricalNB(alpha=5.0, min_categories=3).fit(X, y)
'''

MARK = "of-the-reconciler-alone"


@pytest.fixture
def registry(quiet, free_port):
    quiet.free_port = free_port
    return quiet


def tags(registry, name):
    return dict(registry.client.get_model_version(name, "1").tags)


def found_in(text):
    return [json.loads(said) for said in re.findall("FOUND (.*)", text)]


def test_training_code_gets_nothing_signed_while_serve_runs(registry, tmp_path, monkeypatch, capfd, request):
    folder, cache = tmp_path / "s", tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    about = {
        "key": str(folder / "key.pem"), "config": str(registry.site.config), "work": str(folder / "work"),
        "address": registry.address, "victim": "victim", "mark": MARK.upper(),
    }  # fmt: skip
    folder.mkdir()
    (folder / "key.pem").write_bytes(registry.site.signer.private_bytes)
    (tmp_path / "forging_training.py").write_text(TRAINING.format(about=about))
    monkeypatch.syspath_prepend(str(tmp_path))
    import forging_training

    registry.log_recipe("victim", Recipe(DecisionTreeClassifier(), seed=1))
    capfd.readouterr()
    signer = subprocess.Popen(["sleep", "2400"], env={"K": MARK})  # at work meanwhile
    request.addfinalizer(signer.kill)
    registry.log_recipe("evil", Recipe(forging_training.fit, seed=1))
    registry.log_recipe("good")
    # here, where it is trained by its author, the same code reaches what it looks for: it can find something
    (reached,) = found_in(capfd.readouterr().out)
    assert {k for k, v in reached.items() if v} >= {
        "key", "configuration", "a planted report", "the registry", "the signer's environment",
    }  # fmt: skip
    planted = folder / "work" / "victim-1-dtp-1"
    for path in (*planted.iterdir(), planted):
        path.rmdir() if path.is_dir() else path.unlink()

    for name in ("evil", "good"):
        registry.client.set_model_version_tag(name, "1", TAG, "dtp-1,production")
    with serving(registry, folder, "--every", "5", "--", "--jobs", "1", "--budget", "5 trainings") as served:
        until(lambda: all(TAG not in tags(registry, n) for n in ("evil", "good")), served, seconds=1500)
        # what if a report lay there all the same, and tags said that it approves: the victim is checked all the same
        assert not planted.exists()  # what was written in a box lay in its own /tmp
        planted.mkdir()
        report = next(p for p in (folder / "work").glob("good-1-*/report.json"))
        (planted / "report.json").write_bytes(report.read_bytes())
        (planted / WAITING).write_text("0" * 64)
        said = {k: v for k, v in tags(registry, "good").items() if k.startswith("privgate.") and k != signing.TAG}
        later = statement.stamp(statement.now() + timedelta(hours=1))
        for key, value in {**said, "privgate.decided_at": later, TAG: "dtp-1,production"}.items():
            registry.client.set_model_version_tag("victim", "1", key, value)
        until(lambda: TAG not in tags(registry, "victim"), served, seconds=1500)
        assert tags(registry, "victim")["privgate.outcome"] != "passed"

    boxed = found_in("".join(p.read_text() for p in cache.rglob("*.log")))
    assert boxed
    assert {k for said in boxed for k, v in said.items() if v} <= {"a planted report"}
    assert dict(registry.client.get_registered_model("good").aliases) == {"production": "1"}
    for name in ("evil", "victim"):
        assert dict(registry.client.get_registered_model(name).aliases) == {}
        assert signing.TAG not in tags(registry, name)
    assert tags(registry, "evil")["privgate.outcome"] != "passed"


# a recipe is data: nothing that it names runs outside of a box


def estimator(reference, **params):
    return {"kind": "estimator", "estimator": {"!": "estimator", "class": reference, "params": params}, "params": {}}


def poisons(shell, spawn):
    """Give (name, what is changed in recipe.json, files beside it); each would tell by ``shell`` that it ran."""
    imported = {"!": "import", "value": "os:system"}
    partial = {"!": "partial", "value": [imported, {"!": "tuple", "value": [shell]}, {"!": "dict", "value": []}]}
    function = {"kind": "function", "fit": "os:system", "params": {"command": shell}}
    yield "below-sklearn", {"recipe": estimator("sklearn.datasets._base:os.system", command=shell)}, {}
    yield "a-function", {"recipe": function}, {}
    yield "partial", {"recipe": estimator("sklearn.naive_bayes:GaussianNB", priors=partial)}, {}
    yield "own-models", {"recipe": estimator("privgate.models:subprocess.getoutput", cmd=shell)}, {}
    yield "base-of-sharded", {"recipe": estimator("privgate.models:Sharded", base=partial, classes=partial)}, {}
    yield "predict", {"recipe": {"predict": "subprocess:getoutput"}}, {}
    yield "claim", {"recipe": {"dp": {"mechanism": "os:system", "epsilon": partial}}}, {}
    yield "loader", {"data": {"kind": "loader", "reference": "os:system", "options": {"command": shell}}}, {}
    for module in ("sklearn/__init__.py", "privgate/__init__.py", "numpy.py", "sitecustomize.py", "mlflow/__init__.py"):
        yield f"source-{module.partition('/')[0]}", {"sources": module}, {module: spawn}
    yield "beside-the-model", {}, {"../../sitecustomize.py": spawn, "../../privgate.py": spawn}


def poison(folder, changed, files):
    """Change a recipe as anybody can who may write to the artifact store: digests are made again."""
    path = folder / "privgate" / "recipe.json"
    document = json.loads(path.read_text())
    document.pop("digest")
    for name, text in files.items():
        place = folder / "privgate" / "src" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    for part, value in changed.items():
        if part == "sources":
            document["sources"] = {"folder": "privgate/src", "files": digest.of_files(folder / "privgate" / "src")}
        else:
            document[part] = {**document[part], **value}
    content = {k: v.encode() for k, v in files.items()} if "sources" in changed else {}
    named = {k: digest.of_bytes(v) for k, v in content.items()}
    document["recipe_digest"] = digest.of_json([dict(document["recipe"]), named])
    kept = model_files(folder)
    document["model"] = {"files": kept, "digest": digest.of_manifest(kept)}
    path.write_text(json.dumps({**document, "digest": digest.of_json(document)}))


class Listener:
    """A port that code outside of a box reaches, and what it says there."""

    def __init__(self):
        self.socket, self.heard = socket.create_server(("127.0.0.1", 0)), []
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.socket.accept()
                with link:
                    link.settimeout(5)
                    self.heard.append(link.recv(100).decode(errors="replace"))


def test_nothing_that_a_recipe_names_runs_outside_of_a_box(registry, tmp_path):
    listener = Listener()
    call = f"import socket; socket.create_connection(('127.0.0.1', {listener.port})).sendall(b'NAME')"
    said = call.replace("NAME", "ran")
    shell = f'{sys.executable} -I -c "{said}"; touch {tmp_path}/ran'
    names = [name for name, *_ in poisons(shell, said)]
    for name, changed, files in poisons(shell, said):
        location = registry.client.get_logged_model(registry.log_recipe(name)).artifact_location
        poison(registry.folder / "artifacts" / location.removeprefix("mlflow-artifacts:/"), changed, files)
        registry.client.set_model_version_tag(name, "1", TAG, "dtp-1,production")
    exec(call.replace("NAME", "heard"), {})

    def answered(name):
        return TAG not in tags(registry, name) or tags(registry, name).get("privgate.problem", "")

    with serving(registry, tmp_path / "s", "--every", "600", "--", "--jobs", "1", "--budget", "5 trainings") as served:
        until(lambda: all(answered(name) for name in names), served, seconds=2000)
    outcomes = {name: tags(registry, name).get("privgate.problem") or "answered" for name in names}
    print(json.dumps(outcomes, indent=1))
    assert listener.heard == ["heard"]
    assert not (tmp_path / "ran").exists()
    for name, changed, _ in poisons("", ""):  # who only has files beside an honest model may be released, with them
        held = dict(registry.client.get_registered_model(name).aliases)
        assert held == {} or not {"recipe", "data"} & set(changed), (name, outcomes)
    listener.socket.close()
