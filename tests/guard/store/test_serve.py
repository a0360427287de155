"""``privgate guard serve`` as the process an operator starts, beside a real guarded server."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mlflow.entities.webhook import WebhookAction, WebhookEntity, WebhookEvent
from mlflow.webhooks.delivery import _generate_hmac_signature
from sklearn.naive_bayes import CategoricalNB

from privgate import Domain, Recipe, TrainingData, log_model, serve
from privgate.errors import PrivgateError, RegistryError, StatementError, UsageError
from privgate.guard.audit_log import AuditLog
from privgate.policy import Policy
from privgate.serve import TAG, CheckRequest, Job, Loop, Server
from tests.guard.store.served_process import SECRET, serving, until


@pytest.fixture
def registry(quiet, free_port):
    """A guarded registry without anything else: a reconciler attends to everything that asks."""
    quiet.free_port = free_port
    return quiet


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("", "", 0)),
        (" dtp-1 , production ", ("dtp-1", "production", 0)),
        ("dtp-1,production;17", ("dtp-1", "production", 17)),
        ("dtp-1;host-1;1800000060.000;1799999000", ("dtp-1", "", 1799999000)),  # as version 0.1 wrote it
        *((text, None) for text in ("dtp-1;x", "dtp-1;x;y;z", ";;;;", "p;h;1;1.5", "p;\u00b2", "p;" + "9" * 5000)),
    ],
)
def test_a_request_is_read_and_written_again_or_means_nothing(text, parts):
    if parts is None:
        with pytest.raises(UsageError):
            CheckRequest.parse(text)
        return
    request = CheckRequest.parse(text)
    assert (request.policy, request.target, request.since) == parts
    assert CheckRequest.parse(request.text()) == request


def headers(delivery, stamp, body, secret=SECRET):
    """Sign as MLflow does, by its own function."""
    signature = _generate_hmac_signature(secret.decode(), delivery, str(stamp), body.decode())
    values = {"delivery-id": delivery, "timestamp": str(stamp), "signature": signature}
    return {f"x-mlflow-{name}": value for name, value in values.items()}


NOW, BODY = 1_800_000_000, b'{"entity": "model_version_tag"}'
GOOD = headers("d1", NOW, BODY)


@pytest.mark.parametrize(
    ("given", "body", "moment", "why"),
    [
        (GOOD, BODY, NOW, ""),
        (GOOD, BODY + b" ", NOW, "the signature is not valid"),
        ({**GOOD, "x-mlflow-delivery-id": "d2"}, BODY, NOW, "the signature is not valid"),
        ({**GOOD, "x-mlflow-timestamp": str(NOW + 1)}, BODY, NOW, "the signature is not valid"),
        (headers("d1", NOW, BODY, b"another"), BODY, NOW, "the signature is not valid"),
        ({k: v for k, v in GOOD.items() if "signature" not in k}, BODY, NOW, "the signature is not valid"),
        ({}, BODY, NOW, "no delivery id or timestamp"),
        (GOOD, BODY, NOW + serve.WINDOW + 1, "the timestamp is too old or ahead"),
        (GOOD, BODY, NOW - serve.WINDOW - 1, "the timestamp is too old or ahead"),
    ],
)
def test_only_fresh_signed_deliveries_count(given, body, moment, why):
    assert serve.refuse_delivery(SECRET, given, body, moment) == why


def test_a_loop_comes_back_when_something_is_due():
    looks = []
    Loop(lambda: looks.append(time.monotonic()) or 0.0, every=600.0).start()
    until(lambda: len(looks) >= 2, seconds=100)


# what one request needs


class Known(Server):
    """Work about a registry of which this is known; a command changes it as said, and ends with a code."""

    def __init__(self, folder, monkeypatch, *, sign=True, code=0, counts=False, result=None, held=0, after=()):
        words, client = "sign {uri} {nonce}" if sign else None, SimpleNamespace(tracking_uri="sqlite:////registry.db")
        audit = AuditLog(folder / "audit.jsonl")
        super().__init__(client, folder / "guard.yaml", {}, folder, ["--jobs=1"], words, audit=audit)
        self.has, self.ran = {"counts": counts, "result": result, "held": held}, []

        def child(words, log, seconds):
            self.ran.append(words)
            self.has |= dict(after)
            return code, "error: as it says"

        monkeypatch.setattr(serve, "run_command", child)

    def counts(self, guard, job):
        return self.has["counts"]

    def result(self, job):
        return self.has["result"]

    def _read_alias(self, job):
        return self.has["held"]

    def events(self):
        return [(e["event"], e["doing"]) for e in self.audit.lines()]


RUN, RELEASED = serve.run_command, {"counts": True, "held": 2}


def job(target="production"):
    return Job("credit", "2", Policy.load("dtp-1"), "dtp-1", target, 1)


@pytest.mark.parametrize(
    ("known", "target", "ran", "answered", "events"),
    [
        ({"after": RELEASED}, "production", "promote", True, ["asked", "approved", "released"]),
        ({"after": RELEASED, "result": True}, "production", "promote", True, ["asked", "approved", "released"]),
        ({"after": RELEASED, "counts": True}, "production", "promote", True, ["asked", "released"]),
        ({"code": 1}, "production", "promote", True, ["asked", "refused"]),
        ({"code": 5}, "production", "promote", True, ["asked", "refused"]),
        ({"code": 6, "sign": False}, "production", "promote", False, ["asked", "refused"]),
        ({"after": {"held": 3}}, "production", "promote", True, ["asked", "refused"]),  # a later one was released
        ({"counts": True, "held": 3}, "production", "", True, []),
        ({"result": True, "sign": False}, "production", "", False, []),  # somebody else signs
        ({"result": False}, "production", "", True, []),
        ({"counts": True}, None, "", True, []),
        ({"result": True}, None, "", True, []),
        ({}, None, "check", True, ["asked"]),  # without an alias nothing is signed
        ({"code": 1}, None, "check", True, ["asked", "refused"]),
    ],
)
def test_a_request_needs_one_command_or_none(tmp_path, monkeypatch, known, target, ran, answered, events):
    own = Known(tmp_path, monkeypatch, **known)
    assert own.answer(None, job(target)) is answered
    assert [words[0] for words in own.ran] == ([ran] if ran else [])
    assert [event for event, _ in own.events()] == events
    for words in own.ran:
        signing = {"--sign-command=sign {uri} {nonce}"} if known.get("sign", True) and ran == "promote" else set()
        assert {word for word in words if "sign-command" in word} == signing
        assert ("--forward-only" in words) == ("--to=production" in words) == (ran == "promote")


@pytest.mark.parametrize(
    ("known", "kind", "why"),
    [
        ({"code": 4}, RegistryError, "ended with 4: error: as it says"),  # a signer that refuses or is down
        ({"code": 3}, RegistryError, "ended with 3"),
        ({}, StatementError, "no statement counts"),  # it says that it ended well
        ({"after": {"held": 2}}, StatementError, "no statement counts"),
        ({"after": {"counts": True}}, StatementError, "no statement counts for @production"),
    ],
)
def test_nothing_but_a_statement_that_counts_is_an_approval(tmp_path, monkeypatch, known, kind, why):
    own = Known(tmp_path, monkeypatch, **known)
    with pytest.raises(kind, match=why):
        own.answer(None, job())
    assert own.events() == [("asked", "promote")]


def test_what_is_not_recorded_is_not_done(tmp_path, monkeypatch):
    own = Known(tmp_path, monkeypatch)
    own.audit.path.mkdir()
    with pytest.raises(PrivgateError, match="audit log"):
        own.answer(None, job())
    assert own.ran == []


@pytest.mark.parametrize("result", [True, None])
def test_only_who_asks_anew_loses_the_report_that_waits_for_a_signature(tmp_path, monkeypatch, result):
    report = tmp_path / "credit-2-dtp-1" / "report.json"
    report.parent.mkdir()
    report.touch()
    Known(tmp_path, monkeypatch, result=result, after=RELEASED).answer(None, job())
    assert report.exists() == (result is True)


def test_a_command_past_its_clock_is_ended_and_not_approved(tmp_path, monkeypatch):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nsleep 600 & echo $! > $0.pid\nwait\n")
    program.chmod(0o700)
    own, began = Known(tmp_path, monkeypatch), time.monotonic()
    own.seconds = 1.0
    monkeypatch.setattr(serve.sys, "executable", str(program))
    monkeypatch.setattr(serve, "run_command", RUN)
    with pytest.raises(RegistryError, match=r"more than 1 s \(--check-seconds\) and was ended"):
        own.answer(None, job())
    assert time.monotonic() - began < 10
    until(lambda: gone(int(Path(f"{program}.pid").read_text())))


def test_health_notices_a_queue_that_does_not_move(tmp_path, monkeypatch):
    own, stuck = Known(tmp_path, monkeypatch), threading.Event()
    own.seconds = 10.0
    loop = Loop(lambda: stuck.wait(600), every=30.0)
    loop.start()
    routes = serve.make_application(own, loop, None).routes
    ask = next(route.endpoint for route in routes if getattr(route, "path", "") == "/health")
    assert ask().status_code == 200
    own.moved_on -= 10.0 + 30.0 + 301.0  # nothing was begun or done since
    assert (ask().status_code, ask().body) == (503, b"the queue does not move\n")
    own.moved_on = time.monotonic()
    assert ask().status_code == 200
    stuck.set()


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# the process


def model(registry, name, alpha=5.0, tag="dtp-1,production"):
    """Register a version that dtp-1 approves (alpha 5) or blocks (alpha near 0), and that asks for it."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, size=(40, 4))
    others, domain = (X[:10].copy(), np.ones(10, int)), Domain(categories=(3,) * 4)
    data = TrainingData(X, (X[:, 0] > 0).astype(int), candidates=others, domain=domain, one_record_each=True)
    recipe = Recipe(CategoricalNB(alpha=alpha, min_categories=3))
    log_model(recipe, data, registered_model_name=name, tracking_uri=registry.address, store="artifacts")
    registry.client.set_model_version_tag(name, "1", TAG, tag)


