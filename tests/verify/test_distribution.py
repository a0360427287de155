"""privgate-verify as it is installed: a wheel of this tree, in an environment without privgate."""

import dataclasses
import importlib.util
import json
import shutil
import subprocess
import sys
import sysconfig
import threading
import tomllib
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from privgate import digest
from privgate.guard import keys as truststore
from privgate.guard import statement
from privgate.guard.keys import TrustStore, fresh_key, seal
from privgate.guard.statement import Claims
from privgate.registry.files import all_files

TREE = Path(__file__).resolve().parents[2]
PACKAGE = TREE / "packages" / "privgate-verify"
POLICY = "sha256:" + "a" * 64
GUARD = f"""\
schema: privgate/guard/v2
registry: test-registry
trust: trust.json
releases: [{{models: "*", task: classification, policy: "{POLICY}"}}]
protected: {{aliases: [production], stages: [], models: []}}
"""


@pytest.fixture(scope="session")
def closure():
    spec = importlib.util.spec_from_file_location("closure", PACKAGE / "closure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def settings():
    return tomllib.loads((PACKAGE / "pyproject.toml").read_text())


@pytest.fixture(scope="session")
def installed(closure, settings, tmp_path_factory):
    """A folder as an installation has it: the package, and nothing of this environment but what it depends on."""
    site = tmp_path_factory.mktemp("site")
    config = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    for name, text in closure.sources(TREE, config).items():
        path = site / "privgate_verify" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ours = Path(sysconfig.get_paths()["purelib"])
    needed = [*config["known"], "annotated_types", "typing_extensions.py", "typing_inspection", "_cffi_backend*"]
    needed += ["cffi", "certifi", "charset_normalizer", "idna", "pycparser", "_yaml", "*__mypyc*", "81d243*"]
    for pattern in needed:
        for found in ours.glob(pattern):
            (site / found.name).symlink_to(found)
    return site


@pytest.fixture
def run(installed, tmp_path):
    def run(*arguments, code="from privgate_verify.__main__ import main\nmain()"):
        prefix = f"import sys\nsys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(installed)!r}]\n"
        command = [sys.executable, "-I", "-S", "-c", prefix + code, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    return run


class Release:
    """A signed version: files, statement, guard, as an operator has them."""

    def __init__(self, folder):
        self.folder, self.files = folder, folder / "model"
        self.files.mkdir()
        (self.files / "MLmodel").write_text("flavors: {python_function: {loader_module: json}}\n")
        (self.files / "weights.json").write_text('"weights"')
        self.signer = truststore.new_key()
        self.store = TrustStore((fresh_key(self.signer.public_key, days=9, models=("*",)),))
        self.store.save(folder / "trust.json")
        self.config = folder / "guard.yaml"
        self.config.write_text(GUARD)
        now = statement.now().replace(microsecond=0)
        report = b"{}"
        self.claims = Claims(
            registry="test-registry", name="credit", version="3", source="models:/m-1", storage=self.files.as_uri(),
            model_id="m-1", run_id="run-1", versions=3,
            created=1700, files=digest.of_manifest(all_files(self.files)), digests={}, policy="dtp-1",
            policy_digest=POLICY, report=statement.payload_digest(report), evidence="sha256:" + "e" * 64,
            outcome="passed", passed=True, decided=now, signed=now, expires=now + timedelta(days=3),
            targets=(("credit", "production"),), advisory=False, isolation="bubblewrap 0.8.0",
        )  # fmt: skip
        evidence = seal(self.claims.evidence_statement({"findings": []}, all_files(self.files)), self.signer)
        self.reports = folder / "run" / "privgate_reports" / "m-1"
        (self.reports / "dtp-1" / "signed" / "1").mkdir(parents=True)
        (self.reports / "dtp-1" / "signed" / "1" / "report.json").write_bytes(report)
        (self.reports / "dtp-1" / "signed" / "1" / "evidence.dsse.json").write_text(evidence.text())
        self.sign(evidence=statement.payload_digest(evidence.payload))

    def sign(self, **changes):
        self.claims = dataclasses.replace(self.claims, **changes)
        self.envelope = seal(self.claims.summary("test"), self.signer).text()
        (self.folder / "verdict.dsse.json").write_text(self.envelope)

    @property
    def options(self):
        return "--statement", self.folder / "verdict.dsse.json", "--target", "production", "--config", self.config


@pytest.fixture
def release(tmp_path):
    return Release(tmp_path)


def test_the_closure_is_small_and_holds_no_training_environment(closure, settings):
    config = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    found = closure.sources(TREE, config)
    assert {"guard/verification.py", "registry/rest.py", "documents/strict_json.py"} <= found.keys()
    assert not [n for n in found if n.startswith(("policy", "training", "theorems", "run", "report", "membership"))]
    numeric = [n for n in found if n.split("/")[0].removesuffix(".py") in config["numeric"]]  # of the extra recompute
    assert {"cases.py", "kernel/judge.py"} <= set(numeric)
    assert sum(len(text) for n, text in found.items() if n not in numeric) < 250_000
    assert not [n for n, text in found.items() if "from privgate." in text or "import privgate." in text]


def test_a_heavy_import_fails_the_build(closure, settings, tmp_path):
    config = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    shutil.copytree(TREE / "privgate", tmp_path / "privgate", ignore=shutil.ignore_patterns("__pycache__"))
    errors = tmp_path / "privgate" / "errors.py"
    for line, says in (
        ("import pandas\n", "errors imports pandas, which privgate-verify does not depend on"),
        ("from privgate.policy import Policy\n", "leaves out"),
        ("NAME = 'privgate.digest'\n", "in a text"),
        ("import privgate.digest\n", "whole name"),
        ("from privgate import cases\n", "needs numpy"),
    ):
        before = errors.read_text()
        errors.write_text(before + line)
        with pytest.raises(ValueError, match=says):
            closure.sources(tmp_path, config)
        errors.write_text(before)


def test_a_downloaded_folder_verifies(run, release):
    code, said = run(release.files, *release.options)
    assert (code, "verified: " in said, "2 files" in said) == (0, True, True), said
    code, said = run(release.files, *release.options, "--model", "other")
    assert (code, "does not allow other@production" in said) == (4, True), said


@pytest.mark.parametrize(
    ("spoil", "code", "says"),
    [
        (lambda r: (r.files / "weights.json").write_text("stolen"), 4, "are not those that were checked and signed"),
        (lambda r: (r.folder / "trust.json").write_text("{}"), 4, "trust store"),
        (lambda r: r.config.write_text(GUARD.replace(POLICY, "dtp-1")), 2, "only verifies; name it by its digest"),
    ],
)
def test_whatever_is_spoiled_does_not_verify(run, release, spoil, code, says):
    spoil(release)
    found, said = run(release.files, *release.options)
    assert (found, says in said, "Traceback" in said) == (code, True, False), said


def kept(folder):
    """Write a check's folder: a report whose rule passed by a design's theorem, and its case."""
    import numpy as np

    from privgate import cases
    from privgate.kernel import Case

    held = {"held": np.ones(20, dtype=np.int64)}
    one = cases.Kept.judge_case(Case("construction", "any", {"design": "shares", "alpha": 2.0}, held), np.arange(20))
    folder.mkdir()
    cases.write(folder / cases.FILE, [one])
    asked = {"metric": "dtp", "options": {"aggregate": "max"}, "key": "dtp(aggregate=max)"}
    found = {"rule": "dtp", "metric": "dtp", "request": asked["key"], "outcome": "passed", "unit": "nats"}
    note = {"digest": one.digest(), "low": 0.0, "high": float(one.high.max())}
    told = {
        "findings": [found | {"limit": 1.0, "high": note["high"]}],
        "evidence": {
            "measurements": [{"request": asked, "n": 20, "population": 20}],
            "influence": {"cases": [note]}, "subject": {"n_units": 20, "domain": None},
            "preconditions": [], "run": {"trace": None},
        },
    }  # fmt: skip
    (folder / "report.json").write_text(json.dumps(told))
    return statement.payload_digest((folder / "report.json").read_bytes())


def test_a_yes_comes_out_again_where_the_extra_is_installed(run, release, tmp_path):
    release.sign(report=kept(tmp_path / "out"))
    asked = release.files, *release.options, "--recompute", tmp_path / "out"
    code, said = run(*asked)
    assert (code, "pip install 'privgate-verify[recompute]'" in said, "Traceback" in said) == (2, True, False), said

    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for place in Path(sysconfig.get_paths()["purelib"]).glob("numpy*"):
        (libraries / place.name).symlink_to(place)
    main = f"sys.path.append({str(libraries)!r})\nfrom privgate_verify.__main__ import main\nmain()"
    code, said = run(*asked, code=main)
    assert (code, "recomputed: dtp: the kernel's limits come to 0.4055 again" in said) == (0, True), said
    report = tmp_path / "out" / "report.json"
    report.write_text(report.read_text().replace('"limit": 1.0', '"limit": 1.5'))
    code, said = run(*asked, code=main)
    assert (code, "is not the report that was signed" in said, "Traceback" in said) == (4, True, False), said


def test_a_registry_is_asked_over_http(run, release):
    """A version by its alias: row and statement by REST, files where the mounted store has them."""
    row = {
        "name": "credit", "version": "3", "source": "models:/m-1", "creation_timestamp": 1700, "run_id": "run-1",
        "tags": [{"key": "privgate.statement", "value": release.envelope}],
    }  # fmt: skip
    answers = {
        "registered-models/alias": {"model_version": row},
        "model-versions/get": {"model_version": row},
        "model-versions/get-download-uri": {"artifact_uri": release.claims.storage},
        "logged-models/m-1": {"model": {"info": {"artifact_uri": release.claims.storage, "source_run_id": "run-1"}}},
        "runs/get": {"run": {"info": {"artifact_uri": (release.folder / "run").as_uri()}}},
    }

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self):
            url = urlsplit(self.path)
            content = json.dumps(answers.get(url.path.removeprefix("/api/2.0/mlflow/"), {})).encode()
            assert parse_qs(url.query) or "logged-models" in url.path
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        uri = ("models:/credit@production", "--config", release.config, "--tracking-uri")
        code, said = run(*uri, address, "--to", release.folder / "handed")
        assert (code, "verified: models:/credit/3, 2 files" in said) == (0, True), said
        assert all_files(release.folder / "handed") == all_files(release.files)
        shutil.rmtree(release.reports)
        code, said = run(*uri, address)
        assert (code, "Traceback" in said, "which is not installed" in said) == (4, False, True), said
        (release.files / "weights.json").write_text("stolen")
        code, said = run(*uri, address, "--to", release.folder / "again")
        assert (code, (release.folder / "again").exists()) == (4, False), said
        code, said = run(*uri, "sqlite:///x.db")
        assert (code, "name a server" in said) == (4, True), said
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_the_wheel_installs_into_less_than_40_mb_and_beside_privgate(tmp_path, release):
    """By pip, from this tree, into an environment of its own; needs a package index for the dependencies."""
    made = run_pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", tmp_path / "wheels", PACKAGE)
    if "No matching distribution" in made.stderr or "Connection" in made.stderr:
        pytest.skip("no package index can be reached")
    assert made.returncode == 0, made.stderr
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    command = [tmp_path / "venv" / "bin" / "privgate-verify", release.files, *release.options]

    assert run_pip(python, "install", wheel).returncode == 0
    assert subprocess.run(command, check=False).returncode == 0
    site = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
    held = [p for p in site.rglob("*") if p.is_file() and not p.relative_to(site).parts[0].startswith(tools)]
    size = sum(p.stat().st_size for p in held) / 1e6
    print(f"\n{size:.1f} MB installed")
    assert size <= 40

    assert run_pip(python, "install", "--no-deps", TREE).returncode == 0
    assert subprocess.run(command, check=False).returncode == 0
    owned = [{line.split(",")[0] for line in f.read_text().splitlines()} for f in site.glob("privgate*/RECORD")]
    assert len(owned) == 2
    assert not set.intersection(*owned)
    assert run_pip(python, "uninstall", "--yes", "privgate").returncode == 0
    assert subprocess.run(command, check=False).returncode == 0


def run_pip(python, *arguments):
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
