"""A model's author who writes an address of his everywhere he can, and a listener that notes whoever comes there."""

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import socketserver
import sqlite3
import subprocess
import threading
import urllib.parse
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from privgate import digest
from privgate.door import PLACES
from privgate.guard import statement
from privgate.guard.signer import seal
from privgate.guard.signing import TAG
from privgate.registry import layout, report_place
from privgate.registry.addresses import VARIABLE as SOURCES
from privgate.training.box import bubblewrap
from tests.guard.store.served_process import Served, until

NAME, PASSWORD = "author.example", "secret-of-the-checker"

#: in each process of a command: a name that is really looked up is noted, and the author's lead to this machine
LOOKUPS = f"""
import os, socket, sys, _socket
def watched(name, given):
    real = getattr(_socket, name)
    def asked(host, *args, **kwargs):
        said = host.decode() if isinstance(host, bytes) else str(host or "")
        if not said.rstrip(".").endswith({NAME!r}):
            return real(host, *args, **kwargs)
        sys.audit(f"socket.{{name}}", host, *(args or (None,)), 0, 0, 0, 0)  # who refuses it does so here
        with open(os.environ["LOOKUPS"], "a") as noted:
            noted.write(said + chr(10))
        return given(real, *args, **kwargs)
    setattr(_socket, name, asked)
    if getattr(socket, name, None) is real:
        setattr(socket, name, asked)
watched("getaddrinfo", lambda real, *args, **kwargs: real("127.0.0.1", *args, **kwargs))
watched("gethostbyname", lambda real: "127.0.0.1")
"""


class Listener(socketserver.ThreadingTCPServer):
    """Notes each connection with what it sent, and answers as an artifact service that holds nothing."""

    daemon_threads, allow_reuse_address = True, True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Heard)
        self.connected, self.told = 0, []
        self.port = self.server_address[1]

    def get_request(self):
        self.connected += 1
        return super().get_request()


class Heard(socketserver.StreamRequestHandler):
    timeout = 5

    def handle(self):
        with contextlib.suppress(OSError):
            said = b""
            while (line := self.rfile.readline(65536)).strip():
                said += line
            self.server.told.append(said)
            body = b'{"files": []}'
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )


class Leading(ThreadingHTTPServer):
    """The registry's address, which leads requests for artifacts elsewhere while ``to`` is set."""

    daemon_threads = True

    def __init__(self, registry):
        self.registry, self.to, self.status = registry, "", 302
        super().__init__(("127.0.0.1", 0), Led)
        self.address = f"http://127.0.0.1:{self.server_port}"


