"""What untrusted recipes reach while ``privgate guard serve`` runs with a signer: nothing but their own numbers."""

import contextlib
import json
import socket
import sys
import threading

import pytest

from privgate import digest
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


@pytest.fixture
def registry(quiet, free_port):
    quiet.free_port = free_port
    return quiet


def tags(registry, name):
    return dict(registry.client.get_model_version(name, "1").tags)


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
