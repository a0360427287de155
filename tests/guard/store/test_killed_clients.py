"""A thousand promotions at once by clients that are killed at any moment: nothing is released without a statement.

Half a dozen processes promote, withdraw, rename, copy, take statements away and put them back, all about the same few
models; one after the other is killed, and so are the server's workers, or the database's connections. Meanwhile readers
ask for the alias, as consumers do. A referee then asks the database itself who holds what, and verifies all of it.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path

import pytest
import sqlalchemy

from privgate.guard.audit_log import AuditLog
from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.signing import TAG
from privgate.guard.verification import verify

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

PROMOTIONS, CLIENTS, MODELS = 1000, 12, 6

#: promotes at random until it is killed; each promotion leaves a line before and after it
CLIENT = r"""
import http.client, json, os, random, sys, time
from urllib.parse import urlsplit

about = json.loads(sys.argv[1])
chance = random.Random(int(sys.argv[2]))
where = urlsplit(about["address"])
log = os.open(about["log"], os.O_WRONLY | os.O_APPEND)


def say(*words):
    os.write(log, (" ".join(map(str, words)) + "\n").encode())


def call(path, body, method="POST"):
    try:
        link = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
        link.request(method, "/api/2.0/mlflow/" + path, json.dumps(body), {"Content-Type": "application/json"})
        return link.getresponse().status
    except OSError:
        return 0
    except http.client.HTTPException:
        return 0


def alias(name, version):
    return call("registered-models/alias", {"name": name, "alias": "production", "version": version})


number = 0
while True:
    number += 1
    model = chance.choice(about["models"])
    name, other = model["name"], "moved-" + model["name"]
    good, bad = model["good"], model["bad"]
    kind = chance.choice(["good", "good", "good", "bad", "bad", "moved", "stage", "copy", "copy bad"])
    say("begin", os.getpid(), number, kind)
    if kind == "good":
        status = alias(name, good)
    elif kind == "bad":
        status = alias(name, bad)
    elif kind == "moved":
        status = alias(other, good)
    elif kind == "stage":
        body = {"name": name, "version": good, "stage": "Production", "archive_existing_versions": False}
        status = call("model-versions/transition-stage", body)
    else:
        version = good if kind == "copy" else bad
        tags = [{"key": about["tag"], "value": model["text"]}]
        status = call(
            "model-versions/create", {"name": "prod." + name, "source": f"models:/{name}/{version}", "tags": tags}
        )
    say("end", os.getpid(), number, kind, status)
    time.sleep(chance.random() / 100)
    aside = chance.randrange(8)
    if aside == 0:
        call("registered-models/alias", {"name": name, "alias": "production"}, "DELETE")
    elif aside == 1:
        call("model-versions/delete-tag", {"name": name, "version": good, "key": about["tag"]}, "DELETE")
    elif aside in (2, 3):
        body = {"name": name, "version": chance.choice([good, good, bad]), "key": about["tag"], "value": model["text"]}
        call("model-versions/set-tag", body)
    elif aside == 4:
        call("registered-models/rename", {"name": name, "new_name": other})
        call("registered-models/rename", {"name": other, "new_name": name})
    elif aside == 5:
        call("registered-models/set-tag", {"name": name, "key": "mlflow.prompt.is_prompt", "value": "true"})
        call("registered-models/delete-tag", {"name": name, "key": "mlflow.prompt.is_prompt"}, "DELETE")
    elif aside == 6:
        call("registered-models/rename", {"name": other, "new_name": name})