class Led(BaseHTTPRequestHandler):
    def _lead(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        if self.server.to and "mlflow-artifacts/" in self.path:
            self.send_response(self.server.status)
            self.send_header("Location", self.server.to + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with closing(
            http.client.HTTPConnection(urllib.parse.urlsplit(self.server.registry).netloc, timeout=60)
        ) as link:
            link.request(self.command, self.path, body, dict(self.headers))
            answer = link.getresponse()
            content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "content-length", "connection", "date", "server"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _lead  # noqa: N815  the names that are asked for

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


NOTHING = {"looked up": [], "connected": 0, "told": b"", "written": []}
#: how an address is written that leads to the author: to his listener, or to a folder beside the registry's
KINDS = {
    "mlflow-artifacts": "mlflow-artifacts://{name}:{port}/x",
    "http": "http://127.0.0.1:{port}/api/2.0/mlflow-artifacts/artifacts/x",
    "ftp": "ftp://{name}:{port}/x",
    "s3": "s3://bucket/x?endpoint_override=http://{name}:{port}",
    "gs": "gs://{name}:{port}/x",
    "dbfs": "dbfs://profile@{name}:{port}/x",
    "file": "file://{away}/x",
}


class World:
    """A registry with one released version of model ``m``, its files, and an author's listener.

    Parameters
    ----------
    registry : Registry
        Of a guarded server whose database and artifacts lie in ``folder``.
    folder, work : Path
        Of the server; of the commands.
    python : str
        Whose environment the commands run in.
    """

    def __init__(self, registry, folder, work, python, listener, leading):
        self.registry, self.folder, self.work, self.python = registry, folder, work, python
        self.listener, self.leading, self.count = listener, leading, 0
        (work / "watched").mkdir()
        (work / "watched" / "sitecustomize.py").write_text(LOOKUPS)
        self.key = work / "key.pem"
        self.key.write_bytes(registry.site.signer.pem())
        self.key.chmod(0o600)
        self.row = registry.client.get_model_version("m", "1")
        self.model_id = self.row.source.rpartition("/")[2]
        self.run_id = registry.client.get_logged_model(self.model_id).source_run_id
        self.claims = registry.claims("m", "1", None)
        self.files = next(folder.glob(f"artifacts/*/models/{self.model_id}/artifacts"))

    @contextlib.contextmanager
    def kept(self):
        """Put the registry's rows and files back as they were."""
        with (
            closing(sqlite3.connect(self.folder / "tracking.db", timeout=30)) as rows,
            closing(sqlite3.connect(":memory:")) as before,
        ):
            rows.backup(before)
            places = [self.files, self.files.parents[2] / self.run_id]
            copies = [shutil.copytree(place, self.work / f"before-{i}") for i, place in enumerate(places)]
            try:
                yield
            finally:
                before.backup(rows)
                for place, copy in zip(places, copies, strict=True):
                    shutil.rmtree(place)
                    shutil.move(copy, place)
                shutil.rmtree(self.work / "away", ignore_errors=True)
                self.leading.to = ""

    def at(self, kind):
        """Return an address of the author's."""
        return KINDS[kind].format(name=NAME, port=self.listener.port, away=self.work / "away")

    def signed(self, files=None, **changes):
        """Let the version carry a statement about what it now is, by a signer who asked nobody."""
        files = layout.all_files(self.files) if files is None else files
        place = next(self.files.parents[2].glob(f"{self.run_id}/artifacts/privgate_reports/**/evidence.dsse.json"))
        report = statement.payload_digest(place.with_name("report.json").read_bytes())
        claims = replace(self.claims, files=digest.of_manifest(files), report=report, **changes)
        evidence = seal(claims.evidence_statement({"findings": []}, files), self.registry.site.signer)
        claims = replace(claims, evidence=statement.payload_digest(evidence.payload))
        place.write_text(evidence.text())
        text = self.registry.text(claims)
        self.write(("UPDATE model_version_tags SET value = ? WHERE name = 'm' AND key = ?", text, TAG))

    def recipe(self, **data):
        """Let the recipe name other data, and all files of the model as they are now."""
        place = self.files / layout.RECIPE
        document = json.loads(place.read_text())
        del document["digest"]
        document["data"] |= data
        document["model"]["files"] = layout.model_files(self.files)
        place.write_text(json.dumps({**document, "digest": digest.of_json(document)}))
        self.signed()

    def write(self, *statements):
        """Write rows as an author whom the server lets, or who has got behind it."""
        with closing(sqlite3.connect(self.folder / "tracking.db", timeout=30)) as rows:
            for statement, *values in statements:
                assert rows.execute(statement, values).rowcount
            rows.commit()

    def ask(self, command, admitted=""):
        """Run a command as a process of its own; return its exit code and words, and what is found of it elsewhere."""
        self.count += 1
        folder = self.work / f"{self.count}-{command.partition(' ')[0]}"
        (folder / "home").mkdir(parents=True)
        (folder / "here").mkdir()
        lookups = folder / "lookups"
        self.listener.connected, self.listener.told = 0, []
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MLFLOW_", "COVERAGE_", "PRIVGATE_"))}
        env |= {"OMP_NUM_THREADS": "1", "HOME": str(folder / "home"), "LOOKUPS": str(lookups)}
        env |= {"PYTHONPATH": str(self.work / "watched"), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
        env |= {"MLFLOW_TRACKING_USERNAME": "checker", "MLFLOW_TRACKING_PASSWORD": PASSWORD}
        env |= {"PRIVGATE_LEDGER": str(self.work / "ledger")}
        env |= {PLACES: admitted, SOURCES: admitted} if admitted else {}
        code, said = WAYS[command](self, folder, env)
        found = {
            "looked up": lookups.read_text().split() if lookups.exists() else [],
            "connected": self.listener.connected,
            "told": b"".join(self.listener.told),
            "written": sorted(str(p) for place in (folder / "here", self.work / "away") for p in place.rglob("*")),
        }
        return code, said, found

    def run(self, folder, env, *words):
        done = subprocess.run(
            [self.python, "-m", "privgate", *words, "--tracking-uri", self.leading.address],
            env=env, cwd=folder / "here", capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    @property
    def guarded(self):
        return "--config", str(self.registry.site.config)


def _check(world, folder, env):
    how = ("--policy", "dtp-1", "--report-dir", str(folder / "out"), "--jobs", "1", "--isolation", "none", "--quiet")
    return world.run(folder, env, "check", "models:/m/1", *how)


def _sign(world, folder, env):
    shutil.copytree(world.work / "checked", folder / "out")
    document = json.loads((folder / "out" / "report.json").read_text())
    for about in (document["subject"], document["evidence"]["subject"]):  # a check that saw what is there now
        about["digests"]["files"] = digest.of_manifest(layout.all_files(world.files))
        about["digests"]["model"] = digest.of_manifest(layout.model_files(world.files))
    (folder / "out" / "report.json").write_text(json.dumps(document))
    how = ("--policy", "dtp-1", *world.guarded, "--key", str(world.key), "--checked-elsewhere")
    return world.run(folder, env, "sign", str(folder / "out"), *how)


def _renew(world, folder, env):
    how = ("--policy", "dtp-1", *world.guarded, "--key", str(world.key))
    return world.run(folder, env, "sign", "--renew", "models:/m/1", *how)


def _verify(world, folder, env):
    return world.run(folder, env, "verify", "models:/m@production", *world.guarded, "--to", str(folder / "to"))


def _verify_by_mlflow(world, folder, env):
    return _verify(world, folder, env | {"MLFLOW_REGISTRY_URI": f"{world.leading.address}/"})


def _doctor(world, folder, env):
    return world.run(folder, env, "doctor", *world.guarded)


def _serve(world, folder, env):
    """Let a server attend to one request, until it says what became of it."""
    client, port = world.registry.client, world.registry.free_port()
    signer = (
        f"{world.python} -m privgate sign {{out}} --model={{uri}} --nonce={{nonce}} --policy {{policy}} "
        f"--target={{target}} {' '.join(world.guarded)} --key {world.key} --checked-elsewhere "
        f"--tracking-uri {world.leading.address}"
    )
    words = ["serve", *world.guarded, "--policy", "dtp-1", "--work", str(folder / "work"), "--port", str(port)]
    words += ["--every", "0.3", "--settle", "1", "--lease", "30", "--sweep", "3", "--sign-command", signer]
    words += [*([] if bubblewrap.found().version else ["--without-isolation"]), "--tracking-uri", world.leading.address]
    client.set_model_version_tag("m", "1", "privgate.request", "dtp-1,production")
    log = folder / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [world.python, "-m", "privgate", *words, "--", "--jobs", "1"],
            env=env, cwd=folder / "here", stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        at = Served(process, f"http://127.0.0.1:{port}", log)
        until(lambda: _answered(client) and _swept(at), at, seconds=200)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode, log.read_text(errors="replace")


def _swept(served):
    try:
        return re.search("privgate_last_sweep_timestamp_seconds [1-9]", served.get("/metrics")[1])
    except OSError:  # it does not listen yet
        return False


def _answered(client):
    tags = dict(client.get_model_version("m", "1").tags)
    return "privgate.problem" in tags or "privgate.request" not in tags


WAYS = {
    "check": _check,
    "sign": _sign,
    "sign --renew": _renew,
    "verify": _verify,
    "verify by MLflow's client": _verify_by_mlflow,
    "doctor": _doctor,
    "serve": _serve,
}


# where an author writes it

TAG_OF_MODEL = (
    "INSERT INTO logged_model_tags (model_id, experiment_id, tag_key, tag_value) "
    "SELECT model_id, experiment_id, ?, ? FROM logged_models WHERE model_id = ?"
)
WEBHOOK = (
    "INSERT INTO webhooks (webhook_id, name, url, status, creation_timestamp, last_updated_timestamp) "
    "VALUES ('w', 'w', ?, 'ACTIVE', 1, 1)"
)


def _run(world, kind):
    world.write(("UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", world.at(kind), world.run_id))


def _experiment(world, kind):
    """The next run of the experiment is the one that keeps the reports."""
    world.write(
        ("UPDATE experiments SET artifact_location = ?", world.at(kind)),
        ("UPDATE logged_models SET source_run_id = NULL WHERE model_id = ?", world.model_id),
    )


def _reports(world, kind):
    """A tag of the author's names the run that keeps the reports."""
    with closing(sqlite3.connect(world.folder / "tracking.db", timeout=30)) as rows:
        names = [row[1] for row in rows.execute("PRAGMA table_info(runs)")]
    kept = ", ".join("?" if n in {"run_uuid", "artifact_uri"} else n for n in names)
    values = [
        {"run_uuid": "e" * 32, "artifact_uri": world.at(kind)}[n] for n in names if n in {"run_uuid", "artifact_uri"}
    ]
    world.write(
        (f"INSERT INTO runs ({', '.join(names)}) SELECT {kept} FROM runs WHERE run_uuid = ?", *values, world.run_id),
        ("UPDATE logged_models SET source_run_id = NULL WHERE model_id = ?", world.model_id),
        (TAG_OF_MODEL, report_place.RUN_TAG, "e" * 32, world.model_id),
    )


def _files(world, kind):
    """The logged model and its version say that they lie there, and so does a statement."""
    place = f"{world.at(kind)}/models/{world.model_id}/artifacts"
    world.write(
        ("UPDATE logged_models SET artifact_location = ? WHERE model_id = ?", place, world.model_id),
        ("UPDATE model_versions SET storage_location = ? WHERE name = 'm'", place),
    )
    world.signed(storage=place)


def _source(world, kind):
    world.write(("UPDATE model_versions SET source = ?, storage_location = ? WHERE name = 'm'", *[world.at(kind)] * 2))


def _data(world, kind):
    world.recipe(kind="uri", uri=world.at(kind))


def _table(world, kind):
    world.recipe(kind="file", source={"uri": world.at(kind), "format": "csv", "label": "y"})


def _data_of_run(world, kind):
    _reports(world, kind)
    world.recipe(run_id="e" * 32)


def _statement(world, kind):
    world.write(("UPDATE model_version_tags SET value = ? WHERE name = 'm' AND key = ?", world.at(kind), TAG))


def _words(world, kind):
    """Whatever else may hold text."""
    at = world.at(kind)
    web = f"http://{NAME}:{world.listener.port}/simple"
    (world.files / "requirements.txt").write_text(f"--index-url {web}\n--find-links {web}\nnumpy @ {web}/numpy.whl\n")
    (world.files / "conda.yaml").write_text(
        f"channels: ['{web}']\ndependencies: [python=3.11, pip, {{pip: ['--index-url {web}', mlflow]}}]\n"
    )
    with (world.files / "MLmodel").open("a") as written:
        written.write(f"metadata: {{source: '{at}', homepage: '{web}'}}\n")
    world.recipe()
    tags = dict.fromkeys(("privgate.report", "privgate.shown", "mlflow.source.name", "link"), at)
    rows = [
        ("INSERT INTO model_version_tags (key, value, name, version) VALUES (?, ?, 'm', 1)", *tag)
        for tag in tags.items()
    ]
    rows += [("INSERT INTO registered_model_tags (key, value, name) VALUES (?, ?, 'm')", *t) for t in tags.items()]
    rows += [
        ("INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", f"of.{key}", value, world.run_id)
        for key, value in tags.items()
    ]
    rows += [(TAG_OF_MODEL, f"of.{key}", value, world.model_id) for key, value in tags.items()]
    rows.append(
        ("UPDATE datasets SET dataset_source_type = 'http', dataset_source = ?", json.dumps({"url": web, "uri": at}))
    )
    rows.append((WEBHOOK, f"https://{NAME}:{world.listener.port}/"))
    world.write(*rows)
    world.registry.client.create_prompt("p", tags={"link": at})
    world.registry.client.create_prompt_version("p", f"{{{{ x }}}} {web}", tags={"link": at})


def _redirect(status):
    def lead(world, kind):
        world.leading.to, world.leading.status = f"http://{NAME}:{world.listener.port}", status

    return lead


#: place -> how it is written, and the commands that would ask there if nothing kept them from it
PLACES_OF = {
    "the run": (_run, {*WAYS}),
    "the experiment": (_experiment, {"check", "sign", "serve"}),
    "the reports' run": (_reports, {*WAYS}),
    "the model's files": (_files, {*WAYS} - {"sign --renew"}),
    "the version's source": (_source, set()),
    "the recipe's data": (_data, {"check", "sign", "serve"}),
    "the recipe's table": (_table, {"check", "sign", "serve"}),
    "the recipe's run": (_data_of_run, {"check", "sign", "serve"}),
    "the statement": (_statement, set()),
    "tags, MLmodel, requirements": (_words, set()),
    "a redirect 302": (_redirect(302), {*WAYS}),
    "a redirect 307": (_redirect(307), {*WAYS}),
    "a redirect 308": (_redirect(308), {*WAYS}),
}


def password_in(told):
    """Whether somebody was told who asks."""
    return b"authorization" in told.lower() or PASSWORD.encode() in told or base64.b64encode(b"checker")[:8] in told


def tried(world, command, place, kind, *, admitted=False):
    """Run a command where an author wrote an address; return what is found of it elsewhere."""
    with world.kept():
        PLACES_OF[place][0](world, kind)
        if command == "serve" and "recipe" in place:  # what has a statement is not checked again
            world.write(("DELETE FROM model_version_tags WHERE name = 'm' AND key = ?", TAG))
        listed = (
            "" if not admitted else f"http://{NAME}:{world.listener.port}/" if kind == "redirect" else world.at(kind)
        )
        code, said, found = world.ask(command, listed)
    assert "this is a bug" not in said, said
    return code, said, found