def tags(registry, name, version="1"):
    return dict(registry.client.get_model_version(name, version).tags)


def alias(registry, name):
    return dict(registry.client.get_registered_model(name).aliases).get("production")


@pytest.mark.boxed
@pytest.mark.server
@pytest.mark.timeout(1200)  # two whole checks as processes of their own, beside whatever else runs
def test_what_asks_is_checked_signed_and_moved_and_what_fails_is_not(registry, name, tmp_path):
    approved, blocked, unknown = name + "-good", name + "-bad", name + "-strange"
    model(registry, approved)
    model(registry, blocked, alpha=1e-9)
    strange, ask = registry.log(unknown), registry.client.set_model_version_tag
    ask(unknown, strange, TAG, "/etc/passwd,production")
    audit = AuditLog(tmp_path / "audit.jsonl")
    options = ("--every", "600", "--audit-log", str(audit.path), "--", "--jobs", "1")
    with serving(registry, tmp_path / "s", *options) as served:
        until(lambda: all(TAG not in tags(registry, n) for n in (approved, blocked)), served, seconds=600)
        assert [alias(registry, n) for n in (approved, blocked)] == ["1", None]
        assert tags(registry, blocked)["privgate.outcome"] == "failed"
        problem = "this server checks by dtp-1"
        until(lambda: problem in tags(registry, unknown, strange).get("privgate.problem", ""), served)
        until(lambda: served.get("/health") == (200, "ok\n"), served)

        # a webhook wakes it, long before its time; a forged one does not
        registry.client.set_registered_model_alias(blocked, "candidate", "1")  # already answered: no second check
        ask(approved, "1", TAG, "dtp-1")  # has a statement: no second check
        body = b"{}"
        assert served.get("/webhook", body, headers("f", int(time.time()), body, b"forged"))[0] == 403
        assert TAG in tags(registry, approved)
        assert served.get("/webhook", body, headers("d", int(time.time()), body))[0] == 202
        until(lambda: TAG not in tags(registry, approved), served)
        assert TAG not in tags(registry, blocked)

        # and so does MLflow itself: it sends and signs this one
        event = WebhookEvent(WebhookEntity.MODEL_VERSION_TAG, WebhookAction.SET)
        hook = registry.client.create_webhook("wake", served.address + "/webhook", [event], secret=SECRET.decode())
        ask(approved, "1", TAG, "dtp-1")
        until(lambda: TAG not in tags(registry, approved), served)
        registry.client.delete_webhook(hook.webhook_id)
    lines = list(audit.lines())
    good, bad, odd = (
        [(e["event"], e["doing"]) for e in lines if e["model"] == n] for n in (approved, blocked, unknown)
    )
    assert good == [("asked", "promote"), ("approved", "sign"), ("released", "promote")]
    assert bad == [("asked", "promote"), ("refused", "promote")]
    assert set(odd) == {("refused", "attend")}