"""


class Crowd:
    """Client processes, of which one after the other is killed and replaced."""

    def __init__(self, about, log):
        self.about, self.log, self.lives = json.dumps(about), log, 0
        self.living: list[subprocess.Popen[bytes]] = []

    def fill(self):
        while len(self.living) < CLIENTS:
            self.lives += 1
            command = [sys.executable, "-I", "-S", "-c", CLIENT, self.about, str(self.lives)]
            self.living.append(subprocess.Popen(command))

    def kill(self, chance):
        process = self.living.pop(chance.randrange(len(self.living)))
        assert process.poll() is None, "a client ended by itself"
        process.kill()
        process.wait()

    def end(self):
        for process in self.living:
            process.kill()
            process.wait()

    def lines(self):
        return [line.split() for line in self.log.read_text().splitlines()]


def workers(address):
    """Return the processes below the server that listens there, oldest first."""
    port = address.rpartition(":")[2]
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
            line = (path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        parents[int(path.parent.name)] = (int(words[1]), line)
    found = {pid for pid, (_, line) in parents.items() if f"--port {port}" in line}
    for _ in range(4):
        found |= {pid for pid, (parent, _) in parents.items() if parent in found}
    return sorted(pid for pid in found if "spawn_main" in parents[pid][1])


def disturb(address, engine, done, cut, answered):
    """Kill a worker of the server, or connections of the database, every now and then, while requests are answered."""
    chance = random.Random(18)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    own = " AND datname = 'crowd' ORDER BY random() LIMIT 2"
    seen = 0
    while not done.wait(chance.uniform(1.0, 4.0)):
        if answered() < seen + 10:
            continue  # a busy machine starts workers late: killing them must not outrun that
        seen = answered()
        if engine.dialect.name == "postgresql" and chance.random() < 0.7:
            with engine.connect() as connection:
                cut.extend(connection.execute(sqlalchemy.text(others + own)).fetchall())
        elif running := workers(address):
            os.kill(chance.choice(running), signal.SIGKILL)
            cut.append("worker")


def read(registry, models, done, seen):
    """Ask for the alias as consumers do, and keep every answer that is one."""
    while not done.is_set():
        for model in models:
            path = f"/api/2.0/mlflow/registered-models/alias?name={model['name']}&alias=production"
            try:
                status, answer = registry.post(path, {}, method="GET")
            except (OSError, HTTPException):
                continue
            if status == 200:
                seen.append((model["name"], str(answer["model_version"]["version"])))
        time.sleep(0.05)


def held(engine):
    """Return (name, alias, version) of every alias, (name, version) in the stage, and those in protected models."""
    asked = (
        "SELECT name, alias, version FROM registered_model_aliases",
        "SELECT name, version FROM model_versions WHERE current_stage = 'Production'",
        "SELECT name, version FROM model_versions WHERE name LIKE 'prod.%'",
    )
    with engine.connect() as connection:
        return [connection.execute(sqlalchemy.text(question)).fetchall() for question in asked]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.attack("11 a thousand promotions with kills", "registry", "refused")
def test_nothing_is_released_without_a_statement_whoever_is_killed(
    tmp_path, request, site_type, registry_type, running_mlflow, backend
):
    site = site_type(tmp_path / "site")
    site.config.write_text(site.config.read_text() + "audit_log: audit.jsonl\n")
    database = f"sqlite:///{tmp_path}/registry.db"
    if backend == "postgresql":
        database = request.getfixturevalue("postgres").replace("/postgres", "/crowd")
        admin = sqlalchemy.create_engine(request.getfixturevalue("postgres"), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(sqlalchemy.text("CREATE DATABASE crowd"))
        admin.dispose()
    options = ("--registry-store-uri", f"privgate:{database}", "--backend-store-uri", database, "--workers", "3")
    chance, done, cut, seen = random.Random(17), threading.Event(), [], []
    engine = sqlalchemy.create_engine(database)
    with running_mlflow(tmp_path, *options, env=site.env) as address:
        registry = registry_type(address, site)
        models = []
        for i in range(MODELS):
            name = f"crowd-{i}"
            good, bad = registry.log(name), registry.log(name, payload="not approved")
            registry.release(name, good)
            text = registry.client.get_model_version(name, good).tags[TAG]
            registry.client.create_registered_model(f"prod.{name}")
            models.append({"name": name, "good": good, "bad": bad, "text": text})
        log = tmp_path / "log"
        log.touch()
        crowd = Crowd({"address": address, "models": models, "log": str(log), "tag": TAG}, log)

        def answered():
            return sum(line[0] == "end" for line in crowd.lines())

        others = [
            threading.Thread(target=f, args=a)
            for f, a in ((disturb, (address, engine, done, cut, answered)), (read, (registry, models, done, seen)))
        ]
        for thread in others:
            thread.start()
        killed = 0
        try:
            while (before := answered()) < PROMOTIONS:
                crowd.fill()
                time.sleep(chance.uniform(0.0, 0.5))
                while answered() == before:
                    time.sleep(0.05)
                crowd.kill(chance)
                killed += 1
        finally:
            crowd.end()
            done.set()
            for thread in others:
                thread.join()
        time.sleep(2)  # what was begun for a client that is gone ends by itself

        lines = crowd.lines()
        ends = [line for line in lines if line[0] == "end"]
        promoted = [line for line in ends if line[4] == "200"]
        begun = sum(line[0] == "begin" for line in lines)
        goods = {(m["name"], m["good"]) for m in models}
        guard = Guard.load(site.config)
        aliases, staged, entered = held(engine)
        engine.dispose()
        for name, alias, version in [*aliases, *((name, "production", version) for name, version in entered)]:
            verify(f"models:/{name}/{version}", guard, target=alias, tracking_uri=address)
        wrong = [a.text for a in examine(guard, tracking_uri=address) if a.state == "wrong"]
        events = [line["event"] for line in AuditLog(site.folder / "audit.jsonl").lines()]
        told = {
            "backend": backend, "begun": begun, "answered": len(ends), "promoted": len(promoted), "killed": killed,
            "disturbed": len(cut), "read": len(seen), "held": len(aliases), "entered": len(entered),
            "released": events.count("released"), "refused": events.count("refused"),
        }  # fmt: skip
        print(json.dumps(told))

    # what is not signed, or not for this, was never answered with success
    assert {line[3] for line in promoted} <= {"good", "copy"}, promoted
    assert set(seen) <= goods
    assert {(name, str(version)) for name, _, version in aliases} <= goods
    assert [row for row in staged if not row[0].startswith("prod.")] == []
    assert wrong == []
    # and it was a test: promotions got through, clients died in the middle of theirs, and something else died too
    assert len(promoted) > PROMOTIONS / 20
    assert begun > len(ends)
    assert len(cut) > 3
    assert events.count("released") >= len(promoted)