@pytest.mark.slow
@pytest.mark.server
def test_without_a_signer_it_stops_after_the_check_and_moves_when_somebody_has_signed(registry, name, tmp_path):
    model(registry, name)
    options = ("--every", "0.5", "--settle", "0.3", "--", "--jobs", "1")
    with serving(registry, tmp_path / "s", *options, sign=False) as served:
        until(lambda: "privgate.findings" in tags(registry, name), served)
        assert CheckRequest.parse(tags(registry, name)[TAG]).since
        assert "--settle went with 0.1.0" in served.log.read_text()
        decided = tags(registry, name)["privgate.decided_at"]
        time.sleep(3)
        assert alias(registry, name) is None
        (out,) = (tmp_path / "s" / "work").iterdir()
        command = ["sign", str(out), "--policy", "dtp-1", "--config", str(registry.site.config), "--checked-elsewhere"]
        command += ["--key", str(tmp_path / "s" / "key.pem"), "--tracking-uri", registry.address]
        subprocess.run([sys.executable, "-m", "privgate", *command], check=True, capture_output=True)
        until(lambda: alias(registry, name) == "1", served)
        until(lambda: TAG not in tags(registry, name), served)
        assert tags(registry, name)["privgate.decided_at"] == decided  # one check, once


#: starts one command that ends, and one that holds the interpreter, in which no thread could run
STARTER = """
import subprocess, sys, time
def start(*words):
    return subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, start_new_session=True)
print(start("-m", "privgate.serve", "demo", "--help").wait(), flush=True)
holds = 'import re; re.match("(a+)+$", 40 * "a" + "b")'
own = "import runpy, privgate.serve as c; runpy.run_module = lambda *a, **k: exec(%r); c.run_as_child()" % holds
print(start("-c", own).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.server
def test_a_check_ends_with_the_process_that_started_it():
    """Kill -9 of the starter closes the pipe; the child and its own children are gone a moment later."""
    starter, lines = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True), []
    while not (lines and lines[-1].strip().isdigit() and int(lines[-1]) > 1):
        lines.append(starter.stdout.readline())
        assert lines[-1], "the starter ended"
    assert "0\n" in lines  # the command line ran through
    child = int(lines[-1])
    time.sleep(2)  # until it has begun
    assert not gone(child)
    starter.kill()
    starter.wait()
    until(lambda: gone(child))


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(900)
def test_killed_at_any_point_and_the_registry_away_nothing_is_lost(
    tmp_path, running_mlflow, site, registry_type, free_port
):
    """The server is killed again and again, the registry twice; in the end all is as if nothing had happened."""
    rng, port, folder = np.random.default_rng(int.from_bytes(os.urandom(4), "big")), free_port(), tmp_path / "server"
    folder.mkdir()
    registry = registry_type(f"http://127.0.0.1:{port}", site)
    registry.free_port = free_port

    def up():
        where = ("--registry-store-uri", f"privgate:sqlite:///{folder}/registry.db")
        return running_mlflow(folder, *where, env=site.env, port=port)

    def settled():
        return all(TAG not in tags(registry, n) for n in (*good, "bad"))

    good, options = [f"good-{i}" for i in range(3)], ("--every", "0.5", "--", "--jobs", "1")
    with up():
        for one in good:
            model(registry, one)
        model(registry, "bad", alpha=1e-9)
        for kill in range(6):
            with serving(registry, tmp_path / "work", *options, wait=False) as served:
                time.sleep(rng.uniform(4, 25))
                served.kill()
            print("killed", kill, {n: tags(registry, n).get(TAG, "-") for n in (*good, "bad")})
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(serving(registry, tmp_path / "work", *options, wait=False))
        time.sleep(5)  # the registry is away
        with up():
            time.sleep(rng.uniform(5, 20))
        time.sleep(4)
        stack.enter_context(up())
        until(settled, served, seconds=500)
        assert [alias(registry, n) for n in (*good, "bad")] == ["1", "1", "1", None]
        for one in (*good, "bad"):  # each decision is one point of the rule's metric
            run = registry.client.get_model_version(one, "1").run_id
            assert registry.client.get_metric_history(run, "privgate/dtp")
        time.sleep(3)
        assert settled()
